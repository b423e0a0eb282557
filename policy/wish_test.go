package policy

import (
	"errors"
	"testing"
	"time"
)

// TestOneReadingOfAWish: whatever node a pod comes to, it is refused in the words in which
// its wish is, so that a scheduler can say them before there is a node.
func TestOneReadingOfAWish(t *testing.T) {
	class := func(c string) map[string]string { return map[string]string{LabelClass: c} }
	for _, c := range []struct {
		name         string
		labels, anns map[string]string
		owns, binds  bool
	}{
		{"unknown class", class("gold"), nil, false, false},
		{"not JSON", class("LSR"), map[string]string{AnnSpec: "{"}, true, false},
		{"unknown bind policy", class("LSR"), map[string]string{AnnSpec: `{"preferredCPUBindPolicy":"x"}`}, true,
			false},
		{"burst of an owner", class("LSR"), map[string]string{AnnSpec: `{"preferredCPUBindPolicy":"ConstrainedBurst"}`},
			true, false},
		{"unknown exclusive policy", class("LSE"), map[string]string{AnnSpec: `{"preferredCPUExclusivePolicy":"x"}`},
			true, false},
		{"unknown alignment", class("LSR"), map[string]string{AnnNUMASpec: `{"numaTopologyPolicy":"x"}`}, true, false},
		{"unknown apartness", class("LS"), map[string]string{AnnNUMASpec: `{"singleNUMANodeExclusive":"x"}`}, false,
			false},
		{"unknown word for SMT", class("LSR"), map[string]string{AnnSMT: "x"}, true, false},
		{"unknown word for healing", class("LSR"), map[string]string{AnnHeal: "x"}, true, false},
		{"unknown word for caps", class("LS"), map[string]string{AnnCap: "x"}, false, false},
		{"unknown word for managed", class("LS"), map[string]string{AnnManaged: "x"}, false, false},
		{"an owner", class("LSE"), map[string]string{AnnSMT: "isolate"}, true, false},
		{"burst", class("LS"), map[string]string{AnnSpec: `{"preferredCPUBindPolicy":"ConstrainedBurst"}`}, false,
			true},
		{"aligned", nil, map[string]string{AnnNUMASpec: `{"numaTopologyPolicy":"SingleNUMANode"}`}, false, true},
		{"unmanaged", class("LSR"), map[string]string{AnnManaged: "false", AnnSMT: "x"}, false, false},
		{"nothing", nil, nil, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := lsr("a", 2000, c.anns)
			p.Labels = c.labels
			w, want := ReadWish(&p)
			if w.Owns() != c.owns || w.Binds() != c.binds {
				t.Errorf("owns %v, binds %v; want %v, %v", w.Owns(), w.Binds(), c.owns, c.binds)
			}
			_, err := small(t, Config{}).Step(time.Unix(0, 0), PodRun{Pod: p})
			var got *Refusal
			if errors.As(err, &got); (got == nil) != (want == nil) || got != nil && *got != *want {
				t.Errorf("the node says %v, the wish %v", err, want)
			}
		})
	}
}
