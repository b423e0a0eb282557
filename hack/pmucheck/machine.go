package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"runtime"
	"strings"

	"github.com/quietcore/quietcore/cpi/counter"
)

// machine is what a reader of the report has to know of where it was made. It has no
// name in it: reports are public.
type machine struct {
	model, kernel, cycles string
	cpus                  int
}

// describe reads it from a tree of /proc.
func describe(proc fs.FS, s *counter.Status) machine {
	m := machine{cpus: runtime.NumCPU(), kernel: "not known", model: runtime.GOARCH, cycles: "core cycles"}
	if release, err := fs.ReadFile(proc, "sys/kernel/osrelease"); err == nil {
		m.kernel = cmp.Or(strings.TrimSpace(string(release)), m.kernel)
	}
	if s.Sources[counter.RefCycles].Kind == counter.Hardware {
		m.cycles = "reference cycles"
	}
	info, err := fs.ReadFile(proc, "cpuinfo")
	if err != nil {
		return m
	}
	// x86 names the model; arm64 has numbers.
	for _, key := range []string{"model name", "CPU implementer", "CPU part"} {
		for line := range bytes.Lines(info) {
			name, value, _ := strings.Cut(string(line), ":")
			if strings.TrimSpace(name) != key {
				continue
			}
			if value = strings.TrimSpace(value); key != "model name" {
				value = key + " " + value
			}
			m.model += ", " + value
			break
		}
	}
	return m
}

func (m machine) String() string {
	return fmt.Sprintf("machine: %s; %d CPUs; Linux %s; CPI from %s", m.model, m.cpus, m.kernel, m.cycles)
}

// whereTo says what to do with the report.
const whereTo = "Please send all of this, whatever came out, as an issue of the project (CONTRIBUTING.md, Bugs): " +
	"how well it does on real PMUs is not known yet.\n"
