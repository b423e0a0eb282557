package experiment

import (
	"math"
	"math/bits"
	"slices"
)

const (
	ring = 64 // windows that are kept

	// Three outliers in five windows are an anomaly.
	outliers, outlierWindows = 3, 5
	unjudged                 = 2 // first windows of a container
	settle                   = 3 // windows until one is known to be undisturbed

	leastUsage = 0.005 // CPUs; a CPI below it says nothing

	// A residual that stays up for so long is the victim's own change, unless a test has
	// found something. Sooner after a restart, since a release is one.
	rebaseAfter, rebaseAfterRestart, rebaseAfterRelease = 45, 16, 6
	rebaseQuantile, rebaseShare                         = 0.15, 0.7
	leastRebase                                         = 0.1
	rebaseE                                             = 4
)

// victim is a latency-sensitive container as it is judged.
type victim struct {
	job         *workload
	born        int64
	restarted   bool // it took the place of another container of its job
	released    bool // it is of a new version
	rebased     int64
	offset      float64 // of its level from the job's line
	residuals   [ring]float32
	newest      int64  // window of the newest residual
	bad         uint64 // outliers, the newest window in bit 0
	pending     [settle + 1]point
	waiting     [settle + 1]int64 // their windows; 0: none
	lastAnomaly int64
	queued      bool // its anomaly waits for an analysis
	latest      judgement
	glanced
}

// glanced is the residual of the newest window, of a test's too.
type glanced struct {
	tick int64
	r    float64
}

// workload is a victim's job on a platform, and what is normal for it.
type workload struct {
	name, platform string
	containers     int
	seen           int64
	history        history
	offset         float64 // of its newest container
	hot            float64 // highest e of the tests for it
	spec           bool    // the line is a spec's
}

func (v *victim) at(window int64) float64 {
	if window > v.newest || window <= v.newest-ring {
		return math.NaN()
	}
	return float64(v.residuals[index(window, ring)])
}

// advance to a window, with nothing known of those between.
func (v *victim) advance(window int64) {
	if window-v.newest > ring {
		v.newest = window - ring
	}
	for v.newest < window {
		v.newest++
		v.residuals[index(v.newest, ring)] = float32(math.NaN())
		v.bad <<= 1
	}
}

// judgement of a victim's sample.
type judgement struct {
	cpi              float64
	residual         float64
	threshold        float64 // as a CPI
	outlier, anomaly bool
}

// judge a window, and learn what is undisturbed.
func (v *victim) judge(window int64, usage, cpi float64, w *work) judgement {
	v.advance(window)
	j := judgement{cpi: cpi, residual: math.NaN()}
	h := &v.job.history
	if cpi <= 0 || usage < leastUsage || window-v.born < unjudged {
		v.learnPending(window, w)
		return j
	}
	p := point{x: float32(math.Log(usage)), y: float32(math.Log(cpi) - v.offset)}
	if l := &h.line; l.N > 0 {
		expected := l.predict(l.load(p)) + v.offset
		j.residual = math.Log(cpi) - expected
		j.threshold = math.Exp(expected + l.Thr)
		v.residuals[index(window, ring)] = float32(j.residual)
		if j.outlier = j.residual > l.Thr; j.outlier {
			v.bad |= 1
			if j.anomaly = bits.OnesCount64(v.bad&(1<<outlierWindows-1)) >= outliers; j.anomaly {
				v.lastAnomaly = window
			}
		}
	}
	i := index(window, settle+1)
	v.learnPending(window, w)
	v.pending[i], v.waiting[i] = p, window
	v.rebase(window)
	v.latest = j
	return j
}

// glance at a window of a test: nothing is learned from it.
func (v *victim) glance(tick, window int64, usage, cpi float64) {
	v.glanced = glanced{tick, math.NaN()}
	l := &v.job.history.line
	if cpi <= 0 || usage < leastUsage || window-v.born < unjudged || l.N == 0 {
		return
	}
	y := math.Log(cpi) - v.offset
	v.glanced.r = y - l.predict(l.load(point{x: float32(math.Log(usage)), y: float32(y)}))
}

// residualOf a tick; NaN: it is not known.
func (v *victim) residualOf(tick int64) float64 {
	if v.glanced.tick != tick {
		return math.NaN()
	}
	return v.glanced.r
}

// learnPending takes the windows that no anomaly has covered since.
func (v *victim) learnPending(window int64, w *work) {
	if v.job.spec {
		return
	}
	for i, at := range v.waiting {
		if at == 0 || window-at < settle {
			continue
		}
		v.waiting[i] = 0
		if v.lastAnomaly < at || v.job.history.line.N == 0 {
			p := v.pending[i]
			v.job.history.learn(p, &w.fit)
			w.learned = append(w.learned, Learned{Job: v.job.name, Platform: v.job.platform,
				Usage: math.Exp(float64(p.x)), CPI: math.Exp(float64(p.y) + v.offset)})
		}
	}
}

// rebase moves the line of a victim that has been off it for most of an hour: a release.
func (v *victim) rebase(window int64) {
	l := &v.job.history.line
	if l.N == 0 || v.job.spec || v.job.hot > rebaseE {
		return
	}
	span := int64(rebaseAfter)
	if v.restarted && window-v.born < 2*rebaseAfterRestart {
		if span = rebaseAfterRestart; v.released {
			span = rebaseAfterRelease
		}
	}
	if window-max(v.born, v.rebased) < span || math.Abs(v.at(window)) < leastRebase {
		return
	}
	var known [rebaseAfter]float64
	list := known[:0]
	for at := window - span + 1; at <= window; at++ {
		if r := v.at(at); !math.IsNaN(r) {
			list = append(list, r)
		}
	}
	if int64(len(list)) < span/2 {
		return
	}
	slices.Sort(list)
	least := max(leastRebase, rebaseShare*l.Thr)
	if quantile(list, rebaseQuantile) > least || quantile(list, 1-rebaseQuantile) < -least {
		v.offset += quantile(list, 0.5)
		v.job.offset, v.rebased, v.bad = v.offset, window, 0
	}
}

// disturbed is how far off the victim is when it is bad: the median of its outliers.
func (v *victim) disturbed() float64 {
	var known [ring]float64
	list := known[:0]
	for i := range int64(ring) {
		if v.bad>>i&1 == 1 {
			if r := v.at(v.newest - i); !math.IsNaN(r) {
				list = append(list, r)
			}
		}
	}
	if len(list) == 0 {
		return leastEffect
	}
	slices.Sort(list)
	return min(max(quantile(list, 0.5), leastEffect), mostEffect)
}

const leastEffect, mostEffect = 0.25, 0.9
