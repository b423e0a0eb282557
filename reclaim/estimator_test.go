package reclaim

import (
	"fmt"
	"math"
	"slices"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

var began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// life drives one estimator.
type life struct {
	t *testing.T
	*Estimator
	now  time.Time
	tick time.Duration
	report
}

type report = Report

func begin(t *testing.T, change func(*Config)) *life {
	t.Helper()
	cfg := Default()
	if change != nil {
		change(&cfg)
	}
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &life{t: t, Estimator: e, now: began, tick: 5 * time.Minute, report: Report{Capacity: 16}}
}

// sample takes one tick further with these pods.
func (l *life) sample(pods ...Pod) *Estimate {
	l.t.Helper()
	l.now = l.now.Add(l.tick)
	r := l.report
	r.Pods, r.Span = slices.Clone(pods), l.tick
	o, err := l.Step(l.now, r)
	if err != nil {
		l.t.Fatal(err)
	}
	return o
}

// event reports a change without a sample.
func (l *life) event(pods ...Pod) *Estimate {
	l.t.Helper()
	r := l.report
	r.Pods = slices.Clone(pods)
	for i := range r.Pods {
		r.Pods[i].Sampled = false
	}
	o, err := l.Step(l.now, r)
	if err != nil {
		l.t.Fatal(err)
	}
	return o
}

func (l *life) samples(n int, pods ...Pod) *Estimate {
	l.t.Helper()
	var o *Estimate
	for range n {
		o = l.sample(pods...)
	}
	return o
}

func batch(id string, request, use float64) Pod {
	return Pod{ID: id, Batch: true, Request: request, Use: use, Sampled: true}
}

func production(id string, request, use float64) Pod {
	return Pod{ID: id, Request: request, Use: use, Sampled: true}
}

func (p Pod) born(minutes int) Pod {
	p.Created = began.Add(time.Duration(minutes) * time.Minute)
	return p
}

const day = 288 // samples

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-6 {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// I1: exactly 5 % of the samples at or above the threshold are still idle.
func TestIdleAtThePercentile(t *testing.T) {
	for _, c := range []struct {
		busy int
		at   float64
		idle bool
	}{{14, 2, true}, {15, 2, false}, {14, 0.4, true}, {15, 0.4, false}, {15, 0.399, true}} {
		// 288 samples: 95 % are 273.6, so 274 have to be below.
		l := begin(t, nil)
		l.samples(day-c.busy+1, batch("a", 4, 0.1))
		o := l.samples(c.busy, batch("a", 4, c.at))
		if got := len(o.Idle) == 1; got != c.idle {
			t.Errorf("%d of %d samples at %v of 4 CPUs: idle is %v, want %v", c.busy, day, c.at, got, c.idle)
		}
	}
	// 20 samples: 95 % are exactly 19.
	l := begin(t, func(c *Config) { c.Idle.Window = Duration(100 * time.Minute) })
	l.samples(20, batch("a", 4, 0))
	if o := l.sample(batch("a", 4, 4)); len(o.Idle) != 1 {
		t.Error("one of 20 samples above the threshold: not idle at p95")
	}
	if o := l.sample(batch("a", 4, 4)); len(o.Idle) != 0 {
		t.Error("two of 20 samples above the threshold: idle at p95")
	}
}

// I2: a window that is not full is not idle.
func TestIdleNeedsAFullWindow(t *testing.T) {
	l := begin(t, nil)
	if o := l.samples(day, batch("a", 4, 0)); len(o.Idle) != 0 {
		t.Error("idle one sample before its window is full")
	}
	if o := l.sample(batch("a", 4, 0)); len(o.Idle) != 1 {
		t.Error("not idle although its window is full")
	}
	// A pod that starts later waits for a window of its own, as does one that was long away.
	l.samples(day, batch("a", 4, 0), batch("b", 4, 0))
	if o := l.sample(batch("a", 4, 0), batch("b", 4, 0)); len(o.Idle) != 2 {
		t.Errorf("idle are %v, want both", o.Idle)
	}
	l.samples(30, batch("a", 4, 0))
	if o := l.sample(batch("a", 4, 0), batch("b", 4, 0)); !slices.Equal(o.Idle, []string{"a"}) {
		t.Errorf("idle are %v after b was away for more than a tenth of its window, want a", o.Idle)
	}
}

// A window with holes is not full: what was not seen is not idle.
func TestIdleNeedsSamples(t *testing.T) {
	missing := batch("a", 4, 0)
	missing.Sampled = false
	for _, c := range []struct {
		every int
		idle  bool
	}{{20, true}, {5, false}} {
		l := begin(t, nil)
		var o *Estimate
		for i := range day + 2 {
			p := batch("a", 4, 0)
			if i%c.every == 1 {
				p = missing
			}
			o = l.sample(p)
		}
		if got := len(o.Idle) == 1; got != c.idle {
			t.Errorf("every %dth sample is missing: idle is %v", c.every, got)
		}
	}
}

// I3: production that starts shrinks the offer in the same step, measured or not.
func TestProductionShrinksTheOfferAtOnce(t *testing.T) {
	for _, from := range []From{FromSlack, FromUsage} {
		l := begin(t, func(c *Config) { c.From = from })
		before := *l.samples(2*day, production("web", 4, 1))
		o := l.event(production("web", 4, 1), production("db", 6, 0))
		if o.Supply > before.Supply-5.9 || o.Offer > max(0, o.Supply)+1e-9 {
			t.Errorf("from %s: supply %v and offer %v right after a pod of 6 CPUs came, before %v and %v", from,
				o.Supply, o.Offer, before.Supply, before.Offer)
		}
		if o = l.sample(production("web", 4, 1), production("db", 6, 0)); o.Supply > before.Supply-5.9 ||
			o.Offer > max(0, o.Supply)+1e-9 {
			t.Errorf("from %s: supply %v and offer %v at its first sample", from, o.Supply, o.Offer)
		}
	}
}

// I4: an increase shows from one CPU on and after the hold, a decrease at once.
func TestHysteresis(t *testing.T) {
	l := begin(t, nil)
	l.tick = 20 * time.Second // the hold is a minute
	at := func(request, want float64) {
		t.Helper()
		near(t, fmt.Sprintf("reclaimable with %v requested", request),
			l.sample(production("web", request, 0)).Reclaimable, want)
	}
	at(8, 0)
	at(8, 0)
	at(8, 8)
	for range 5 {
		at(7.1, 8) // 0.9 more
	}
	at(7, 8)
	at(7, 8)
	at(7.1, 8) // and the hold begins anew
	at(7, 8)
	at(7, 8)
	at(7, 9)
	at(7.01, 8.99)
	at(3, 8.99)
	at(3, 8.99)
	at(5, 11) // what was there all the time
	at(4.5, 11)
	at(16, 0)
	at(20, 0)
}

// Between samples an offer never rises.
func TestNothingRisesBetweenSamples(t *testing.T) {
	for _, hold := range []time.Duration{time.Minute, 0} {
		l := begin(t, func(c *Config) { c.Raise.Hold = Duration(hold) })
		l.samples(2, production("web", 8, 1))
		for range 100 {
			if o := l.event(); o.Offer > 8 || len(o.Evict) > 0 {
				t.Fatalf("an event without a sample raised the offer to %v", o.Offer)
			}
		}
		near(t, "the offer with the next sample", l.sample().Offer, 16)
	}
}

// fourPods are two idle and two busy batch pods, whose idle ones use all that they
// asked for one time in fifty.
func fourPods(burst bool) []Pod {
	use := 0.1
	if burst {
		use = 4
	}
	return []Pod{batch("idle-old", 4, use).born(1), batch("busy-old", 4, 3).born(0),
		batch("idle-young", 4, use).born(9), batch("busy-young", 4, 3).born(10)}
}

// I5: pods that are not idle are evicted first, then the youngest idle one.
func TestWhoIsEvicted(t *testing.T) {
	settle := func(t *testing.T) *life {
		l := begin(t, nil)
		for i := range day + 50 {
			if o := l.sample(fourPods(i%50 == 49)...); len(o.Evict) > 0 {
				t.Fatalf("evicts %v while 16 CPUs are there", o.Evict)
			}
		}
		return l
	}
	names := func(o *Estimate) (list []string) {
		for _, e := range o.Evict {
			list = append(list, e.Pod)
		}
		return list
	}
	l := settle(t)
	// Idle ones count with p99: all 4 CPUs. 4+4+4+4 are needed.
	o := l.sample(append(fourPods(false), production("web", 5, 0))...)
	if got := names(o); !slices.Equal(got, []string{"busy-young", "busy-old"}) || !o.Overcommitted {
		t.Fatalf("11 of 16 CPUs are left: evicts %v, want the busy pods, the younger first", got)
	}
	near(t, "offer after the evictions", o.Offer, 8)
	if o = l.sample(append(fourPods(false), production("web", 5, 0))...); len(o.Evict) > 0 {
		t.Errorf("evicts %v although those that were chosen are still ending", o.Evict)
	}
	if o = l.sample(append(fourPods(false), production("web", 9, 0))...); !slices.Equal(names(o),
		[]string{"idle-young"}) {
		t.Errorf("7 CPUs are left and the busy pods are going: evicts %v, want the youngest idle pod", names(o))
	}
	if o = l.sample(append(fourPods(false)[:1], production("web", 9, 0))...); len(o.Evict) > 0 || o.Overcommitted {
		t.Errorf("evicts %v while 4 CPUs are needed and 7 left", o.Evict)
	}
}

// An idle pod that lends more than it uses is not evicted: that would not help.
func TestAnIdlePodThatLendsStays(t *testing.T) {
	l := begin(t, nil)
	l.samples(day+1, batch("a", 4, 0.1), batch("b", 4, 0.1))
	if o := l.samples(3, batch("a", 4, 0.1), batch("b", 4, 0.1), production("web", 16, 0)); len(o.Evict) > 0 ||
		len(o.Idle) != 2 {
		t.Errorf("evicts %v, idle are %v", o.Evict, o.Idle)
	}
	// Nor if there is too little: an older pod that uses its request is evicted instead.
	l = begin(t, nil)
	lends, bursts := batch("lends", 4, 0.1).born(9), batch("bursts", 4, 0.1).born(1)
	for i := range day + 50 {
		bursts.Use = 0.1
		if i%50 == 49 {
			bursts.Use = 4
		}
		l.sample(lends, bursts)
	}
	bursts.Use = 0.1
	if o := l.sample(lends, bursts, production("web", 16, 0)); len(o.Evict) != 1 || o.Evict[0].Pod != "bursts" ||
		len(o.Idle) != 2 {
		t.Errorf(
			"both are idle, of 4.1 CPUs that they need 3.9 exist: evicts %v, want the one that lends nothing; idle "+
				"are %v", o.Evict, o.Idle)
	}
}

func TestEvictionNeedsTime(t *testing.T) {
	l := begin(t, func(c *Config) { c.Correct.Retry = Duration(310 * time.Second) })
	l.tick = 10 * time.Second
	l.samples(10, batch("a", 4, 3), production("web", 12, 0)) // all that exists is no more than that
	full := production("web", 16, 0)
	for i := range 3 {
		if o := l.sample(batch("a", 4, 3), full); (len(o.Evict) == 1) != (i == 2) {
			t.Errorf("%d s after there was too little: evicts %v; it has to last 30 s", 10*(i+1), o.Evict)
		}
	}
	if o := l.samples(100, batch("a", 4, 3), full); len(o.Evict) > 0 {
		t.Errorf("evicts %v a second time", o.Evict)
	}
	// A budget forbids it: another is chosen, and the pod again much later.
	l.Refused(l.now, "a")
	l.Refused(l.now, "nobody")
	o := l.samples(30, batch("a", 4, 3), full)
	if len(o.Evict) > 0 {
		t.Errorf("evicts %v within 310 s of a refusal", o.Evict)
	}
	if o = l.sample(batch("a", 4, 3), full); len(o.Evict) != 1 {
		t.Error("not chosen again 310 s after a refusal, in all of which there was too little")
	}
}

// I7: while batch pods are throttled no pod becomes idle, and what they use then
// does not count as little.
func TestThrottledPodsAreNotIdle(t *testing.T) {
	l := begin(t, nil)
	l.samples(day, batch("a", 4, 3), batch("b", 4, 0.1))
	o := l.sample(batch("a", 4, 3), batch("b", 4, 0.1))
	if !slices.Equal(o.Idle, []string{"b"}) {
		t.Fatalf("idle are %v, want b", o.Idle)
	}
	l.Throttled = true
	o = l.samples(day+20, batch("a", 4, 0.1), batch("b", 4, 0.1))
	if !o.Frozen || !slices.Equal(o.Idle[:0], []string{}) || slices.Contains(o.Idle, "a") {
		t.Errorf("idle are %v after a day of throttling, frozen %v", o.Idle, o.Frozen)
	}
	l.Throttled = false
	if o = l.sample(batch("a", 4, 0.1), batch("b", 4, 0.1)); len(o.Idle) > 0 {
		t.Errorf("idle are %v right after a day of throttling", o.Idle)
	}
	if o = l.samples(day, batch("a", 4, 0.1), batch("b", 4, 0.1)); len(o.Idle) != 2 {
		t.Errorf("idle are %v a day after the throttling", o.Idle)
	}
	// One pod's own limit concerns no other pod, and much use shows in spite of it.
	busy := batch("a", 4, 3)
	busy.Throttled = true
	if o = l.samples(20, busy, batch("b", 4, 0.1)); !slices.Equal(o.Idle, []string{"b"}) {
		t.Errorf("idle are %v after a was busy and throttled, want b", o.Idle)
	}
}

// A short throttling leaves the verdicts as they are.
func TestVerdictsFreeze(t *testing.T) {
	l := begin(t, nil)
	l.samples(day+1, batch("a", 4, 0.1), batch("b", 4, 3))
	l.Throttled = true
	if o := l.samples(50, batch("a", 4, 0.1), batch("b", 4, 0.1)); !slices.Equal(o.Idle, []string{"a"}) {
		t.Errorf("idle are %v while the verdicts are frozen, want a", o.Idle)
	}
}

// I8: what is offered is never so much that all of it together, at the threshold,
// exceeds what production leaves.
func TestOfferIsBoundByTheThreshold(t *testing.T) {
	l := begin(t, nil)
	var pods []Pod
	for i := range 40 {
		pods = append(pods, batch(fmt.Sprint("batch", i), 4, 0.05))
	}
	for i := range day + 20 {
		prod := production("web", float64(i%18), 0.5)
		o := l.sample(append(pods, prod)...)
		if sum := o.Offer * 0.10; sum > max(0, o.Supply)+1e-9 {
			t.Fatalf("%v CPUs are offered with a supply of %v", o.Offer, o.Supply)
		}
	}
	// Where they are promised more already, low use proves nothing: 160 CPUs at 10 %
	// are 16, and they may run on 15.5.
	l.Room = 15.5
	if o := l.sample(append(pods, production("web", 0, 0.5))...); !o.Frozen {
		t.Error("verdicts are not frozen with promises of which a tenth does not exist")
	}
	l.Room = 0.5
	if o := l.sample(batch("a", 6, 0.05)); !o.Frozen {
		t.Error("verdicts are not frozen with 6 CPUs promised, of which a tenth does not exist")
	}
	l.Room = 15.5
	if o := l.sample(append(pods[:38:38], production("web", 0, 0.5))...); o.Frozen {
		t.Error("verdicts are frozen although a tenth of the promises exists")
	}
}

// I9: after an eviction nothing is offered again before the next sample.
func TestNoOfferAfterAnEviction(t *testing.T) {
	l := begin(t, nil)
	pods := []Pod{batch("a", 4, 3).born(1), batch("b", 4, 3).born(2), batch("c", 4, 3).born(3)}
	l.samples(3, pods...)
	full := production("web", 6, 1)
	o := l.sample(append(pods, full)...)
	if len(o.Evict) != 1 || o.Evict[0].Pod != "c" {
		t.Fatalf("evicts %v, want c", o.Evict)
	}
	near(t, "offer in the step of the eviction", o.Offer, 8)
	near(t, "offer when the pod is gone", l.event(append(pods[:2:2], full)...).Offer, 8)
	near(t, "offer when production is gone too", l.event(pods[:2]...).Offer, 8)
	near(t, "offer with the next sample", l.sample(append(pods[:2:2], full)...).Offer, 10)
}

func TestPodsWithoutRequest(t *testing.T) {
	l := begin(t, nil)
	o := l.samples(day+2, batch("be", 0, 2), production("ls", 0, 3))
	if len(o.Idle) > 0 || o.Unutilised != 0 || o.Demand != 0 {
		t.Errorf("a pod without a request: %+v", o)
	}
	near(t, "production's use", o.ProductionUse, 3)
	near(t, "supply", o.Supply, 16)
}

func TestThresholds(t *testing.T) {
	idle := func(threshold, use float64) bool {
		l := begin(t, func(c *Config) { c.Idle.Threshold = threshold })
		return len(l.samples(day+1, batch("a", 4, use)).Idle) == 1
	}
	for _, c := range []struct {
		threshold, use float64
		idle           bool
	}{{0, 0, false}, {100, 3.99, true}, {100, 4, false}, {100, 5, false}} {
		if got := idle(c.threshold, c.use); got != c.idle {
			t.Errorf("threshold %v %%, %v of 4 CPUs used: idle is %v", c.threshold, c.use, got)
		}
	}
	cfg := Default()
	cfg.Idle.Threshold = 101
	if _, err := New(cfg); err == nil {
		t.Error("a threshold of 101 % was accepted")
	}
	cfg.Idle = Idle{Percentile: math.NaN(), Threshold: -1, UsePercentile: 200}
	cfg.From, cfg.Risk, cfg.Reserve, cfg.Raise = "all", 0, -1, Raise{Step: math.Inf(1), Hold: -1}
	if err := cfg.Validate(); err == nil || len(err.(interface{ Unwrap() []error }).Unwrap()) != 9 {
		t.Errorf("not every mistake is named: %v", err)
	}
}

// The ends of every range are taken, what is beyond them is not.
func TestRangesOfTheConfiguration(t *testing.T) {
	const hour = Duration(time.Hour)
	for _, c := range []struct {
		name   string
		change func(*Config)
		ok     bool
	}{
		{"as it is", func(*Config) {}, true},
		{"percentile of 50", func(c *Config) { c.Idle.Percentile, c.Idle.UsePercentile = 50, 50 }, true},
		{"percentile of 100", func(c *Config) { c.Idle.Percentile, c.Idle.UsePercentile = 100, 100 }, true},
		{"percentile below 50", func(c *Config) { c.Idle.Percentile = 49.9 }, false},
		{"use percentile below 50", func(c *Config) { c.Idle.UsePercentile = 49.9 }, false},
		{"threshold of 0", func(c *Config) { c.Idle.Threshold = 0 }, true},
		{"threshold of 100", func(c *Config) { c.Idle.Threshold = 100 }, true},
		{"window of one sample", func(c *Config) { c.Idle.Window, c.Idle.Sample = hour, hour }, false},
		{"window of two samples", func(c *Config) { c.Idle.Window, c.Idle.Sample = 2*hour, hour }, true},
		{"window of most samples", func(c *Config) { c.Idle.Window, c.Idle.Sample = maxCells*hour, hour }, true},
		{"window of one more", func(c *Config) { c.Idle.Window, c.Idle.Sample = (maxCells+1)*hour, hour }, false},
		{"sample of 1 ms", func(c *Config) {
			c.Idle.Window, c.Idle.Sample = Duration(time.Second), Duration(time.Millisecond)
		}, true},
		{"sample below 1 ms", func(c *Config) {
			c.Idle.Window, c.Idle.Sample = Duration(time.Second), Duration(time.Millisecond-1)
		}, false},
		{"rises and corrects at once", func(c *Config) { c.Raise, c.Correct = Raise{}, Correct{} }, true},
		{"hold below 0", func(c *Config) { c.Raise.Hold = -1 }, false},
		{"correction below 0", func(c *Config) { c.Correct.After = -1 }, false},
		{"retry below 0", func(c *Config) { c.Correct.Retry = -1 }, false},
		{"step below 0", func(c *Config) { c.Raise.Step = -0.1 }, false},
		{"reserve of 0", func(c *Config) { c.Reserve = 0 }, true},
	} {
		cfg := Default()
		c.change(&cfg)
		if _, err := New(cfg); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	cfg := Default()
	for days, ok := range map[Duration]bool{124: true, 125: false, 366: false} { // 2³⁰ cells of 10 ms are 124 days
		cfg.Idle.Sample, cfg.Idle.Window = 24*hour, days*24*hour
		if _, err := NewRecorded(cfg); (err == nil) != ok {
			t.Errorf("a window of %d days in cells of 10 ms: %v", days, err)
		}
	}
}

func TestCapacityAndReserve(t *testing.T) {
	l := begin(t, func(c *Config) { c.Reserve = 1 })
	l.Reserve = 2
	near(t, "reclaimable", l.samples(2, production("web", 4, 1)).Reclaimable, 9)
	l.Capacity = 8
	near(t, "after CPUs went away", l.event(production("web", 4, 1)).Reclaimable, 1)
	l.Capacity = 2
	o := l.sample(production("web", 4, 1))
	near(t, "supply with everything reserved", o.Supply, -5)
	near(t, "reclaimable with everything reserved", o.Reclaimable, 0)
	l.Capacity = 0
	near(t, "of a node without CPUs", l.sample().Reclaimable, 0)
}

func TestBadReports(t *testing.T) {
	l := begin(t, nil)
	l.samples(2, production("web", 4, 1))
	for name, r := range map[string]Report{
		"negative capacity": {Capacity: -1},
		"no number":         {Capacity: math.NaN()},
		"negative request":  {Capacity: 16, Pods: []Pod{production("web", 4, 1), batch("a", -1, 0)}},
		"twice":             {Capacity: 16, Pods: []Pod{batch("a", 1, 0), batch("a", 1, 0)}},
	} {
		if _, err := l.Step(l.now, r); err == nil {
			t.Errorf("%s: accepted", name)
		}
		if _, err := l.Step(l.now, Report{Capacity: 16, Pods: []Pod{production("web", 4, 1),
			batch("a", 1, 0)}}); err != nil {
			t.Errorf("%s: the next report, which is good: %v", name, err)
		}
	}
	near(t, "reclaimable after bad reports", l.sample(production("web", 4, 1)).Reclaimable, 12)
	for _, use := range []float64{-1, math.NaN(), math.Inf(1), 1e99} {
		o := l.sample(production("web", 4, use), batch("a", 1, use))
		near(t, fmt.Sprintf("production's use after a sample of %v", use), o.ProductionUse, 4)
		near(t, "batch use", o.BatchUse, 0)
	}
	near(t, "production's use above what there is", l.sample(production("web", 4, 1e6)).ProductionUse, 16)
	if _, err := l.Step(l.now, Report{Capacity: 16, Span: -time.Hour}); err != nil {
		t.Errorf("a negative span: %v", err)
	}
}

// A clock that jumps makes no pod idle and loses no window.
func TestClockJumps(t *testing.T) {
	l := begin(t, nil)
	l.samples(day/2, batch("a", 4, 3))
	l.now = l.now.Add(-24 * time.Hour)
	if o := l.samples(day/2, batch("a", 4, 0.1)); len(o.Idle) > 0 {
		t.Error("idle after the clock went back a day")
	}
	if got := len(l.Estimator.pods["a"].w.all()); got < day-2 {
		t.Errorf("the window has %d samples after the clock went back, want %d", got, day)
	}
	l.now = l.now.Add(48 * time.Hour)
	if o := l.samples(day, batch("a", 4, 0.1)); len(o.Idle) > 0 {
		t.Error("idle less than a window after the clock went forward two days")
	}
	if o := l.sample(batch("a", 4, 0.1)); len(o.Idle) != 1 {
		t.Error("not idle a window after the clock went forward")
	}
}

func TestRequestsChange(t *testing.T) {
	l := begin(t, nil)
	l.samples(day, batch("a", 4, 0.3))
	if o := l.sample(batch("a", 4, 0.3)); len(o.Idle) != 1 {
		t.Fatal("not idle at 0.3 of 4")
	}
	if o := l.sample(batch("a", 2, 0.3)); len(o.Idle) != 0 {
		t.Error("idle at 0.3 of 2")
	}
	if o := l.sample(batch("a", 8, 0.3)); len(o.Idle) != 1 {
		t.Error("not idle at 0.3 of 8")
	}
	if o := l.sample(production("a", 8, 0.3)); len(o.Idle) != 0 {
		t.Error("idle as a production pod")
	}
	if o := l.sample(batch("a", 8, 0.3)); len(o.Idle) != 0 {
		t.Error("idle right after it was a production pod")
	}
}

func TestPublish(t *testing.T) {
	for _, c := range []struct {
		offer, bound float64
		want         int64
	}{{0, 0, 0}, {3.9999, 0, 3999}, {3.1, 0, 3100}, {3, 3.0001, 3001}, {0, 8, 8000}, {0.1 + 0.2, 0.3, 300}} {
		if got := (&Estimate{Offer: c.offer}).PublishMilli(c.bound); got != c.want {
			t.Errorf("an offer of %v with %v bound is %d, want %d", c.offer, c.bound, got, c.want)
		}
	}
}

func TestView(t *testing.T) {
	l := begin(t, nil)
	pods := []Pod{batch("a", 4, 0.1), batch("b", 4, 3), production("web", 2, 1)}
	l.samples(day, pods...)
	why := func(id string) string {
		v, ok := l.View(id)
		if !ok {
			t.Fatalf("nothing is known of %s", id)
		}
		return v.Why()
	}
	if got, want := why(
		"a"), "not known to be idle: 288 of 288 samples of the last 24h0m0s are below 0.40 CPUs, 10 % of its request; "+
		"it takes 95 % of a window that is full, which this one is not yet"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	l.sample(pods...)
	for id, want := range map[string]string{
		"a": "idle: 288 of 288 samples of the last 24h0m0s are below 0.40 CPUs, 10 % of its request; it takes 95 " +
			"%; it counts with 0.10 CPUs and lends 3.90",
		"b":   "not idle: 0 of 288 samples of the last 24h0m0s are below 0.40 CPUs, 10 % of its request; it takes 95 %",
		"web": "a production pod; its 2.00 CPUs are left to it",
	} {
		if got := why(id); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", id, got, want)
		}
	}
	if _, ok := l.View("nobody"); ok {
		t.Error("something is known of a pod that never was")
	}
	l.sample(pods[1:]...)
	if _, ok := l.View("a"); ok {
		t.Error("a pod that is gone can be viewed")
	}
}

// What is known of a pod that is gone is dropped: of production at once, of a batch pod
// when its window could not go on.
func TestPodsThatAreGoneAreForgotten(t *testing.T) {
	l := begin(t, nil)
	l.sample(batch("a", 4, 0), batch("b", 4, 0), production("web", 2, 1), production("db", 2, 1))
	known := func() (names []string) {
		c := l.Checkpoint("node-a")
		for _, p := range c.Pods {
			names = append(names, p.ID)
		}
		for _, p := range c.Known {
			names = append(names, p.ID)
		}
		return names
	}
	for _, c := range []struct {
		samples int
		want    []string
	}{{1, []string{"a", "b", "db"}}, {27, []string{"a", "b", "db"}}, {1, []string{"b", "db"}}} {
		l.samples(c.samples, batch("b", 4, 0), production("db", 2, 1))
		if got := known(); !slices.Equal(got, c.want) {
			t.Errorf("%v after a and web went %v are known, want %v", l.now.Sub(began)-l.tick, got, c.want)
		}
	}
	// The pods of a report that is refused are not remembered either.
	if _, err := l.Step(l.now, Report{Capacity: 16, Pods: []Pod{batch("c", 1, 0), batch("d", -1, 0)}}); err == nil {
		t.Fatal("a negative request was accepted")
	}
	l.sample()
	if got := known(); !slices.Equal(got, []string{"b"}) {
		t.Errorf("after a report that was refused %v are known, want b", got)
	}
}

// Memory of a window of a day, as one pod takes it with everything around it.
func TestMemoryOfAPod(t *testing.T) {
	const most = 4 << 10
	l := begin(t, nil)
	l.tick = time.Minute
	l.samples(3*1440, batch("a", 4, 0.1))
	w := &l.Estimator.pods["a"].w
	size := int(unsafe.Sizeof(podState{})) + len("a") + 4*(cap(w.cells)+cap(w.uses)+cap(w.sorted))
	const mapEntry = 2*8 + 16 + 8 // key, pointer and the table's share
	t.Logf("a pod with a window of a day takes %d bytes", size+mapEntry)
	if w.count() != day || size+mapEntry > most {
		t.Errorf("a pod with %d samples takes %d bytes, at most %d", w.count(), size+mapEntry, most)
	}
}

func thousand(i int) []Pod {
	pods := make([]Pod, 1000)
	for k := range pods {
		pods[k] = Pod{ID: fmt.Sprintf("%08d-0000-0000-0000-000000000000", k), Batch: k%2 == 0, Request: 2,
			Use: float64((k*7+i*13)%100) / 100, Sampled: true}
	}
	return pods
}

// BenchmarkStep is a tick at 1,000 pods with full windows.
func BenchmarkStep(b *testing.B) {
	for _, c := range []struct {
		name string
		tick time.Duration
		from From
	}{{"second", time.Second, FromSlack}, {"newCells", 5 * time.Minute, FromSlack}, {"usage", time.Second, FromUsage}} {
		b.Run(c.name, func(b *testing.B) {
			cfg := Default()
			cfg.From = c.from
			e, err := New(cfg)
			if err != nil {
				b.Fatal(err)
			}
			var reports [8][]Pod
			for i := range reports {
				reports[i] = thousand(i)
			}
			now := began
			step := func(i int, tick time.Duration) {
				now = now.Add(tick)
				if _, err := e.Step(now, Report{Capacity: 512, Pods: reports[i%len(reports)], Span: tick}); err != nil {
					b.Fatal(err)
				}
			}
			for i := range day + 1 {
				step(i, 5*time.Minute)
			}
			b.ReportAllocs()
			b.ResetTimer()
			before := cpuTime(b)
			for i := range b.N {
				step(i, c.tick)
			}
			// CPU time is what the budget is about, and what a busy machine leaves alone.
			b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/float64(b.N), "cpu-µs/op")
		})
	}
}

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
