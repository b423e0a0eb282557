package experiment

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpi"
)

var (
	boundTests = flag.Int("bound-tests", 400, "tests of innocents in TestInnocentsReachT")
	boundSeed  = flag.Uint64("bound-seed", 0, "of TestInnocentsReachT; 0: a new one")
)

// byMinute has windows of a minute, whether or not a test runs.
func byMinute() Config {
	cfg := DefaultConfig()
	cfg.Window = cfg.Period
	return cfg
}

// innocents is a victim beside eight jobs, none of which does anything to it, whatever it
// looks like: its CPI does not depend on what is throttled.
type innocents struct {
	d       *Detector
	r       *rand.Rand
	victim  Ref
	jobs    []Ref
	wants   []float64 // CPUs that each job wants in this window
	busy    []int     // windows until each job turns
	on      []bool
	phase   bool // of the victim
	left    int
	carry   float64 // how much a window's noise resembles that of the one before
	noise   float64
	samples []Sample
}

const innocentJobs = 8

func newInnocents(t testing.TB, cfg Config, r *rand.Rand) *innocents {
	t.Helper()
	d, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w := &innocents{d: d, r: r, wants: make([]float64, innocentJobs), busy: make([]int, innocentJobs),
		on: make([]bool, innocentJobs)}
	w.victim = put(t, d, "victim", cpi.LS)
	for i := range innocentJobs {
		w.jobs = append(w.jobs, put(t, d, fmt.Sprint("job", i), cpi.Batch))
	}
	return w
}

func put(t testing.TB, d *Detector, name string, class cpi.Class) Ref {
	t.Helper()
	ref, err := d.Put(&cpi.Container{ID: name + "-0", Job: name, Class: class})
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// world says what makes the victim slow.
type innocentWorld string

const (
	shuffled innocentWorld = "shuffled" // bursts and noise of its own
	demand   innocentWorld = "demand"   // it follows what a job wants, not what it gets
	follower innocentWorld = "follower" // all jobs follow the victim's phases
	tails    innocentWorld = "tails"    // Student's t with two degrees of freedom
	// guilty is no innocent's world: it follows what a job does. It shows that verdicts are
	// counted.
	guilty innocentWorld = "guilty"
	// clinging is guilty wherever it runs.
	clinging innocentWorld = "clinging"
)

// minute plays a minute and throws the coins of what follows: a window of it or, while the
// detector wants them short, six, one of which is the interval's.
func (w *innocents) minute(kind innocentWorld, n int) {
	span := w.d.bank.span
	if span == 1 {
		w.window(kind, n)
		throw(w.d, w.r)
		return
	}
	w.turn(kind, n)
	its := w.r.IntN(span)
	for k := range span {
		if short := w.d.ShortWindows(); !short && k != its {
			continue
		}
		w.sample(kind, n)
		now := epoch.Add(time.Duration(n)*time.Minute + time.Duration(k+1)*w.d.cfg.Window)
		if k == its {
			w.d.ObserveAfter(1, now, w.samples)
		} else {
			w.d.Between(now, w.samples)
		}
		throw(w.d, w.r)
	}
}

func (w *innocents) window(kind innocentWorld, n int) {
	w.turn(kind, n)
	w.sample(kind, n)
	w.d.Observe(epoch.Add(time.Duration(n)*time.Minute), w.samples)
}

// turn is what the jobs want in a minute.
func (w *innocents) turn(kind innocentWorld, n int) {
	r := w.r
	if w.left--; w.left < 0 {
		w.phase, w.left = !w.phase && n > 60, 2+int(r.ExpFloat64()*5)
	}
	for i := range w.wants {
		if w.busy[i]--; w.busy[i] < 0 {
			w.on[i], w.busy[i] = !w.on[i], 2+int(r.ExpFloat64()*6)
		}
		on := w.on[i]
		if kind == follower {
			on = w.phase
		}
		w.wants[i] = 0.02
		if on {
			w.wants[i] = 3 * math.Exp(0.1*r.NormFloat64())
		}
	}
}

// sample a window, in which the throttles of now are in force.
func (w *innocents) sample(kind innocentWorld, n int) {
	r := w.r
	slow := 0.0
	throttled, _ := w.d.Throttled("job0")
	off, _ := w.d.MovedOff(w.jobs[0])
	switch {
	case kind == clinging && (off != nil || w.d.Idles(w.jobs[0]) || w.d.Narrowed(w.jobs[0])) && w.wants[0] > 1:
		slow = 0.5
	case kind == guilty, kind == clinging:
		if w.wants[0] > 1 && !throttled && n > 60 {
			slow = 0.5
		}
	case kind == demand && w.wants[0] > 1 && n > 60, kind != demand && w.phase:
		slow = 0.5
	}
	noise := 0.08 * r.NormFloat64()
	if kind == tails {
		noise = 0.1 * r.NormFloat64() / math.Sqrt((r.ExpFloat64() + 1e-9))
	}
	w.noise = w.carry*w.noise + math.Sqrt(1-w.carry*w.carry)*noise
	w.samples = append(w.samples[:0], Sample{Ref: w.victim, Usage: 1, CPI: math.Exp(slow + w.noise)})
	for i, ref := range w.jobs {
		used := w.wants[i]
		if milli, _ := w.d.ThrottleOf(ref); milli > 0 {
			// A quota gives less than it says.
			used = min(used, float64(milli)/1000*(wants+(1-wants)*r.Float64()))
		}
		w.samples = append(w.samples, Sample{Ref: ref, Usage: used, CPI: 1})
	}
}

var epoch = time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC)

// throw real coins.
func throw(d *Detector, r *rand.Rand) []Event {
	var coins []Thrown
	for _, t := range d.Trials() {
		coins = append(coins, Thrown{Trial: t, On: r.Float64() < t.P})
	}
	return d.Throw(coins)
}

// reach plays machines of a kind until that many tests were begun, and counts those that
// reached the threshold.
func reach(t testing.TB, kind innocentWorld, tests int, cfg Config, seed uint64) (begun, reached uint64) {
	for i := uint64(0); begun < uint64(tests); i++ {
		w := newInnocents(t, cfg, rand.New(rand.NewPCG(seed, i)))
		if cfg.Window < cfg.Period {
			w.carry = 0.9 // between neighbouring windows of ten seconds
		}
		for n := range 600 {
			w.minute(kind, n)
		}
		c := w.d.Counters()
		begun, reached = begun+c.Tests, reached+c.Verdicts
		if c.Tests == 0 && i > 50 && begun == 0 {
			t.Fatalf("%s: no test was begun on %d machines: nothing is shown", kind, i)
		}
	}
	return begun, reached
}

// TestInnocentsReachT is the guarantee: whatever the victim's CPI follows, as long as it
// is not the coin, a test reaches T with probability 1/T at most. Tests are as many and
// as long as they can be here: what bounds false verdicts in an hour is not what is
// tested.
func TestInnocentsReachT(t *testing.T) {
	seed := *boundSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	short := DefaultConfig()
	for _, kind := range []innocentWorld{shuffled, demand, follower, tails} {
		for _, threshold := range []float64{20, 200} {
			for _, window := range []time.Duration{short.Period, short.Window} {
				for _, seed := range []uint64{1, seed} {
					inTime(t, kind, threshold, window, seed)
				}
			}
		}
	}
}

// inTime lets tests of innocents run in windows of a length.
func inTime(t *testing.T, kind innocentWorld, threshold float64, window time.Duration, seed uint64) {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Window, cfg.Threshold, cfg.Budget, cfg.Starts, cfg.Tests = window, threshold, 60, 60, 4
	begun, reached := reach(t, kind, *boundTests/2, cfg, seed)
	most := float64(begun) / threshold
	t.Logf("%s, windows of %v, seed %d: %d of %d tests reached %.0f; at most %.1f are to be expected", kind, window,
		seed, reached, begun, threshold, most)
	// Three deviations of chance: one run in a thousand if the bound were tight.
	if float64(reached) > most+3*math.Sqrt(most) {
		t.Errorf("%s, windows of %v: %d of %d tests reached %.0f: -bound-seed=%d", kind, window, reached, begun,
			threshold, seed)
	}
}

func TestGuiltyReachT(t *testing.T) {
	for _, cfg := range []Config{byMinute(), DefaultConfig()} {
		if begun, reached := reach(t, guilty, 20, cfg, 1); reached < 8 {
			t.Errorf("windows of %v: %d of %d tests reached a verdict, most of them of the guilty one", cfg.Window,
				reached, begun)
		}
	}
}

// TestPlacebos: where nobody is guilty the victim is well as often in placebo windows as
// in throttled ones; beside the guilty it is not.
func TestPlacebos(t *testing.T) {
	for _, kind := range []innocentWorld{follower, guilty} {
		var sum Windows
		relieved := Windows{}
		for i := range uint64(30) {
			w := newInnocents(t, byMinute(), rand.New(rand.NewPCG(1, i)))
			for n := range 300 {
				w.minute(kind, n)
			}
			c := w.d.Counters()
			for arm := range 2 {
				sum.All[arm] += c.Tested.All[arm]
				sum.Well[arm] += c.Tested.Well[arm]
				relieved.All[arm] += c.Capped.All[arm]
				relieved.Well[arm] += c.Capped.Well[arm]
			}
		}
		helped, placebo := float64(sum.Well[1])/float64(sum.All[1]), float64(sum.Well[0])/float64(sum.All[0])
		t.Logf("%s: well in %.2f of %d throttled windows, in %.2f of %d placebos; capped: %+v", kind, helped,
			sum.All[1], placebo, sum.All[0], relieved)
		if kind == guilty && (relieved.All[1] < 100 || 4*relieved.Well[1] < 3*relieved.All[1] ||
			relieved.All[0] == 0 || 4*relieved.Well[0] > 3*relieved.All[0]) {
			t.Errorf("%s: after the verdict %+v", kind, relieved)
		}
		// Tests of those who look guilty by chance go on for longer, hence the width.
		if kind == guilty && helped < placebo+0.4 || kind != guilty && math.Abs(helped-placebo) > 0.15 {
			t.Errorf("%s: well in %.2f of the throttled windows, in %.2f of the placebos", kind, helped, placebo)
		}
	}
}
