package daemon

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestPristine(t *testing.T) {
	const text = `00400000-016bc000 r-xp 00000000 fe:00 12550200                           /usr/bin/quietcore
Size:              19184 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
016bc000-02ac7000 r--p 012bc000 fe:00 12550200                           /usr/bin/quietcore
Anonymous:             0 kB
02ac7000-02ac9000 r--p 026c7000 fe:00 12550200                           /usr/bin/quietcore
Anonymous:             8 kB
02ac9000-02c0a000 rw-p 026c9000 fe:00 12550200                           /usr/bin/quietcore
Anonymous:             0 kB
02d00000-02d01000 r--s 00000000 fe:00 12550200                           /usr/bin/quietcore
Anonymous:             0 kB
7f0000000000-7f0000001000 r-xp 00000000 fe:00 7                          /usr/lib/libc.so
Anonymous:             0 kB
7f0000002000-7f0000003000 r--p 00000000 00:00 0
Anonymous:             0 kB
7f0000004000-7f0000005000 r-xp 00000000 fe:00 8                          /opt/usr/bin/quietcore
Anonymous:             0 kB
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]
`
	got, err := pristine(strings.NewReader(text), "/usr/bin/quietcore")
	if want := []mapping{{0x400000, 0x16bc000}, {0x16bc000, 0x2ac7000}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%x, %v, want %x", got, err, want)
	}
	for _, text := range []string{"", "a\n", "x-y r-xp 0 0 0 /usr/bin/quietcore\nAnonymous:\n",
		"5-4 r-xp 0 0 0 /usr/bin/quietcore\nAnonymous: 0 kB\n", "Anonymous: 0 kB\n"} {
		if got, _ := pristine(strings.NewReader(text), "/usr/bin/quietcore"); len(got) > 0 {
			t.Errorf("%q has %x", text, got)
		}
	}
}

// A program whose pages are unmapped goes on, with fewer of them.
func TestTheProgramsPagesAreUnmapped(t *testing.T) {
	ofFiles := func() (kib int) {
		text, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			for _, form := range []string{"RssFile: %d kB", "RssShmem: %d kB"} {
				n := 0
				if _, err := fmt.Sscanf(string(line), form, &n); err == nil {
					kib += n
				}
			}
		}
		return kib
	}
	before := ofFiles()
	if err := unmapProgram(); err != nil {
		t.Fatal(err)
	}
	if after := ofFiles(); after >= before {
		t.Errorf("%d KiB of files are mapped, were %d", after, before)
	}
}
