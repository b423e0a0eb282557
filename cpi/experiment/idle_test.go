package experiment

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpuset"
)

// meeting is a machine on which job0 may be let run on otherwise idle CPUs alone, and runs on these, the victim on 0-7.
// There is room for so many CPUs off them.
func meeting(t *testing.T, cfg Config, first, left int) *innocents {
	t.Helper()
	w := newInnocents(t, cfg, rand.New(rand.NewPCG(3, 3)))
	w.meet(t, first, true)
	around := cpuset.Range(0, 7)
	rooms := &cpi.Rooms{{Off: around, Left: left}}
	if _, err := w.d.Put(&cpi.Container{ID: "victim-0", Job: "victim", Class: cpi.LS,
		Place: cpi.Place{CPUs: &around, Rooms: rooms}}); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *innocents) meet(t *testing.T, first int, may bool) {
	t.Helper()
	at := cpuset.Range(first, first+7)
	if _, err := w.d.Put(&cpi.Container{ID: "job0-0", Job: "job0", Class: cpi.Batch, MayIdle: may,
		Place: cpi.Place{CPUs: &at}}); err != nil {
		t.Fatal(err)
	}
}

// TestIdleCPUsBeforeAQuota: where the two meet, after a move and before a quota, and only for as long as it helps. The
// world "guilty" is quiet while its job is throttled in any way.
func TestIdleCPUsBeforeAQuota(t *testing.T) {
	for _, cfg := range []Config{DefaultConfig(), byMinute()} {
		for _, c := range []struct {
			name        string
			kind        innocentWorld
			first, left int
			steps       []Step // that are taken, in order
		}{
			{"helps", guilty, 0, 0, []Step{ByIdling}},
			{"they do not meet", guilty, 8, 0, []Step{ByQuota}},
			{"a move helps", guilty, 0, 8, []Step{ByMove}},
			{"neither helps", clinging, 0, 8, []Step{ByMove, ByIdling, ByQuota}},
		} {
			w := meeting(t, cfg, c.first, c.left)
			var steps []Step
			for n := range 400 {
				w.minute(c.kind, n)
				p := w.d.pairs[PairKey{Victim: "victim", Suspect: "job0"}]
				if p == nil || p.stage != Verdict {
					continue
				}
				if len(steps) == 0 || steps[len(steps)-1] != p.move.step {
					steps = append(steps, p.move.step)
				}
				milli, _ := w.d.ThrottleOf(w.jobs[0])
				off, _ := w.d.MovedOff(w.jobs[0])
				on, _ := w.d.Throttled("job0")
				idle, by := w.d.Idles(w.jobs[0]), 0
				for _, is := range []bool{milli > 0, off != nil, idle} {
					if is {
						by++
					}
				}
				if on != (by == 1) || by > 1 || on && idle != (p.move.step == ByIdling) {
					t.Fatalf("%s, minute %d, step %d: throttled %t, to %dm, off %v, idle %t", c.name, n,
						p.move.step, on, milli, off, idle)
				}
			}
			tally := w.d.Counters().Steps
			for _, s := range []Step{ByMove, ByIdling} {
				want := Tally{}
				for i, taken := range c.steps {
					if taken == s {
						want.Begun = 1
						if i < len(c.steps)-1 {
							want.Failed = 1
						}
					}
				}
				if tally[s] != want {
					t.Errorf("%s, windows of %s: step %d is counted as %+v, want %+v", c.name, cfg.Window, s,
						tally[s], want)
				}
			}
			if len(steps) != len(c.steps) || steps[len(steps)-1] != c.steps[len(c.steps)-1] {
				t.Errorf("%s, windows of %s: the steps are %v, want %v", c.name, cfg.Window, steps, c.steps)
			}
		}
	}
}

// TestIdlingCostsNoEvidence: what had been won against the suspect is there again with the quota, also after a restart
// in between, where it is refused, and where it can be done no more.
func TestIdlingCostsNoEvidence(t *testing.T) {
	key := PairKey{Victim: "victim", Suspect: "job0"}
	idling := func() (*innocents, int) {
		w := meeting(t, DefaultConfig(), 0, 0)
		for n := range 400 {
			w.minute(guilty, n)
			if w.d.Idles(w.jobs[0]) {
				return w, n + 1
			}
		}
		t.Fatal("nobody idles in 400 minutes")
		return nil, 0
	}
	w, n := idling()
	guilt := w.d.pairs[key].move.guilt.e(w.d.bank)
	again, err := New(DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Restore(epoch.Add(time.Duration(n)*time.Minute), w.d.Save()); err != nil {
		t.Fatal(err)
	}
	if p := again.pairs[key]; p.stage != Verdict || p.move.step != ByIdling || p.proc.e(again.bank) != guilt {
		t.Errorf("after a restart: %s, step %d, e-value %g, was %g", p.stage, p.move.step, p.proc.e(again.bank), guilt)
	}
	if w.d.RefuseStep("job0", ByMove) || !w.d.RefuseStep("job0", ByIdling) || w.d.RefuseStep("job0", ByIdling) {
		t.Error("it is news once that cpu.idle was refused")
	}
	if p := w.d.pairs[key]; p.move.step != ByQuota || p.stage != Verdict || p.proc.e(w.d.bank) != guilt {
		t.Errorf("after a refusal: %s, step %d, e-value %g, was %g", p.stage, p.move.step, p.proc.e(w.d.bank), guilt)
	}
	w, n = idling()
	w.meet(t, 0, false)
	w.minute(guilty, n)
	if p := w.d.pairs[key]; p.move.step != ByQuota || p.stage != Verdict {
		t.Errorf("without cpu.idle: %s, step %d", p.stage, p.move.step)
	}
}
