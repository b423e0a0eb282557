package experiment

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// TestShortWindows are there while a test runs and its coins are awaited, and find the guilty
// sooner. What is normal and who is in an anomaly rests on the intervals' windows alone.
func TestShortWindows(t *testing.T) {
	for seed := range uint64(5) {
		verdict := map[time.Duration]time.Time{}
		for _, cfg := range []Config{byMinute(), DefaultConfig()} {
			w := newInnocents(t, cfg, rand.New(rand.NewPCG(3, seed)))
			begun := time.Time{}
			for n := range 360 {
				if w.minute(guilty, n); w.d.ShortWindows() && (w.d.Counters().Tests == 0 || cfg.Window == cfg.Period) {
					t.Fatalf("minute %d, windows of %v: short ones without a test", n, cfg.Window)
				}
				for _, e := range w.d.work.events {
					if e.Kind == VerdictEvent && e.Job != "job0" {
						t.Errorf("%s is found guilty", e.Job)
					}
				}
				p := w.d.pairs[PairKey{Victim: "victim", Suspect: "job0"}]
				if p != nil && begun.IsZero() {
					begun = w.d.now
				}
				if p != nil && p.stage == Verdict && verdict[cfg.Window].IsZero() {
					verdict[cfg.Window] = epoch.Add(w.d.now.Sub(begun))
				}
			}
			points := len(w.d.jobs[workloadKey{name: "victim"}].history.points)
			if points > 360 || w.d.window > 361 {
				t.Errorf("windows of %v: %d windows of the history in 360 minutes, and %d of the clock", cfg.Window,
					points, w.d.window)
			}
		}
		short, long := verdict[10*time.Second], verdict[time.Minute]
		if short.IsZero() || !long.IsZero() && short.Sub(epoch) > long.Sub(epoch)/2 {
			t.Errorf("seed %d: %v from the test's beginning, with windows of a minute %v", seed, short.Sub(epoch),
				long.Sub(epoch))
		}
	}
}

// TestHarmIsCountedInSeconds: a window costs what it lasts.
func TestHarmIsCountedInSeconds(t *testing.T) {
	w := newInnocents(t, DefaultConfig(), rand.New(rand.NewPCG(4, 1)))
	bitten, seconds := 0, 0.0
	for n := range 240 {
		w.turn(follower, n)
		for k := range 6 {
			short := w.d.ShortWindows()
			if !short && k != 3 {
				continue
			}
			w.sample(follower, n)
			before, tick, on := w.d.counts.Harm, w.d.tick, 0
			for i := range innocentJobs {
				if throttled, _ := w.d.Throttled(fmt.Sprint("job", i)); throttled {
					on++
				}
			}
			now := epoch.Add(time.Duration(n)*time.Minute + time.Duration(k+1)*10*time.Second)
			if k == 3 {
				w.d.ObserveAfter(1, now, w.samples)
			} else {
				w.d.Between(now, w.samples)
			}
			if cost := 60 * (w.d.counts.Harm - before); cost > 0 && short && w.d.tick == tick+1 {
				bitten, seconds = bitten+on, seconds+cost
			}
			throw(w.d, w.r)
		}
	}
	if bitten < 10 || seconds > 10.01*float64(bitten) || seconds < float64(bitten) {
		t.Errorf("%d windows of ten seconds cost %.1f seconds", bitten, seconds)
	}
}

// TestABlockHolds: what its first coin says holds for its windows, and is no further bet.
func TestABlockHolds(t *testing.T) {
	b := bankFor(6)
	for _, on := range []bool{true, false} {
		p := &pair{stage: Testing, pace: pace{slow: true}}
		if got := p.propensity(b, 200, 10, true); got != pEven {
			t.Fatalf("a block begins with probability %v", got)
		}
		p.proc.Coins[index(11, recent)] = coin{Window: 11, P: pEven, On: on, Block: true}
		for tick := int64(11); tick <= 16; tick++ {
			want := 0.0
			if on {
				want = 1
			}
			if tick == 16 {
				want = pEven
			}
			if got := p.propensity(b, 200, tick, true); got != want {
				t.Errorf("on: %t, after window %d: probability %v, want %v", on, tick, got, want)
			}
			p.proc.observe(b, tick, seen{0, true})
			if won := p.proc.Now[2]; (won != 0) != (tick == 16) {
				t.Errorf("on: %t, after window %d: a block of 11 to 16 has won %v", on, tick, won)
			}
		}
	}
}

// TestWhoSleepsIsNotThrottled while it is tested; who was found guilty is.
func TestWhoSleepsIsNotThrottled(t *testing.T) {
	b := bankFor(6)
	for stage, want := range map[Stage]float64{Testing: 0, Verdict: 1 - 1./6, Parked: 0} {
		if got := (&pair{stage: stage}).propensity(b, 200, 1, false); got != want {
			t.Errorf("%s: %v, want %v", stage, got, want)
		}
	}
}
