package detect

import "math"

// The paper's score asks whether the suspect ran while the victim suffered. It
// rises with the victim's CPI alone, so a neighbour that always runs is as guilty
// as the culprit. What decides here is whether the victim suffers more when the
// suspect runs more: the correlation of the victim's residual (the logarithm of
// its CPI over what is normal at that usage) with the suspect's usage, and how
// surprising that correlation is given that both move slowly.

// workspace is what an analysis needs; it is reused, so that none is allocated
// per suspect.
type workspace struct {
	// the victim's samples in the history that have a CPI, oldest first
	at    []int64
	cpi   []float64
	y     []float64
	load  []float64 // logarithm of instructions a second, but for a constant
	bad   []bool
	next  []bool // the sample before is one period away
	first int    // first sample in the paper's window
	// threshold of the newest sample: the one that the paper's score takes
	threshold float64
	rhoY      float64
	// changes between good and bad
	changes int

	x            []float64 // of one suspect, at the victim's times; NaN: missing
	sum          []float64 // of a group's usage, or of fellow victims' residuals
	counts       []float64
	pairC, pairU []float64

	suspects []Suspect
	members  []Ref
	verdicts []Verdict
	outcomes []Outcome
	commands []Command
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
	bound    float64 // what changes that met say at most, by perChange
	penalty  float64
}

const (
	// unexplained is the share of a victim's variation that no suspect ever
	// explains: without it a perfect fit of ten samples would be infinitely sure.
	unexplained = 0.02
	// A suspect that did not use at least half again as much when the victim was
	// bad is steady: (1.5 - 1) / (1.5 + 1).
	steadyContrast = 0.2
	// perChange is the most that one change of the victim, met by one of the
	// suspect's, can say: in an hour one in twenty meets by chance.
	perChange       = 3
	perSevereChange = 8
	// lagCost is how much less likely a lag of one sample is than none, as a log.
	lagCost = 0.7
)

// relate compares the victim with w.x.
func (w *workspace) relate(x []float64) relation {
	best := relation{evidence: math.Inf(-1)}
	for _, lag := range [...]int{0, -1, 1} {
		if got := w.relateAt(x, lag); got.evidence-got.penalty > best.evidence-best.penalty {
			best = got
		}
	}
	return best
}

func (w *workspace) relateAt(x []float64, lag int) relation {
	var n, sx, sy, sxx, syy, sxy, badX, goodX, bads, crossX float64
	for i, y := range w.y {
		j := i + lag
		if j < 0 || j >= len(x) || lag != 0 && !w.next[max(i, j)] {
			continue
		}
		v := x[j]
		if v != v {
			continue
		}
		n++
		sx += v
		sy += y
		sxx += v * v
		syy += y * y
		sxy += v * y
		if w.bad[i] {
			badX += v
			bads++
		} else {
			goodX += v
		}
		if j > 0 && w.next[j] {
			if before := x[j-1]; before == before {
				crossX += v * before
			}
		}
	}
	rel := relation{lag: lag, pairs: int(n)}
	if lag != 0 {
		rel.penalty = lagCost
	}
	goods := n - bads
	if n < 3 || bads < 2 || goods < 2 {
		return rel
	}
	badX, goodX = badX/bads, goodX/goods
	if badX+goodX > 0 {
		rel.contrast = (badX - goodX) / (badX + goodX)
	}
	mx := sx / n
	vx, vy := sxx-sx*mx, syy-sy*sy/n
	if vx <= 1e-9*sxx || vy <= 1e-12 {
		return rel
	}
	r := (sxy - mx*sy) / math.Sqrt(vx*vy)
	rel.r = min(max(r, -1), 1)
	rhoX := min(max((crossX-(n-1)*mx*mx)/vx, 0), 0.98)
	// Two series that move slowly agree by chance more often: they hold fewer
	// independent samples (Bretherton et al., J. Climate 1999).
	free := n * (1 - rhoX*w.rhoY) / (1 + rhoX*w.rhoY)
	rel.evidence = -free / 2 * math.Log(1-rel.r*rel.r*(1-unexplained))
	if rel.r < 0 {
		rel.evidence = -rel.evidence
	} else if goodX < badX {
		rel.bound = float64(min(w.changes, changesBetween(x, goodX, badX)))
	}
	rel.penalty += math.Log(max(free, 1)) / 2
	return rel
}

// conclude is the evidence, bounded: however well one change fits another, that
// is one coincidence. It says more where the victim suffers so much that the
// paper's score alone would blame the suspect.
func (r *relation) conclude(severe bool) {
	each := float64(perChange)
	if severe {
		each = perSevereChange
	}
	r.evidence = min(r.evidence, each*r.bound) - r.penalty
}

// changesBetween counts how often a series goes from one level to another. What
// stays between them changes nothing.
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

// settle finishes the victim's series: what its own load explains is taken out,
// and how slowly the rest moves is measured.
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

// loadSlope is how much the victim's residual rises with its instructions a
// second, where that relation is clear; else 0. Interference can only lower the
// instructions a second, so nothing of it is taken away.
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
