package loop

import (
	"testing"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
)

// Best effort that needs little is on the reserved CPUs alone, with room for all of it elsewhere; it
// has the others within a look of needing them, and none of it counts as held down.
func TestBestEffortUsesReservedCPUsFirst(t *testing.T) {
	n := newNode(t)
	n.run("web", policy.LS, 4000, 0)
	n.run("batch", policy.BE, 0, 2000)
	n.load["web"], n.load["batch"], n.system = 1, 0.5, 0.1
	l := n.start(nil)
	n.seconds(l, 60)
	whole := n.machine.Snapshot().BEWhole
	reserved := cpuset.Of(0, 1)
	narrowed := l.Status().Narrowed
	after := func(what string, want cpuset.Set, retreated bool) {
		t.Helper()
		if s := l.Status(); n.machine.Snapshot().BE != want || s.Retreated != retreated || s.Narrowed != narrowed {
			t.Errorf("%s: best effort has %s, retreated %t, narrowed %+v; want %s, %t", what, n.machine.Snapshot().BE,
				s.Retreated, s.Narrowed, want, retreated)
		}
	}
	budget := l.Status().Budget.CPUs
	n.seconds(l, 5)
	after("it uses little", reserved, true)
	if s := l.Status(); s.Budget.CPUs < budget {
		t.Errorf("the budget is %v, was %v: nothing was taken", s.Budget.CPUs, budget)
	}
	if l.since.hid > 0 || len(n.notified) > 0 {
		t.Errorf("it counts as held down for %s, %v", l.since.hid, n.notified)
	}

	n.load["batch"] = 1.9
	n.seconds(l, 1)
	room := l.Status()
	if room.Retreated || n.be() <= 2 {
		t.Errorf("it uses all of them and has %s", n.machine.Snapshot().BE)
	}
	n.load["batch"] = 0.5
	n.seconds(l, 61)
	if got := n.machine.Snapshot().BE; got != reserved {
		t.Errorf("it uses little again and has %s", got)
	}
	n.waits = map[string]float64{"batch": 0.3}
	n.seconds(l, 1)
	if got := n.machine.Snapshot().BE; got == reserved {
		t.Errorf("it waits and has %s of %s", got, whole)
	}
}

// Others on the reserved CPUs, or a kernel that does not tell who waits: best effort is not sent there.
func TestReservedCPUsThatAreInUse(t *testing.T) {
	for name, c := range map[string]struct {
		system, web float64
		blind       bool
	}{
		"the system":          {system: 1.2},
		"production":          {web: 9},
		"no pressure is told": {blind: true},
	} {
		n := newNode(t)
		n.blind = c.blind
		n.run("web", policy.LS, 4000, 0)
		n.run("batch", policy.BE, 0, 2000)
		n.load["web"], n.load["batch"], n.system = c.web, 0.5, c.system
		l := n.start(nil)
		n.seconds(l, 200)
		if l.Status().Retreated {
			t.Errorf("%s: best effort has %s", name, n.machine.Snapshot().BE)
		}
	}
}
