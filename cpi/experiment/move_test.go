package experiment

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpuset"
)

// withRoom is a machine on which best effort can leave the CPUs around the victim, for so many others.
func withRoom(t *testing.T, cfg Config, seed uint64, left int) *innocents {
	t.Helper()
	w := newInnocents(t, cfg, rand.New(rand.NewPCG(seed, 3)))
	w.room(t, left)
	return w
}

func (w *innocents) room(t *testing.T, left int) {
	t.Helper()
	rooms := &cpi.Rooms{{Off: cpuset.Range(0, 7), Left: left}, {Off: cpuset.Range(0, 1), Left: left + 2}}
	if _, err := w.d.Put(&cpi.Container{ID: "victim-0", Job: "victim", Class: cpi.LS,
		Place: cpi.Place{Rooms: rooms}}); err != nil {
		t.Fatal(err)
	}
}

// TestTheGentlestThatWorks: a verdict moves the suspect where that helps and there is room for what it uses, as near as
// has to be, and else leaves it a quota.
func TestTheGentlestThatWorks(t *testing.T) {
	for _, cfg := range []Config{DefaultConfig(), byMinute()} {
		for _, c := range []struct {
			name  string
			kind  innocentWorld
			left  int
			off   string // after the verdict; empty: a quota
			later string // half an hour after it
		}{
			{"helps", guilty, 8, "0-7", "0-7"},
			{"helps off the cores", guilty, 2, "0-1", "0-1"},
			{"no room", guilty, 0, "", ""},
			{"does not help", clinging, 8, "0-7", ""},
		} {
			w := withRoom(t, cfg, 3, c.left)
			verdict, first, hardened, moves, caps := 0, "", 0, 0, 0
			for n := range 400 {
				w.minute(c.kind, n)
				if w.d.Counters().Verdicts == 0 {
					continue
				}
				if verdict == 0 {
					verdict = n
				}
				off, least := w.d.MovedOff(w.jobs[0])
				milli, _ := w.d.ThrottleOf(w.jobs[0])
				on, _ := w.d.Throttled("job0")
				if on != (off != nil || milli > 0) || off != nil && (milli > 0 || least < 3 || least > 5) {
					t.Fatalf("%s, minute %d: throttled %t, off %v with %d, %dm", c.name, n, on, off, least, milli)
				}
				if off != nil && first == "" {
					first = off.String()
				}
				if n <= verdict+60 {
					continue
				}
				switch {
				case off != nil && off.String() == c.later:
					moves++
				case off != nil:
					hardened = -1
				case milli > 0:
					caps++
				}
			}
			p := w.d.pairs[PairKey{Victim: "victim", Suspect: "job0"}]
			if verdict == 0 || p == nil || p.stage != Verdict || first != c.off || hardened < 0 ||
				(c.later == "") != (moves == 0) || (c.later == "") != (caps > 0) {
				t.Errorf("%s, windows of %s: a verdict in minute %d, first off %q, later %d moves and %d quotas, %+v",
					c.name, cfg.Window, verdict, first, moves, caps, p)
			}
		}
	}
}

// TestAMoveCostsNoEvidence: what had been won against the suspect is there again with the quota, also after a restart
// in between, and who is refused a move gets the quota at once.
func TestAMoveCostsNoEvidence(t *testing.T) {
	key := PairKey{Victim: "victim", Suspect: "job0"}
	moved := func() (*innocents, int) {
		w := withRoom(t, DefaultConfig(), 3, 8)
		for n := range 400 {
			w.minute(guilty, n)
			if off, _ := w.d.MovedOff(w.jobs[0]); off != nil {
				return w, n + 1
			}
		}
		t.Fatal("nobody is moved in 400 minutes")
		return nil, 0
	}
	w, n := moved()
	guilt := w.d.pairs[key].move.guilt.e(w.d.bank)
	saved := w.d.Save()
	again, err := New(DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Restore(epoch.Add(time.Duration(n)*time.Minute), saved); err != nil {
		t.Fatal(err)
	}
	p := again.pairs[key]
	if e := p.proc.e(again.bank); p.stage != Verdict || p.move.step != ByMove || e != guilt {
		t.Errorf("after a restart: %s, step %d, e-value %g, was %g", p.stage, p.move.step, e, guilt)
	}
	if !w.d.RefuseStep("job0", ByMove) || w.d.RefuseStep("job0", ByMove) || w.d.RefuseStep("nobody", ByMove) {
		t.Error("it is news once that a move was refused")
	}
	if p := w.d.pairs[key]; p.move.step != ByQuota || p.stage != Verdict || p.proc.e(w.d.bank) != guilt {
		t.Errorf("after a refusal: %s, step %d, e-value %g, was %g", p.stage, p.move.step, p.proc.e(w.d.bank), guilt)
	}
	w, n = moved()
	w.room(t, 0)
	w.minute(guilty, n)
	if p := w.d.pairs[key]; p.move.step != ByQuota || p.stage != Verdict {
		t.Errorf("without room: %s, step %d", p.stage, p.move.step)
	}
	w, n = moved()
	other := PairKey{Victim: "another", Suspect: "job0"}
	o := w.d.addPair(other)
	o.stage, o.times, o.effect = Testing, w.d.pairs[key].times, w.d.pairs[key].effect
	w.minute(guilty, n)
	if p := w.d.pairs[key]; p.move.step != ByQuota {
		t.Error("it is moved for one victim while it is tested for another")
	}
}
