package experiment

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpi"
)

// convicted plays a guilty machine until there is a verdict, and tells the next minute.
func convicted(t *testing.T, cfg Config) (w *innocents, next int) {
	t.Helper()
	w = newInnocents(t, cfg, rand.New(rand.NewPCG(3, 3)))
	for n := range 240 {
		w.minute(guilty, n)
		if w.d.Counters().Verdicts > 0 {
			return w, n + 1
		}
	}
	t.Fatal("no verdict in 240 minutes")
	return nil, 0
}

// TestAVerdictEndsWithItsVictim: who disturbs nobody any more is let go, however busy; and
// while the victim has only restarted, it is not.
func TestAVerdictEndsWithItsVictim(t *testing.T) {
	for _, c := range []struct {
		name  string
		alone int // minutes without the victim
		held  bool
	}{
		{"restarted", 5, true}, {"gone", 20, false},
	} {
		w, next := convicted(t, byMinute())
		w.d.Forget("victim-0")
		for n := range c.alone {
			var samples []Sample
			for _, ref := range w.jobs {
				samples = append(samples, Sample{Ref: ref, Usage: 0.2, CPI: 1})
			}
			w.d.Observe(epoch.Add(time.Duration(next+n)*time.Minute), samples)
			var coins []Thrown
			for _, trial := range w.d.Trials() {
				coins = append(coins, Thrown{Trial: trial, On: true})
			}
			w.d.Throw(coins)
		}
		held := w.d.pairs[PairKey{Victim: "victim", Suspect: "job0"}].stage == Verdict
		if on, _ := w.d.Throttled("job0"); held != c.held || on != c.held {
			t.Errorf("%s: %d minutes later the verdict stands: %t, it is throttled: %t", c.name, c.alone, held, on)
		}
	}
}

// TestRefusedThrottles: no new coin is thrown for a while, and the coin that was thrown
// still counts.
func TestRefusedThrottles(t *testing.T) {
	w, next := convicted(t, byMinute())
	w.d.Refuse("job0")
	w.d.Refuse("nobody")
	for n := range refusedPause {
		w.window(guilty, next+n)
		if n == 0 {
			c := w.d.pairs[PairKey{Victim: "victim", Suspect: "job0"}].proc.coinOf(w.d.tick)
			if c == nil {
				t.Error("the coin that was thrown is forgotten: those that fell on throttled would be left out")
			}
		}
		if trials := w.d.Trials(); (len(trials) > 0) != (n == refusedPause-1) {
			t.Errorf("%d minutes after the refusal: %+v", n+1, trials)
		}
		throw(w.d, w.r)
	}
}

// TestWhoseWindowDecides: those under test, whatever their coins say, and who is slow.
func TestWhoseWindowDecides(t *testing.T) {
	w, next := convicted(t, byMinute())
	for n := range 30 {
		w.minute(guilty, next+n)
		got := w.d.Questions()
		if len(got) != 1 || !got[0].Test || got[0].Victim != "victim-0" || len(got[0].Suspects) != 1 ||
			got[0].Suspects[0] != "job0-0" {
			t.Fatalf("minute %d: %+v", next+n, got)
		}
	}
	slow := newInnocents(t, byMinute(), rand.New(rand.NewPCG(5, 5)))
	for n := range 60 {
		slow.window(shuffled, n)
	}
	if got := slow.d.Questions(); len(got) != 0 {
		t.Errorf("nobody is slow: %+v", got)
	}
	slow.d.Observe(epoch.Add(time.Hour), []Sample{{Ref: slow.victim, Usage: 1, CPI: 3}})
	if got := slow.d.Questions(); len(got) != 1 || got[0].Victim != "victim-0" || got[0].Test {
		t.Errorf("one outlier: %+v", got)
	}
}

// TestEvictions are asked for once a job was capped so often, and once an hour.
func TestEvictions(t *testing.T) {
	for _, after := range []int{0, 3} {
		cfg := byMinute()
		cfg.EvictAfter = after
		caps, first, asked := 0, 0, 0
		found(t, cfg, 360, func(w *innocents, n int) {
			for _, e := range w.d.work.events {
				switch e.Kind {
				case CapEvent:
					caps++
				case EvictEvent:
					if asked++; asked == 1 {
						first = caps
					}
					if e.Job != "job0" || len(e.Throttles) != 1 || e.Victim == nil {
						t.Errorf("%+v", e)
					}
				default:
				}
			}
		})
		if first != after || asked > 6 || caps < 4 {
			t.Errorf("after %d: %d caps, %d evictions, the first after %d caps", after, caps, asked, first)
		}
	}
}

// TestWindowsAnywhereInTheirIntervals: what counts is how many intervals have begun, not
// the time between.
func TestWindowsAnywhereInTheirIntervals(t *testing.T) {
	d, err := New(byMinute())
	if err != nil {
		t.Fatal(err)
	}
	at := epoch
	d.Observe(at, nil)
	for _, c := range []struct {
		steps int64
		after time.Duration
		want  int64
	}{
		{1, 110 * time.Second, 1}, {1, 10 * time.Second, 1}, {3, 130 * time.Second, 3}, {0, time.Second, 1},
	} {
		at = at.Add(c.after)
		before := d.window
		d.ObserveAfter(c.steps, at, nil)
		if got := d.window - before; got != c.want {
			t.Errorf("%d intervals in %s: %d windows, want %d", c.steps, c.after, got, c.want)
		}
	}
}

// TestWhatIsLearned of a job is told, and how far it is from being judged.
func TestWhatIsLearned(t *testing.T) {
	d, err := New(byMinute())
	if err != nil {
		t.Fatal(err)
	}
	if err := d.SetSpec("web", "", 2, 0.1); err != nil {
		t.Fatal(err)
	}
	if _, err := json.Marshal(d.Save()); err != nil {
		t.Errorf("a spec of others cannot be saved: %v", err)
	}
	ref := put(t, d, "web", cpi.LS)
	put(t, d, "batch", cpi.Batch)
	learned := 0
	job := func() JobInfo {
		list := d.Jobs()
		if len(list) != 1 {
			t.Fatalf("%+v", list)
		}
		return list[0]
	}
	if got := job(); got != (JobInfo{Job: "web", Containers: 1, Judged: true, FromOthers: true}) {
		t.Errorf("at first: %+v", got)
	}
	for n := range MinWindows + settle + unjudged - 1 {
		d.Observe(epoch.Add(time.Duration(n)*time.Minute), []Sample{{Ref: ref, Usage: 0.5, CPI: 2}})
		for _, l := range d.Learned() {
			learned++
			if l.Job != "web" || math.Abs(l.Usage-0.5) > 1e-6 || math.Abs(l.CPI-2) > 1e-6 {
				t.Fatalf("%+v", l)
			}
		}
	}
	want := JobInfo{Job: "web", Containers: 1, Windows: MinWindows, Judged: true}
	if got := job(); learned != MinWindows || got != want {
		t.Errorf("after %d windows: %+v", learned, got)
	}
}
