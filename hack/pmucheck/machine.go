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

// machine identifies the kind of machine in a report. It omits the host name, since
// reports are public.
type machine struct {
	model, kernel, cycles string
	cpus                  int
	virtual               bool // it runs below a hypervisor, by what x86's cpuinfo says
}

// describe reads the machine's properties from a tree of /proc.
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
	m.virtual = bytes.Contains(info, []byte(" hypervisor"))
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
	text := fmt.Sprintf("machine: %s; %d CPUs; Linux %s; CPI from %s", m.model, m.cpus, m.kernel, m.cycles)
	if m.virtual {
		text += "; a virtual machine"
	}
	return text
}

// costs says what reading each event took, of the CPU where it took longest at the last window's
// beginning, and what a run of the program did.
func costs(s *counter.Status) string {
	text := fmt.Sprintf("a run of the program took %v", s.PerRun)
	for _, e := range counter.Events() {
		if s.Sources[e].Kind != counter.Absent {
			text += fmt.Sprintf("; reading %s %v", e, s.ReadCost[e])
		}
	}
	return text
}

// sendReport asks the user to submit the report.
const sendReport = "Please send all of this, whatever came out, as an issue of the project (CONTRIBUTING.md, Bugs): " +
	"how well it does on real PMUs is not known yet.\n"
