package reclaim

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// DefaultPredictor is the best in docs/oversubscription.md: the decayed peak of the
// whole machine plus a tenth.
const DefaultPredictor = "peak(1.1)"

// Production is the state of a node's production pods in one interval.
type Production struct {
	Cell    uint32 // place on the estimator's time grid
	Seconds float64
	Pods    []Pod // predictors ignore batch pods among them
	Request float64
	Use     float64 // with the request of a pod whose sample is missing
	// Measured is Use without what is only assumed.
	Measured float64
}

// Predictor predicts the most CPUs that production will use over the next hours. The
// caller ensures what a predictor cannot: the prediction is never below what is in use,
// and pods without history count with their request.
type Predictor interface {
	// Observe records one interval. Cells never decrease.
	Observe(p Production)
	// Peak is the prediction at the last observed interval.
	Peak(p Production) float64
	// Save and Restore carry a predictor over a restart. If Restore returns false it
	// starts anew, and every pod counts as one without history.
	Save() Memory
	Restore(m Memory) bool
}

// Memory is what a predictor keeps over a restart.
type Memory struct {
	At      uint32          `json:"at,omitempty"`
	Buckets map[int]float64 `json:"buckets,omitempty"`
	Parts   []Memory        `json:"parts,omitempty"`
}

// limits predicts a fraction of production's requests, like Borg's default.
type limits struct{ fraction float64 }

func (l limits) Observe(Production)        {}
func (l limits) Peak(p Production) float64 { return l.fraction * p.Request }
func (l limits) Save() Memory              { return Memory{} }
func (l limits) Restore(Memory) bool       { return true }

// pods sums a percentile of each pod's use relative to its request over the window.
type pods struct {
	percent float64
	span    span
	windows map[string]*podWindow
	round   uint64
}

type podWindow struct {
	window
	round uint64
}

func (s *pods) Observe(p Production) {
	s.round++
	for i := range p.Pods {
		pod := &p.Pods[i]
		if pod.Batch {
			continue
		}
		w := s.windows[pod.ID]
		if w == nil {
			w = &podWindow{}
			s.windows[pod.ID] = w
		}
		w.round = s.round
		w.expire(p.Cell, s.span)
		if pod.Sampled && pod.Request > 0 {
			w.add(p.Cell, pod.Use/pod.Request, p.Seconds, s.span)
		}
	}
	if len(s.windows) > len(p.Pods) {
		for id, w := range s.windows {
			if w.round != s.round {
				delete(s.windows, id)
			}
		}
	}
}

func (s *pods) Peak(p Production) float64 {
	sum := 0.0
	for i := range p.Pods {
		pod := &p.Pods[i]
		if pod.Batch {
			continue
		}
		share := 1.0
		if w := s.windows[pod.ID]; w != nil && w.count() > 0 {
			share = w.percentile(s.percent, hole{})
		}
		sum += share * pod.Request
	}
	return sum
}

func (s *pods) Save() Memory        { return Memory{} }
func (s *pods) Restore(Memory) bool { return false }

// sigma predicts the mean use of the whole machine over the window, relative to
// requests, plus n standard deviations, but at most all requests.
type sigma struct {
	n    float64
	span span
	w    window
}

func (s *sigma) Observe(p Production) {
	s.w.expire(p.Cell, s.span)
	if p.Request > 0 {
		s.w.add(p.Cell, p.Use/p.Request, p.Seconds, s.span)
	}
}

func (s *sigma) Peak(p Production) float64 {
	n := float64(s.w.count())
	if n == 0 {
		return p.Request
	}
	mean, sum := 0.0, 0.0
	s.w.each(func(use float64) { mean += use / n })
	s.w.each(func(use float64) { sum += (use - mean) * (use - mean) })
	return min(mean+s.n*math.Sqrt(sum/n), 1) * p.Request
}

func (s *sigma) Save() Memory        { return Memory{} }
func (s *sigma) Restore(Memory) bool { return false }

// peak predicts the machine's own peak from a histogram of production's use. Buckets
// are exponential and weights halve with age. All but a ten-thousandth of the weight
// lies below the prediction, before the margin.
type peak struct {
	margin   float64
	halfLife float64 // in cells
	at       uint32
	weights  [peakBuckets]float64
	total    float64
}

const (
	peakBuckets  = 320
	peakLowest   = 0.01 // CPUs; the upper end of bucket 0
	peakGrowth   = 1.05
	peakQuantile = 0.9999
)

// bucketOf rounds up, so that a bucket's upper bound is never below its contents.
func bucketOf(use float64) int {
	if use <= peakLowest {
		return 0
	}
	return min(int(math.Ceil(math.Log(use/peakLowest)/math.Log(peakGrowth)-1e-9)), peakBuckets-1)
}

func (k *peak) Observe(p Production) {
	if k.total > 0 && p.Cell > k.at {
		decay := math.Exp2(-float64(p.Cell-k.at) / k.halfLife)
		for i := range k.weights {
			k.weights[i] *= decay
		}
		k.total *= decay
	}
	k.at = p.Cell
	weight := max(p.Seconds, 1e-3)
	k.weights[bucketOf(p.Use)] += weight
	k.total += weight
}

func (k *peak) Peak(p Production) float64 {
	if k.total == 0 {
		return p.Request
	}
	above := 0.0
	for i := peakBuckets - 1; i >= 0; i-- {
		if above += k.weights[i]; above > (1-peakQuantile)*k.total {
			return k.margin * peakLowest * math.Pow(peakGrowth, float64(i))
		}
	}
	return p.Request
}

func (k *peak) Save() Memory {
	m := Memory{At: k.at, Buckets: map[int]float64{}}
	for i, w := range k.weights {
		if w > 0 {
			m.Buckets[i] = w
		}
	}
	return m
}

func (k *peak) Restore(m Memory) bool {
	var fresh [peakBuckets]float64
	total := 0.0
	for i, w := range m.Buckets {
		if i < 0 || i >= peakBuckets || !(w >= 0) || math.IsInf(w, 0) {
			return false
		}
		fresh[i] = w
	}
	for _, w := range fresh { // in order: a sum in map order would vary
		total += w
	}
	if !(total > 0) || math.IsInf(total, 0) {
		return false
	}
	k.at, k.weights, k.total = m.At, fresh, total
	return true
}

// combined takes the maximum or minimum of several predictors.
type combined struct {
	of   []Predictor
	pick func(a, b float64) float64
}

func (c combined) Observe(p Production) {
	for _, one := range c.of {
		one.Observe(p)
	}
}

func (c combined) Peak(p Production) float64 {
	v := c.of[0].Peak(p)
	for _, one := range c.of[1:] {
		v = c.pick(v, one.Peak(p))
	}
	return v
}

func (c combined) Save() Memory {
	var m Memory
	for _, one := range c.of {
		m.Parts = append(m.Parts, one.Save())
	}
	return m
}

func (c combined) Restore(m Memory) bool {
	if len(m.Parts) != len(c.of) {
		return false
	}
	all := true
	for i, one := range c.of {
		all = one.Restore(m.Parts[i]) && all
	}
	return all
}

// PredictorSpec is a parsed predictor, which Build makes for a time grid.
type PredictorSpec struct {
	name string
	arg  float64
	of   []PredictorSpec
}

// argument is the number that a predictor takes: its default and its range.
type argument struct{ usual, low, high float64 }

func argumentOf(name string) (argument, bool) {
	switch name {
	case "limits": // fraction of the requests
		return argument{0.9, 0, 1}, true
	case "pods": // percentile of each pod's use
		return argument{99, 50, 100}, true
	case "sigma": // standard deviations
		return argument{5, 0, 100}, true
	case "peak": // margin on the machine's peak
		return argument{1.1, 1, 10}, true
	}
	return argument{}, false
}

const maxPredictors = 16

// ParsePredictor parses a predictor: limits(0.9), pods(99), sigma(5), peak(1.1), or
// max(…) and min(…) of several.
func ParsePredictor(text string) (PredictorSpec, error) {
	if len(text) > 200 {
		return PredictorSpec{}, fmt.Errorf("predictor of %d bytes is longer than 200", len(text))
	}
	p := predictorParser{text: strings.ReplaceAll(text, " ", "")}
	spec, err := p.one()
	if err == nil && p.text != "" {
		err = fmt.Errorf("has %q after its end", p.text)
	}
	if err != nil {
		return PredictorSpec{}, fmt.Errorf("predictor %q: %w; examples: peak(1.1), max(pods(99),sigma(3))", text, err)
	}
	return spec, nil
}

type predictorParser struct {
	text  string
	count int
}

func (p *predictorParser) one() (PredictorSpec, error) {
	if p.count++; p.count > maxPredictors {
		return PredictorSpec{}, fmt.Errorf("has more than %d parts", maxPredictors)
	}
	end := strings.IndexAny(p.text, "(),")
	if end < 0 {
		end = len(p.text)
	}
	s := PredictorSpec{name: p.text[:end]}
	p.text = p.text[end:]
	if s.name == "max" || s.name == "min" {
		return p.several(s)
	}
	takes, known := argumentOf(s.name)
	if !known {
		return s, fmt.Errorf("%q is not one of limits, pods, sigma, peak, max, min", s.name)
	}
	s.arg = takes.usual
	if !p.take("(") {
		return s, nil
	}
	number, rest, ok := strings.Cut(p.text, ")")
	v, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(v >= takes.low && v <= takes.high) {
		return s, fmt.Errorf("%s takes one number from %v to %v", s.name, takes.low, takes.high)
	}
	s.arg, p.text = v, rest
	return s, nil
}

func (p *predictorParser) several(s PredictorSpec) (PredictorSpec, error) {
	if !p.take("(") {
		return s, fmt.Errorf("%s needs predictors in parentheses", s.name)
	}
	for {
		one, err := p.one()
		if err != nil {
			return s, err
		}
		s.of = append(s.of, one)
		if p.take(")") {
			return s, nil
		}
		if !p.take(",") {
			return s, fmt.Errorf("a comma or a closing parenthesis is missing")
		}
	}
}

func (p *predictorParser) take(token string) bool {
	rest, ok := strings.CutPrefix(p.text, token)
	if ok {
		p.text = rest
	}
	return ok
}

func (s PredictorSpec) String() string {
	if s.of == nil {
		return s.name + "(" + strconv.FormatFloat(s.arg, 'g', -1, 64) + ")"
	}
	var parts []string
	for _, one := range s.of {
		parts = append(parts, one.String())
	}
	return s.name + "(" + strings.Join(parts, ",") + ")"
}

// Build makes the predictor for a time grid with this many cells a window. The weight
// of a peak halves every window.
func (s PredictorSpec) Build(cells uint32) Predictor {
	sp := spanOf(cells)
	switch s.name {
	case "limits":
		return limits{s.arg}
	case "pods":
		return &pods{percent: s.arg, span: sp, windows: map[string]*podWindow{}}
	case "sigma":
		return &sigma{n: s.arg, span: sp}
	case "peak":
		return &peak{margin: s.arg, halfLife: float64(cells)}
	}
	c := combined{pick: math.Max}
	if s.name == "min" {
		c.pick = math.Min
	}
	for _, one := range s.of {
		c.of = append(c.of, one.Build(cells))
	}
	return c
}
