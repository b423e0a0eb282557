package reclaim

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/topology"
)

func machine(t interface{ Fatal(...any) }, g topology.Grid) *topology.Topology {
	m, err := g.Build()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestBudget is a step up and down of production on 16 CPUs: the budget shrinks in
// the step that sees it, and grows a core at a time.
func TestBudget(t *testing.T) {
	var s Suppressor
	cfg := DefaultSuppress()
	load := Load{Capacity: 16, Pool: 16, Core: 2, Reserve: 1, Known: true, Span: time.Second}
	step := func(production float64) Budget {
		load.Production = production
		return s.Step(cfg, load)
	}
	near(t, "first budget", step(2).CPUs, 2)
	near(t, "target: 65 % of 16, less 2 and 1", step(2).Target, 7.4)
	for range 2 {
		near(t, "budget within the hold", step(2).CPUs, 2)
	}
	near(t, "after 5 s", step(2).CPUs, 4)
	for range 4 {
		near(t, "before another 5 s", step(2).CPUs, 4)
	}
	near(t, "another core", step(2).CPUs, 6)
	for range 20 {
		step(2)
	}
	near(t, "less than a core more is noise", step(2).CPUs, 6)
	near(t, "production takes 6", step(6).CPUs, 3.4)
	near(t, "production takes all", step(15).CPUs, 2)
	for range 4 {
		near(t, "grows late", step(0).CPUs, 2)
	}
	near(t, "by a core", step(0).CPUs, 4)
}

func TestBudgetOfABlindNode(t *testing.T) {
	var s Suppressor
	load := Load{Capacity: 16, Pool: 16, Core: 2, Known: true, Span: 10 * time.Second}
	for range 20 {
		s.Step(DefaultSuppress(), load)
	}
	load.Known = false
	for i := range 5 {
		b := s.Step(DefaultSuppress(), load)
		if want := i >= 3; b.Blind != want || (b.CPUs == 2) != want {
			t.Errorf("%d s without measurement: %+v", 10*(i+1), b)
		}
	}
	load.Known = true
	for _, bad := range []Load{{Production: math.NaN()}, {OnShared: math.NaN()}, {Outside: math.NaN()},
		{Outside: math.Inf(1)}, {Production: -1}} {
		l := load
		l.Production, l.OnShared, l.Outside = bad.Production, bad.OnShared, bad.Outside
		if b := s.Step(DefaultSuppress(), l); !b.Blind {
			t.Errorf("a use that is no number counts as measured: %+v", b)
		}
	}
	// A measurement between ends the blindness before it began.
	for i := range 12 {
		load.Known = i%3 == 0
		if b := s.Step(DefaultSuppress(), load); b.Blind {
			t.Errorf("%d s in which every third was measured: %+v", 10*(i+1), b)
		}
	}
}

// A step up is a share of the node or a core, and what was not measured is no time in
// which there was room; a floor that is configured is kept.
func TestBudgetGrows(t *testing.T) {
	var s Suppressor
	cfg := DefaultSuppress()
	load := Load{Capacity: 64, Pool: 64, Core: 2, Known: true, Span: time.Second}
	steps := func(count int, want float64) {
		t.Helper()
		for range count {
			near(t, "budget", s.Step(cfg, load).CPUs, want)
		}
	}
	steps(4, 2)
	steps(5, 8.4) // a tenth of 64 more
	load.Known = false
	steps(1, 8.4)
	load.Known = true
	steps(4, 8.4)
	steps(1, 14.8)
	cfg.Floor, load.Production = 4, 64
	steps(1, 4)
	cfg.Hold, load.Production, load.Span = 0, 0, 0 // nothing was measured
	steps(1, 4)
	load.Span = time.Second
	steps(1, 10.4)
}

func TestBudgetThresholds(t *testing.T) {
	settled := func(threshold float64, l Load) float64 {
		var s Suppressor
		cfg := DefaultSuppress()
		cfg.Threshold = threshold
		l.Known, l.Span = true, time.Minute
		var b Budget
		for range 100 {
			b = s.Step(cfg, l)
		}
		return b.CPUs
	}
	near(t, "threshold 0", settled(0, Load{Capacity: 16, Pool: 16, Core: 2}), 2)
	near(t, "a core is one CPU", settled(0, Load{Capacity: 16, Pool: 16, Core: 1}), 1)
	near(t, "threshold 100", settled(100, Load{Capacity: 16, Pool: 16, Core: 2}), 16)
	near(t, "a pool that is no multiple of cores", settled(100, Load{Capacity: 16, Pool: 15, Core: 2}), 15)
	near(t, "every CPU is an LSE pod's", settled(65, Load{Capacity: 16, Pool: 0, Core: 2, Production: 16}), 0)
	near(t, "an idle LSE pod has 8 of 16 CPUs, others use 2 of the rest",
		settled(75, Load{Capacity: 16, Pool: 8, Core: 2, Own: 8, Production: 2, OnShared: 2}), 4)
	near(t, "a busy one has", settled(75, Load{Capacity: 16, Pool: 8, Core: 2, Own: 8, Production: 10, OnShared: 2}), 2)
	near(t, "a node without CPUs", settled(65, Load{}), 0)
	if got := settled(100, Load{Capacity: 16, Pool: 16, Core: 1, Reserve: 1, Outside: 3}); got > 13 || got <= 12 {
		t.Errorf("outside of pods 3 CPUs are used, 1 is reserved: the budget is %v, want 13 or up to a core less", got)
	}
	if got := (Budget{}).Milli(); got != 10 {
		t.Errorf("no CPU is a quota of %d thousandths, want the kernel's least, 10", got)
	}
	if got := (Budget{CPUs: 2.5}).Milli(); got != 2500 {
		t.Errorf("2.5 CPUs are a quota of %d", got)
	}
	for _, bad := range []Suppress{{Threshold: 101, Grow: 1}, {Threshold: -1, Grow: 1},
		{Threshold: math.NaN(), Grow: 1}, {Grow: 0}, {Grow: 101}, {Grow: math.NaN()}, {Grow: 1, Floor: -1},
		{Grow: 1, Hold: -1}} {
		if bad.Validate() == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
	for _, good := range []Suppress{DefaultSuppress(), {Grow: 100}, {Threshold: 100, Grow: 0.1, Floor: 3}} {
		if err := good.Validate(); err != nil {
			t.Errorf("%+v: %v", good, err)
		}
	}
}

// Whatever the load does, the budget is never above what it allows, never below
// the floor, and never outside of the pool.
func TestBudgetStaysWithinBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s Suppressor
		cfg := DefaultSuppress()
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			l := Load{Capacity: 32, Pool: float64(rapid.IntRange(0, 32).Draw(t, "pool")), Core: 2,
				Known:      rapid.IntRange(0, 5).Draw(t, "known") > 0,
				Production: rapid.Float64Range(0, 40).Draw(t, "production"),
				Span:       time.Duration(rapid.IntRange(0, 9).Draw(t, "span")) * time.Second}
			b := s.Step(cfg, l)
			floor := min(2, l.Pool)
			if b.CPUs < floor-1e-9 || b.CPUs > l.Pool+1e-9 || l.Known && b.CPUs > max(floor, b.Target)+1e-9 {
				t.Fatalf("%+v gives %+v", l, b)
			}
		}
	})
}

func TestChoose(t *testing.T) {
	two := topology.Grid{Sockets: 2, CoresPerL3: 4, ThreadsPerCore: 2}
	split := two
	split.Numbering = topology.Split
	set := func(s string) cpuset.Set {
		v, err := cpuset.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, c := range []struct {
		name                          string
		grid                          topology.Grid
		pool, reserved, pinned, apart string
		n                             int
		want                          string
	}{
		{"the nodes in turn", two, "0-15", "", "", "", 6, "0-3,8-9"},
		{"whole cores only", two, "0-15", "", "", "", 5, "0-1,8-9"},
		{"siblings far apart", split, "0-15", "", "", "", 4, "0,4,8,12"},
		{"reserved first", two, "0-15", "6-7,14-15", "", "", 6, "0-1,6-7,14-15"},
		{"reserved on one node: the other catches up", two, "0-15", "0-3", "", "", 8, "0-3,8-11"},
		{"pinned last", two, "0-15", "", "0-5", "", 4, "6-9"},
		{"pinned last, but before nothing", two, "0-15", "", "0-5", "", 12, "0-1,6-15"},
		{"no sibling of an LSE CPU", two, "1-15", "", "", "0", 4, "2-3,8-9"},
		{"one core at least", two, "0-15", "", "", "", 0, "0-1"},
		{"half a core where no more is there", two, "3", "", "", "", 2, "3"},
		{"all", two, "0-15", "", "", "", 99, "0-15"},
		{"every CPU is an LSE pod's", two, "", "", "", "0-15", 4, ""},
		{"siblings of LSE pods are all that is left", two, "1,3,5,7,9,11,13,15", "", "", "0,2,4,6,8,10,12,14", 4, ""},
	} {
		m := Masks{Pool: set(c.pool), Reserved: set(c.reserved), Pinned: set(c.pinned), Apart: set(c.apart)}
		if got := Choose(machine(t, c.grid), m, c.n); got.String() != c.want {
			t.Errorf("%s: %d CPUs are %s, want %s", c.name, c.n, got, c.want)
		}
	}
}

// TestChooseKeepsItsPromises on random machines with random owners.
func TestChooseKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := func(name string, most int) int { return rapid.IntRange(1, most).Draw(t, name) }
		top := machine(t, topology.Grid{Sockets: n("sockets", 2), NodesPerSocket: n("nodes", 2),
			CoresPerL3: n("cores", 5), ThreadsPerCore: n("threads", 3),
			Numbering: rapid.SampledFrom([]topology.Numbering{topology.Adjacent, topology.Split}).Draw(t, "numbering")})
		var m Masks
		online := top.Online()
		for cpu := range online.All() {
			switch rapid.IntRange(0, 9).Draw(t, "owner") {
			case 0:
				m.Apart.Add(cpu)
				continue
			case 1:
				m.Pinned.Add(cpu)
			case 2:
				m.Reserved.Add(cpu)
			case 3:
				continue // offline, or isolated
			}
			m.Pool.Add(cpu)
		}
		kept := top.Siblings(m.Apart)
		var last cpuset.Set
		for want := range top.Online().Count() + 2 {
			got := Choose(top, m, want)
			if !got.SubsetOf(&m.Pool) || got.Intersects(&kept) {
				t.Fatalf("%d CPUs are %s: outside of the pool %s or next to %s", want, got, m.Pool, m.Apart)
			}
			if !last.SubsetOf(&got) {
				t.Fatalf("%d CPUs are %s, one fewer were %s", want, got, last)
			}
			if got.IsEmpty() != m.Pool.Minus(kept).IsEmpty() {
				t.Fatalf("%d CPUs are %s of %s", want, got, m.Pool.Minus(kept))
			}
			if alone := First(top, m); !alone.IsEmpty() && !alone.SubsetOf(&got) && !got.SubsetOf(&alone) {
				t.Fatalf("%d CPUs are %s: not the reserved cores %s first", want, got, alone)
			}
			first := Choose(top, m, 0)
			if got.Count() > max(want, first.Count()) {
				t.Fatalf("%d CPUs are %d", want, got.Count())
			}
			last = got
		}
		if want := m.Pool.Minus(kept); last != want {
			t.Fatalf("all are %s, want %s", last, want)
		}
	})
}

// Even over the nodes: on a regular machine without owners no node gives more than
// one core more than another.
func TestChooseIsEven(t *testing.T) {
	top := machine(t, topology.Grid{Sockets: 2, NodesPerSocket: 2, CoresPerL3: 4, ThreadsPerCore: 2})
	for want := range 33 {
		got := Choose(top, Masks{Pool: top.Online()}, want)
		least, most := 99, 0
		for i := range top.Nodes() {
			n := got.CountAnd(&top.Nodes()[i].CPUs)
			least, most = min(least, n), max(most, n)
		}
		if most-least > 2 {
			t.Errorf("%d CPUs are %s: %d on one node, %d on another", want, got, least, most)
		}
	}
}

func BenchmarkChoose(b *testing.B) {
	top := machine(b, topology.Grid{Sockets: 2, NodesPerSocket: 4, CoresPerL3: 32, ThreadsPerCore: 2})
	m := Masks{Pool: top.Online(), Reserved: cpuset.Range(0, 7), Pinned: cpuset.Range(100, 199)}
	b.ReportAllocs()
	for b.Loop() {
		Choose(top, m, 200)
	}
}

// Batch pods retreat to CPUs of which they need less than half for a minute, and have the others
// back in the step that sees them need more.
func TestRetreat(t *testing.T) {
	const calm = 60
	steps := func(n int, d Demand) []Demand { return slices.Repeat([]Demand{d}, n) }
	little := Demand{Batch: 0.9, Room: 2, Known: true, Span: time.Second}
	with := func(change func(*Demand)) Demand {
		d := little
		change(&d)
		return d
	}
	waits := with(func(d *Demand) { d.Waits = true })
	half := with(func(d *Demand) { d.Batch = 1 })
	most := with(func(d *Demand) { d.Batch = 1.7 })
	for name, c := range map[string]struct {
		steps []Demand
		want  bool
	}{
		"at first":         {steps(calm-1, little), false},
		"after a minute":   {steps(calm, little), true},
		"half of the room": {steps(2*calm, half), false},
		"more once there":  {append(steps(calm, little), steps(calm, most)...), true},
		"nearly all of it": {append(steps(calm, little), with(func(d *Demand) { d.Batch = 1.8 })), false},
		"they wait":        {append(steps(calm, little), waits), false},
		"they waited":      {slices.Concat(steps(calm, little), steps(1, waits), steps(calm-1, little)), false},
		"once more":        {slices.Concat(steps(calm, little), steps(1, waits), steps(calm, little)), true},
		"not known":        {append(steps(calm, little), with(func(d *Demand) { d.Known = false })), false},
		"not a number":     {append(steps(calm, little), with(func(d *Demand) { d.Batch = math.NaN() })), false},
		"others use it":    {append(steps(calm, little), with(func(d *Demand) { d.Room = -1 })), false},
		"there are none":   {steps(2*calm, Demand{Known: true, Span: time.Second}), false},
		"a clock that goes back": {slices.Concat(steps(calm-1, little),
			steps(1, with(func(d *Demand) { d.Span = -time.Hour })), steps(1, little)), true},
	} {
		var r Retreat
		got := false
		for _, d := range c.steps {
			got = r.Step(d)
		}
		if got != c.want {
			t.Errorf("%s: retreated %t, want %t", name, got, c.want)
		}
	}
}
