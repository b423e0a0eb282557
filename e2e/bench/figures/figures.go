// Package figures is the [Report] of the program that measures in the guest, shared
// with the host.
//
// Invariant: everything in one Report was measured in one run of one guest, so that any
// two of its figures may be divided: emulation slows both down.
package figures

import (
	"math"
	"slices"
	"time"
)

// Report is one run.
type Report struct {
	Driver string `json:"driver"`
	Kernel string `json:"kernel"`
	CPUs   int    `json:"cpus"`
	// Ours and Nothing are the runtime's wait for an owner of CPUs that enters next to
	// the last stage: RunPodSandbox and CreateContainer together.
	Ours    Times `json:"ours"`
	Nothing Times `json:"nothing"`
	// OursRun and OursCreate are the two parts of Ours.
	OursRun    Times `json:"oursRunPodSandbox"`
	OursCreate Times `json:"oursCreateContainer"`
	// LateFor counts the answers that took longer than half of the runtime's usual
	// limit, where the daemon gives up, and than the whole, where the runtime does.
	Answers   int `json:"answers"`
	LateForUs int `json:"lateForUs"`
	LateForRT int `json:"lateForRuntime"`
	// Refused owners are not among the answers: the others could not be moved away
	// because systemd did not answer within the daemon's limit for it.
	Refused      int `json:"refused"`
	SystemdLate  int `json:"systemdTimeouts"`
	SystemdError int `json:"systemdErrors"`

	Stages []Stage `json:"stages"`
	Update Update  `json:"update"`
	Audit  Audit   `json:"audit"`
	// Memory is all there is where only that was measured.
	Memory Memory `json:"memory,omitzero"`
}

// Memory is the daemon's with everything on that needs no API server, in MiB.
type Memory struct {
	Containers int     `json:"containers"`
	Judged     int     `json:"judged"`  // of them, those that the detector follows
	Windows    int     `json:"windows"` // that were counted of them
	Resident   float64 `json:"residentMiB"`
	Own        float64 `json:"ownMiB"`  // of it, what is no page of a file
	Peak       float64 `json:"peakMiB"` // the most since its start
}

// Stage is a number of burstable containers and what an owner costs next to them.
type Stage struct {
	Containers int `json:"containers"`
	Threads    int `json:"threads"`
	// Enter and Leave are what the daemon did for one owner, in every life that was
	// counted.
	Enter []Operations `json:"enter"`
	Leave []Operations `json:"leave"`
	// Wait is the runtime's for these owners.
	Wait Times `json:"wait"`
	// Mask is one write of cpuset.cpus to the burstable slice that takes an owner's
	// CPUs away, with no daemon in it.
	Mask Times `json:"mask"`
}

// Operations are what the daemon's metrics counted.
type Operations struct {
	Writes int `json:"writes"` // of cgroups, through whichever driver
	Calls  int `json:"calls"`  // conversations with systemd
}

// Update is the runtime's way to change containers: one by one.
type Update struct {
	Sample  int     `json:"sample"` // containers that were really made and updated
	Updates int     `json:"updates"`
	Mean    float64 `json:"meanMillis"`
	Times   Times   `json:"times"`
}

// Audit is a look at every container where nothing differs.
type Audit struct {
	Containers int     `json:"containers"`
	Audits     int     `json:"audits"`
	CPUMillis  float64 `json:"cpuMillis"` // of one
	// PlainMillis is CPU for reading the two files of every container that an audit
	// cannot do without, by a program that does nothing else.
	PlainMillis float64 `json:"plainMillis"`
	Writes      int     `json:"writes"` // in all of them
	Calls       int     `json:"calls"`
}

// Times are percentiles in milliseconds.
type Times struct {
	N    int     `json:"n"`
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	Most float64 `json:"most"`
}

// TimesOf sorts took.
func TimesOf(took []time.Duration) Times {
	if len(took) == 0 {
		return Times{}
	}
	slices.Sort(took)
	return Times{N: len(took), P50: Millis(percentile(took, .5)), P99: Millis(percentile(took, .99)),
		Most: Millis(took[len(took)-1])}
}

// percentile is the smallest value that at least that share does not exceed.
func percentile(sorted []time.Duration, p float64) time.Duration {
	return sorted[max(int(math.Ceil(p*float64(len(sorted))))-1, 0)]
}

// Millis is a duration in milliseconds.
func Millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Last is the stage with the most containers.
func (r *Report) Last() Stage {
	if len(r.Stages) == 0 {
		return Stage{}
	}
	return r.Stages[len(r.Stages)-1]
}

// MostToEnter is the largest number of operations that any owner's entry took.
func (r *Report) MostToEnter() Operations {
	var most Operations
	for _, s := range r.Stages {
		for _, o := range s.Enter {
			most.Writes, most.Calls = max(most.Writes, o.Writes), max(most.Calls, o.Calls)
		}
	}
	return most
}

// Constant says that every owner's entry, and every owner's end, took the same
// however many containers there were.
func (r *Report) Constant() bool {
	if len(r.Stages) < 2 {
		return false
	}
	first := r.Stages[0]
	for _, s := range r.Stages {
		if len(s.Enter) == 0 || len(s.Leave) == 0 {
			return false
		}
		for _, o := range s.Enter {
			if o != first.Enter[0] {
				return false
			}
		}
		for _, o := range s.Leave {
			if o != first.Leave[0] {
				return false
			}
		}
	}
	return true
}
