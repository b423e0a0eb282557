package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/detect"
)

// The world that the detector is judged in; docs/cpi.md says it in words, and
// which of its seeds the thresholds were tuned on.

const (
	period = time.Minute
	window = 10 * time.Second // of a sample, at a random moment of each period
	day    = 24 * time.Hour
)

// neighbour is a container whose CPU usage is a function of time, unless it is capped.
type neighbour struct {
	c       cpi.Container
	kind    string
	level   float64 // CPUs while it is busy
	noise   float64 // of its usage, relative
	phase   float64 // of its day
	swing   float64 // of its day, relative
	bursts  []span  // busy times; nil: always
	idle    float64 // share of level outside of its bursts
	cpi     float64 // while it is undisturbed
	suffers bool    // from the antagonist as the victim does, and does its work all the same
	cap     float64 // CPUs; 0: none
	arrives time.Duration
	ref     detect.Ref
}

type span struct{ from, to time.Duration }

// busy is the share of [from, to) that the bursts cover.
func (n *neighbour) busy(from, to time.Duration) float64 {
	if n.bursts == nil {
		return 1
	}
	var covered time.Duration
	for _, b := range n.bursts {
		if b.from >= to {
			break
		}
		if lo, hi := max(b.from, from), min(b.to, to); hi > lo {
			covered += hi - lo
		}
	}
	return float64(covered) / float64(to-from)
}

// usage in the sample that ends at a time, with what the cap leaves of it.
func (n *neighbour) usage(r *rand.Rand, at time.Duration) float64 {
	busy := n.busy(at-window, at)
	u := n.level * (busy + (1-busy)*n.idle)
	u *= 1 + n.swing*math.Sin(2*math.Pi*(float64(at)/float64(day)+n.phase))
	u *= math.Exp(n.noise * r.NormFloat64())
	if n.cap > 0 {
		u = min(u, n.cap)
	}
	return max(u, 0)
}

// disturbed is a neighbour's usage and CPI when its surroundings slow it by a factor.
// It does the same work, for which it needs more time.
func (n *neighbour) disturbed(r *rand.Rand, usage, slowed float64) (float64, float64) {
	cpi := n.cpi * math.Exp(0.08*r.NormFloat64())
	if n.suffers {
		usage, cpi = usage*slowed, cpi*slowed
	}
	if n.cap > 0 {
		usage = min(usage, n.cap)
	}
	return usage, cpi
}

// onOff is a run of bursts with exponential lengths.
func onOff(r *rand.Rand, until time.Duration, on, off time.Duration) []span {
	at := -time.Duration(r.Float64() * float64(on+off))
	var spans []span
	for at < until {
		length := time.Duration(r.ExpFloat64()*float64(on)) + 20*time.Second
		spans = append(spans, span{at, at + length})
		at += length + time.Duration(r.ExpFloat64()*float64(off)) + 20*time.Second
	}
	return spans
}

// bursty draws the on and off times of a neighbour with a duty cycle between 30
// and 70 %.
func bursty(r *rand.Rand, until time.Duration) []span {
	duty := 0.3 + 0.4*r.Float64()
	on := time.Duration((3 + 7*r.Float64()) * float64(time.Minute))
	return onOff(r, until, on, time.Duration(float64(on)*(1-duty)/duty))
}

// timetable is what the neighbours that run by the clock have in common.
type timetable struct {
	every, first time.Duration
}

func (t timetable) bursts(r *rand.Rand, until time.Duration) []span {
	length := time.Duration((2 + 8*r.Float64()) * float64(time.Minute))
	late := time.Duration(r.Float64() * float64(time.Minute))
	var spans []span
	for at := t.first - t.every; at < until; at += t.every {
		from := at + late + time.Duration(r.Float64()*30*float64(time.Second))
		spans = append(spans, span{from, from + time.Duration(float64(length)*(0.8+0.4*r.Float64()))})
	}
	return spans
}

// victim is one task of a latency-sensitive job.
type victim struct {
	base    float64 // CPI
	level   float64 // CPUs
	phase   float64 // of its day
	load    float64 // how its CPI follows its load, as a power
	carry   float64 // autocorrelation of its noise from a minute to the next
	state   float64 // of the noise
	own     []span  // times of trouble of its own
	trouble float64 // factor on its CPI then
}

// gev is the shape that the CPI² paper fitted to a web search job's CPI,
// relative to its mean: deviation 0.089, skewed to the right.
func gev(p float64) float64 {
	const location, scale, shape = 1.73, 0.133, -0.0534
	return (location + scale*(math.Pow(-math.Log(p), -shape)-1)/shape) / 1.8001
}

// noise has the GEV's distribution and remembers the minute before.
func (v *victim) noise(r *rand.Rand) float64 {
	v.state = v.carry*v.state + math.Sqrt(1-v.carry*v.carry)*r.NormFloat64()
	return gev(min(max(0.5*math.Erfc(-v.state/math.Sqrt2), 1e-9), 1-1e-9))
}

// sample of the victim at a time, slowed by a factor.
func (v *victim) sample(r *rand.Rand, at time.Duration, slowed float64) (usage, cpi float64) {
	daily := math.Sin(2 * math.Pi * (float64(at)/float64(day) + v.phase))
	load := (1 + 0.3*daily) * math.Exp(0.1*r.NormFloat64())
	cpi = v.base * v.noise(r) * (1 + 0.04*math.Sqrt2*daily) * math.Pow(load, v.load)
	for _, s := range v.own {
		if at > s.from && at-window < s.to {
			cpi *= v.trouble
		}
	}
	cpi *= slowed
	// The same work takes longer, but some of it is shed or waits.
	return v.level * load * math.Sqrt(slowed), cpi
}

// trial is one machine.
type trial struct {
	r          *rand.Rand
	others     *rand.Rand // for the neighbours' CPIs
	phases     *rand.Rand // for the windows' places in their periods
	length     time.Duration
	v          victim
	neighbours []*neighbour
	antagonist *neighbour // nil: there is none
	effect     float64
	delay      time.Duration // from the antagonist's work to its effect
}

func newTrial(seed uint64, suspects int, effect float64, length time.Duration) *trial {
	r := rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))
	t := &trial{r: r, others: rand.New(rand.NewPCG(seed, 0xbf58476d1ce4e5b9)),
		phases: rand.New(rand.NewPCG(seed, 0x94d049bb133111eb)), length: length, effect: effect,
		delay: time.Duration(r.Float64() * 15 * float64(time.Second))}
	t.v = victim{
		base: math.Exp(0.35 * r.NormFloat64()), level: math.Exp2(2 * r.Float64()), phase: r.Float64(),
		load: -0.1 + 0.25*r.Float64(), carry: 0.5 * r.Float64(), trouble: 1.2 + 0.6*r.Float64(),
	}
	// Once in twelve hours the job is in trouble of its own, for five minutes or so.
	for at := time.Duration(r.ExpFloat64() * 12 * float64(time.Hour)); at < length; at += time.Duration(
		r.ExpFloat64() * 12 * float64(time.Hour)) {
		t.v.own = append(t.v.own, span{at, at + time.Duration(r.ExpFloat64()*5*float64(time.Minute))})
	}
	clock := timetable{every: []time.Duration{15, 20, 30}[r.IntN(3)] * time.Minute}
	clock.first = time.Duration(r.Float64() * float64(clock.every))
	innocents := suspects
	if effect > 1 {
		innocents--
		t.antagonist = &neighbour{
			kind: "antagonist", level: 2 + 4*r.Float64(), noise: 0.15, bursts: bursty(r, length),
			idle:    0.05 * r.Float64(),
			arrives: time.Duration(20+r.IntN(20)) * time.Minute,
			c:       cpi.Container{ID: "antagonist", Job: "antagonist", Class: cpi.Batch},
		}
		t.neighbours = append(t.neighbours, t.antagonist)
	}
	for i := range innocents {
		t.neighbours = append(t.neighbours, t.innocent(i, clock))
	}
	for _, n := range t.neighbours {
		n.cpi = math.Exp(0.35 * t.others.NormFloat64())
		n.suffers = n != t.antagonist && t.others.IntN(2) == 0
	}
	return t
}

// windowOf is when the window of a period ends: the sampler opens it at a random moment.
func (t *trial) windowOf(n int) time.Duration {
	return time.Duration(n)*period + window + time.Duration(t.phases.Float64()*float64(period-window))
}

// windowAfter is the end of the window after the one that ends at a time.
func (t *trial) windowAfter(at time.Duration) time.Duration {
	return t.windowOf(int(at/period) + 1)
}

// innocent number i: a quarter each is constant, follows the day, comes in
// bursts like the antagonist, and runs by the clock.
func (t *trial) innocent(i int, clock timetable) *neighbour {
	r := t.r
	n := &neighbour{level: math.Exp2(-1 + 3.5*r.Float64()), phase: t.v.phase + 0.05*r.NormFloat64(),
		idle: 0.1 * r.Float64(), noise: 0.05 + 0.2*r.Float64()}
	n.c = cpi.Container{ID: fmt.Sprintf("n%02d", i), Job: fmt.Sprintf("n%02d", i), Class: cpi.Batch}
	switch i % 4 {
	case 0:
		n.kind, n.noise = "constant", 0.05
		n.c.Class = cpi.LS
	case 1:
		n.kind, n.swing = "daily", 0.5
	case 2:
		n.kind, n.bursts = "bursty", bursty(r, t.length)
	case 3:
		n.kind, n.bursts, n.swing = "timed", clock.bursts(r, t.length), 0.2
	}
	if r.IntN(5) == 0 {
		n.arrives = time.Duration(r.Float64() * float64(t.length) / 2)
	}
	if n.c.Class == cpi.Batch && r.IntN(3) == 0 {
		n.c.Class = cpi.BE
	}
	return n
}

// slowed is what the antagonist does to the victim in the sample that ends then.
func (t *trial) slowed(at time.Duration) float64 {
	a := t.antagonist
	if a == nil || at < a.arrives {
		return 1
	}
	busy := a.busy(at-window-t.delay, at-t.delay)
	if a.cap > 0 {
		busy = min(busy, a.cap/a.level)
	}
	return 1 + (t.effect-1)*busy
}
