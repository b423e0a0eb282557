package detect

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// Suspect is a neighbour of a victim and an analysis' evidence against it.
type Suspect struct {
	Ref Ref
	// Score is the paper's in Classic mode, else the correlation of usage with the
	// victim's residual. It lies in [-1, 1] and decides the order.
	Score float64
	// Paper is the paper's score in both modes.
	Paper float64
	// Contrast is (mean usage when the victim was bad - when it was good) over their
	// sum. Lag is -1 if the victim reacts one sample later.
	Contrast float64
	Lag      int
	// Confidence is the probability that this suspect is the antagonist, rather
	// than another or none. Contrast mode only.
	Confidence float64
	// Pairs is the number of aligned samples.
	Pairs int

	evidence   float64 // log odds against "none", priors included
	misses     float64
	alsoVictim bool // it is a victim itself
}

// VerdictKind is the consequence of an analysis.
type VerdictKind string

const (
	None    VerdictKind = "none"      // no suspect can be blamed
	Observe VerdictKind = "observe"   // a suspect is to blame, but nothing is done
	Cap     VerdictKind = "cap"       // the antagonists are capped
	Move    VerdictKind = "pool-move" // the BE pool leaves the victim's L3 domain
	Evict   VerdictKind = "evict"     // the antagonist should run elsewhere
	Test    VerdictKind = "test"      // package experiment: a suspect is tested
)

// Verdict is the result of one analysis.
type Verdict struct {
	Kind   VerdictKind
	Victim Ref
	At     time.Time // of the anomaly
	// Suspects are all containers that ran next to the victim, the most suspicious
	// first.
	Suspects []Suspect
	// Antagonists are the suspects that are acted on, or would be.
	Antagonists []Ref
	Score       float64
	Why         string
}

// analyseAnomaly finds the antagonists of an anomaly. It drops an anomaly that has left
// the victim's window, or whose victim has no spec any more.
func (d *Detector) analyseAnomaly(q queuedAnomaly) {
	w, victim := &d.work, &d.all[q.victim]
	w.reset()
	d.loadVictim(q)
	if len(w.cpi) == 0 || !victim.job.usable {
		return
	}
	d.counts.Analyses++
	d.scoreSuspects(q)
	if d.cfg.Mode == Contrast {
		d.computeConfidence(q)
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
		v.Why += "; its spec is the cluster's, and expired at " +
			stamp(j.foreignUntil).Format(time.RFC3339)
	}
	d.events[at].Verdict = v
}

// loadVictim fills the workspace with the victim's series.
func (d *Detector) loadVictim(q queuedAnomaly) {
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
		w.next = append(w.next, n > 0 && e.at-w.at[n-1] < 2*int64(d.cfg.Period))
		w.at = append(w.at, e.at)
		w.cpi = append(w.cpi, e.cpi)
		j, band := victim.job, BandOf(e.usage, d.cfg.MinUsage)
		w.bad = append(w.bad, e.cpi > j.threshold(d.cfg.Mode, band))
		if e.at <= q.at-int64(d.cfg.Window) {
			w.first = n + 1
		}
		if d.cfg.Mode == Contrast {
			w.y = append(w.y, d.residual(j, e))
			w.load = append(w.load, math.Log(e.usage/e.cpi))
		}
	}
	w.threshold = victim.job.threshold(d.cfg.Mode, BandOf(victim.window.newest().usage, d.cfg.MinUsage))
	if d.cfg.Mode == Contrast {
		d.averageVictims(q)
		w.settle()
	}
}

// residual is the logarithm of a CPI over the normal one at that usage. It is clamped,
// so that one outlier does not outweigh all others.
func (d *Detector) residual(j *job, e *entry) float64 {
	b := &j.robust[BandOf(e.usage, d.cfg.MinUsage)]
	return min(max(math.Log(e.cpi)-b.logMedian, -4*b.logSD), math.Ln2*3)
}

// maxAveraged bounds how many other victims are averaged.
const maxAveraged = 4

// averageVictims averages the residuals of victims that suffer at the same time in the
// same place. The antagonist's effect is common to them; their own noise averages out.
func (d *Detector) averageVictims(q queuedAnomaly) {
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
		if found++; found > maxAveraged {
			break
		}
		w.x = w.x[:0]
		from := 0
		var e *entry
		for i, at := range w.at {
			e, from = c.window.nearest(at, period, from)
			if e == nil || e.cpi == 0 || w.others(i, e.at) || e.usage < d.cfg.MinUsage {
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

// others says that a time is that of another of the victim's samples than number i: windows lie
// at a random moment of each period, so that two may be close to each other.
func (w *workspace) others(i int, at int64) bool {
	off := max(at-w.at[i], w.at[i]-at)
	return i > 0 && at-w.at[i-1] < off || i+1 < len(w.at) && w.at[i+1]-at < off
}

// suffers says that a container is in an anomaly at about that time.
func (d *Detector) suffers(c *container, at int64) bool {
	return c.live && c.lastAnomaly != 0 && c.lastAnomaly > at-2*int64(d.cfg.Period)
}

// align samples a container's usage at the victim's times. Before its start and after
// its end usage is 0; where a sample is missing it is NaN.
func (d *Detector) align(c *container) {
	w := &d.work
	w.x, w.done, w.missed = w.x[:0], w.done[:0], w.missed[:0]
	period := int64(d.cfg.Period)
	from := 0
	var e *entry
	for i, at := range w.at {
		if e, from = c.window.nearest(at, period, from); e != nil && w.others(i, e.at) {
			e = nil
		}
		if d.cfg.Mode == Contrast {
			done, missed := effect(e)
			w.done, w.missed = append(w.done, done), append(w.missed, missed)
		}
		switch {
		case e != nil:
			w.x = append(w.x, e.usage)
		case d.cfg.Mode == Contrast && (at < c.born-period/2 || c.gone > 0 && at > c.gone+period/2):
			w.x = append(w.x, 0)
		default:
			w.x = append(w.x, math.NaN())
		}
	}
}

// effect returns a sample's instructions and cache misses a second, up to a constant
// factor; NaN if unknown.
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

// idleUsage is a usage too low to have a CPI or to disturb others.
const idleUsage = 0.001

// relateSuspect relates the victim's CPI with the suspect's instructions and misses if
// they are known, else with its usage. A suspect that is itself slowed down uses more
// CPU time for the same work, so its usage follows the victim's CPI; its instructions
// and misses do not.
func (d *Detector) relateSuspect() relation {
	w := &d.work
	rel := d.relateUsage(w.x)
	if rel.r <= 0 || !w.known(w.done) {
		return rel
	}
	did := d.relateUsage(w.done)
	if missed := d.relateUsage(w.missed); missed.evidence > did.evidence {
		did = missed
	}
	if did.evidence < rel.evidence {
		return did
	}
	return rel
}

// scoreSuspects scores every container that ran next to the victim.
func (d *Detector) scoreSuspects(q queuedAnomaly) {
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
		paper, ok := w.paperScore(w.x, 0)
		s := Suspect{Ref: Ref(i), Pairs: len(w.pairC)}
		if !ok {
			continue
		}
		s.Score, s.Paper = paper, paper
		if d.cfg.Mode == Contrast {
			rel := d.relateSuspect()
			s.Score, s.Contrast, s.Lag, s.Pairs, s.evidence = rel.r, rel.contrast, rel.lag, rel.pairs, rel.evidence
			if s.Contrast < steadyContrast {
				s.Score = min(s.Score, max(s.Contrast, 0))
			}
			may, _ := c.MayBeCapped()
			s.alsoVictim = !may && d.suffers(c, q.at)
			s.misses = missesOf(c, q.at-int64(d.cfg.Window))
		}
		w.suspects = append(w.suspects, s)
	}
}

// paperScore is the paper's score of a usage series within its window, with the victim's
// samples delayed by -lag.
func (w *workspace) paperScore(x []float64, lag int) (float64, bool) {
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

// relateUsage relates the victim with a usage series.
func (d *Detector) relateUsage(x []float64) relation {
	w := &d.work
	return w.relate(x, func(lag int) bool {
		paper, ok := w.paperScore(x, lag)
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

// nearness weighs how plausible it is that one container disturbs another, by the
// domains they share; 1 if unknown.
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

// computeConfidence converts evidence to probabilities. A priori, "no neighbour is to blame" is as
// likely as "one is".
func (d *Detector) computeConfidence(q queuedAnomaly) {
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
		if s.alsoVictim {
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

// blameable says whether a suspect's own evidence suffices for a verdict.
func (d *Detector) blameable(s *Suspect) bool {
	if s.Pairs < d.cfg.MinPairs || s.Score < d.cfg.MinScore {
		return false
	}
	return d.cfg.Mode == Classic || s.Contrast >= steadyContrast
}

// antagonists returns the suspects to blame, most suspicious first. In Classic mode
// that is each one at or above the score. In Contrast mode it is one suspect, members of
// one job, or a group.
func (d *Detector) antagonists(v *Verdict) []Ref {
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
	// A suspect that explains more than half of the victim's variance is judged alone; a
	// group has to explain two thirds.
	soloCorrelation  = 0.71
	groupCorrelation = 0.82
)

// group adds suspects to the best one as long as they explain the victim better
// together. It finds antagonists that take turns, none of which is guilty alone.
func (d *Detector) group(v *Verdict) []Ref {
	w := &d.work
	w.members = w.members[:0]
	candidates := v.Suspects[:min(len(v.Suspects), groupCandidates)]
	if len(candidates) < 2 || candidates[0].Score <= 0 || candidates[0].Contrast < steadyContrast ||
		candidates[0].Score > soloCorrelation {
		return nil
	}
	w.sum = w.sum[:0]
	for range w.at {
		w.sum = append(w.sum, 0)
	}
	best := relation{evidence: math.Inf(-1)}
	// A priori, a group is as likely as a single antagonist, and every group of a size
	// is equally likely.
	cost := 0.0
	for len(w.members) < maxGroup {
		var with relation
		chosen := -1
		for i := range candidates {
			s := &candidates[i]
			if slices.Contains(w.members, s.Ref) || s.Score <= 0 || s.Contrast < steadyContrast || s.alsoVictim {
				continue
			}
			d.align(&d.all[s.Ref])
			for k := range w.x {
				w.x[k] += w.sum[k]
			}
			if rel := d.relateUsage(w.x); chosen < 0 || rel.evidence > with.evidence {
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
	if len(w.members) < 2 || best.r < groupCorrelation || best.contrast < steadyContrast ||
		best.pairs < d.cfg.MinPairs {
		return nil
	}
	// Compare the group with "none" and with each suspect alone.
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
