package detect

import "math"

// The paper's score asks whether the suspect ran while the victim suffered. A neighbour
// that always runs scores as high as the antagonist. Contrast mode asks whether the victim
// suffers more when the suspect runs more. It correlates the victim's residual (the
// logarithm of its CPI over the normal one at that usage) with the suspect's usage. It
// then asks how surprising that correlation is, given that both series move slowly.

// workspace is an analysis' memory, reused so that suspects cost no allocations.
type workspace struct {
	victimSeries
	suspectSeries

	suspects []Suspect
	members  []Ref
	verdicts []Verdict
	outcomes []Outcome
	commands []Command
}

// victimSeries are the victim's samples in the history that have a CPI, oldest first.
type victimSeries struct {
	at    []int64
	cpi   []float64
	y     []float64 // residuals
	load  []float64 // logarithm of instructions a second, up to a constant
	bad   []bool
	next  []bool // the previous sample is one period away
	first int    // first sample in the paper's window
	// threshold of the newest sample, for the paper's score
	threshold float64
	rhoY      float64
	changes   int // between good and bad
}

// suspectSeries are the samples of a suspect, or of a group, at the victim's times.
type suspectSeries struct {
	x            []float64 // usage; NaN: missing
	done, missed []float64 // instructions and misses a second, up to a constant
	sum          []float64 // of a group's usage, or of several victims' residuals
	counts       []float64
	pairC, pairU []float64
}

func (w *workspace) reset() {
	w.at, w.cpi, w.y, w.load, w.bad, w.next = w.at[:0], w.cpi[:0], w.y[:0], w.load[:0], w.bad[:0], w.next[:0]
	w.first, w.rhoY, w.changes = 0, 0, 0
	w.suspects, w.members = w.suspects[:0], w.members[:0]
}

// relation of a victim's residuals with a suspect's usage.
type relation struct {
	r        float64 // correlation at the lag that explains most
	lag      int     // -1: the usage shows in the victim's next sample
	pairs    int
	contrast float64 // (mean usage when bad - when good) / their sum
	evidence float64 // log of the likelihood ratio against "no relation"
}

const (
	// unexplained is the share of a victim's variance that no suspect can explain.
	// Without it a perfect fit of ten samples would be infinite evidence.
	unexplained = 0.02
	// A suspect is steady unless it used half again as much while the victim was bad:
	// (1.5 - 1) / (1.5 + 1).
	steadyContrast = 0.2
	// perChange bounds the evidence of one change of the victim that coincides with one
	// of the suspect: it is one coincidence, however many samples it spans.
	perChange       = 4
	perSevereChange = 8
	// lagCost is the log odds of no lag against a lag of one sample.
	lagCost = 0.7
	// lagGain is how much better the correlation with a lag must be.
	lagGain = 0.03
)

// relate correlates the victim with a suspect's usage. It accepts a lag only if that
// explains clearly more.
func (w *workspace) relate(x []float64, severe func(lag int) bool) relation {
	best := w.correlate(x, 0)
	for _, lag := range [...]int{-1, 1} {
		if best.r < 0 {
			break // a suspect that is idle while the victim suffers needs no lag
		}
		if got := w.correlate(x, lag); got.r > best.r+lagGain {
			best = got
		}
	}
	rel := relation{r: best.r, lag: best.lag, pairs: int(best.n)}
	if best.badX+best.goodX > 0 {
		rel.contrast = (best.badX - best.goodX) / (best.badX + best.goodX)
	}
	if best.varX == 0 {
		return rel
	}
	// Slow series agree by chance more often, since they hold fewer independent samples
	// (Bretherton et al., J. Climate 1999).
	rho := w.rhoY * min(max(best.crossX/best.varX, 0), 0.98)
	free := best.n * (1 - rho) / (1 + rho)
	rel.evidence = -free / 2 * math.Log(1-rel.r*rel.r*(1-unexplained))
	switch {
	case rel.r <= 0:
		rel.evidence = -rel.evidence
	case rel.evidence > 1: // less blames no suspect, bounded or not
		// One change that fits another is one coincidence, however good the fit. It
		// weighs more if the paper's score alone would blame the suspect.
		each, changes := float64(perChange), 0
		if best.badX > best.goodX {
			changes = min(w.changes, changesBetween(x, best.goodX, best.badX))
		}
		if rel.evidence > each*float64(changes) && severe(rel.lag) {
			each = perSevereChange
		}
		rel.evidence = min(rel.evidence, each*float64(changes))
	}
	rel.evidence -= math.Log(max(free, 1)) / 2
	if rel.lag != 0 {
		rel.evidence -= lagCost
	}
	return rel
}

// known says whether most of a suspect's series is known, including samples both while
// the victim was bad and while it was good.
func (w *workspace) known(done []float64) bool {
	var known, of int
	var bads, goods int
	for i, v := range done {
		if w.x[i] != w.x[i] {
			continue
		}
		if of++; v == v {
			known++
			if w.bad[i] {
				bads++
			} else {
				goods++
			}
		}
	}
	return 2*known >= of && bads >= 2 && goods >= 2
}

// correlation of the victim's residuals with a series, at a lag in samples.
type correlation struct {
	lag    int
	n, r   float64
	varX   float64 // sum of squares about the mean
	crossX float64 // the same of neighbouring samples
	// mean usage while the victim was bad, and good
	badX, goodX float64
}

func (w *workspace) correlate(x []float64, lag int) correlation {
	c := correlation{lag: lag}
	var sx, sy, sxx, syy, sxy, bads, cross float64
	from, to := max(0, -lag), len(w.y)-max(0, lag)
	if from >= to {
		return c
	}
	// Slices of equal length let the compiler check bounds once: this loop dominates
	// the cost of an analysis.
	y, bad, next := w.y[from:to], w.bad[from:to], w.next[from:to]
	x = x[from+lag : to+lag][:len(y)]
	nextX := w.next[from+lag : to+lag][:len(y)]
	if lag > 0 {
		next = nextX
	}
	bad, next = bad[:len(y)], next[:len(y)]
	before := math.NaN()
	for i, y := range y {
		v := x[i]
		if v != v || lag != 0 && !next[i] {
			before = v
			continue
		}
		c.n++
		sx += v
		sy += y
		sxx += v * v
		syy += y * y
		sxy += v * y
		if bad[i] {
			c.badX += v
			bads++
		}
		if before == before && nextX[i] {
			cross += v * before
		}
		before = v
	}
	goods := c.n - bads
	if c.n < 3 || bads < 2 || goods < 2 {
		c.badX = 0
		return c
	}
	c.badX, c.goodX = c.badX/bads, (sx-c.badX)/goods
	mx := sx / c.n
	vx, vy := sxx-sx*mx, syy-sy*sy/c.n
	if vx <= 1e-9*sxx || vy <= 1e-12 {
		return c
	}
	c.varX, c.crossX = vx, cross-(c.n-1)*mx*mx
	c.r = min(max((sxy-mx*sy)/math.Sqrt(vx*vy), -1), 1)
	return c
}

// changesBetween counts how often a series crosses from one level to the other. Values
// between the two do not count.
func changesBetween(x []float64, low, high float64) int {
	quarter := (high - low) / 4
	n, at := 0, 0
	for _, v := range x {
		now := at
		switch {
		case v < low+quarter:
			now = -1
		case v > high-quarter:
			now = 1
		}
		if at != 0 && now != at {
			n++
		}
		at = now
	}
	return n
}

// settle completes the victim's series: it subtracts what the victim's own load
// explains, and measures the autocorrelation of the rest.
func (w *workspace) settle() {
	if slope := w.loadSlope(); slope > 0 {
		var mean float64
		for _, q := range w.load {
			mean += q
		}
		mean /= float64(len(w.load))
		for i, q := range w.load {
			w.y[i] -= slope * (q - mean)
		}
	}
	var n, mean, v, cross, bad, bads float64
	for i, y := range w.y {
		mean += y
		n++
		if w.bad[i] {
			bad += y
			bads++
		}
	}
	if bads > 0 && bads < n {
		w.changes = changesBetween(w.y, (mean-bad)/(n-bads), bad/bads)
	}
	mean /= max(n, 1)
	for i, y := range w.y {
		v += (y - mean) * (y - mean)
		if i > 0 && w.next[i] {
			cross += (y - mean) * (w.y[i-1] - mean)
		}
	}
	if v > 0 {
		w.rhoY = min(max(cross/v, 0), 0.98)
	}
}

// loadSlope is the slope of the victim's residual over its instructions a second if
// they correlate clearly, else 0. Interference can only lower instructions a second, so
// subtracting the slope does not hide interference.
func (w *workspace) loadSlope() float64 {
	var n, sq, sy, sqq, syy, sqy float64
	for i, q := range w.load {
		y := w.y[i]
		n++
		sq, sy, sqq, syy, sqy = sq+q, sy+y, sqq+q*q, syy+y*y, sqy+q*y
	}
	if n < 6 {
		return 0
	}
	vq, vy, cov := sqq-sq*sq/n, syy-sy*sy/n, sqy-sq*sy/n
	if vq <= 1e-9 || vy <= 1e-12 || cov/math.Sqrt(vq*vy) < 0.4 {
		return 0
	}
	return cov / vq
}
