package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"testing"
)

// The executable is one segment that begins at its entry with the loop.
func TestProgram(t *testing.T) {
	const n = 0x12345678
	f, err := elf.NewFile(bytes.NewReader(program(n)))
	if err != nil {
		t.Fatal(err)
	}
	if f.Machine != elf.EM_AARCH64 || f.Type != elf.ET_EXEC || len(f.Progs) != 1 ||
		f.Progs[0].Flags != elf.PF_R|elf.PF_X {
		t.Errorf("%+v, %+v", f.FileHeader, f.Progs)
	}
	text := make([]byte, f.Progs[0].Filesz)
	if _, err := f.Progs[0].ReadAt(text, 0); err != nil {
		t.Fatal(err)
	}
	code := text[f.Entry-f.Progs[0].Vaddr:]
	word := func(i int) uint32 { return binary.LittleEndian.Uint32(code[4*i:]) }
	immediate := func(i int) uint32 { return word(i) >> 5 & 0xffff }
	if len(code) != 7*4 || immediate(0) != 0x5678 || immediate(1) != 0x1234 {
		t.Errorf("%d bytes of code, which begins with %#x and %#x", len(code), word(0), word(1))
	}
	// Seven instructions, of which two are the loop.
	if got := known(n); got != 5+2*n {
		t.Errorf("%d instructions", got)
	}
}
