package policy

import (
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpuset"
)

func cpus(t testing.TB, text string) cpuset.Set {
	t.Helper()
	s, err := cpuset.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestBestEffortLimits on two NUMA nodes of four cores: 0-7 and 8-15, siblings side
// by side.
func TestBestEffortLimits(t *testing.T) {
	now := time.Unix(1e9, 0)
	m := machineOf(t, 2, 4, Config{Reserved: cpus(t, "0-1"), BEFloor: 4})
	step := func(e Event) error { _, err := m.Step(now, e); return err }
	must := func(e Event, be string) {
		t.Helper()
		if err := step(e); err != nil {
			t.Fatal(err)
		}
		if got := m.Snapshot().BE.String(); got != be {
			t.Errorf("after %T: best effort has %s, want %s", e, got, be)
		}
	}
	must(Tick{}, "0-15")
	must(BESuppressed{CPUs: cpus(t, "0-3,8-11")}, "0-3,8-11")
	must(BEKeptOff{Victim: "web", CPUs: cpus(t, "0-7"), For: time.Minute}, "8-11")
	t.Log("a second victim would leave too few")
	err := step(BEKeptOff{Victim: "db", CPUs: cpus(t, "8-15"), For: time.Minute})
	if err == nil || !strings.Contains(err.Error(), "leaves it 0 CPUs, its floor is 4") {
		t.Errorf("second victim: %v", err)
	}
	must(Tick{}, "8-11")
	t.Log("an owner takes what was left: the floor is kept from the reserved CPUs, then from elsewhere")
	owner := lsr("lse", 4000, nil)
	owner.Labels = map[string]string{LabelClass: "LSE"}
	if err := step(PodRun{Pod: owner}); err != nil {
		t.Fatal(err)
	}
	s := m.Snapshot()
	if got := s.BE.Count(); got != 4 || !s.BE.SubsetOf(&s.BEWhole) {
		t.Errorf("beside the owner of %s best effort has %s of %s", s.Exclusive, s.BE, s.BEWhole)
	}
	if err := step(PodRemoved{Sandbox: owner.Sandbox}); err != nil {
		t.Fatal(err)
	}
	t.Log("the deadline ends it, and so does its end")
	now = now.Add(59 * time.Second)
	must(Tick{}, "8-11")
	now = now.Add(time.Second)
	must(Tick{}, "0-3,8-11")
	must(BESuppressed{}, "0-15")
	must(BEKeptOff{Victim: "web", CPUs: cpus(t, "0-7"), For: time.Minute}, "8-15")
	must(BEKeptOff{Victim: "web"}, "0-15")
}

// TestCapEnds before its deadline where it is released, and only BE containers and
// those that allow it are capped.
func TestCapEnds(t *testing.T) {
	m := machineOf(t, 1, 4, Config{})
	now := time.Unix(1e9, 0)
	run := func(name string, class Class, annotations map[string]string) {
		t.Helper()
		p := ls(name, 1000, annotations)
		p.Labels = map[string]string{LabelClass: string(class)}
		c := Container{ID: name, Sandbox: p.Sandbox, Name: "main", Resources: Resources{LimitMilli: NoLimit}}
		for _, e := range []Event{PodRun{Pod: p}, ContainerCreate{Pod: p, Container: c}} {
			if _, err := m.Step(now, e); err != nil {
				t.Fatal(err)
			}
		}
	}
	run("batch", BE, nil)
	run("web", LS, nil)
	run("willing", LS, map[string]string{AnnCap: "allow"})
	for name, may := range map[string]bool{"batch": true, "web": false, "willing": true} {
		_, err := m.Step(now, CapVerdict{ID: name, Milli: 100, For: time.Minute})
		if (err == nil) != may {
			t.Errorf("cap of %s: %v", name, err)
		}
	}
	for _, c := range m.Snapshot().Containers {
		if c.MayCap == (c.Pod == "web") || (c.CapMilli == 100) != c.MayCap {
			t.Errorf("%s: may be capped: %v, capped at %d", c.Pod, c.MayCap, c.CapMilli)
		}
	}
	decisions, err := m.Step(now, CapReleased{ID: "batch"})
	if err != nil || len(decisions) != 1 {
		t.Fatalf("release: %v, %v", decisions, err)
	}
	if d := decisions[0].(SetContainer); d.Cap != nil || d.Quota.Milli() != NoLimit {
		t.Errorf("after the release: %+v", d)
	}
	if n := len(m.Caps()); n != 1 {
		t.Errorf("%d caps are left, want that of willing", n)
	}
}
