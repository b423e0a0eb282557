package detect

import (
	"cmp"
	"math"
	"slices"
)

// outlier reports a sample above its threshold. It returns whether the victim is in an
// anomaly: whether the window up to its newest sample holds enough outliers.
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
	c.lastAnomaly = newest
	d.counts.Anomalies++
	d.events = append(d.events, Event{Kind: AnomalyEvent, At: s.At, Victim: c.Container, CPI: s.CPI,
		Threshold: threshold})
	d.enqueue(queuedAnomaly{victim: s.Ref, at: newest, excess: s.CPI / threshold})
	return true
}

// thresholdOf is the threshold of a sample of which this share was counted. The mean of a
// share s of the window deviates by a factor of 1/sqrt(s) more than that of all of it.
func (j *job) thresholdOf(m Mode, band int, counted float64) float64 {
	t := j.threshold(m, band)
	if counted <= 0 || counted >= 1 {
		return t
	}
	normal := j.normal(m, band).CPI
	if m == Classic {
		return normal + (t-normal)/math.Sqrt(counted)
	}
	return normal * math.Pow(t/normal, 1/math.Sqrt(counted)) // deviations are of logarithms
}

// outliersOf counts the outliers in the window up to the newest sample.
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

// enqueue queues an anomaly for analysis. A victim has at most one, its latest, in the
// queue.
func (d *Detector) enqueue(w queuedAnomaly) {
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

// judge orders the queue: latency-sensitive victims first, then the oldest anomaly,
// then the worst.
func (d *Detector) judge() {
	slices.SortFunc(d.queue, func(a, b queuedAnomaly) int {
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

// analyseNext takes the next anomaly, unless the last analysis was less than AnalysisPause
// ago.
func (d *Detector) analyseNext() {
	if len(d.queue) == 0 || d.now-d.analysed < int64(d.cfg.AnalysisPause) {
		return
	}
	w := d.queue[0]
	d.queue = slices.Delete(d.queue, 0, 1)
	d.all[w.victim].queued = false
	d.analysed = d.now
	d.analyseAnomaly(w)
}

// Normal is the basis of a threshold.
type Normal struct {
	Band    int     // of usage; -1: the whole job, as in Classic mode
	CPI     float64 // the band's median; the whole job's mean
	StdDev  float64
	Samples float64
}

// normal returns the basis of the threshold in a usage band.
func (j *job) normal(m Mode, b int) Normal {
	if m == Classic {
		return Normal{Band: -1, CPI: j.spec.Mean, StdDev: j.spec.StdDev, Samples: j.spec.Samples}
	}
	_, _, samples := j.spec.in(b)
	median := math.Exp(j.robust[b].logMedian)
	return Normal{Band: b, CPI: median, StdDev: median * j.robust[b].logSD, Samples: samples}
}
