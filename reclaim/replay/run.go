package replay

import (
	"fmt"
	"math"
	"time"

	"github.com/quietcore/quietcore/reclaim"
)

// Options describe the recorded node.
type Options struct {
	Capacity float64
	Config   reclaim.Config
}

// Line is the result of one interval. The first nine fields are a contract.
type Line struct {
	Time            float64  `json:"time"`
	Reclaimable     float64  `json:"reclaimable"`
	IdlePods        []string `json:"idlePods"`
	AllocationSlack float64  `json:"allocationSlack"`
	Unutilised      float64  `json:"unutilised"`
	ProdUsage       float64  `json:"prodUsage"`
	BatchUsage      float64  `json:"batchUsage"`
	Overcommitted   bool     `json:"overcommitted"`
	Evict           []string `json:"evict"`

	Offer    float64  `json:"offer"`    // what the node would publish
	Promised float64  `json:"promised"` // requests of the batch pods
	Demand   float64  `json:"demand"`   // the same, idle ones by their percentile
	Expected float64  `json:"expected"` // what is left to production
	Frozen   bool     `json:"frozen"`   // no pod becomes idle
	Why      []string `json:"why"`      // one sentence for each of Evict
}

// Summary ends a replay.
type Summary struct {
	Event           string  `json:"event"` // "summary"
	Intervals       int     `json:"intervals"`
	MeanReclaimable float64 `json:"meanReclaimable"`
	// Violations counts the intervals after which production used more than the
	// capacity less what was reclaimable. The ratio is to the intervals that have a
	// next one.
	Violations     int     `json:"violations"`
	ViolationRatio float64 `json:"violationRatio"`
	// Shortfalls counts the intervals after which production used more than the
	// capacity less what was taken from production. They exclude what idle pods do not
	// use, which is promised twice but used once.
	Shortfalls     int     `json:"shortfalls"`
	ShortfallRatio float64 `json:"shortfallRatio"`
	Evicted        int     `json:"evicted"`
}

// firstSpan stands for the unrecorded time before the first row; it exceeds every hold.
const firstSpan = 24 * time.Hour

// Run plays a record and emits a line per interval. The line's slices are valid until
// the next one.
func Run(rec *Record, o Options, emit func(Line) error) (Summary, error) {
	s := Summary{Event: "summary"}
	e, err := reclaim.NewRecorded(o.Config)
	if err != nil {
		return s, err
	}
	left, free := math.Inf(1), math.Inf(1) // what production may use in the next interval
	var report reclaim.Report
	var last time.Time
	for i := 0; i < len(rec.Rows); {
		j := i
		for j < len(rec.Rows) && rec.Rows[j].Time == rec.Rows[i].Time {
			j++
		}
		now := moment(rec.Rows[i].Time)
		line := rec.gather(i, j, &report.Pods)
		report.Capacity, report.Span = o.Capacity, firstSpan
		if i > 0 {
			report.Span = now.Sub(last)
		} else {
			for k := range report.Pods { // which ran before the first row, and longer than a window
				report.Pods[k].Created = now.Add(-time.Duration(o.Config.Idle.Window) - firstSpan)
			}
		}
		got, err := e.Step(now, report)
		if err != nil {
			return s, fmt.Errorf("line %d: %w", rec.Rows[i].Line, err)
		}
		line.from(got)
		if line.ProdUsage > left+1e-9 {
			s.Violations++
		}
		if line.ProdUsage > free+1e-9 {
			s.Shortfalls++
		}
		left = o.Capacity - line.Reclaimable
		free = left + line.Unutilised
		s.Intervals++
		s.MeanReclaimable += line.Reclaimable
		s.Evicted += len(line.Evict)
		if err := emit(line); err != nil {
			return s, err
		}
		i, last = j, now
	}
	s.MeanReclaimable = round(s.MeanReclaimable / float64(max(s.Intervals, 1)))
	s.ViolationRatio = round(float64(s.Violations) / float64(max(s.Intervals-1, 1)))
	s.ShortfallRatio = round(float64(s.Shortfalls) / float64(max(s.Intervals-1, 1)))
	return s, nil
}

// gather builds a report's pods from rows i to j and sums their use.
func (r *Record) gather(i, j int, into *[]reclaim.Pod) Line {
	l := Line{Time: r.Rows[i].Time}
	list := (*into)[:0]
	for _, row := range r.Rows[i:j] {
		list = append(list, reclaim.Pod{ID: r.Pods[row.Pod], Batch: row.Batch, Request: row.Request, Use: row.Usage,
			Sampled: row.Measured})
		if row.Batch {
			l.BatchUsage += row.Usage
		} else {
			l.ProdUsage += row.Usage
		}
	}
	*into = list
	l.BatchUsage, l.ProdUsage = round(l.BatchUsage), round(l.ProdUsage)
	return l
}

func (l *Line) from(e *reclaim.Estimate) {
	l.Reclaimable, l.AllocationSlack, l.Unutilised = round(e.Reclaimable), round(e.Supply), round(e.Unutilised)
	l.Offer, l.Promised, l.Demand, l.Expected = round(e.Offer), round(e.Promised), round(e.Demand), round(e.Expected)
	l.Overcommitted, l.Frozen = e.Overcommitted, e.Frozen
	l.IdlePods, l.Evict, l.Why = append([]string{}, e.Idle...), []string{}, []string{}
	for _, v := range e.Evict {
		l.Evict, l.Why = append(l.Evict, v.Pod), append(l.Why, v.Why)
	}
}

// moment converts a record's time.
func moment(seconds float64) time.Time {
	whole, part := math.Modf(seconds)
	return time.Unix(int64(whole), int64(part*1e9)).UTC()
}

// round rounds to a millionth of a CPU.
func round(v float64) float64 { return math.Round(v*1e6) / 1e6 }
