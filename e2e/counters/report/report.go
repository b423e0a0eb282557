// Package report is the protocol of a guest of e2e/counters: it writes results to its
// console line by line ([Write], [End]), and the host parses them ([Groups]).
package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// What a guest can do.
const (
	Instructions = "instructions" // programs of known length, counted
	Tests        = "tests"        // the tests of cpi/counter, and the tries
	Tries        = "tries"        // what counting can do on the kernel
	Core         = "core"         // the tests of the packages below CoreTree
)

// CoreTree is where a guest has this repository as far as those tests read it, with a program CoreTest
// in the folder of each package.
const (
	CoreTree = "src"
	CoreTest = "package.test"
)

// Idle is the case of a CPU that waits.
const Idle = "idle"

const (
	figure = "figure "
	able   = "ability "
	done   = "guest: done"
	failed = "guest: failed: "
)

// Group is what one followed cgroup did in one case.
type Group struct {
	Trigger, Case, Group string
	Known                uint64 // instructions that its programs have executed
	Programs             int
	Instructions         uint64 // as they were counted
	Cycles               uint64
	OnCPU, Counted       uint64
	Kernel               uint64 // nanoseconds, by the kernel's own account
	Missed               uint64 // switches of the machine that were not seen
}

// Ability is whether counting can do something on a kernel.
type Ability struct {
	Kernel, What string
	Why          string // it cannot; empty: it can
	Typed        bool   // the counter itself says so, by its UnsupportedError
}

// Write writes a group's figures as a line.
func Write(w io.Writer, g Group) error { return write(w, figure, g) }

// WriteAbility writes an ability as a line.
func WriteAbility(w io.Writer, a Ability) error { return write(w, able, a) }

func write(w io.Writer, kind string, what any) error {
	text, err := json.Marshal(what)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s%s\n", kind, text)
	return err
}

// End writes the last line.
func End(w io.Writer, err error) {
	if err != nil {
		fmt.Fprintf(w, "%s%v\n", failed, err)
		return
	}
	fmt.Fprintln(w, done)
}

// Groups reads all figures; the error is the guest's, or says that it never ended.
func Groups(console string) ([]Group, error) {
	var groups []Group
	ended := false
	for line := range strings.Lines(console) {
		line = strings.TrimRight(line, "\r\n")
		if why, ok := strings.CutPrefix(line, failed); ok {
			return groups, fmt.Errorf("the guest: %s", why)
		}
		if line == done {
			ended = true
		}
		text, ok := strings.CutPrefix(line, figure)
		if !ok {
			continue
		}
		var g Group
		if err := json.Unmarshal([]byte(text), &g); err != nil {
			return groups, fmt.Errorf("the guest's line %q: %w", line, err)
		}
		groups = append(groups, g)
	}
	if !ended {
		return groups, errors.New("the guest ended without a word")
	}
	return groups, nil
}

// Abilities reads all abilities.
func Abilities(console string) ([]Ability, error) {
	var all []Ability
	for line := range strings.Lines(console) {
		text, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), able)
		if !ok {
			continue
		}
		var a Ability
		if err := json.Unmarshal([]byte(text), &a); err != nil {
			return all, fmt.Errorf("the guest's line %q: %w", line, err)
		}
		all = append(all, a)
	}
	return all, nil
}
