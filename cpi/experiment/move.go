package experiment

import (
	"fmt"
	"math"
	"time"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpuset"
)

// Step of the ladder that a verdict's throttle is on, the gentlest that may help first.
type Step uint8

const (
	ByQuota     Step = iota // the last
	ByMove                  // the suspect keeps to CPUs off those around the victim
	ByIdling                // it runs only on CPUs that are otherwise idle (cpu.idle)
	ByBandwidth             // it gets the least memory bandwidth (resctrl)
)

// move is a verdict's throttle before a quota. What its coins say is no evidence on the quota, so that
// what had been won by then is kept apart, and comes back with the next step.
type move struct {
	step  Step
	guilt *process // evidence of the verdict; nil with a quota
	// windows in which the step was in force and the suspect busy, of this term, and those of them in which the
	// victim was disturbed all the same.
	windows, bad int
}

// gentler is the step of a verdict after another one, of those that can be taken; ByQuota: none is left.
func (d *Detector) gentler(p *pair, after Step) Step {
	switch {
	case !d.alone(p):
	case after < ByMove && d.roomFor(p) != nil:
		return ByMove
	case after < ByIdling && d.mayIdle(p):
		return ByIdling
	case after < ByBandwidth && d.mayNarrow(p):
		return ByBandwidth
	}
	return ByQuota
}

// begin a verdict with the gentlest step.
func (d *Detector) begins(p *pair) {
	p.move = move{}
	d.take(p, d.gentler(p, ByQuota), p.proc)
}

// take a step of the ladder, with the evidence that led to the verdict.
func (d *Detector) take(p *pair, step Step, guilt process) {
	p.proc, p.move = guilt, move{step: step}
	if step != ByQuota {
		p.move.guilt = &guilt
		d.counts.Steps[step].Begun++
	}
}

// roomFor a pair's suspect off the CPUs around the victim; nil: there is none, or the suspect is none
// that may be moved.
func (d *Detector) roomFor(p *pair) *cpi.Room {
	s, victim := d.suspects[p.key.Suspect], d.protected(p)
	if s == nil || victim == nil {
		return nil
	}
	for _, ref := range s.refs {
		if c := &d.all[ref]; c.exempt() || !c.Class.InPool() {
			return nil
		}
	}
	if victim.Place.Rooms == nil {
		return nil
	}
	for i := range victim.Place.Rooms {
		if r := &victim.Place.Rooms[i]; r.Left >= s.needs() {
			return r
		}
	}
	return nil
}

// needs is how many CPUs the job uses when it is busy.
func (s *suspect) needs() int { return max(int(math.Ceil(s.peak)), 1) }

// alone says that the suspect is tested or throttled for no other victim: to be moved for one may be nothing to
// another.
func (d *Detector) alone(p *pair) bool {
	for _, o := range d.order {
		if o != p && o.key.Suspect == p.key.Suspect && (o.stage == Testing || o.stage == Verdict) {
			return false
		}
	}
	return true
}

// mayIdle says that the suspect meets the victim on CPUs, and that all of it can be let run only on idle ones.
func (d *Detector) mayIdle(p *pair) bool {
	s, victim := d.suspects[p.key.Suspect], d.protected(p)
	if s == nil || victim == nil || victim.Place.CPUs == nil || len(s.refs) == 0 {
		return false
	}
	meets := false
	for _, ref := range s.refs {
		c := &d.all[ref]
		if c.exempt() || !c.MayIdle {
			return false
		}
		meets = meets || c.Place.CPUs != nil && c.Place.CPUs.Intersects(victim.Place.CPUs)
	}
	return meets
}

// mayNarrow says that the suspect shares a memory with the victim, as far as that is known, and that all of it can be
// held back from memory.
func (d *Detector) mayNarrow(p *pair) bool {
	s, victim := d.suspects[p.key.Suspect], d.protected(p)
	if s == nil || victim == nil || len(s.refs) == 0 {
		return false
	}
	shares := false
	for _, ref := range s.refs {
		c := &d.all[ref]
		if c.exempt() || !c.MayNarrow {
			return false
		}
		a, b := &c.Place.Nodes, &victim.Place.Nodes
		shares = shares || a.IsEmpty() || b.IsEmpty() || a.Intersects(b)
	}
	return shares
}

// note a window in which the step was in force and the suspect busy.
func (m *move) note(disturbed bool) {
	if m.step == ByQuota {
		return
	}
	m.windows++
	if disturbed {
		m.bad++
	}
}

// moveFails says why a step is not to go on; empty: it is.
func (d *Detector) moveFails(p *pair) string {
	m, span := &p.move, d.bank.span
	low := p.proc.e(d.bank) < d.cfg.Threshold/undoShare
	over := low || m.windows >= firstTerm*span
	how := "off the CPUs around the victim"
	switch m.step {
	case ByIdling:
		how = "on otherwise idle CPUs"
	case ByBandwidth:
		how = "with the least memory bandwidth"
	case ByMove, ByQuota:
	}
	switch {
	case p.useless >= uselessFirst*span:
		return fmt.Sprintf("%s it disturbs it as before: in %d windows in a row", how, p.useless)
	case over && 2*m.bad > m.windows:
		return fmt.Sprintf("%s it disturbs it still: in %d of %d windows", how, m.bad, m.windows)
	}
	if over && !low {
		m.windows, m.bad = 0, 0 // the next term
	}
	return ""
}

// harden a verdict: from now on the next step throttles the suspect, with the evidence that there was before
// the first.
func (d *Detector) harden(p *pair) {
	was := p.move.step
	d.counts.Steps[was].Failed++
	guilt := p.evidence()
	for i := range guilt.Coins {
		guilt.Coins[i] = coin{}
	}
	d.take(p, d.gentler(p, was), guilt)
	p.term, p.served, p.useless = 0, 0, 0
	if s := d.suspects[p.key.Suspect]; s != nil && s.lead == p {
		s.until = d.now // the next step is told as a new cap
	}
}

// hardenLost hardens the verdicts whose step can no longer be taken.
func (d *Detector) hardenLost() {
	for _, p := range d.order {
		if p.move.step == ByQuota {
			continue
		}
		there := d.protected(p) != nil && len(d.Containers(p.key.Suspect)) > 0
		why := ""
		switch {
		case p.stage != Verdict:
			p.move = move{}
			continue
		case !d.alone(p):
			why = "it is throttled for other victims, too"
		case there && p.move.step == ByMove && d.roomFor(p) == nil:
			why = "off the CPUs around the victim is no room for it"
		case there && p.move.step == ByIdling && !d.mayIdle(p):
			why = "it cannot be let run on otherwise idle CPUs alone any more, or meets the victim on none"
		case there && p.move.step == ByBandwidth && !d.mayNarrow(p):
			why = "it cannot be held back from memory any more, or shares none with the victim"
		default:
			continue
		}
		d.harden(p)
		d.conclude(p, HardenedEvent, why)
	}
}

// evidence on what follows a step: what had been won before the first, and all that witnesses have.
func (p *pair) evidence() process {
	if p.move.step == ByQuota {
		return p.proc
	}
	proc := *p.move.guilt
	proc.Witnesses, proc.Witnessed = p.proc.Witnesses, p.proc.Witnessed
	return proc
}

// RefuseStep says that a step against a job was not carried out: the next one is taken, from the next coin on.
// It returns whether that is news.
func (d *Detector) RefuseStep(job string, step Step) bool {
	s := d.suspects[job]
	if s == nil || s.lead == nil || step == ByQuota || s.lead.move.step != step {
		return false
	}
	d.harden(s.lead)
	s.off, s.step = nil, ByQuota
	return true
}

// Until is when what throttles a container, or moves it, ends unless its coins say otherwise.
func (d *Detector) Until(ref Ref) (until time.Time) {
	if c := d.slotOf(ref); c != nil && c.suspect.on {
		until = c.suspect.until
	}
	return until
}

// MovedOff are the CPUs that a container is kept off now, and how many others it needs; nil: none.
func (d *Detector) MovedOff(ref Ref) (off *cpuset.Set, least int) {
	c := d.slotOf(ref)
	if c == nil || !c.suspect.on || c.suspect.off == nil || c.exempt() {
		return nil, 0
	}
	return &c.suspect.off.Off, c.suspect.needs()
}

// Idles says whether a container is to run on otherwise idle CPUs alone now.
func (d *Detector) Idles(ref Ref) bool {
	c := d.slotOf(ref)
	return c != nil && c.suspect.on && c.suspect.step == ByIdling && !c.exempt()
}

// Narrowed says whether a container is to be held back from memory now.
func (d *Detector) Narrowed(ref Ref) bool {
	c := d.slotOf(ref)
	return c != nil && c.suspect.on && c.suspect.step == ByBandwidth && !c.exempt()
}
