package experiment

import (
	"fmt"
	"math"
)

// PairKey names a victim's job and a suspect's.
type PairKey struct {
	Victim   string `json:"victim"`
	Platform string `json:"platform,omitempty"`
	Suspect  string `json:"suspect"`
}

// Stage of a pair.
type Stage string

const (
	Testing Stage = "testing"
	Verdict Stage = "verdict" // e reached the threshold: throttled but for some windows
	Parked  Stage = "parked"  // nothing to test; the evidence is kept
	Resting Stage = "resting" // given up; a new test costs a start
)

// pair is the test of one suspect for one victim's job. Its evidence is kept over
// episodes, restarts and successors, and is begun anew only at the price of a start.
type pair struct {
	key     PairKey
	stage   Stage
	proc    process
	victim  Ref
	accuser string
	effect  effect
	eager   bool // the prior is strong
	reached bool // the threshold, once
	spent   float64
	times   times
	rest    int64 // windows of the next rest
	term    int   // index of the bank's terms
	streaks
	arms [2]arm // left alone, throttled
	pace
}

// pace of the coins: one for each window, or one for each block.
type pace struct {
	slow bool
	bets int // coins of the pace since it was chosen
}

// adapts is by how much a disturbed window moves what a test expects of one: what fills a
// cache has not done its worst when the test begins.
const adapts = 0.1

// After so many bets without a clear lead the other pace is tried; the slow one is kept for as long as
// it is in the lead.
const fastBets, slowBets = 36, 8

// streaks are counted in windows.
type streaks struct {
	well    int // without disturbance beside the busy suspect
	useless int // throttled in a row, without help
	served  int // active, of the term
	move    move
}

// arm is how the victim was in the active windows of one side of the coin.
type arm struct {
	n   int
	sum float64 // of residuals less the threshold
}

// Arm of a test: the windows of one side of the coin in which the suspect was busy.
type Arm struct {
	Windows int
	// Excess is the victim's CPI in them, a geometric mean of multiples of the threshold.
	Excess float64
}

func (p *pair) told() (arms [2]Arm) {
	for i, a := range p.arms {
		if arms[i].Windows = a.n; a.n > 0 {
			arms[i].Excess = math.Exp(a.sum / float64(a.n))
		}
	}
	return arms
}

// times are windows.
type times struct{ began, active, bad, seen, until, judged int64 }

const (
	giveUpBelow   = 0.15
	boundFactor   = 64
	restMinutes   = 45
	calmMinutes   = 40 // without an anomaly: parked
	idleMinutes   = 45 // without activity: parked
	farewell      = 90 // without activity a verdict ends
	unjudgedFor   = 15 // minutes without a residual of the victim: parked
	wellWindows   = 3
	undoShare     = 10 // a verdict ends below T/10
	uselessFirst  = 3
	uselessLast   = 4
	uselessAbove  = 0.6 // of the disturbance
	keepUseless   = 8   // unless e is above 8T
	priorToHasten = 3
	pStart        = 0.25
	pEven         = 0.5
	pSure         = 0.7
	pStay         = 0.65
	pTurn         = 0.25
	mostRest      = 24 * 60 // minutes
)

// PriorToTest is from what prior on a suspect is tested.
const PriorToTest = 2

// propensity is the probability that the suspect is throttled in the window after this one.
// It follows from the past alone.
func (p *pair) propensity(b *bank, threshold float64, tick int64, active bool) float64 {
	if p.stage != Testing && p.stage != Verdict {
		return 0
	}
	if head := p.proc.head(b, tick+1); head != nil {
		if head.On {
			return 1
		}
		return 0
	}
	switch e := p.proc.e(b); {
	case p.stage == Verdict && p.useless >= uselessFirst*b.span:
		return pEven
	case p.stage == Verdict:
		return 1 - 1/(1+float64(b.terms[p.term]))
	case p.well >= b.wellAfter:
		return 0
	case b.span > 1 && !active:
		return 0 // a window later it is seen to have woken
	case p.pace.slow:
		return pEven
	case e < 2 && !p.eager:
		return pStart
	case b.block == 0 && p.proc.slow(b):
		// What fills and drains shows in runs of windows, not in single ones.
		if p.proc.on(tick) {
			return pStay
		}
		return pTurn
	case e < math.Sqrt(threshold):
		return pEven
	}
	return pSure
}

// choose the pace: single windows are quicker, and say nothing of what fills and drains.
func (p *pair) choose(b *bank) {
	if b.block == 0 || p.stage == Verdict {
		return
	}
	most := fastBets
	if p.pace.slow {
		most = slowBets
	}
	if p.pace.bets >= most {
		p.pace.bets = 0
		p.pace.slow = p.proc.slow(b) || !p.pace.slow && p.proc.e(b) < 4
	}
}

// note what a window showed beside the e-value: whether the test is worth going on, and
// whether the throttle helps.
func (p *pair) note(c *coin, r float64, thr float64) {
	if c == nil || !c.Active {
		if r > thr {
			p.well = 0
		}
		return
	}
	if c.P < 1 && !math.IsNaN(r) && c.Block == p.pace.slow {
		p.pace.bets++
	}
	if !math.IsNaN(r) {
		a := &p.arms[0]
		if c.On {
			a = &p.arms[1]
		}
		a.n, a.sum = a.n+1, a.sum+r-thr
		if !c.On && r > thr {
			p.effect.disturbed += adapts * (r - p.effect.disturbed)
			p.effect.disturbed = min(max(p.effect.disturbed, leastEffect), mostEffect)
		}
	}
	switch {
	case math.IsNaN(r):
	case r > thr:
		p.well = 0
	case !c.On && r < 0.5*p.effect.disturbed:
		p.well++
	}
	if !c.On || math.IsNaN(r) {
		return
	}
	p.move.note(r > thr)
	if r > uselessAbove*p.effect.disturbed {
		p.useless++
	} else {
		p.useless = 0
	}
}

// serve counts a window of a verdict's term.
func (p *pair) serve(b *bank) {
	if p.served++; p.served < b.terms[p.term] {
		return
	}
	p.served = 0
	p.term = min(p.term+1, len(b.terms)-1)
}

// step is what a window changes in a pair's life; empty: nothing.
func (d *Detector) step(p *pair) (kind Kind, why string) {
	t, e := d.cfg.Threshold, p.proc.e(d.bank)
	silent, calm := d.window-p.times.active, d.window-p.times.bad
	unknown := d.window-p.times.judged > d.windows(unjudgedFor)
	switch p.stage {
	case Testing:
		switch {
		case p.proc.sure(d.bank) >= t:
			p.stage, p.term, p.served, p.useless = Verdict, 0, 0, 0
			p.pace.slow = d.bank.block > 0 && p.proc.slow(d.bank)
			d.begins(p)
			return VerdictEvent, fmt.Sprintf("e-value %.0f, %.0f is a verdict", p.proc.sure(d.bank), t)
		case p.proc.best(d.bank) < giveUpBelow:
			d.giveUp(p)
			return GivenUpEvent, fmt.Sprintf("e-value %.3f: the coins make no difference", e)
		case unknown, calm > d.windows(calmMinutes), silent > d.windows(idleMinutes):
			p.stage = Parked
		}
	case Verdict:
		p.proc.bound(d.bank, boundFactor*t)
		if p.move.step != ByQuota {
			if why := d.moveFails(p); why != "" {
				d.harden(p)
				return HardenedEvent, why
			}
		}
		switch {
		case e < t/undoShare:
			p.stage = Testing
			return ReleasedEvent, fmt.Sprintf("e-value %.1f: the victim is as well without the throttle", e)
		case p.useless >= uselessLast*d.bank.span && e < keepUseless*t:
			d.giveUp(p)
			return ReleasedEvent, fmt.Sprintf("the victim was as slow as before in %d throttled windows in a row",
				uselessLast*d.bank.span)
		case unknown:
			p.stage = Parked
			return ReleasedEvent, fmt.Sprintf("its victim is gone, or has idled for %d minutes", unjudgedFor)
		case silent > d.windows(farewell):
			p.stage = Parked
			return ReleasedEvent, fmt.Sprintf("idle for %d minutes", farewell)
		}
	case Parked, Resting:
	}
	return "", ""
}

// giveUp a pair for a while, for twice as long each time.
func (d *Detector) giveUp(p *pair) {
	p.stage, p.useless = Resting, 0
	p.rest = min(max(2*p.rest, d.windows(restMinutes)), d.windows(mostRest))
	p.times.until = d.window + p.rest
}

// windows in so many minutes.
func (d *Detector) windows(minutes float64) int64 {
	return int64(math.Round(minutes * 60 / d.cfg.Period.Seconds()))
}

// observe lets each pair see the window that has ended.
func (d *Detector) observe() {
	late := d.tick - d.thrown
	for _, p := range d.order {
		s := d.suspects[p.key.Suspect]
		if s != nil {
			p.times.seen = max(p.times.seen, s.seen)
		}
		if late > 0 && late <= 2*int64(d.bank.span) {
			p.proc.move(d.thrown, d.tick)
		}
		if p.stage != Testing && p.stage != Verdict && !p.pending(d.bank, d.tick) {
			continue
		}
		v := d.victimOf(p)
		r, thr := math.NaN(), math.Inf(1)
		if v != nil {
			r, thr = v.residualOf(d.tick), v.job.history.line.Thr
			p.times.bad = max(p.times.bad, v.lastAnomaly)
		}
		if !math.IsNaN(r) {
			p.times.judged = d.window
		}
		active := s != nil && s.round.active
		if active {
			p.times.active = d.window
		}
		before := p.proc.e(d.bank)
		p.proc.observe(d.bank, d.tick, seen{r, active})
		d.testify(p)
		c := p.proc.coinOf(d.tick)
		p.note(c, r, thr)
		d.counts.tally(p, c, r)
		if p.stage == Verdict && active && (c == nil || c.P < 1) {
			p.serve(d.bank)
		}
		if c != nil && c.On && active && s.lead == p && d.pays(p) {
			d.charge(p, s, before)
		}
		if kind, why := d.step(p); kind != "" {
			d.conclude(p, kind, why)
		}
		p.choose(d.bank)
	}
}

// tally counts what came of the coins of tests and verdicts.
func (n *Counters) tally(p *pair, c *coin, r float64) {
	if c == nil || !c.Active || c.P >= 1 || math.IsNaN(r) {
		return
	}
	well := r < 0.5*p.effect.disturbed
	switch p.stage {
	case Testing:
		n.Tested.add(c.On, well)
	case Verdict:
		n.Capped.add(c.On, well)
	case Parked, Resting:
	}
}

// pending says that a coin of the last windows still waits for its residual.
func (p *pair) pending(b *bank, window int64) bool {
	for lag := range int64(b.longest + 1) {
		if p.proc.coinOf(window-lag) != nil {
			return true
		}
	}
	return false
}

// pays says that a pair's throttles are charged to its budget.
func (d *Detector) pays(p *pair) bool {
	return p.stage == Testing || p.stage == Verdict && p.move.step == ByQuota && d.doubtful(p)
}

func (d *Detector) charge(p *pair, s *suspect, e float64) {
	if d.doubtful(p) {
		e = 1
	}
	cost := price(e) * float64(d.tick-d.began) * d.cfg.Window.Minutes()
	p.spent += cost
	d.counts.Harm += cost
	d.accuserOf(p.accuser).harm.Left -= cost
	d.harmOf(s).Left -= cost
}

// conclude tells of a change in a pair's life. A verdict refunds what its own test has
// spent: it harmed no innocent.
func (d *Detector) conclude(p *pair, kind Kind, why string) {
	spent := p.spent
	if kind == VerdictEvent {
		d.agree(p)
		if !p.reached {
			p.reached = true
			d.counts.Verdicts++
		}
	}
	if kind == VerdictEvent && !d.doubtful(p) {
		a := d.accuserOf(p.accuser)
		a.harm.Left = min(a.harm.Left+p.spent, savedHarm*d.cfg.Budget)
		p.spent = 0
	}
	d.emit(Event{Kind: kind, Victim: d.protected(p), Job: p.key.Suspect, E: p.proc.e(d.bank), Why: why,
		Arms: p.told(), Harm: spent, Witness: d.witnessOf(p)})
}

// victimOf a pair: the container that it was begun for, or one of the same job.
func (d *Detector) victimOf(p *pair) *victim { return d.someVictim(&p.victim, p.workload()) }

// someVictim of a job: the container of ref, or else another one, which ref then is.
func (d *Detector) someVictim(ref *Ref, key workloadKey) *victim {
	if c := d.slotOf(*ref); c != nil && c.victim != nil && c.gone == 0 && c.victim.job.key() == key {
		return c.victim
	}
	best := Ref(-1)
	for i := range d.all {
		c := &d.all[i]
		if c.Container == nil || c.victim == nil || c.gone != 0 || c.victim.job.key() != key {
			continue
		}
		if best < 0 || c.victim.lastAnomaly > d.all[best].victim.lastAnomaly {
			best = Ref(i)
		}
	}
	if best < 0 {
		return nil
	}
	*ref = best
	return d.all[best].victim
}

func (p *pair) workload() workloadKey { return workloadKey{p.key.Victim, p.key.Platform} }
