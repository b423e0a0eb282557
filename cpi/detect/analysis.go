package detect

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// Suspect is one neighbour of a victim, as an analysis saw it.
type Suspect struct {
	Ref Ref
	// Score decides the order: the paper's in Classic mode, else the correlation
	// with the victim's residual. It lies in [-1, 1].
	Score float64
	// Paper is the paper's score in both modes.
	Paper float64
	// Contrast is (mean usage when the victim was bad - when it was good) over
	// their sum; Lag is -1 where the victim answers one sample later.
	Contrast float64
	Lag      int
	// Confidence is the probability that this suspect is the antagonist, rather
	// than another or none. Default mode only.
	Confidence float64
	// Pairs of samples stand behind it.
	Pairs int

	evidence float64 // log odds against "none", priors included
	misses   float64
	fellow   bool // it suffers too
}

// VerdictKind is what follows from an analysis.
type VerdictKind string

const (
	None    VerdictKind = "none"      // nobody can be blamed
	Observe VerdictKind = "observe"   // somebody can, and nothing is done
	Cap     VerdictKind = "cap"       // the antagonists' CPU is limited
	Move    VerdictKind = "pool-move" // the BE pool leaves the victim's L3 domain
	Evict   VerdictKind = "evict"     // the antagonist should run elsewhere
)

// Verdict is the result of one analysis.
type Verdict struct {
	Kind   VerdictKind
	Victim Ref
	At     time.Time // of the anomaly
	// Suspects are all that ran beside it, the most suspicious first.
	Suspects []Suspect
	// Antagonists are those that something is done about, or would be.
	Antagonists []Ref
	Score       float64
	Why         string
}

// investigate analyses one anomaly. One that waited so long that the victim's window
// has lost it, or whose victim nothing judges any more, is over.
func (d *Detector) investigate(q waiting) {
	w, victim := &d.work, &d.all[q.victim]
	w.reset()
	d.describe(q)
	if len(w.cpi) == 0 || !victim.job.usable {
		return
	}
	d.counts.Analyses++
	d.suspect(q)
	if d.cfg.Mode == Default {
		d.weigh(q)
	}
	slices.SortFunc(w.suspects, func(a, b Suspect) int {
		switch {
		case a.evidence != b.evidence:
			return cmp.Compare(b.evidence, a.evidence)
		case a.Score != b.Score:
			return cmp.Compare(b.Score, a.Score)
		}
		return cmp.Compare(d.all[a.Ref].ID, d.all[b.Ref].ID)
	})
	w.verdicts = append(w.verdicts, Verdict{Victim: q.victim, At: stamp(q.at), Suspects: w.suspects})
	v := &w.verdicts[len(w.verdicts)-1]
	at := len(d.events)
	d.events = append(d.events, Event{
		Kind: AnalysisEvent, At: stamp(d.now), Victim: victim.Container, CPI: w.cpi[len(w.cpi)-1],
		Threshold: w.threshold, Verdict: v,
		Spec: &victim.job.spec, Normal: victim.job.normal(d.cfg.Mode,
			BandOf(victim.window.newest().usage, d.cfg.MinUsage)),
	})
	d.decide(v)
	if j := victim.job; j.stale(d.now) {
		v.Why += "; what is normal for it the cluster said, and vouched for until " +
			stamp(j.foreignTill).Format(time.RFC3339)
	}
	d.events[at].Verdict = v
}

// describe fills the workspace with the victim's side.
func (d *Detector) describe(q waiting) {
	w, victim := &d.work, &d.all[q.victim]
	history := d.cfg.History
	if d.cfg.Mode == Classic {
		history = d.cfg.Window
	}
	for i := range victim.window.n {
		e := victim.window.at(i)
		if e.at > q.at || e.at <= q.at-int64(history) || e.cpi == 0 || e.usage < d.cfg.MinUsage {
			continue
		}
		n := len(w.at)
		w.next = append(w.next, n > 0 && 2*(e.at-w.at[n-1]) < 3*int64(d.cfg.Period))
		w.at = append(w.at, e.at)
		w.cpi = append(w.cpi, e.cpi)
		j, band := victim.job, BandOf(e.usage, d.cfg.MinUsage)
		w.bad = append(w.bad, e.cpi > j.threshold(d.cfg.Mode, band))
		if e.at <= q.at-int64(d.cfg.Window) {
			w.first = n + 1
		}
		if d.cfg.Mode == Default {
			w.y = append(w.y, d.residual(j, e))
			w.load = append(w.load, math.Log(e.usage/e.cpi))
		}
	}
	w.threshold = victim.job.threshold(d.cfg.Mode, BandOf(victim.window.newest().usage, d.cfg.MinUsage))
	if d.cfg.Mode == Default {
		d.fellows(q)
		w.settle()
	}
}

// residual is the logarithm of a CPI over what is normal at that usage. One wild
// sample must not outweigh the others.
func (d *Detector) residual(j *job, e *entry) float64 {
	b := &j.robust[BandOf(e.usage, d.cfg.MinUsage)]
	return min(max(math.Log(e.cpi)-b.logMedian, -4*b.logSD), math.Ln2*3)
}

// maxFellows is how many victims are looked at together.
const maxFellows = 4

// fellows averages the residuals of victims that suffer at the same time in the
// same place: what they have in common is the antagonist, and their own noise
// averages out.
func (d *Detector) fellows(q waiting) {
	w, victim := &d.work, &d.all[q.victim]
	period := int64(d.cfg.Period)
	w.sum, w.counts = append(w.sum[:0], w.y...), w.counts[:0]
	for range w.y {
		w.counts = append(w.counts, 1)
	}
	found := 0
	for i := range d.all {
		c := &d.all[i]
		if Ref(i) == q.victim || !d.suffers(c, q.at) || !c.Class.LatencySensitive() || nearness(victim, c) < 1 {
			continue
		}
		if found++; found > maxFellows {
			break
		}
		w.x = w.x[:0]
		from := 0
		var e *entry
		for _, at := range w.at {
			e, from = c.window.nearest(at, period, from)
			if e == nil || e.cpi == 0 || e.usage < d.cfg.MinUsage {
				w.x = append(w.x, math.NaN())
				continue
			}
			w.x = append(w.x, d.residual(c.job, e))
		}
		if w.correlate(w.x, 0).r < 0.5 {
			continue
		}
		for i, x := range w.x {
			if x == x {
				w.sum[i] += x
				w.counts[i]++
			}
		}
	}
	for i := range w.y {
		w.y[i] = w.sum[i] / w.counts[i]
	}
}

// suffers says that a container is in an anomaly around a time.
func (d *Detector) suffers(c *container, at int64) bool {
	return c.live && c.worst != 0 && c.worst > at-3*int64(d.cfg.Period)/2
}

// align puts a container's usage at the victim's times. Before its start and
// after its end it used nothing; where a sample is missing nothing is known.
func (d *Detector) align(c *container) {
	w := &d.work
	w.x, w.done, w.missed = w.x[:0], w.done[:0], w.missed[:0]
	period := int64(d.cfg.Period)
	from := 0
	var e *entry
	for _, at := range w.at {
		e, from = c.window.nearest(at, period, from)
		if d.cfg.Mode == Default {
			done, missed := effect(e)
			w.done, w.missed = append(w.done, done), append(w.missed, missed)
		}
		switch {
		case e != nil:
			w.x = append(w.x, e.usage)
		case d.cfg.Mode == Default && (at < c.born-period/2 || c.gone > 0 && at > c.gone+period/2):
			w.x = append(w.x, 0)
		default:
			w.x = append(w.x, math.NaN())
		}
	}
}

// effect is what a container did in a sample with the CPU time it used: NaN where
// that is not known.
func effect(e *entry) (done, missed float64) {
	switch {
	case e == nil:
		return math.NaN(), math.NaN()
	case e.cpi > 0:
		return e.usage / e.cpi, float64(e.misses)
	case e.usage < idleUsage:
		return 0, 0
	}
	return math.NaN(), math.NaN()
}

// idleUsage is too little to have a CPI, and to do anything.
const idleUsage = 0.001

// pressed relates the victim with what a suspect did, where that is known, and else
// with the CPU time that it used. Who is disturbed himself uses more time for the
// same work, so that his usage rises and falls with the victim's CPI; but he neither
// executes nor misses more.
func (d *Detector) pressed() relation {
	w := &d.work
	rel := d.related(w.x)
	if rel.r <= 0 || !w.told(w.done) {
		return rel
	}
	did := d.related(w.done)
	if missed := d.related(w.missed); missed.evidence > did.evidence {
		did = missed
	}
	if did.evidence < rel.evidence {
		return did
	}
	return rel
}

// suspect scores everybody who ran beside the victim.
func (d *Detector) suspect(q waiting) {
	w := &d.work
	for i := range d.all {
		c := &d.all[i]
		if Ref(i) == q.victim || !c.live || c.window.n == 0 {
			continue
		}
		if newest := c.window.newest().at; newest <= q.at-int64(d.cfg.Window) {
			continue
		}
		d.align(c)
		paper, ok := w.paper(w.x, 0)
		s := Suspect{Ref: Ref(i), Pairs: len(w.pairC)}
		if !ok {
			continue
		}
		s.Score, s.Paper = paper, paper
		if d.cfg.Mode == Default {
			rel := d.pressed()
			s.Score, s.Contrast, s.Lag, s.Pairs, s.evidence = rel.r, rel.contrast, rel.lag, rel.pairs, rel.evidence
			if s.Contrast < steadyContrast {
				s.Score = min(s.Score, max(s.Contrast, 0))
			}
			may, _ := c.MayBeCapped()
			s.fellow = !may && d.suffers(c, q.at)
			s.misses = missesOf(c, q.at-int64(d.cfg.Window))
		}
		w.suspects = append(w.suspects, s)
	}
}

// paper is the paper's score of a series of usage, over its window, with the
// victim's samples delayed by -lag.
func (w *workspace) paper(x []float64, lag int) (float64, bool) {
	w.pairC, w.pairU = w.pairC[:0], w.pairU[:0]
	for i := w.first; i < len(w.cpi); i++ {
		j := i + lag
		if j < 0 || j >= len(x) || x[j] != x[j] || lag != 0 && !w.next[max(i, j)] {
			continue
		}
		w.pairC = append(w.pairC, w.cpi[i])
		w.pairU = append(w.pairU, x[j])
	}
	return Score(w.threshold, w.pairC, w.pairU)
}

// related compares the victim with a series of usage.
func (d *Detector) related(x []float64) relation {
	w := &d.work
	return w.relate(x, func(lag int) bool {
		paper, ok := w.paper(x, lag)
		return ok && paper >= d.cfg.MinScore
	})
}

func missesOf(c *container, since int64) float64 {
	var sum, n float64
	for i := c.window.n - 1; i >= 0; i-- {
		e := c.window.at(i)
		if e.at <= since {
			break
		}
		sum += float64(e.misses)
		n++
	}
	return sum / max(n, 1)
}

// nearness is how plausible it is that one container disturbs another, by what
// they share; 1 where that is not known.
func nearness(a, b *container) float64 {
	switch x, y := &a.Place, &b.Place; {
	case x.L3s.IsEmpty() || y.L3s.IsEmpty():
		return 1
	case x.Cores.Intersects(&y.Cores):
		return 1.5
	case x.L3s.Intersects(&y.L3s):
		return 1
	case x.Nodes.Intersects(&y.Nodes):
		return 0.3
	}
	return 0.05
}

// weigh turns evidence into probabilities. Before any evidence it is as likely
// that no neighbour is to blame as that one is.
func (d *Detector) weigh(q waiting) {
	w, victim := &d.work, &d.all[q.victim]
	var misses, known, prior float64
	for i := range w.suspects {
		if m := w.suspects[i].misses; m > 0 {
			misses += m
			known++
		}
	}
	for i := range w.suspects {
		s := &w.suspects[i]
		c := &d.all[s.Ref]
		p := nearness(victim, c) * d.pairs.prior(victim, c)
		if known > 1 {
			p *= min(max(s.misses/misses*known, 0.25), 2)
		}
		if s.fellow {
			p = 0
		}
		prior += p
		s.Confidence = p
	}
	top := 0.0 // "none" has log odds 0
	share := math.Log(max(prior, 1))
	for i := range w.suspects {
		s := &w.suspects[i]
		if s.Confidence != 1 {
			s.evidence += math.Log(s.Confidence)
		}
		s.evidence -= share
		top = max(top, s.evidence)
	}
	total := math.Exp(-top)
	for i := range w.suspects {
		s := &w.suspects[i]
		s.Confidence = math.Exp(s.evidence - top)
		total += s.Confidence
	}
	for i := range w.suspects {
		w.suspects[i].Confidence /= total
	}
}

// blameable says whether a suspect's own figures suffice for a verdict.
func (d *Detector) blameable(s *Suspect) bool {
	if s.Pairs < d.cfg.MinPairs || s.Score < d.cfg.MinScore {
		return false
	}
	return d.cfg.Mode == Classic || s.Contrast >= steadyContrast
}

// culprits are the suspects that the analysis blames, most suspicious first: in
// Classic mode each at or above the score, in Default mode the one, the members
// of one job, or the group that it must have been.
func (d *Detector) culprits(v *Verdict) []Ref {
	w := &d.work
	w.members = w.members[:0]
	if d.cfg.Mode == Classic {
		for i := range v.Suspects {
			if d.blameable(&v.Suspects[i]) {
				w.members = append(w.members, v.Suspects[i].Ref)
			}
		}
		return w.members
	}
	var sure float64
	for i := range v.Suspects {
		s := &v.Suspects[i]
		if !d.blameable(s) || i > 0 && !d.sameJob(s.Ref, v.Suspects[0].Ref) || len(w.members) == maxGroup {
			break
		}
		w.members = append(w.members, s.Ref)
		if sure += s.Confidence; sure >= d.cfg.MinConfidence {
			return w.members
		}
	}
	return d.group(v)
}

func (d *Detector) sameJob(a, b Ref) bool {
	x, y := &d.all[a], &d.all[b]
	return x.job == y.job && x.Job != ""
}

const (
	maxGroup        = 4
	groupCandidates = 16
	// A suspect that explains more than half of the victim's variation needs no
	// accomplices; a group has to explain two thirds.
	singleHandedly = 0.71
	together       = 0.82
)

// group adds suspects to the best one while together they explain the victim
// better: several that take turns are each innocent on their own.
func (d *Detector) group(v *Verdict) []Ref {
	w := &d.work
	w.members = w.members[:0]
	candidates := v.Suspects[:min(len(v.Suspects), groupCandidates)]
	if len(candidates) < 2 || candidates[0].Score <= 0 || candidates[0].Contrast < steadyContrast ||
		candidates[0].Score > singleHandedly {
		return nil
	}
	w.sum = w.sum[:0]
	for range w.at {
		w.sum = append(w.sum, 0)
	}
	best := relation{evidence: math.Inf(-1)}
	// As likely before any evidence as a single antagonist, each group of its size
	// like every other.
	cost := 0.0
	for len(w.members) < maxGroup {
		var with relation
		chosen := -1
		for i := range candidates {
			s := &candidates[i]
			if slices.Contains(w.members, s.Ref) || s.Score <= 0 || s.Contrast < steadyContrast || s.fellow {
				continue
			}
			d.align(&d.all[s.Ref])
			for k := range w.x {
				w.x[k] += w.sum[k]
			}
			if rel := d.related(w.x); chosen < 0 || rel.evidence > with.evidence {
				with, chosen = rel, i
			}
		}
		size := len(w.members)
		step := math.Log(float64(max(len(v.Suspects)-size, 1)) / float64(size+1))
		if chosen < 0 || size > 0 && with.evidence-cost-step <= best.evidence {
			break
		}
		cost += step
		with.evidence -= cost
		best = with
		d.align(&d.all[candidates[chosen].Ref])
		for k := range w.sum {
			w.sum[k] += w.x[k]
		}
		w.members = append(w.members, candidates[chosen].Ref)
	}
	if len(w.members) < 2 || best.r < together || best.contrast < steadyContrast || best.pairs < d.cfg.MinPairs {
		return nil
	}
	// The group against none and against each alone.
	total := 1 + math.Exp(best.evidence)
	for i := range v.Suspects {
		total += math.Exp(v.Suspects[i].evidence)
	}
	if math.Exp(best.evidence)/total < d.cfg.MinConfidence {
		return nil
	}
	v.Score = best.r
	return w.members
}

func (d *Detector) name(ref Ref) string {
	c := &d.all[ref]
	if c.Job == "" {
		return c.ID
	}
	return fmt.Sprintf("%s (%s)", c.ID, c.Job)
}
