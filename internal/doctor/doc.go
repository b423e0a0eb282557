// Package doctor finds what keeps Quietcore from working on a node, before its users
// notice, and says how to fix it.
//
// [Gather] reads the node and returns [Facts]. [Check] turns them into a [Report] of
// [Finding]s and does no I/O, so that every fault can be tested with a fixture:
//
//	report := doctor.Check(doctor.Gather(ctx, doctor.Options{Root: "/"}))
//	report.Worst() // ok, note, warning or error
//
// An error keeps pods from getting their CPUs. A warning is something that does not
// work, or will not after the next restart, while pods still get their CPUs. What
// cannot be observed (in a pod, most of the node) is a note, and never counts as right. A runtime
// that takes plugins can be observed from everywhere, so that its absence is an error.
package doctor

import (
	"cmp"
	"fmt"
	"slices"
)

// Level is the severity of a finding.
type Level string

const (
	OK      Level = "ok"
	Note    Level = "note"
	Warning Level = "warning"
	Error   Level = "error"
)

func (l Level) rank() int { return slices.Index([]Level{OK, Note, Warning, Error}, l) }

// Finding is the result of one check.
type Finding struct {
	// ID is "area" if all is well, else "area.fault"; IDs lists them.
	ID    string `json:"id"`
	Level Level  `json:"level"`
	What  string `json:"what"`
	Fix   string `json:"fix,omitempty"`
}

// Report has all findings, in the order of the areas.
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

// Count returns the number of findings of a level.
func (r *Report) Count(l Level) int {
	n := 0
	for _, f := range r.Findings {
		if f.Level == l {
			n++
		}
	}
	return n
}

// Verdict returns an error if there is an error finding, or with strict a warning.
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

// findings collects the findings of one area.
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

// ok adds a finding unless there is one worse than a note.
func (f *findings) ok(what string) {
	if slices.ContainsFunc(f.list, func(one Finding) bool { return one.Level.rank() > Note.rank() }) {
		return
	}
	f.list = append([]Finding{{ID: f.area, Level: OK, What: what}}, f.list...)
}
