package experiment

import "math"

// Suspect of an analysis.
type Suspect struct {
	Job string
	// Prior is the log odds from coincidence alone: it decides whom to ask first, and
	// nothing else.
	Prior float64
	// Correlation of the victim's residual with the suspect's usage or its work, whichever
	// is weaker.
	Correlation float64
	// E is the e-value of the pair's test; 0: it was never tested.
	E float64
	// MayBeThrottled says that the class of its containers allows it.
	MayBeThrottled bool
	job            *suspect
}

const (
	leastPrior, mostPrior = -8.0, 12.0
	mostLag               = 3
	mostRatio             = 12.18 // exp(2.5)
)

// workspace is the memory of an analysis.
type workspace struct {
	change [history60]float64 // of the victim's residual, the newest first; NaN: unknown
	null   [history60]float64 // its density if nobody did it
	sorted []float64
	levels []float64
	sd     float64
	d      float64
}

// prepare what all suspects are compared with.
func (w *workspace) prepare(v *victim) {
	w.d = v.disturbed()
	w.sd = 1.45 * max(0.06, v.job.history.line.SD)
	for k := range int64(history60) {
		r := v.at(v.newest-k) - v.at(v.newest-k-1)
		w.change[k] = r
		w.null[k] = 0.85*normal(r, 0, w.sd) + 0.15*normal(r, 0, 0.6)
	}
}

// match is the log likelihood ratio of "the victim's changes follow the suspect's by so
// many windows". No single change counts for more than a little.
func (w *workspace) match(s *series, lag int) float64 {
	// The product of 60 ratios between 0.3 and 12.2 is a float64, and one logarithm is
	// enough.
	product := 1.0
	for k := max(0, -lag); k < history60 && k+lag < history60; k++ {
		x := float64(s[k+lag])
		if x == 0 || math.IsNaN(w.change[k]) {
			continue
		}
		if far := w.change[k] - w.d*x; far > 6*(w.sd+0.1) || far < -6*(w.sd+0.1) {
			product *= 0.3
			continue
		}
		n0 := w.null[k]
		product *= min((0.7*normal(w.change[k], w.d*x, w.sd+0.1)+0.3*n0)/n0, mostRatio)
	}
	return math.Log(product)
}

// both is the weaker match of what a suspect used and what it did: who suffers beside the
// victim uses more and does no more. Below a bound it may be too large.
func (w *workspace) both(s *suspect, lag int, bound float64) float64 {
	usage := w.match(&s.changes.usage, lag)
	if usage <= bound {
		return usage
	}
	return min(usage, w.match(&s.changes.work, lag))
}

// prior of a suspect, and its correlation.
func (w *workspace) prior(v *victim, s *suspect) (prior, correlation float64) {
	s.refresh(v.newest, w)
	obs := math.Inf(-1)
	for lag := 0; lag <= mostLag; lag++ {
		obs = max(obs, w.both(s, lag, obs))
	}
	// Who merely follows the victim is none.
	if w.both(s, -1, obs) > obs {
		obs = min(obs, 0) - 1
	}
	level, correlation := w.level(v, s)
	return min(max(leastPrior, obs)+level, mostPrior), correlation
}

// level lets in who has come and never paused, of whom there are no changes.
func (w *workspace) level(v *victim, s *suspect) (odds, correlation float64) {
	var bad, good, nbad, ngood float64
	var n, sx, sy, sxx, syy, sxy float64
	for k := range int64(history60) {
		r, u := v.at(v.newest-k), float64(s.usage[index(v.newest-k, ring)])
		if math.IsNaN(r) || math.IsNaN(u) || s.throttled>>k&1 == 1 {
			continue
		}
		if v.bad>>k&1 == 1 {
			bad, nbad = bad+u, nbad+1
		} else {
			good, ngood = good+u, ngood+1
		}
		n, sx, sy, sxx, syy, sxy = n+1, sx+r, sy+u, sxx+r*r, syy+u*u, sxy+r*u
	}
	if spread := (n*sxx - sx*sx) * (n*syy - sy*sy); n >= 6 && spread > 1e-12 {
		correlation = (n*sxy - sx*sy) / math.Sqrt(spread)
	}
	if nbad > 0 && ngood > 0 {
		odds = min(max(2*math.Log((bad/nbad+0.1)/(good/ngood+0.1)), -2), 3)
	}
	return odds, correlation
}

// Scores is how many ranges of the prior are told apart by their precision.
const Scores = 6

// Precision of an analysis alone: how many of the jobs that were most suspicious with a prior
// from From on, up to the next one's, are guilty.
type Precision struct{ From, Guilty float64 }

// Precisions are those that evalcpi -scores measures on simulated machines of 28 kinds, ten of
// them with nobody guilty. On machines with fewer guilty they are lower.
func Precisions() [Scores]Precision {
	return [...]Precision{{PriorToTest, 0.58}, {3, 0.73}, {4, 0.82}, {5, 0.85}, {6, 0.91}, {8, 0.97}}
}

// PrecisionOf a prior of PriorToTest or more.
func PrecisionOf(prior float64) float64 {
	list := Precisions()
	for i := len(list) - 1; i > 0; i-- {
		if prior >= list[i].From {
			return list[i].Guilty
		}
	}
	return list[0].Guilty
}
