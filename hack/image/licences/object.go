package licences

import (
	"bytes"
	"debug/elf"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/quietcore/quietcore/hack/image/build"
)

// The sources of the eBPF objects may be used under Apache-2.0, as the binary around
// them, or under the GPL, which is what the kernel asks of a program that calls these helpers.
const objectSources = "Apache-2.0 OR GPL-2.0-only"

var identifier = regexp.MustCompile(`SPDX-License-Identifier: ([^\n*]*[^\n* ])`)

// libbpfLicence is for the headers that are compiled into the objects: they may be
// used under LGPL-2.1 or BSD-2-Clause, here it is the latter.
//
//go:embed libbpf.txt
var libbpfLicence string

func libbpf() build.Part {
	return build.Part{
		Name: "libbpf's headers (in the eBPF objects)", Licences: []string{"BSD-2-Clause"},
		Texts: []string{libbpfLicence},
	}
}

// checkObjects holds what an eBPF object declares to the kernel of its licence against what
// its sources say.
func checkObjects(objects []string) error {
	for _, name := range objects {
		f, err := elf.Open(name)
		if err != nil {
			return fmt.Errorf("embedded object: %w", err)
		}
		section := f.Section("license")
		if f.Machine != elf.EM_BPF || section == nil {
			f.Close()
			return fmt.Errorf("%s is no eBPF object with a section named license: whose code is it?", name)
		}
		licence, err := section.Data()
		f.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if got := string(bytes.TrimRight(licence, "\x00")); got != "GPL" {
			return fmt.Errorf(
				"%s tells the kernel that its licence is %q; its sources are under %s, so it must be GPL", name, got,
				objectSources)
		}
		sources, err := filepath.Glob(filepath.Join(filepath.Dir(name), "bpf", "*.[ch]"))
		if err != nil || len(sources) == 0 {
			return fmt.Errorf("%s has no sources in the folder bpf next to it (%v)", name, err)
		}
		for _, source := range sources {
			text, err := os.ReadFile(source)
			if err != nil {
				return err
			}
			found := identifier.FindSubmatch(text)
			if found == nil || string(found[1]) != objectSources {
				return fmt.Errorf("%s must say in its first line that it is under %s, it says %q", source,
					objectSources, found)
			}
		}
	}
	return nil
}
