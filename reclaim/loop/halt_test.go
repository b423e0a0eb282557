package loop

import (
	"slices"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/reclaim"
)

// A node at whose floor best effort is for half an hour lends no more than it has promised, says
// why, and takes nothing back.
func TestLendingHaltsWhereItDoesHarm(t *testing.T) {
	estimator, err := reclaim.New(reclaim.Default())
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(t)
	n.run("web", policy.LS, 4000, 0)
	n.run("batch", policy.BE, 0, 3000)
	n.load["web"], n.load["batch"] = 2, 1
	l := n.start(estimator)
	offered := func() int64 { return n.offers[len(n.offers)-1] }
	n.seconds(l, 200)
	if s := l.Status(); s.Halted != "" || offered() < 11000 {
		t.Fatalf("offers %dm before there was harm, halted: %q", offered(), s.Halted)
	}
	n.load["web"] = 12
	n.seconds(l, 1700)
	if s := l.Status(); s.Halted != "" || offered() < 11000 {
		t.Fatalf("offers %dm within half an hour, halted: %q", offered(), s.Halted)
	}
	n.seconds(l, 300)
	if s := l.Status(); !strings.Contains(s.Halted, "floor") || offered() != 3000 || len(n.evicted) > 0 {
		t.Errorf("offers %dm of which 3000m are promised, halted: %q, evicted %v", offered(), s.Halted, n.evicted)
	}
	if !slices.Contains(n.notified, "LendingHalted") {
		t.Errorf("notices were %v", n.notified)
	}
	n.load["web"] = 2
	n.seconds(l, 7200)
	if offered() != 3000 {
		t.Errorf("offers %dm two hours later", offered())
	}
	n.run("less", policy.LS, 11000, 0)
	n.seconds(l, 11)
	if offered() != 1000 {
		t.Errorf("offers %dm where production has left 1000m", offered())
	}
}

// Pods that have to go again and again halt it too, whoever is asked.
func TestEvictionsHaltLending(t *testing.T) {
	for name, answer := range map[string]Answer{"evicted": {}, "observed": {Observed: true}, "ending": {Before: true}} {
		n, l := overcommitted(t)
		n.answer = answer
		for range 7 {
			l.answers = append(l.answers, answered{pod: n.machine.Pods()[0], Answer: answer})
		}
		n.seconds(l, 1)
		if got := l.Status().Halted; (got != "") != (name != "ending") {
			t.Errorf("after seven that were %s it says %q", name, got)
		}
	}
}
