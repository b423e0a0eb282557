package reclaim

import (
	"math"
	"time"
)

// Forecast foresees how much production will use. Of the time of the next Horizon, the share
// in which production uses more than was foreseen is Risk, in the long run.
//
// It learns from the machine's own past: by how much use rose within a horizon, wherever it was
// about as high as now and rather in the last days. From these rises follows a series of bounds,
// from a bold to a careful one: each is the use at which one CPU less lent is worth the time
// that it would save, at a price of that time. Every bound is kept until the horizon has passed
// and then judged by what production really used. The boldest bound that was exceeded in at
// most Risk of the time is the forecast (conformal risk control: Angelopoulos et al., 2022).
// So the rate of violations holds whether or not the rises tell the future well.
//
// It keeps a week at most. Steady calls allocate nothing.
type Forecast struct {
	risk   float64 // a share
	step   time.Duration
	tuning Tuning

	now     pending // the step in progress
	past    []moment
	weights []float64 // by age in steps
	ahead   uint32    // steps of the horizon
	judged  []judged
	exceeds [bounds]float64
	total   float64 // time that the bounds were judged by; fades as exceeds do
	bound   [bounds]float64
	mass    [riseBuckets]float64
}

// Tuning are the forecast's constants. No operator sets them: docs/evidence/lending.md shows
// what each is worth.
type Tuning struct {
	Past      int     // steps that are remembered
	Fresh     float64 // steps after which a rise weighs half
	Alike     float64 // how much more a rise weighs that began at about the same use
	Near      float64 // the ratio of two uses that are about the same is e to this power
	Judged    float64 // steps after which a judgement weighs half
	Uncertain float64 // exceeded time that is assumed on top of what was seen, in steps
	// OfDay is how much more a rise weighs that began at about the same time of a day.
	OfDay float64
	// Uncalibrated takes the bound by the rises alone.
	Uncalibrated bool
}

// DefaultTuning is the best in docs/evidence/lending.md.
func DefaultTuning() Tuning {
	return Tuning{Past: 7 * 288, Fresh: 3 * 288, Alike: 10, Near: 0.3, Judged: 7 * 288, Uncertain: 0.5}
}

const (
	forecastStep = 5 * time.Minute
	maxAhead     = 288 // steps of a horizon
	bounds       = 32
	// cheapest is the price of time, in CPUs, of the boldest bound; dearer is by how much each
	// next one's is higher.
	cheapest, dearer = 1.0 / 16, 1.6

	longest = 100 * 365 * 24 * time.Hour // what an estimator runs

	riseBuckets = 288
	riseLowest  = 0.01 // CPUs; the upper end of bucket 0
	riseGrowth  = 1.05
	unknownRise = math.MaxUint16
)

// distances are the steps of a horizon whose rises are kept.
func distances(ahead uint32) [4]uint32 { return [4]uint32{1, ahead / 4, ahead / 2, ahead} }

// moment is a step of the past: its mean use, and the buckets of the rises from it.
type moment struct {
	step  uint32
	use   float32
	rises [4]uint16
}

// pending is a step that is being measured.
type pending struct {
	at      time.Duration // up to which use is known
	step    uint32
	sum     float64 // CPU-seconds
	seconds float64
}

// judged are the bounds that were made after a step.
type judged struct {
	made  uint32 // the step, plus 1; 0: none
	bound [bounds]float32
}

// Production is the state of a node's production pods in one interval.
type Production struct {
	At      time.Duration // since the estimator began; never falls
	Seconds float64       // that were measured until then
	Request float64
	Use     float64 // with the request of a pod whose sample is missing
	// Measured is Use without what is only assumed.
	Measured float64
	// Peaks is the sum of the most that each pod used; 0: unknown.
	Peaks float64
}

// NewForecast makes a forecast without a past.
func NewForecast(risk float64, horizon time.Duration, t Tuning) *Forecast {
	step := max(min(horizon, forecastStep), 1)
	ahead := min(max(uint32((horizon+step/2)/step), 1), maxAhead)
	f := &Forecast{risk: risk, step: step, ahead: ahead, tuning: t, weights: make([]float64, t.Past+1),
		judged: make([]judged, ahead)}
	for age := range f.weights {
		f.weights[age] = math.Exp2(-float64(age) / t.Fresh)
	}
	return f
}

// Observe records use that was measured. What was measured before is left out, so that time
// counts once, whatever the clock did.
func (f *Forecast) Observe(p Production) {
	from := max(p.At-time.Duration(p.Seconds*float64(time.Second)), f.now.at, 0)
	if p.At <= from || p.At > longest {
		return
	}
	if span := time.Duration(f.tuning.Past) * f.step; p.At-from > span {
		from = p.At - span
	}
	for from < p.At {
		step := uint32(from / f.step)
		if step != f.now.step {
			f.now = pending{step: step}
		}
		to := min(p.At, time.Duration(step+1)*f.step)
		f.now.sum += p.Use * (to - from).Seconds()
		f.now.seconds += (to - from).Seconds()
		f.now.at = to
		// A step that was measured in part, beside a hole, tells too little.
		if to == time.Duration(step+1)*f.step && 2*f.now.seconds >= f.step.Seconds() {
			f.learn(step, f.now.sum/f.now.seconds, p.Peaks)
		}
		from = to
	}
}

// Peak is the use that is foreseen; what was requested until a horizon is known.
func (f *Forecast) Peak(p Production) float64 {
	if len(f.past) <= int(f.ahead) {
		return p.Request
	}
	return f.bound[f.chosen()]
}

// chosen is the boldest bound that was exceeded in at most risk of the time.
func (f *Forecast) chosen() int {
	for k := range f.exceeds {
		if f.tuning.Uncalibrated && cheapest*math.Pow(dearer, float64(k))*f.risk >= 1 ||
			!f.tuning.Uncalibrated && f.exceeds[k]+f.tuning.Uncertain <= f.risk*(f.total+f.tuning.Uncertain) {
			return k
		}
	}
	return bounds - 1
}

// learn takes a step that is over: it judges the bounds by it, notes the rises that end in it,
// and makes the bounds for what follows.
func (f *Forecast) learn(step uint32, use, peaks float64) {
	f.judge(step, use)
	for i, distance := range distances(f.ahead) {
		if m := f.before(step, distance); m != nil {
			m.rises[i] = riseOf(use - float64(m.use))
		}
	}
	if len(f.past) == cap(f.past) {
		f.makeRoom()
	}
	f.past = append(f.past, moment{step: step, use: float32(use),
		rises: [4]uint16{unknownRise, unknownRise, unknownRise, unknownRise}})
	f.weigh(step, use)
	f.price(use, peaks)
	at := &f.judged[step%f.ahead]
	for k, v := range f.bound {
		at.bound[k] = float32(v)
	}
	at.made = step + 1
}

// judge counts the bounds of the last horizon that a step exceeds.
func (f *Forecast) judge(step uint32, use float64) {
	fade := math.Exp2(-1 / f.tuning.Judged)
	f.total *= fade
	for k := range f.exceeds {
		f.exceeds[k] *= fade
	}
	part := 1 / float64(f.ahead)
	for i := range f.judged {
		at := &f.judged[i]
		if at.made == 0 || step+1-at.made > f.ahead {
			continue
		}
		f.total += part
		for k, bound := range at.bound {
			if float32(use) > bound {
				f.exceeds[k] += part
			}
		}
	}
}

// before is the moment at a distance before a step; nil: it was not measured.
func (f *Forecast) before(step, distance uint32) *moment {
	for i := len(f.past) - 1; i >= 0; i-- {
		switch m := &f.past[i]; {
		case step-m.step == distance:
			return m
		case step-m.step > distance:
			return nil
		}
	}
	return nil
}

// makeRoom grows the past, up to half more than has to be kept, and then drops what is too old.
func (f *Forecast) makeRoom() {
	if n := len(f.past); n < f.tuning.Past+f.tuning.Past/2 {
		f.past = append(make([]moment, 0, min(max(2*n, 32), f.tuning.Past+f.tuning.Past/2)), f.past...)
		return
	}
	f.past = f.past[:copy(f.past, f.past[len(f.past)-f.tuning.Past+1:])]
}

// weigh sums the weight of the rises of each size.
func (f *Forecast) weigh(step uint32, use float64) {
	clear(f.mass[:])
	scale := 0.0
	if f.tuning.Near > 0 {
		scale = 1 / f.tuning.Near
	}
	here := math.Log(max(use, riseLowest))
	for i := len(f.past) - 2; i >= 0; i-- {
		m := &f.past[i]
		age := step - m.step
		if age > uint32(f.tuning.Past) {
			break
		}
		away := (math.Log(max(float64(m.use), riseLowest)) - here) * scale
		w := f.weights[age] * (1 + f.tuning.Alike*math.Exp(-away*away)) * f.ofDay(age)
		for _, r := range m.rises {
			if r != unknownRise {
				f.mass[r] += w
			}
		}
	}
}

// ofDay is what a rise weighs by its time of the day.
func (f *Forecast) ofDay(age uint32) float64 {
	if f.tuning.OfDay == 0 {
		return 1
	}
	day := uint32(24 * time.Hour / f.step)
	if apart := age % day; min(apart, day-apart) <= 6 {
		return 1 + f.tuning.OfDay
	}
	return 1
}

// price makes the bounds: of all uses the one at which what is not lent, and the price of the
// time in which production would use more, are least together.
func (f *Forecast) price(use, peaks float64) {
	total := 0.0
	var least [bounds]float64
	for r := range f.mass {
		total += f.mass[r]
	}
	for k := range f.bound {
		f.bound[k], least[k] = use, math.Inf(1)
	}
	if total == 0 {
		return
	}
	above := total
	for r, w := range f.mass {
		if above -= w; w == 0 && r > 0 {
			continue
		}
		rise, cost := riseLowest*math.Pow(riseGrowth, float64(r)), cheapest
		for k := range f.bound {
			if sum := rise + cost*max(above, 0)/total; sum < least[k] {
				least[k], f.bound[k] = sum, use+rise
			}
			cost *= dearer
		}
	}
	if peaks > 0 {
		for k := range f.bound {
			f.bound[k] = min(f.bound[k], max(peaks, use))
		}
	}
}

// riseOf is the bucket of a rise. It rounds up, so that a bucket's end is never below what is in
// it.
func riseOf(rise float64) uint16 {
	if rise <= riseLowest {
		return 0
	}
	return uint16(min(math.Ceil(math.Log(rise/riseLowest)/math.Log(riseGrowth)-1e-9), riseBuckets-1))
}

// Past is what a forecast keeps over a restart: production's use in each step.
type Past struct {
	Step   Duration `json:"step,omitempty"`
	Spells []Spell  `json:"spells,omitempty"`
}

// Spell is a series of steps, of each its mean use.
type Spell struct {
	From uint32    `json:"from"`
	Uses []float64 `json:"uses"`
}

// Past returns what was learned.
func (f *Forecast) Past() Past {
	p := Past{Step: Duration(f.step)}
	for i, m := range f.past[max(len(f.past)-f.tuning.Past, 0):] {
		if n := len(p.Spells); i == 0 || p.Spells[n-1].From+uint32(len(p.Spells[n-1].Uses)) != m.step {
			p.Spells = append(p.Spells, Spell{From: m.step})
		}
		s := &p.Spells[len(p.Spells)-1]
		s.Uses = append(s.Uses, shortest(float64(m.use)))
	}
	return p
}

// resume learns a past again, which may be of another horizon, up to the present. It returns
// false, and the forecast knows nothing, if the past is damaged.
func (f *Forecast) resume(p Past, now time.Duration) bool {
	step, next, count := time.Duration(p.Step), uint32(0), 0
	if step <= 0 || step > 24*time.Hour {
		return false
	}
	for _, s := range p.Spells {
		count += len(s.Uses)
		last := int64(s.From) + int64(len(s.Uses))
		if s.From < next || len(s.Uses) == 0 || last > int64(now/step) || count > maxPast {
			return false
		}
		next = uint32(last)
		for _, use := range s.Uses {
			if !amount(use) {
				return false
			}
		}
	}
	for _, s := range p.Spells {
		for i, use := range s.Uses {
			f.Observe(Production{At: time.Duration(s.From+uint32(i)+1) * step, Seconds: step.Seconds(), Use: use})
		}
	}
	return true
}

// maxPast bounds what resume learns: a week of the shortest steps.
const maxPast = 7 * 24 * 60
