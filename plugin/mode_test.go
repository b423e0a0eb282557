package plugin

import (
	"testing"

	"github.com/quietcore/quietcore/policy"
)

// The mode changes under a running daemon: to observe at once, with every placement where it is, and back with what
// was started meanwhile.
func TestTheModeChangesUnderTheRuntime(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	p := n.up()
	mustRun(t, n, lsr("db", 4000))
	mustRun(t, n, spec{name: "web", qos: policy.Burstable, ctrs: main1(100)})
	n.settle()
	if err := p.Observe(short(t)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "what was enforced is undone", func() bool { return !p.Undoing() })
	n.kernel.Writes()
	mustRun(t, n, lsr("late", 2000))
	mustRun(t, n, lsr("odd", 1500)) // which would be refused
	n.settle()
	n.want("db-main", "0-3")
	n.want("web-main", "4-15")
	n.want("late-main", "0-15")
	if !p.Observes() || !p.Connected() {
		t.Errorf("observes %t, connected %t", p.Observes(), p.Connected())
	}
	before := n.synchronized()
	p.Enforce()
	eventually(t, "the runtime lists what runs again", func() bool {
		return n.synchronized() > before && !p.Observes() && p.Settled()
	})
	n.admitted()
	n.want("late-main", "4-5")
	n.want("web-main", "6-15")
	n.checkOwners()
	mustRun(t, n, lsr("next", 2000))
	n.want("next-main", "6-7")
	if err := n.run(lsr("odder", 1500)); err == nil {
		t.Error("a pod that breaks a rule is not refused any more")
	}
}

// Without a runtime the mode changes too, and no decision is carried out in the wrong one.
func TestTheModeChangesWithoutARuntime(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	p := n.start(func(o *Options) { o.Observe = true })
	p.Enforce()
	eventually(t, "it enforces once it registers", func() bool { return !p.Observes() })
	if err := p.Observe(short(t)); err != nil {
		t.Fatal(err)
	}
	n.startRuntime()
	n.settle()
	mustRun(t, n, lsr("db", 4000))
	n.want("db-main", "0-15")
	eventually(t, "there is nothing to undo", func() bool { return !p.Undoing() })
}

func (n *rig) synchronized() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.synced
}
