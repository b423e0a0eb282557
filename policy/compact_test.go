package policy

import (
	"testing"
	"time"
)

// TestCompaction: an owner moves to a better place when it may, and once a minute at most.
func TestCompaction(t *testing.T) {
	minutes := func(n int) time.Time { return time.Unix(1e9, 0).Add(time.Duration(n) * time.Minute) }
	for _, c := range []struct {
		name string
		mode Compact
		gone bool // no container of the owner runs
		want string
	}{
		{"off", CompactOff, true, "6-7,14"},
		{"idle, and it runs", CompactIdle, false, "6-7,14"},
		{"idle", CompactIdle, true, "0-2"},
		{"always", CompactAlways, false, "0-2"},
	} {
		m := small(t, Config{SharedFloor: 1, Allocation: Allocation{Compact: c.mode}})
		run(t, m, lsr("a", 6000, nil), lsr("b", 6000, nil), lsr("wide", 3000, nil))
		told(t, m, PodRemoved{Sandbox: "a"})
		if c.gone {
			told(t, m, ContainerStopped{ID: "wide-main"})
		}
		if got := owns(m, "wide"); got != "6-7,14" {
			t.Fatalf("%s: before any time has passed it owns %s", c.name, got)
		}
		if _, err := m.Step(minutes(1), Tick{}); err != nil {
			t.Fatal(err)
		}
		if got := owns(m, "wide"); got != c.want {
			t.Errorf("%s: it owns %s, want %s", c.name, got, c.want)
		}
	}
}

// TestOneMoveAMinute: after a move the next owner waits, also across a restart.
func TestOneMoveAMinute(t *testing.T) {
	cfg := Config{Allocation: Allocation{Compact: CompactAlways}}
	m := small(t, cfg)
	run(t, m, lsr("a", 1000, nil), lsr("x", 2000, nil), lsr("b", 1000, nil), lsr("y", 2000, nil))
	for _, split := range []string{"x", "y"} { // two CPUs of two cores each
		p := m.pods[split]
		g := *p.grant
		second := last(g.cpus)
		g.cpus.Remove(second)
		free := m.free()
		g.cpus.Add(last(free))
		m.give(&p.holder, &g, p.resources)
	}
	moved := func(m *Machine, after time.Duration) (n int) {
		t.Helper()
		decisions, err := m.Step(time.Unix(1e9, 0).Add(after), Tick{})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range decisions {
			if n0, ok := d.(Notice); ok && n0.Reason == ReasonMoved {
				n++
			}
		}
		return n
	}
	if n := moved(m, time.Hour); n != 1 {
		t.Fatalf("%d owners moved in the first step, want 1", n)
	}
	again := small(t, cfg)
	if _, err := again.Step(time.Unix(1e9, 0).Add(time.Hour), m.Checkpoint()); err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]*Machine{"it": m, "its successor": again} {
		if n := moved(m, time.Hour+59*time.Second); n != 0 {
			t.Errorf("%s moved %d owners within the minute", name, n)
		}
		if n := moved(m, time.Hour+time.Minute); n != 1 {
			t.Errorf("%s moved %d owners after the minute, want 1", name, n)
		}
	}
}
