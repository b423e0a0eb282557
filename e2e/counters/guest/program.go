package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
)

// known says how many instructions program(n) executes, up to its last one.
func known(n uint32) uint64 { return 2*uint64(n) + 5 }

// program is an arm64 executable that counts down from n and ends: no library, no
// runtime, and no instruction that is not here.
func program(n uint32) []byte {
	const base = 0x400000
	code := []uint32{
		0xD2800000 | n&0xffff<<5, // movz x0, #n
		0xF2A00000 | n>>16<<5,    // movk x0, #n>>16, lsl #16
		0xF1000400,               // subs x0, x0, #1
		0x54FFFFE1,               // b.ne -4
		0xD2800000,               // movz x0, #0
		0xD2800BA8,               // movz x8, #93: exit
		0xD4000001,               // svc #0
	}
	header := elf.Header64{
		Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_AARCH64), Version: uint32(elf.EV_CURRENT),
		Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1, Entry: base + 64 + 56,
	}
	copy(header.Ident[:], elf.ELFMAG)
	header.Ident[elf.EI_CLASS], header.Ident[elf.EI_DATA], header.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(
		elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
	size := uint64(64 + 56 + 4*len(code))
	segment := elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Vaddr: base, Paddr: base,
		Filesz: size, Memsz: size, Align: 4096}
	var b bytes.Buffer
	for _, part := range []any{header, segment, code} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			panic(err) // fixed-size values into memory
		}
	}
	return b.Bytes()
}

func writeProgram(n uint32) (string, error) {
	name := fmt.Sprintf("/tmp/count-%d", n)
	return name, os.WriteFile(name, program(n), 0o755)
}
