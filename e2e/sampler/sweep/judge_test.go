package sweep

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpuset"
)

// machine is 2 sockets of 2 cores of 2 threads.
func machine() Machine {
	var m Machine
	for cpu := range 8 {
		core := cpu &^ 1
		m.Siblings = append(m.Siblings, cpuset.Of(core, core+1))
	}
	m.Sockets = []cpuset.Set{cpuset.Range(0, 3), cpuset.Range(4, 7)}
	return m
}

func pod(t *testing.T, uid string) Pod {
	t.Helper()
	p, ok := ParseDir("pod" + uid)
	if !ok || p.UID() != uid {
		t.Fatalf("pod %q reads as %+v, %t", uid, p, ok)
	}
	return p
}

func owners(t *testing.T, text string) []Owner {
	t.Helper()
	var out []Owner
	for _, word := range strings.Fields(text) {
		uid, list, _ := strings.Cut(word, "=")
		cpus, err := cpuset.Parse(list)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, Owner{Pod: pod(t, uid), CPUs: cpus})
	}
	return out
}

func threads(t *testing.T, text string) []Thread {
	t.Helper()
	var out []Thread
	for i, word := range strings.Fields(text) {
		uid, cpu, _ := strings.Cut(word, "@")
		th := Thread{TID: 100 + i, Pod: pod(t, uid)}
		if _, err := fmt.Sscan(cpu, &th.CPU); err != nil {
			t.Fatal(err)
		}
		out = append(out, th)
	}
	return out
}

func TestOneSweep(t *testing.T) {
	for _, c := range []struct {
		name                string
		before, busy, after string
		violations, near    int
	}{
		{"a neighbour on an owner's CPU", "lse_2_plain_a=0-1", "ls_0_plain_w@1", "lse_2_plain_a=0-1", 1, 1},
		{"a neighbour next to it", "lse_2_plain_a=0-1", "ls_0_plain_w@2", "lse_2_plain_a=0-1", 0, 1},
		{"far away", "lse_2_plain_a=0-1", "ls_0_plain_w@4", "lse_2_plain_a=0-1", 0, 0},
		{"the owner itself", "lse_2_plain_a=0-1", "lse_2_plain_a@1", "lse_2_plain_a=0-1", 0, 0},
		{"another owner", "lse_2_plain_a=0-1 lsr_2_plain_b=2-3", "lsr_2_plain_b@1",
			"lse_2_plain_a=0-1 lsr_2_plain_b=2-3", 1, 1},
		{"the owner started during the sweep", "", "ls_0_plain_w@1", "lse_2_plain_a=0-1", 0, 0},
		{"the owner ended during the sweep", "lse_2_plain_a=0-1", "ls_0_plain_w@1", "", 0, 0},
		{"another owner took its place", "lse_2_plain_a=0-1", "ls_0_plain_w@1", "lse_2_plain_b=0-1", 0, 0},
		{"the owner moved off the CPU", "lse_2_plain_a=0-1", "ls_0_plain_w@1", "lse_2_plain_a=0,2", 0, 1},
		{"the owner moved and kept the CPU", "lse_2_plain_a=0-1", "ls_0_plain_w@0", "lse_2_plain_a=0,2", 1, 1},
		{"not yet on its own CPUs", "lse_2_plain_a=0-7", "ls_0_plain_w@1", "lse_2_plain_a=0-1", 0, 0},
		{"best effort next to LSR", "lsr_2_plain_a=0-1", "be_0_plain_w@1", "lsr_2_plain_a=0-1", 0, 0},
		{"best effort on LSE", "lse_2_plain_a=0-1", "be_0_plain_w@1", "lse_2_plain_a=0-1", 1, 1},
		{"a sibling that is withheld", "lse_2_isolated_a=0,2", "ls_0_plain_w@3", "lse_2_isolated_a=0,2", 1, 1},
		{"best effort on a sibling withheld for LSR", "lsr_2_isolated_a=0,2", "be_0_plain_w@3", "lsr_2_isolated_a=0,2",
			1, 1},
		{"a sibling that is not withheld", "lse_1_plain_a=0", "ls_0_plain_w@1", "lse_1_plain_a=0", 0, 1},
		{"two at once", "lse_2_plain_a=0-1", "ls_0_plain_w@1 be_0_plain_v@0", "lse_2_plain_a=0-1", 2, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := New(machine())
			j.Add(Sweep{Before: owners(t, c.before), Busy: threads(t, c.busy), After: owners(t, c.after)})
			r := j.Report()
			if r.Violations != c.violations || r.Near != c.near {
				t.Errorf("%d violations and %d near samples, want %d and %d: %+v", r.Violations, r.Near, c.violations,
					c.near, r.First)
			}
			if r.Samples != len(strings.Fields(c.busy)) {
				t.Errorf("%d samples of %q", r.Samples, c.busy)
			}
		})
	}
}

func TestAViolationNamesBothAndTheCPU(t *testing.T) {
	j := New(machine())
	a := owners(t, "lse_2_plain_a=0-1")
	j.Add(Sweep{At: time.Second, Before: a, After: a, Busy: threads(t, "ls_0_plain_w@1")})
	want := Violation{At: time.Second, TID: 100, Thread: "ls_0_plain_w", CPU: 1, Owner: "lse_2_plain_a"}
	if r := j.Report(); len(r.First) != 1 || r.First[0] != want || r.Pods != 1 {
		t.Errorf("%+v, want %+v", r, want)
	}
}

func TestGaps(t *testing.T) {
	j := New(machine())
	for _, at := range []time.Duration{5, 7, 15, 17} {
		j.Add(Sweep{At: at * time.Millisecond})
	}
	if r := j.Report(); r.Sweeps != 4 || r.MeanGap != 4*time.Millisecond || r.MaxGap != 8*time.Millisecond {
		t.Errorf("%+v", r)
	}
}

// TestAnOwnerIsContested wants the proof to know whether the owners' CPUs were
// in use before: where no thread ran, none can be seen to stay.
func TestAnOwnerIsContested(t *testing.T) {
	a, b := owners(t, "lse_2_plain_a=0-1"), owners(t, "lsr_1_plain_b=6")
	for _, c := range []struct {
		name            string
		busy            string
		passes          time.Duration
		owner           []Owner
		owners, contest int
	}{
		{"used a second ago", "ls_0_plain_w@1", time.Second, a, 1, 1},
		{"used long ago", "ls_0_plain_w@1", Recent + time.Second, a, 1, 0},
		{"others were used", "ls_0_plain_w@2", time.Second, a, 1, 0},
		{"used by somebody who may", "be_0_plain_w@6", time.Second, b, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := New(machine())
			j.Add(Sweep{Busy: threads(t, c.busy)})
			for range 3 {
				j.Add(Sweep{At: c.passes, Before: c.owner, After: c.owner})
			}
			if r := j.Report(); r.Owners != c.owners || r.Contested != c.contest {
				t.Errorf("%d owners, %d contested, want %d and %d", r.Owners, r.Contested, c.owners, c.contest)
			}
		})
	}
}

func TestParseDir(t *testing.T) {
	for name, want := range map[string]string{
		"podlse_4_isolated_db":                            "lse_4_isolated_db",
		"kubepods-podlsr_16_plain_a1.slice":               "lsr_16_plain_a1",
		"kubepods-burstable-podls_0_plain_web.slice":      "ls_0_plain_web",
		"kubepods-besteffort-podbe_0_plain_batch.slice":   "be_0_plain_batch",
		"pod11111111-2222-3333-4444-555555555555":         "",
		"kubepods-burstable-podls_0_plain_web.slice.wait": "",
		"xpodls_0_plain_web":                              "",
		"podls_99999_plain_web":                           "",
	} {
		p, ok := ParseDir(name)
		if ok != (want != "") || ok && p.UID() != want {
			t.Errorf("%s reads as %q, %t; want %q", name, p.UID(), ok, want)
		}
	}
}
