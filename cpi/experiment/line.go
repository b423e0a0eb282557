package experiment

import "math"

// point is one undisturbed window: ln usage and ln CPI, less the offset of its time.
type point struct{ x, y float32 }

const (
	maxPoints = 400
	// minPoints are enough to judge by.
	minPoints = 40
	// allPoints are taken as they come; of more, every third, so that the line covers a
	// day rather than hours.
	allPoints, everyPoint = 120, 3
	refit                 = 12 // new points until the line is fitted anew

	maxSlope   = 0.9
	leastSD    = 0.03
	leastThr   = 0.14
	thrSDs     = 2.25
	passes     = 3
	dropBeyond = 3 // deviations

	farLess = 0.3
)

// line says what is normal for a job: ln CPI over the logarithm of its load.
type line struct {
	N int `json:"n"` // points that it rests on; 0: there is none
	// OverWork says that the load is work, instructions a second, and not usage. Usage is work times CPI, so
	// that CPI lies on a line over one of the two by arithmetic alone: over usage for who serves a given
	// rate of requests, over work for who always has some waiting.
	OverWork   bool    `json:"overWork,omitempty"`
	At         float64 `json:"at"`
	C          float64 `json:"c"` // ln CPI at ln load At
	B          float64 `json:"b"`
	Low        float64 `json:"low"` // loads beyond these count as these
	High       float64 `json:"high"`
	SD         float64 `json:"sd"`
	Thr        float64 `json:"thr"` // a residual above it is an outlier
	FromOthers bool    `json:"fromOthers,omitempty"`
}

// load of a window.
func (l *line) load(p point) float64 {
	if l.OverWork {
		return float64(p.x - p.y)
	}
	return float64(p.x)
}

// predict is ln CPI at ln load.
func (l *line) predict(load float64) float64 { return l.C + l.B*(min(max(load, l.Low), l.High)-l.At) }

// given is the line of a spec: a mean, whatever the usage.
func given(mean, stddev float64) line {
	cv := stddev / mean
	v := math.Log1p(cv * cv)
	l := line{N: minPoints, C: math.Log(mean) - v/2, FromOthers: true}
	l.SD = max(leastSD, math.Sqrt(v))
	l.Thr = max(leastThr, thrSDs*l.SD)
	return l
}

// history is what a job's windows were like.
type history struct {
	points []point
	next   int // where the oldest is, once it is full
	seen   int // windows offered
	fresh  int // points since the last fit
	least  int // points that the next fit needs
	line   line
}

// learn takes a window into the history, and fits the line anew now and then.
func (h *history) learn(p point, w *fitting) {
	h.seen++
	if len(h.points) >= allPoints && h.seen%everyPoint != 0 {
		return
	}
	if len(h.points) < maxPoints {
		h.points = append(h.points, p)
	} else {
		h.points[h.next] = p
		h.next = (h.next + 1) % maxPoints
	}
	h.fresh++
	if n := len(h.points); n >= max(minPoints, h.least) && (h.fresh >= refit || h.line.N == 0) {
		h.line, h.fresh, h.least = w.fit(h.points), 0, 0
	}
}

// fitting is the memory of a fit.
type fitting struct{ x, res []float64 }

// fit is the line over usage, or the one over work where that moves CPI far less: what moves with usage then, and
// hardly with work, is what usage and CPI have in common.
func (w *fitting) fit(points []point) line {
	usage, byUsage := w.over(points, false)
	if work, byWork := w.over(points, true); byWork < farLess*byUsage {
		return work
	}
	return usage
}

// over is least squares on the load between its 3 % quantiles, which drops what lies
// beyond three deviations and tries again. moves is how far a deviation of the load moves ln CPI.
func (w *fitting) over(points []point, work bool) (l line, moves float64) {
	l = line{N: len(points), OverWork: work, SD: math.Inf(1)}
	w.x = w.x[:0]
	for _, p := range points {
		w.x = append(w.x, l.load(p))
	}
	l.Low, l.High = selected(w.x, 0.03), selected(w.x, 0.97)
	for range passes {
		var n, sx, sy, sxx, sxy float64
		for _, p := range points {
			x, y := min(max(l.load(p), l.Low), l.High), float64(p.y)
			if !math.IsInf(l.SD, 1) && math.Abs(y-l.predict(x)) > dropBeyond*l.SD {
				continue
			}
			n, sx, sy, sxx, sxy = n+1, sx+x, sy+y, sxx+x*x, sxy+x*y
		}
		if n == 0 {
			break
		}
		l.At, l.C, l.B, moves = sx/n, sy/n, 0, 0
		if v := sxx/n - l.At*l.At; v > 1e-6 {
			l.B = min(max((sxy/n-l.At*l.C)/v, -maxSlope), maxSlope)
			moves = math.Abs(l.B) * math.Sqrt(v)
		}
		w.res = w.res[:0]
		for _, p := range points {
			w.res = append(w.res, float64(p.y)-l.predict(l.load(p)))
		}
		l.SD = max(leastSD, 1.48*(selected(w.res, 0.5)-selected(w.res, 0.25)))
	}
	// What a tenth of its own history does is its nature: collections, phases.
	l.Thr = max(leastThr, thrSDs*l.SD, min(0.8, selected(w.res, 0.9)+0.5*l.SD))
	return l, moves
}

// selected is a quantile of a list, which it orders in part.
func selected(list []float64, q float64) float64 {
	if len(list) == 0 {
		return 0
	}
	return nth(list, min(int(q*float64(len(list))), len(list)-1))
}

func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
