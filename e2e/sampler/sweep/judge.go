// Package sweep judges what a sampler saw: on which CPUs the busy threads of
// containers were while owners of CPUs came and went.
//
// A sampler cannot look at everything in one moment, so one look, a Sweep, is
// made of three parts: the owners, then the threads, then the owners again. Only
// CPUs that an owner had before and after count as its own, and an owner counts
// only if it owns as many CPUs as its name says. Whatever the order of events was,
// a thread found there was there while the owner ran:
//
//	Before: lse db owns 0-3   Busy: ls web on CPU 2   After: lse db owns 0-3   a violation
//	Before: none              Busy: ls web on CPU 2   After: lse db owns 0-3   none
//
// Invariant: the package does no I/O; a Report depends on the sweeps alone. The
// threads must be ones that never sleep: the kernel shows a thread that is being
// woken as running on the CPU where it ran last.
package sweep

import (
	"cmp"
	"slices"
	"time"

	"github.com/quietcore/quietcore/cpuset"
)

// Owner is a pod whose container runs, and the CPUs that it runs on.
type Owner struct {
	Pod  Pod
	CPUs cpuset.Set
}

// Thread is a busy thread and the CPU that it runs or waits on.
type Thread struct {
	TID int
	Pod Pod
	CPU int
}

// Sweep is one look at the machine.
type Sweep struct {
	At            time.Duration // since the first sweep began
	Before, After []Owner
	Busy          []Thread
}

// Machine is what the judge has to know of the CPUs.
type Machine struct {
	Siblings []cpuset.Set // by CPU, itself included
	Sockets  []cpuset.Set
}

// Violation is a thread on a CPU of another owner.
type Violation struct {
	At     time.Duration `json:"at"`
	TID    int           `json:"tid"`
	Thread string        `json:"thread"` // UID of its pod
	CPU    int           `json:"cpu"`
	Owner  string        `json:"owner"` // UID of the pod
}

// Report is the sum of all sweeps.
type Report struct {
	Sweeps  int `json:"sweeps"`
	Samples int `json:"samples"` // busy threads seen
	// Near are samples on a socket with owned CPUs that the thread must
	// not use: where a wrong mask would show.
	Near int `json:"near"`
	// Owners is how many owners started, Contested how many of them on CPUs on
	// which others had been busy shortly before.
	Owners     int           `json:"owners"`
	Contested  int           `json:"contested"`
	MeanGap    time.Duration `json:"meanGap"` // between the starts of two sweeps
	MaxGap     time.Duration `json:"maxGap"`
	Violations int           `json:"violations"`
	Pods       int           `json:"pods"`  // owners that others were seen on
	First      []Violation   `json:"first"` // the first few of them
}

// Recent is how short before an owner's start its CPUs must have been busy with
// others to be called contested: a pod takes seconds to start in an emulated guest.
const Recent = 10 * time.Second

// mostListed bounds the list in a report.
const mostListed = 20

// Judge adds up sweeps.
type Judge struct {
	machine Machine
	report  Report
	first   time.Duration
	last    time.Duration
	used    map[int]map[Pod]time.Duration // by CPU, when each pod was last busy there
	alive   map[Pod]bool
	struck  map[Pod]bool
}

// New makes a judge without samples.
func New(m Machine) *Judge {
	return &Judge{machine: m, used: map[int]map[Pod]time.Duration{}, alive: map[Pod]bool{}, struck: map[Pod]bool{}}
}

// Add takes one sweep into account.
func (j *Judge) Add(s Sweep) {
	j.time(s.At)
	owners := j.lasting(s)
	j.births(s.At, owners)
	for _, t := range s.Busy {
		j.report.Samples++
		if j.near(t, owners) {
			j.report.Near++
		}
		for _, o := range owners {
			if mine := j.barred(t.Pod, o); mine.Has(t.CPU) {
				j.violation(s.At, t, o)
			}
		}
		if j.used[t.CPU] == nil {
			j.used[t.CPU] = map[Pod]time.Duration{}
		}
		j.used[t.CPU][t.Pod] = s.At
	}
}

// Report is what was seen so far.
func (j *Judge) Report() Report {
	r := j.report
	r.First = slices.Clone(r.First)
	r.Pods = len(j.struck)
	if r.Sweeps > 1 {
		r.MeanGap = (j.last - j.first) / time.Duration(r.Sweeps-1)
	}
	return r
}

func (j *Judge) time(at time.Duration) {
	if j.report.Sweeps == 0 {
		j.first = at
	} else {
		j.report.MaxGap = max(j.report.MaxGap, at-j.last)
	}
	j.last = at
	j.report.Sweeps++
}

// lasting are the owners that lived throughout the sweep, with the CPUs that they
// had throughout.
func (j *Judge) lasting(s Sweep) []Owner {
	var out []Owner
	for _, b := range s.Before {
		for _, a := range s.After {
			if a.Pod == b.Pod && a.CPUs.Count() == a.Pod.Size && b.CPUs.Count() == b.Pod.Size {
				out = append(out, Owner{Pod: a.Pod, CPUs: a.CPUs.And(b.CPUs)})
			}
		}
	}
	slices.SortFunc(out, func(a, b Owner) int { return cmp.Compare(a.Pod.UID(), b.Pod.UID()) })
	return out
}

func (j *Judge) births(at time.Duration, owners []Owner) {
	now := map[Pod]bool{}
	for _, o := range owners {
		now[o.Pod] = true
		if j.alive[o.Pod] {
			continue
		}
		j.report.Owners++
		if j.contested(at, o) {
			j.report.Contested++
		}
	}
	j.alive = now
}

func (j *Judge) contested(at time.Duration, o Owner) bool {
	for cpu, pods := range j.used {
		for p, when := range pods {
			if mine := j.barred(p, o); mine.Has(cpu) && at-when <= Recent {
				return true
			}
		}
	}
	return false
}

// barred are the CPUs that a thread of the pod must not use because of the owner.
func (j *Judge) barred(p Pod, o Owner) cpuset.Set {
	if p == o.Pod {
		return cpuset.Set{}
	}
	var withheld cpuset.Set
	if o.Pod.Isolated {
		for cpu := range o.CPUs.All() {
			withheld.AddSet(&j.machine.Siblings[cpu])
		}
		withheld.RemoveSet(&o.CPUs)
	}
	if p.Class == BE && o.Pod.Class == LSR {
		return withheld
	}
	return o.CPUs.Or(withheld)
}

func (j *Judge) near(t Thread, owners []Owner) bool {
	for _, o := range owners {
		mine := j.barred(t.Pod, o)
		for _, socket := range j.machine.Sockets {
			if socket.Has(t.CPU) && mine.Intersects(&socket) {
				return true
			}
		}
	}
	return false
}

func (j *Judge) violation(at time.Duration, t Thread, o Owner) {
	j.report.Violations++
	j.struck[o.Pod] = true
	if len(j.report.First) < mostListed {
		j.report.First = append(j.report.First, Violation{At: at, TID: t.TID, Thread: t.Pod.UID(), CPU: t.CPU,
			Owner: o.Pod.UID()})
	}
}
