package reclaim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// old is a pod that ran long before the estimator began.
func old(p Pod) Pod { return p.born(-7 * 24 * 60) }

// A lost or refused checkpoint, a changed configuration: the idleness of week-old pods is
// unknown, and no pod is evicted for it.
func TestUnknownIdlenessEvictsNobody(t *testing.T) {
	for _, from := range []From{FromSlack, FromUsage} {
		l := begin(t, func(c *Config) { c.From = from })
		l.Capacity = 32
		pods := []Pod{production("web", 20, 18)}
		left := map[From]float64{FromSlack: 12, FromUsage: 14}[from]
		for i := range 6 {
			pods = append(pods, old(batch(fmt.Sprint("batch-", i), 8, 0.1)))
		}
		for i := range 2 * day {
			o := l.sample(pods...)
			if len(o.Evict) > 0 {
				t.Fatalf("from %s, sample %d: evicts %v", from, i, o.Evict)
			}
			if i < day && o.Offer > left+tiny {
				t.Fatalf("from %s, sample %d: offers %v CPUs of %v that production leaves, and no pod is idle",
					from, i, o.Offer, left)
			}
		}
		if o := l.sample(pods...); len(o.Idle) != 6 {
			t.Errorf("from %s: idle are %v after two windows", from, o.Idle)
		}
	}
}

// A pod whose past is unknown is known not to be idle once more of its samples are at the
// threshold or above than an idle pod has in a whole window: 15 of 288.
func TestAPodOfUnknownPastIsKnownToBeBusyInTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		pod     Pod
		samples int // after which it is evicted
	}{
		"its start was seen": {batch("a", 16, 2), 1},
		"a week old":         {old(batch("a", 16, 2)), 15},
		"it uses too much":   {old(batch("a", 16, 12)), 3}, // it may exceed its p99 twice a day; 8 CPUs exist
	} {
		l := begin(t, nil)
		web := production("web", 8, 8)
		for i := range c.samples {
			o := l.sample(c.pod, web)
			if last := i == c.samples-1; (len(o.Evict) == 1) != last {
				t.Errorf("%s, sample %d: evicts %v", name, i+1, o.Evict)
			}
			if v, _ := l.View("a"); v.Busy != (c.samples == 1 || i == 14) {
				t.Errorf("%s, sample %d: %s", name, i+1, v.Why())
			}
		}
	}
}

// A pod that is known to be busy is evicted before one that is not known to be idle, however much that one was seen to
// use.
func TestWhoIsKnownToBeBusyIsEvictedFirst(t *testing.T) {
	l := begin(t, nil)
	unknown, busy := old(batch("unknown", 8, 7)), batch("busy", 8, 1).born(1)
	unknown.Created = busy.Created.Add(-200 * time.Hour)
	o := l.samples(2, unknown, busy, production("web", 8, 8))
	for range 10 {
		if len(o.Evict) > 0 {
			break
		}
		o = l.sample(unknown, busy, production("web", 8, 8))
	}
	if len(o.Evict) != 1 || o.Evict[0].Pod != "busy" {
		t.Errorf("evicts %v, want the busy pod", o.Evict)
	}
}

// A daemon that is killed between choosing a pod and asking for its eviction leaves it immune for
// no longer than a refused eviction would.
func TestAKillBeforeTheRequestLeavesNobodyImmune(t *testing.T) {
	l := begin(t, nil)
	l.tick = time.Minute
	pods := []Pod{batch("a", 4, 3), production("web", 16, 1)}
	l.samples(1, pods[:1]...)
	if o := l.sample(pods...); len(o.Evict) != 1 {
		t.Fatal("nothing is evicted")
	}
	if err := l.resume(t, "node-a"); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		if o := l.sample(pods...); len(o.Evict) > 0 {
			if i < 4 {
				t.Errorf("%d minutes after the restart: evicts %v", i+1, o.Evict)
			}
			return
		}
	}
	t.Error("a pod that still runs is never evicted")
}

// A pod whose eviction is only reported counts as running, and is reported again after a while.
func TestAPodThatIsOnlyObservedCounts(t *testing.T) {
	l := begin(t, nil)
	l.tick = time.Minute
	pods := []Pod{batch("a", 4, 3), batch("b", 4, 3), production("web", 12, 1)}
	l.samples(1, pods[:2]...)
	told := map[string]int{}
	for range 12 {
		o := l.sample(pods...)
		for _, v := range o.Evict {
			told[v.Pod]++
			l.Observed(l.now, v.Pod)
			if v := viewed(l, v.Pod); v.Evicting {
				t.Errorf("it counts as gone: %s", v.Why())
			}
		}
		if !o.Overcommitted {
			t.Error("it does not count")
		}
	}
	if len(told) != 1 || told["a"]+told["b"] < 2 || told["a"]+told["b"] > 3 {
		t.Errorf("reported are %v in 12 minutes, want one pod every 5 minutes", told)
	}
}

// While production's peak is unknown its requests are left to it, but no pod is evicted for
// what it does not use.
func TestAnUnknownPeakEvictsNobody(t *testing.T) {
	l := begin(t, func(c *Config) { c.From = FromUsage })
	busy := batch("busy", 8, 6)
	web := production("web", 12, 3)
	for i := range 20 {
		web.Sampled = i < 10 // then its use counts as its request
		o := l.sample(busy, web)
		if len(o.Evict) > 0 || o.Supply > 4+tiny || !o.Overcommitted {
			t.Fatalf("sample %d: evicts %v with a supply of %v; overcommitted: %v", i, o.Evict, o.Supply,
				o.Overcommitted)
		}
	}
	web.Sampled, web.Use = true, 12
	if o := l.sample(busy, web); len(o.Evict) != 1 || !strings.Contains(o.Evict[0].Why, "need 8.00 CPUs and ") {
		t.Errorf("evicts %v while production uses 12 of 16 CPUs", o.Evict)
	}
}

// Whatever is lost: no pod that was below its threshold all the time is evicted while one
// that was measured and never below it is there.
func TestNoQuietPodIsEvictedBesideABusyOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := Default()
		cfg.From = rapid.SampledFrom([]From{FromSlack, FromUsage}).Draw(t, "from")
		cfg.Idle.Window, cfg.Idle.Sample = Duration(time.Hour), Duration(time.Minute)
		cfg.Correct.Retry = 0
		e, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		now := began
		kept := e.Checkpoint("node")
		var pods []Pod
		made := 0
		measured := map[string]bool{} // since the last loss
		capacity := 16.0
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			switch rapid.IntRange(0, 33).Draw(t, "op") {
			case 0, 1, 2:
				p := Pod{ID: fmt.Sprint("pod", made), Batch: rapid.IntRange(0, 3).Draw(t, "batch") > 0,
					Request: float64(rapid.IntRange(1, 8).Draw(t, "request")),
					Created: now.Add(-time.Duration(rapid.IntRange(0, 300).Draw(t, "age")) * time.Minute)}
				if rapid.Bool().Draw(t, "busy") {
					p.Use = p.Request * rapid.Float64Range(0.2, 1).Draw(t, "use")
				}
				made++
				pods = append(pods, p)
			case 3:
				if n := len(pods); n > 0 {
					i := rapid.IntRange(0, n-1).Draw(t, "ends")
					pods = slices.Delete(pods, i, i+1)
				}
			case 4:
				capacity = float64(rapid.IntRange(0, 24).Draw(t, "capacity"))
			case 5:
				kept = e.Checkpoint("node")
			case 6: // killed
				if kept.At.After(now) { // the clock was set back since
					continue
				}
				if e, err = Resume(cfg, "node", now, kept); err != nil {
					t.Fatal(err)
				}
				clear(measured)
			case 7: // and the checkpoint is lost or refused
				if e, err = New(cfg); err != nil {
					t.Fatal(err)
				}
				kept = e.Checkpoint("node")
				clear(measured)
			case 8: // and is configured otherwise
				kept = e.Checkpoint("node")
				cfg.Idle.Sample = Duration(time.Duration(rapid.IntRange(1, 5).Draw(t, "sample")) * time.Minute)
				cfg.Idle.Window = cfg.Idle.Sample * Duration(rapid.IntRange(10, 60).Draw(t, "window"))
				cfg.Horizon = Duration(time.Duration(rapid.IntRange(1, 60).Draw(t, "horizon")) * time.Minute)
				if e, err = Resume(cfg, "node", now, kept); err != nil {
					t.Fatal(err)
				}
				clear(measured)
			case 9: // the clock jumps
				now = now.Add(time.Duration(rapid.IntRange(-90, 90).Draw(t, "jump")) * time.Minute)
				clear(measured)
			}
			now = now.Add(time.Minute)
			r := Report{Capacity: capacity, Span: time.Minute, Pods: slices.Clone(pods),
				Throttled: rapid.IntRange(0, 19).Draw(t, "throttled") == 0}
			for i := range r.Pods {
				p := &r.Pods[i]
				p.Sampled = rapid.IntRange(0, 9).Draw(t, "missing") > 0
				measured[p.ID] = measured[p.ID] || p.Sampled
			}
			o, err := e.Step(now, r)
			if err != nil {
				t.Fatal(err)
			}
			left := slices.IndexFunc(r.Pods, func(p Pod) bool {
				v, _ := e.View(p.ID)
				return p.Batch && p.Use > 0 && measured[p.ID] && !v.Evicting
			})
			for _, evicted := range o.Evict {
				i := slices.IndexFunc(r.Pods, func(p Pod) bool { return p.ID == evicted.Pod })
				if left >= 0 && r.Pods[i].Use == 0 {
					t.Fatalf("evicts %s, which uses nothing, while %s uses %v of %v CPUs: %s", evicted.Pod,
						r.Pods[left].ID, r.Pods[left].Use, r.Pods[left].Request, evicted.Why)
				}
			}
		}
	})
}
