// Package doctor says what keeps Quietcore from working on a node, before its users
// notice, and how to mend it.
//
// Gather looks at the node and writes down Facts; Check turns them into Findings and
// touches nothing, so that every fault can be played by a fixture:
//
//	report := doctor.Check(doctor.Gather(ctx, doctor.Options{Root: "/"}))
//	report.Worst() // ok, note, warning or error
//
// An error keeps pods from getting their CPUs. A warning is something that does not
// work, or will not after the next restart, while pods get their CPUs. What cannot be
// seen from here (in a pod most of the node) is a note: it is never taken for right.
package doctor

import (
	"cmp"
	"fmt"
	"slices"
)

// Level is how bad a finding is.
type Level string

const (
	OK      Level = "ok"
	Note    Level = "note"
	Warning Level = "warning"
	Error   Level = "error"
)

func (l Level) rank() int { return slices.Index([]Level{OK, Note, Warning, Error}, l) }

// Finding is one thing that was looked at.
type Finding struct {
	// ID is "area" where all is well, else "area.fault"; IDs lists them.
	ID    string `json:"id"`
	Level Level  `json:"level"`
	What  string `json:"what"`
	Fix   string `json:"fix,omitempty"`
}

// Report is everything that was looked at, in the order of the areas.
type Report struct {
	Node     string    `json:"node,omitempty"`
	Findings []Finding `json:"findings"`
}

// Worst is the level of the worst finding.
func (r *Report) Worst() Level {
	if len(r.Findings) == 0 {
		return OK
	}
	worst := slices.MaxFunc(r.Findings, func(a, b Finding) int { return cmp.Compare(a.Level.rank(), b.Level.rank()) })
	return worst.Level
}

// Count is how many findings have a level.
func (r *Report) Count(l Level) int {
	n := 0
	for _, f := range r.Findings {
		if f.Level == l {
			n++
		}
	}
	return n
}

// Verdict is the error where there is an error, or with strict a warning.
func (r *Report) Verdict(strict bool) error {
	errs, warnings := r.Count(Error), r.Count(Warning)
	if errs == 0 && (!strict || warnings == 0) {
		return nil
	}
	return fmt.Errorf("%d errors and %d warnings were found", errs, warnings)
}

// Check judges facts. Every area has at least one finding.
func Check(f *Facts) Report {
	r := Report{Node: f.Config.Node}
	for _, a := range areas() {
		found := &findings{area: a.name}
		a.check(f, found)
		r.Findings = append(r.Findings, found.list...)
	}
	return r
}

type area struct {
	name  string
	check func(*Facts, *findings)
}

func areas() []area {
	return []area{
		{"config", checkConfig}, {"nri", checkNRI}, {"plugins", checkPlugins}, {"kubelet", checkKubelet},
		{"cgroup", checkCgroup}, {"systemd", checkSystemd}, {"kernel", checkKernel}, {"btf", checkBTF},
		{"pmu", checkPMU},
		{"capabilities", checkCapabilities}, {"state", checkState}, {"instances", checkInstances},
		{"daemon", checkDaemon}, {"api", checkAPI},
	}
}

// findings collects what one area has to say.
type findings struct {
	area string
	list []Finding
}

func (f *findings) add(fault string, level Level, what, fix string) {
	f.list = append(f.list, Finding{ID: f.area + "." + fault, Level: level, What: what, Fix: fix})
}

func (f *findings) fail(fault, what, fix string) { f.add(fault, Error, what, fix) }
func (f *findings) warn(fault, what, fix string) { f.add(fault, Warning, what, fix) }
func (f *findings) note(fault, what, fix string) { f.add(fault, Note, what, fix) }

// ok is said where nothing worse than a note was.
func (f *findings) ok(what string) {
	if slices.ContainsFunc(f.list, func(one Finding) bool { return one.Level.rank() > Note.rank() }) {
		return
	}
	f.list = append([]Finding{{ID: f.area, Level: OK, What: what}}, f.list...)
}
