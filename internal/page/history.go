package page

import (
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/policy"
)

// Series of the timeline.
const (
	seriesShared = iota
	seriesBE
	seriesOff
	seriesExclusive
	seriesWithheld
	seriesCapped
	seriesProduction
	seriesBatch
	seriesOffer
	seriesProductionCPI
	seriesBatchCPI
	numSeries
)

// series describes a series for drawing.
type series struct {
	Key  string `json:"key"`
	Name string `json:"name"`
	Unit string `json:"unit"`
	// peak says that several points are combined to their maximum, not their mean, so
	// that short events show in a day's view.
	peak bool
}

func allSeries() [numSeries]series {
	return [numSeries]series{
		seriesShared:        {Key: "shared", Name: "shared pool", Unit: "CPUs"},
		seriesBE:            {Key: "be", Name: "best-effort pool", Unit: "CPUs"},
		seriesOff:           {Key: "off", Name: "best effort kept off", Unit: "CPUs", peak: true},
		seriesExclusive:     {Key: "exclusive", Name: "exclusive", Unit: "CPUs"},
		seriesWithheld:      {Key: "withheld", Name: "kept idle", Unit: "CPUs"},
		seriesCapped:        {Key: "capped", Name: "capped containers", Unit: "containers", peak: true},
		seriesProduction:    {Key: "production", Name: "used by production", Unit: "CPUs"},
		seriesBatch:         {Key: "batch", Name: "used by best effort", Unit: "CPUs"},
		seriesOffer:         {Key: "offer", Name: "offered to best effort", Unit: "CPUs"},
		seriesProductionCPI: {Key: "cpi", Name: "CPI of production", Unit: "cycles per instruction"},
		seriesBatchCPI:      {Key: "cpiBatch", Name: "CPI of best effort", Unit: "cycles per instruction"},
	}
}

// point is one moment. An unknown value is NaN, and null in JSON.
type point struct {
	at     time.Time
	values [numSeries]float64
}

// MarshalJSON writes [seconds, value, …].
func (p point) MarshalJSON() ([]byte, error) {
	row := make([]any, 0, numSeries+1)
	row = append(row, p.at.Unix())
	for _, v := range p.values {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			row = append(row, nil)
			continue
		}
		row = append(row, math.Round(v*1000)/1000)
	}
	return json.Marshal(row)
}

func pointOf(now time.Time, l *Look) point {
	p := point{at: now}
	for i := range p.values {
		p.values[i] = math.NaN()
	}
	s := l.Snapshot
	off := s.BEWhole.Minus(s.BE)
	p.values[seriesShared], p.values[seriesBE], p.values[seriesOff] = float64(s.Shared.Count()), float64(
		s.BE.Count()), float64(off.Count())
	p.values[seriesExclusive], p.values[seriesWithheld] = float64(s.Exclusive.Count()), float64(s.Withheld.Count())
	capped := 0
	for _, c := range s.Containers {
		if c.CapMilli > 0 {
			capped++
		}
	}
	p.values[seriesCapped] = float64(capped)
	if n := l.Lending; n != nil && n.Known {
		p.values[seriesProduction], p.values[seriesBatch] = n.Production, n.Batch
	}
	if n := l.Lending; n != nil && n.Offered {
		p.values[seriesOffer] = n.Offer
	}
	p.values[seriesProductionCPI], p.values[seriesBatchCPI] = meanCPI(s, &l.Performance)
	return p
}

// meanCPI is the CPI of all production and of all best effort, each as if it were one
// program: containers count by their instructions.
func meanCPI(s *policy.Snapshot, p *control.Performance) (production, batch float64) {
	// An old window says nothing about now.
	const tooOld = 3
	if p.CPI.Age != nil && p.CPI.Interval > 0 && *p.CPI.Age > tooOld*p.CPI.Interval {
		return math.NaN(), math.NaN()
	}
	var cycles, instructions [2]float64
	for _, c := range s.Containers {
		m, known := p.Samples[c.ID]
		if !known || m.CPI == nil || m.Usage == nil || *m.CPI <= 0 {
			continue
		}
		kind := 0
		if c.Class == policy.BE {
			kind = 1
		}
		cycles[kind] += *m.Usage
		instructions[kind] += *m.Usage / *m.CPI
	}
	return cycles[0] / instructions[0], cycles[1] / instructions[1] // 0/0 is NaN: unknown
}

// ring keeps the last values put into it.
type ring[T any] struct {
	list  []T // grows to size
	size  int
	start int
	total uint64 // put so far
}

func (r *ring[T]) put(v T) {
	r.total++
	if len(r.list) < r.size {
		r.list = append(r.list, v)
		return
	}
	r.list[r.start] = v
	r.start = (r.start + 1) % r.size
}

// since returns the values put after the first n, oldest first, as far as they are
// kept.
func (r *ring[T]) since(n uint64) []T {
	fresh := r.total - min(n, r.total)
	fresh = min(fresh, uint64(len(r.list)))
	out := make([]T, 0, fresh)
	for i := len(r.list) - int(fresh); i < len(r.list); i++ {
		out = append(out, r.list[(r.start+i)%len(r.list)])
	}
	return out
}

// Lengths of the timeline.
const (
	fineStep, finePoints     = 10 * time.Second, 360
	coarseStep, coarsePoints = 2 * time.Minute, 720
)

// history is the timeline since the daemon started: an hour in detail, a day coarsely.
type history struct {
	fine, coarse ring[point]
	due          time.Time
	collected    []point // of the next coarse point
}

func newHistory() *history {
	return &history{fine: ring[point]{size: finePoints}, coarse: ring[point]{size: coarsePoints}}
}

// wants says whether a point is due. One is after the clock was set back.
func (h *history) wants(now time.Time) bool {
	return !now.Before(h.due) || h.due.Sub(now) > fineStep
}

func (h *history) put(p point) {
	h.due = p.at.Truncate(fineStep).Add(fineStep)
	h.fine.put(p)
	if n := len(h.collected); n > 0 && !h.collected[n-1].at.Truncate(coarseStep).Equal(p.at.Truncate(coarseStep)) {
		h.coarse.put(together(h.collected))
		h.collected = h.collected[:0]
	}
	h.collected = append(h.collected, p)
}

// together combines points to one.
func together(points []point) point {
	out := point{at: points[0].at.Truncate(coarseStep)}
	for i, s := range allSeries() {
		sum, n, peak := 0.0, 0, math.NaN()
		for _, p := range points {
			v := p.values[i]
			if math.IsNaN(v) {
				continue
			}
			sum, n = sum+v, n+1
			if math.IsNaN(peak) || v > peak {
				peak = v
			}
		}
		out.values[i] = sum / float64(n) // 0/0 is NaN
		if s.peak {
			out.values[i] = peak
		}
	}
	return out
}

// historyPart is the body of /api/history.
type historyPart struct {
	Series  []series `json:"series"`
	Fine    tierPart `json:"fine"`
	Coarse  tierPart `json:"coarse"`
	Changes []change `json:"changes"`
}

type tierPart struct {
	Step   float64 `json:"step"` // seconds
	Most   int     `json:"most"` // points
	Points []point `json:"points"`
}

func (h *history) part(changes []change) historyPart {
	all := allSeries()
	return historyPart{
		Series:  slices.Clone(all[:]),
		Fine:    tierPart{fineStep.Seconds(), finePoints, h.fine.since(0)},
		Coarse:  tierPart{coarseStep.Seconds(), coarsePoints, h.coarse.since(0)},
		Changes: changes,
	}
}
