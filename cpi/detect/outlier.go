package detect

import (
	"cmp"
	"math"
	"slices"
)

// outlier tells of a sample above its threshold, and says whether the victim is
// in an anomaly: whether the window that ends with its newest sample holds
// enough outliers.
func (d *Detector) outlier(s *Sample, c *container, threshold float64) (anomalous bool) {
	d.counts.Outliers++
	d.events = append(d.events, Event{Kind: OutlierEvent, At: s.At, Victim: c.Container, CPI: s.CPI,
		Threshold: threshold})
	newest := c.window.newest().at
	if d.outliersOf(c) < d.cfg.Outliers || s.At.UnixNano() <= newest-int64(d.cfg.OutlierWindow) {
		return false
	}
	if c.bad == 0 {
		c.bad = newest
	}
	c.worst = newest
	d.counts.Anomalies++
	d.events = append(d.events, Event{Kind: AnomalyEvent, At: s.At, Victim: c.Container, CPI: s.CPI,
		Threshold: threshold})
	d.enqueue(waiting{victim: s.Ref, at: newest, excess: s.CPI / threshold})
	return true
}

// outliersOf counts them in the window that ends with the newest sample.
func (d *Detector) outliersOf(c *container) (n int) {
	start := c.window.newest().at - int64(d.cfg.OutlierWindow)
	for i := c.window.n - 1; i >= 0; i-- {
		e := c.window.at(i)
		if e.at <= start {
			break
		}
		if e.outlier {
			n++
		}
	}
	return n
}

// enqueue makes an anomaly wait for its analysis. Of one victim only the latest
// waits.
func (d *Detector) enqueue(w waiting) {
	if c := &d.all[w.victim]; c.queued {
		d.counts.Crowded++
		for i := range d.queue {
			if d.queue[i].victim == w.victim {
				d.queue[i] = w
			}
		}
		return
	}
	d.all[w.victim].queued = true
	d.queue = append(d.queue, w)
}

// judge orders the queue: those that may be protected first, then the oldest
// anomaly, then the worst.
func (d *Detector) judge() {
	slices.SortFunc(d.queue, func(a, b waiting) int {
		x, y := &d.all[a.victim], &d.all[b.victim]
		rank := func(c *container) int {
			if c.Class.LatencySensitive() {
				return 0
			}
			return 1
		}
		return cmp.Or(
			cmp.Compare(rank(x), rank(y)),
			cmp.Compare(a.at, b.at),
			cmp.Compare(b.excess, a.excess),
			cmp.Compare(x.ID, y.ID),
		)
	})
}

// analyse takes the next victim, unless the last analysis was a moment ago.
func (d *Detector) analyse() {
	if len(d.queue) == 0 || d.now-d.analysed < int64(d.cfg.AnalysisPause) {
		return
	}
	w := d.queue[0]
	d.queue = slices.Delete(d.queue, 0, 1)
	d.all[w.victim].queued = false
	d.analysed = d.now
	d.investigate(w)
}

// Normal is what a threshold is measured from.
type Normal struct {
	Band    int     // of usage; -1: the whole job, as in Classic mode
	CPI     float64 // the band's median; the whole job's mean
	StdDev  float64
	Samples float64
}

// normal of samples in a band of usage.
func (j *job) normal(m Mode, b int) Normal {
	if m == Classic {
		return Normal{Band: -1, CPI: j.spec.Mean, StdDev: j.spec.StdDev, Samples: j.spec.Samples}
	}
	_, _, samples := j.spec.in(b)
	median := math.Exp(j.robust[b].logMedian)
	return Normal{Band: b, CPI: median, StdDev: median * j.robust[b].logSD, Samples: samples}
}
