package detect

import (
	"math"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpi"
)

func TestNearness(t *testing.T) {
	domain := func(i int) (d cpi.Domains) { d.Add(i); return d }
	at := func(core, l3, node int) container {
		return container{Container: &cpi.Container{Place: cpi.Place{Cores: domain(core), L3s: domain(l3),
			Nodes: domain(node)}}}
	}
	victim := at(1, 1, 1)
	for name, c := range map[string]struct {
		suspect container
		want    float64
	}{
		"not known":    {container{Container: new(cpi.Container)}, 1},
		"a core":       {at(1, 1, 1), 1.5},
		"an L3 domain": {at(2, 1, 1), 1},
		"a NUMA node":  {at(2, 2, 1), 0.3},
		"nothing":      {at(2, 2, 2), 0.05},
	} {
		if got := nearness(&victim, &c.suspect); got != c.want {
			t.Errorf("%s shared: %v, want %v", name, got, c.want)
		}
		if got := nearness(&c.suspect, &victim); got != c.want {
			t.Errorf("%s shared, the other way: %v, want %v", name, got, c.want)
		}
	}
}

// Two suspects ran alike and one of them must have done it. What else is known of them
// decides which spec is doubted.
func TestWhatElseIsKnownWeighs(t *testing.T) {
	domain := func(i int) (d cpi.Domains) { d.Add(i); return d }
	place := func(core, l3, node int) cpi.Place {
		return cpi.Place{Cores: domain(core), L3s: domain(l3), Nodes: domain(node)}
	}
	pair := func(antagonist string, p Pair) *Pair {
		p.PairKey = PairKey{Victim: "victim", Antagonist: antagonist}
		p.Seen = epoch
		return &p
	}
	for _, c := range []struct {
		name   string
		places [2]cpi.Place
		misses [2]float64
		pairs  []*Pair
		odds   float64 // of u0 against u1
		capped bool    // u0, without further ado
	}{
		{name: "nothing", odds: 1},
		{name: "both are as near", places: [2]cpi.Place{place(2, 1, 1), place(3, 1, 1)}, odds: 1},
		{name: "one shares the core", places: [2]cpi.Place{place(1, 1, 1), place(2, 1, 1)}, odds: 1.5},
		{name: "one shares the NUMA node only", places: [2]cpi.Place{place(2, 1, 1), place(2, 2, 1)}, odds: 1 / 0.3},
		{name: "one shares a core, one nothing", places: [2]cpi.Place{place(1, 1, 1), place(2, 2, 2)}, odds: 30},
		{name: "both miss as much", misses: [2]float64{1e6, 1e6}, odds: 1},
		{name: "one misses three times as much", misses: [2]float64{3e6, 1e6}, odds: 3},
		{name: "one misses nearly all", misses: [2]float64{1e9, 1}, odds: 8},
		{name: "misses of one are not known", misses: [2]float64{1e6, 0}, odds: 1},
		{name: "one helped before", pairs: []*Pair{pair("u0", Pair{Success: 2})}, odds: 5},
		{name: "one helped, one did not", pairs: []*Pair{pair("u0", Pair{Success: 5}), pair("u1", Pair{Failure: 5})},
			odds: 100, capped: true},
		{name: "one was harmed", pairs: []*Pair{pair("u1", Pair{Harm: 1})}, odds: 3},
		{name: "near and missing", places: [2]cpi.Place{place(1, 1, 1), place(2, 2, 2)}, misses: [2]float64{9e6, 1e6},
			odds: 30 * 1.8 / 0.25, capped: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, func(c *Config) { c.RobustSigmas = 2 })
			b.put(cpi.Container{ID: "v", Job: "victim", Class: cpi.LS, Place: place(1, 1, 1)})
			b.spec("victim", 1.8, 0.16)
			for i, id := range []string{"u0", "u1"} {
				b.put(cpi.Container{ID: id, Job: id, Class: cpi.Batch, Place: c.places[i]})
			}
			for _, p := range c.pairs {
				b.d.pairs.known[p.PairKey] = p
			}
			for k, cpi := range paperCPI {
				b.now = b.now.Add(time.Minute)
				round := []Sample{{Ref: b.refs["v"], At: b.now, Usage: 1, CPI: cpi}}
				for i, id := range []string{"u0", "u1"} {
					round = append(round, Sample{Ref: b.refs[id], At: b.now, Usage: guilty[k], Misses: c.misses[i]})
				}
				b.note(b.d.Observe(b.now, round))
			}
			got := map[Ref]Suspect{}
			for _, s := range lastOf(b, AnalysisEvent).Verdict.Suspects {
				got[s.Ref] = s
			}
			u0, u1 := got[b.refs["u0"]], got[b.refs["u1"]]
			if odds := u0.Confidence / u1.Confidence; math.Abs(odds/c.odds-1) > 1e-6 {
				t.Errorf("the odds of u0 against u1 are %.3f, want %.3f", odds, c.odds)
			}
			if n := b.count("cap u0"); (n > 0) != c.capped || b.count("cap u1") > 0 {
				t.Errorf("u0 is capped %d times, u1 %d: %q", n, b.count("cap u1"), b.log)
			}
		})
	}
}
