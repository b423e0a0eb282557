package experiment

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/quietcore/quietcore/cpi"
)

// A victim that feels whether its rival is throttled can lie in step with the coin, and the
// bound does not hold for it. Hence the neutral witness: a job of another namespace that is seen to
// be better off under the same coins. It costs nothing, since the coins are thrown anyway. Who has
// none is told so, and with Config.NeedWitness its verdicts throttle no longer than its budget for
// tests lasts, and evict nobody. Where the suspect is of the accuser's own namespace none is asked for.

const (
	// mostAlone intervals a throttle outlives the daemon without a neutral witness, where one is needed.
	mostAlone = 5
	// witnessE of all witnesses together confirms a verdict: where none of them depends on the
	// coins, it is reached with probability 1/witnessE at most.
	witnessE = 4
	// mostWitnesses of a test. Each has as large a share of what is staked, also those that
	// have not come yet.
	mostWitnesses = 4
)

// witness is a victim's job of another namespace, and what was won by betting on the coins
// with its residuals.
type witness struct {
	Job       string  `json:"job"`
	Platform  string  `json:"platform,omitempty"`
	Disturbed float64 `json:"disturbed"`
	SD        float64 `json:"sd"`
	stake
	ref Ref
}

func (w *witness) key() workloadKey { return workloadKey{w.Job, w.Platform} }

func (w *witness) plausible() bool {
	return w.Disturbed >= leastEffect && w.Disturbed <= mostEffect && w.SD > 0 && w.SD < 10 && w.stake.plausible()
}

// neutral is the e-value of all witnesses together. As for sure, kernels of one lag are summed.
func (p *process) neutral(b *bank) float64 {
	var won [recent]float64
	for i := range b.list {
		won[b.list[i].lag] += b.list[i].weight * float64(mostWitnesses-len(p.Witnesses))
	}
	for i := range p.Witnesses {
		for lag, by := range p.Witnesses[i].byLag(b) {
			won[lag] += by
		}
	}
	return slices.Max(won[:]) / mostWitnesses
}

// own says that the suspect is of the namespace that accuses it.
func (p *pair) own() bool { return p.accuser != "" && namespaceOf(p.key.Suspect) == p.accuser }

// confirmed says that a verdict does not rest on what another namespace says alone.
func (p *pair) confirmed() bool { return p.own() || p.proc.Witnessed != "" }

// namespaceOf a job, with which its name begins.
func namespaceOf(job string) string {
	namespace, _, _ := strings.Cut(job, "/")
	return namespace
}

// enlist the witnesses of a pair's coins, those first that were slow last. Whom it takes
// depends on nothing that the coins have done, unless somebody's CPI depends on them.
func (d *Detector) enlist(p *pair) {
	v := d.protected(p)
	if v == nil || p.confirmed() {
		return
	}
	if holds := d.holder(p); holds != p {
		if holds.proc.Witnessed != "" || holds.stage == Testing || holds.stage == Verdict {
			p.proc.Witnessed = holds.proc.Witnessed
			return
		}
		p.proc.Witnesses, holds.proc.Witnesses = holds.proc.Witnesses, nil
	}
	for len(p.proc.Witnesses) < mostWitnesses {
		best := Ref(-1)
		for i := range d.all {
			if d.mayWitness(p, v, &d.all[i]) && (best < 0 || d.all[i].better(&d.all[best])) {
				best = Ref(i)
			}
		}
		if best < 0 {
			return
		}
		w := d.all[best].victim
		p.proc.Witnesses = append(p.proc.Witnesses, witness{Job: w.job.name, Platform: w.job.platform,
			Disturbed: w.disturbed(), SD: w.job.history.line.SD, ref: best})
	}
}

// accuses says that two pairs are of one suspect and one accuser.
func (p *pair) accuses(o *pair) bool { return p.key.Suspect == o.key.Suspect && p.accuser == o.accuser }

// holder of the witnesses of a pair: all pairs of one suspect and one accuser have the same, or each
// would be another chance of being confirmed.
func (d *Detector) holder(p *pair) *pair {
	if len(p.proc.Witnesses) > 0 {
		return p
	}
	for _, o := range d.order {
		if p.accuses(o) && len(o.proc.Witnesses) > 0 {
			return o
		}
	}
	return p
}

// confirm all that a pair's accuser says of its suspect.
func (d *Detector) confirm(p *pair, by string) {
	for _, o := range d.order {
		if p.accuses(o) && o.proc.Witnessed == "" {
			o.proc.Witnessed = by
		}
	}
}

// agree says that verdicts on a suspect for victims of different namespaces confirm each other.
func (d *Detector) agree(p *pair) {
	for _, o := range d.order {
		if o.key.Suspect == p.key.Suspect && o.accuser != p.accuser && o.stage == Verdict {
			d.confirm(o, p.key.Victim)
			d.confirm(p, o.key.Victim)
		}
	}
}

// better as a witness: it was slow later.
func (c *container) better(than *container) bool {
	if c.victim.lastAnomaly != than.victim.lastAnomaly {
		return c.victim.lastAnomaly > than.victim.lastAnomaly
	}
	return c.victim.job.name < than.victim.job.name
}

// mayWitness the coins of a pair: of another namespace than its accuser, near the victim, judged,
// and not listed yet.
func (d *Detector) mayWitness(p *pair, victim *cpi.Container, c *container) bool {
	if c.Container == nil || c.victim == nil || c.victim.job.history.line.N == 0 ||
		JobOf(c.Container) == p.key.Suspect ||
		accuserName(c.Container) == p.accuser || !near(&victim.Place, &c.Place) {
		return false
	}
	key := c.victim.job.key()
	return !slices.ContainsFunc(p.proc.Witnesses, func(w witness) bool { return w.key() == key })
}

// near says that two may feel the same neighbour: in an L3 domain or on a NUMA node, as far as
// it is known where they are.
func near(a, b *cpi.Place) bool {
	apart := func(x, y *cpi.Domains) bool { return !x.IsEmpty() && !y.IsEmpty() && !x.Intersects(y) }
	return !apart(&a.L3s, &b.L3s) || !apart(&a.Nodes, &b.Nodes)
}

// testify lets the witnesses of a pair's coins see the window that has ended, unless the suspect is
// only moved: what is off the CPUs around one victim may be on those around another.
func (d *Detector) testify(p *pair) {
	q := &p.proc
	if q.Witnessed != "" || p.move.step != ByQuota {
		return
	}
	most := 0.0
	name := ""
	for i := range q.Witnesses {
		w := &q.Witnesses[i]
		r := math.NaN()
		if v := d.someVictim(&w.ref, w.key()); v != nil {
			r = v.residualOf(d.tick)
		}
		w.bet(d.bank, &q.Coins, residual{d.tick, r}, &effect{w.Disturbed, w.SD})
		if won := w.byLag(d.bank); slices.Max(won[:]) > most {
			most, name = slices.Max(won[:]), w.Job
		}
	}
	if len(q.Witnesses) > 0 && q.neutral(d.bank) >= witnessE {
		d.confirm(p, name)
	}
}

// doubtful says that a pair lacks the witness that it needs. Its throttles then cost as much as those
// of a test of which nothing is known, and its verdict refunds nothing.
func (d *Detector) doubtful(p *pair) bool { return d.cfg.NeedWitness && !p.confirmed() }

// Witness is what is known of the neutral witnesses of a test.
type Witness struct {
	Job  string  // that confirmed the verdict; empty: none has
	E    float64 // of all of them together
	Jobs int     // that are watched
	Own  bool    // victim and suspect are of one namespace, and none is asked for
}

func (d *Detector) witnessOf(p *pair) Witness {
	q := &d.holder(p).proc
	return Witness{Job: p.proc.Witnessed, E: q.neutral(d.bank), Jobs: len(q.Witnesses), Own: p.own()}
}

// Text says who has confirmed a verdict.
func (w Witness) Text() string {
	switch {
	case w.Own:
		return "of the victim's own namespace"
	case w.Job != "":
		return fmt.Sprintf("confirmed by %s of another namespace, e-value %.2g", w.Job, w.E)
	case w.Jobs == 0:
		return "no neutral witness: no victim of another namespace is near"
	}
	return fmt.Sprintf("no neutral witness yet: %d jobs of other namespaces have an e-value of %.2g, %d is needed",
		w.Jobs, w.E, witnessE)
}
