package experiment

import (
	"fmt"
	"math"
	"time"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpuset"
)

// move is the gentlest throttle of a verdict: the suspect keeps to CPUs off those around the victim. It
// is tried before a quota. What its coins say is no evidence on the quota, so that what had been won
// by then is kept apart, and comes back with the quota.
type move struct {
	on    bool
	guilt *process // evidence of the verdict; not nil while on
	// windows in which the suspect was moved and busy, of this term, and those of them in which the
	// victim was disturbed all the same.
	windows, bad int
}

// begin to move a suspect by whom a verdict was just reached, if there is room for it elsewhere.
func (d *Detector) tryMove(p *pair) {
	p.move = move{}
	if d.roomFor(p) != nil && d.alone(p) {
		guilt := p.proc
		p.move = move{on: true, guilt: &guilt}
		d.counts.Moves++
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

// note a window in which the suspect was moved and busy.
func (m *move) note(disturbed bool) {
	if !m.on {
		return
	}
	m.windows++
	if disturbed {
		m.bad++
	}
}

// moveFails says why a move is not to go on; empty: it is.
func (d *Detector) moveFails(p *pair) string {
	m, span := &p.move, d.bank.span
	low := p.proc.e(d.bank) < d.cfg.Threshold/undoShare
	over := low || m.windows >= firstTerm*span
	switch {
	case p.useless >= uselessFirst*span:
		return fmt.Sprintf("off the CPUs around the victim it disturbs it as before: in %d windows in a row", p.useless)
	case over && 2*m.bad > m.windows:
		return fmt.Sprintf("off the CPUs around the victim it disturbs it still: in %d of %d windows", m.bad, m.windows)
	}
	if over && !low {
		m.windows, m.bad = 0, 0 // the next term
	}
	return ""
}

// harden a verdict: from now on a quota throttles the suspect, with the evidence that there was before
// it was moved.
func (d *Detector) harden(p *pair) {
	d.counts.Hardened++
	p.proc, p.move = p.evidence(), move{}
	for i := range p.proc.Coins {
		p.proc.Coins[i] = coin{}
	}
	p.term, p.served, p.useless = 0, 0, 0
	if s := d.suspects[p.key.Suspect]; s != nil && s.lead == p {
		s.until = d.now // the quota is told as a new cap
	}
}

// hardenLost hardens the verdicts whose suspect can no longer be moved.
func (d *Detector) hardenLost() {
	for _, p := range d.order {
		if !p.move.on {
			continue
		}
		why := ""
		switch {
		case p.stage != Verdict:
			p.move = move{}
			continue
		case !d.alone(p):
			why = "it is throttled for other victims, too"
		case d.roomFor(p) == nil && d.protected(p) != nil && len(d.Containers(p.key.Suspect)) > 0:
			why = "off the CPUs around the victim is no room for it"
		default:
			continue
		}
		d.harden(p)
		d.conclude(p, HardenedEvent, why)
	}
}

// evidence on a quota: what had been won before the suspect was moved, and all that witnesses have.
func (p *pair) evidence() process {
	if !p.move.on {
		return p.proc
	}
	proc := *p.move.guilt
	proc.Witnesses, proc.Witnessed = p.proc.Witnesses, p.proc.Witnessed
	return proc
}

// RefuseMove says that the move of a job was not carried out: a quota throttles it instead, from the next coin on.
// It returns whether that is news.
func (d *Detector) RefuseMove(job string) bool {
	s := d.suspects[job]
	if s == nil || s.lead == nil || !s.lead.move.on {
		return false
	}
	d.harden(s.lead)
	s.off = nil
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
