package policy

import (
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpuallocator"
)

// TestOneIsKeptOff on two NUMA nodes of four cores, 0-7 and 8-15, beside an owner of 0-3: one pod of best effort leaves
// the CPUs around it, and another does not.
func TestOneIsKeptOff(t *testing.T) {
	now := time.Unix(1e9, 0)
	m := machineOf(t, 2, 4, Config{})
	for _, p := range []Pod{lsr("victim", 4000, nil), bestEffort("loud", 0), bestEffort("calm", 0)} {
		told(t, m, PodRun{Pod: p})
		told(t, m, mainOf(p))
	}
	on := func(when, loud, why string) {
		t.Helper()
		s := m.Snapshot()
		for _, c := range s.Containers {
			want := map[string]string{"loud": loud, "calm": s.BE.String(), "victim": "0-3"}[c.Pod]
			if got := s.CPUs(c).String(); got != want {
				t.Errorf("%s: %s runs on %s, want %s", when, c.Pod, got, want)
			}
			if c.Pod == "loud" && !strings.Contains(c.Why, why) {
				t.Errorf("%s: %q does not say %q", when, c.Why, why)
			}
		}
		parts := 0
		for _, p := range m.UsedPools() {
			if p.ID.isPart() {
				parts++
			}
		}
		if want := 1; why == "every CPU" && parts != 0 || why != "every CPU" && parts != want {
			t.Errorf("%s: %d parts of pools are left", when, parts)
		}
	}
	step := func(e Event) {
		t.Helper()
		if _, err := m.Step(now, e); err != nil {
			t.Fatal(err)
		}
	}
	off := func(off string, least int) BEKeptOff {
		return BEKeptOff{Victim: "victim-main", CPUs: cpus(t, off), For: time.Minute, Pod: "loud", Least: least}
	}
	on("before", "0-15", "every CPU")
	step(off("0-3", 8))
	on("off the cores", "4-15", "moved off CPUs 0-3")
	step(off("0-7", 8))
	on("off the L3 domain", "8-15", "moved off CPUs 0-7")
	step(BESuppressed{CPUs: cpus(t, "0-11")})
	on("when too little is left", "0-11", "every CPU")
	step(BESuppressed{})
	on("when there is enough again", "8-15", "moved off CPUs 0-7")
	step(PodRun{Pod: lsr("other", 6000, nil)})
	on("when its CPUs are given away", "0-15", "every CPU")
	step(PodRemoved{Sandbox: "other"})
	on("when they are free again", "8-15", "moved off CPUs 0-7")
	now = now.Add(29 * time.Second)
	step(Tick{Slept: 30 * time.Second})
	on("before the deadline", "8-15", "moved off CPUs 0-7")
	now = now.Add(time.Second)
	step(Tick{})
	on("at the deadline", "0-15", "every CPU")
	step(off("0-7", 0))
	step(BEKeptOff{Pod: "loud", Victim: "victim-main"})
	on("taken back", "0-15", "every CPU")
	step(off("0-7", 0))
	step(PodRemoved{Sandbox: "loud"})
	if len(m.be.away) > 0 || len(m.UsedPools()) > 3 {
		t.Errorf("of a pod that has ended, %v is left, and the pools %v", m.be.away, m.UsedPools())
	}
}

// Who is not best effort is not moved, nor who would not have enough.
func TestWhoIsNotKeptOff(t *testing.T) {
	m := machineOf(t, 2, 4, Config{})
	web := ls("web", 1000, map[string]string{AnnCap: "allow"})
	for _, p := range []Pod{lsr("victim", 4000, nil), web, bestEffort("loud", 0)} {
		told(t, m, PodRun{Pod: p})
	}
	for _, c := range []struct {
		pod, off string
		least    int
		want     Code
	}{
		{"web", "0-3", 0, InvalidRequest},
		{"nobody", "0-3", 0, InvalidRequest},
		{"loud", "4-15", 0, cpuallocator.InsufficientCPUs}, // 0-3 have an owner
		{"loud", "0-7", 9, cpuallocator.InsufficientCPUs},
		{"loud", "0-7", 8, ""},
	} {
		e := BEKeptOff{Victim: "victim-main", CPUs: cpus(t, c.off), For: time.Minute, Pod: c.pod, Least: c.least}
		if got := code(t, m, e); got != c.want {
			t.Errorf("%s off %s, %d needed: refused with %q, want %q", c.pod, c.off, c.least, got, c.want)
		}
	}
}
