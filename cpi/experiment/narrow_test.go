package experiment

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpuset"
)

// narrowing is a machine that can limit memory bandwidth. The victim runs on NUMA node 0, job0 on another one or, if
// below 0, who knows where.
func narrowing(t *testing.T, cfg Config, node int, idles bool) *innocents {
	t.Helper()
	w := newInnocents(t, cfg, rand.New(rand.NewPCG(3, 3)))
	w.onNodes(t, node, idles, true)
	return w
}

func (w *innocents) onNodes(t *testing.T, node int, idles, may bool) {
	t.Helper()
	cpus := cpuset.Range(0, 7)
	victim, suspect := cpi.Place{CPUs: &cpus}, cpi.Place{CPUs: &cpus}
	victim.Nodes.Add(0)
	if node >= 0 {
		suspect.Nodes.Add(node)
	}
	for _, c := range []*cpi.Container{
		{ID: "victim-0", Job: "victim", Class: cpi.LS, Place: victim},
		{ID: "job0-0", Job: "job0", Class: cpi.Batch, MayIdle: idles, MayNarrow: may, Place: suspect},
	} {
		if _, err := w.d.Put(c); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBandwidthBeforeAQuota: where the two share memory, after cpu.idle and before a quota, and only for as long as it
// helps.
func TestBandwidthBeforeAQuota(t *testing.T) {
	for _, cfg := range []Config{DefaultConfig(), byMinute()} {
		for _, c := range []struct {
			name  string
			kind  innocentWorld
			node  int
			idles bool
			steps []Step // that are taken, in order
		}{
			{"helps", guilty, 0, false, []Step{ByBandwidth}},
			{"who knows where it is", guilty, -1, false, []Step{ByBandwidth}},
			{"another memory", guilty, 1, false, []Step{ByQuota}},
			{"cpu.idle helps", guilty, 0, true, []Step{ByIdling}},
			{"neither helps", clinging, 0, true, []Step{ByIdling, ByBandwidth, ByQuota}},
		} {
			w := narrowing(t, cfg, c.node, c.idles)
			steps := w.steps(t, c.name, c.kind)
			if !slices.Equal(steps, c.steps) {
				t.Errorf("%s, windows of %s: the steps are %v, want %v", c.name, cfg.Window, steps, c.steps)
			}
			want := Tally{}
			if i := slices.Index(c.steps, ByBandwidth); i >= 0 {
				if want.Begun = 1; i < len(c.steps)-1 {
					want.Failed = 1
				}
			}
			if got := w.d.Counters().Steps[ByBandwidth]; got != want {
				t.Errorf("%s, windows of %s: counted as %+v, want %+v", c.name, cfg.Window, got, want)
			}
		}
	}
}

// steps that a verdict on job0 takes in 400 minutes. At any time one throttles it at most.
func (w *innocents) steps(t *testing.T, name string, kind innocentWorld) (steps []Step) {
	t.Helper()
	for n := range 400 {
		w.minute(kind, n)
		p := w.d.pairs[PairKey{Victim: "victim", Suspect: "job0"}]
		if p == nil || p.stage != Verdict {
			continue
		}
		if len(steps) == 0 || steps[len(steps)-1] != p.move.step {
			steps = append(steps, p.move.step)
		}
		milli, _ := w.d.ThrottleOf(w.jobs[0])
		on, _ := w.d.Throttled("job0")
		narrow, by := w.d.Narrowed(w.jobs[0]), 0
		for _, is := range []bool{milli > 0, w.d.Idles(w.jobs[0]), narrow} {
			if is {
				by++
			}
		}
		if on != (by == 1) || by > 1 || on && narrow != (p.move.step == ByBandwidth) {
			t.Fatalf("%s, minute %d, step %d: throttled %t, to %dm, narrow %t", name, n, p.move.step, on, milli, narrow)
		}
	}
	return steps
}

// TestBandwidthCostsNoEvidence: what had been won against the suspect is there again with the quota, also after a
// restart in between, where it is refused, and where it can be done no more. A state of before has no such step.
func TestBandwidthCostsNoEvidence(t *testing.T) {
	key := PairKey{Victim: "victim", Suspect: "job0"}
	held := func() (*innocents, int) {
		w := narrowing(t, DefaultConfig(), 0, false)
		for n := range 400 {
			w.minute(guilty, n)
			if w.d.Narrowed(w.jobs[0]) {
				return w, n + 1
			}
		}
		t.Fatal("nobody is held back from memory in 400 minutes")
		return nil, 0
	}
	w, n := held()
	guilt := w.d.pairs[key].move.guilt.e(w.d.bank)
	saved := w.d.Save()
	for _, want := range []Step{ByBandwidth, ByQuota} {
		again, err := New(DefaultConfig())
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Restore(epoch.Add(time.Duration(n)*time.Minute), saved); err != nil {
			t.Fatal(err)
		}
		if p := again.pairs[key]; p.stage != Verdict || p.move.step != want || p.proc.e(again.bank) != guilt {
			t.Errorf("after a restart: %s, step %d, e-value %g, was %g", p.stage, p.move.step, p.proc.e(again.bank),
				guilt)
		}
		for i := range saved.Pairs {
			saved.Pairs[i].Narrowed = false
		}
	}
	if w.d.RefuseStep("job0", ByIdling) || !w.d.RefuseStep("job0", ByBandwidth) ||
		w.d.RefuseStep("job0", ByBandwidth) {
		t.Error("it is news once that it was refused")
	}
	if p := w.d.pairs[key]; p.move.step != ByQuota || p.stage != Verdict || p.proc.e(w.d.bank) != guilt {
		t.Errorf("after a refusal: %s, step %d, e-value %g, was %g", p.stage, p.move.step, p.proc.e(w.d.bank), guilt)
	}
	w, n = held()
	w.onNodes(t, 0, false, false)
	w.minute(guilty, n)
	if p := w.d.pairs[key]; p.move.step != ByQuota || p.stage != Verdict {
		t.Errorf("without resctrl: %s, step %d", p.stage, p.move.step)
	}
}
