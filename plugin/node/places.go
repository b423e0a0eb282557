package node

import (
	"slices"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/policy"
)

// places are the CPUs of owners in the state file. A decision about an owner is on disk before the
// runtime gets the reply, and before a mask is written that contradicts the file: so a daemon
// that is killed at any moment leaves no owner whose CPUs the next daemon has to guess.
// A disk that fails or hangs delays replies and masks by saveAhead at most.
type places struct {
	owners map[string]*ownerPlace // by pod UID, with the CPUs of its containers
	named  map[string]bool        // pods, by UID, in the file or in the save in flight
	saving map[string]bool        // pods, by UID, in the save in flight
	// Changes are numbered: lastGen is the last one, savingGen the last one in the save in flight,
	// savedGen the last one in the file.
	lastGen, savingGen, savedGen uint64
}

// ownerPlace are the CPUs of a pod that owns some, as a whole or through its containers.
type ownerPlace struct {
	cpus  cpuset.Set     // of the pod as a whole
	named []policy.Owned // of its containers, by name
	gen   uint64         // of the change that is not in the file; 0: the file has all
	until time.Time      // how long replies and masks wait for that
}

// saveAhead is how long at most the reply and the masks of an owner wait for their save. It leaves
// half of the time that the runtime allows for a reply.
const saveAhead = 500 * time.Millisecond

func newPlaces(saved state.Snapshot) places {
	p := places{owners: map[string]*ownerPlace{}, named: map[string]bool{}}
	for uid, pod := range saved.Places() {
		p.named[uid] = true
		if o := placeOf(&pod); !o.isEmpty() {
			p.owners[uid] = o
		}
	}
	return p
}

func placeOf(p *state.Pod) *ownerPlace {
	if p.Containers == nil {
		return &ownerPlace{cpus: p.CPUs}
	}
	return &ownerPlace{named: ownedByName(p.Containers)}
}

func ownedByName(containers []policy.RecoveredContainer) (named []policy.Owned) {
	for i := range containers {
		if c := &containers[i]; c.CPUs != nil {
			named = append(named, policy.Owned{Container: c.Container, CPUs: *c.CPUs})
		}
	}
	return named
}

func (o *ownerPlace) isEmpty() bool { return o.cpus.IsEmpty() && len(o.named) == 0 }

// matches reports whether a place is the decided one. Decisions leave out offline CPUs.
func (o *ownerPlace) matches(is *ownerPlace, online cpuset.Set) bool {
	same := func(was, is cpuset.Set) bool { return was == is || was.And(online) == is }
	return same(o.cpus, is.cpus) && slices.EqualFunc(o.named, is.named, func(a, b policy.Owned) bool {
		return a.Container == b.Container && same(a.CPUs, b.CPUs)
	})
}

// changed records a decision about a pod and reports whether the file lacks it.
func (p *places) changed(d *policy.SetPod, online cpuset.Set, until time.Time) bool {
	is := &ownerPlace{named: d.Owned}
	if d.Need.Own != nil && len(d.Owned) == 0 {
		is.cpus = *d.Need.Own
	}
	o := p.owners[d.Pod.UID]
	switch {
	case o == nil && is.isEmpty():
		return false
	case o == nil:
		o = &ownerPlace{}
		p.owners[d.Pod.UID] = o
	case o.matches(is, online) && !p.leftOut(d.Pod.UID):
		return o.gen > 0
	}
	p.lastGen++
	o.cpus, o.named, o.gen, o.until = is.cpus, is.named, p.lastGen, until
	return true
}

// leftOut reports whether the save in flight lacks a pod although it is newer than the pod's change: the
// pod was gone when the save started.
func (p *places) leftOut(uid string) bool {
	gen := p.owners[uid].gen
	return gen > 0 && gen <= p.savingGen && !p.saving[uid]
}

// begin records what a save that starts contains, given the pods of the machine: of an owner all CPUs, of which
// decisions leave out those that are offline, unless a rebuild of the machine has lost these.
func (p *places) begin(pods []policy.Pod) {
	p.savingGen, p.saving = p.lastGen, make(map[string]bool, len(pods))
	for i := range pods {
		uid, r := pods[i].UID, pods[i].Recovered
		if r == nil {
			continue
		}
		p.saving[uid], p.named[uid] = true, true
		o := p.owners[uid]
		if o == nil || r.Reservation != nil {
			continue
		}
		o.cpus, o.named = cpuset.Set{}, ownedByName(r.Owners)
		if r.CPUs != nil {
			o.cpus = *r.CPUs
		}
	}
}

// end records that the save in flight has succeeded, and reports whether there are changes that it
// lacks. The disk works again, so these get a new deadline.
func (p *places) end(until time.Time) (more bool) {
	p.named, p.savedGen = p.saving, p.savingGen
	for uid, o := range p.owners {
		if o.gen <= p.savingGen {
			o.gen = 0
		}
		switch {
		case o.gen > 0:
			o.until, more = until, true
		case o.isEmpty() || !p.saving[uid]: // it owns nothing, or a rebuild has left it out
			delete(p.owners, uid)
		}
	}
	return more
}

// contradicted is how long masks wait for owners that have other CPUs in the file; zero: there are none.
func (p *places) contradicted(now time.Time) (until time.Time) {
	if p.lastGen == p.savedGen { // as with nearly every container that starts
		return until
	}
	for uid, o := range p.owners {
		if p.named[uid] && p.late(uid, now) && o.until.After(until) {
			until = o.until
		}
	}
	return until
}

// late reports whether an owner's place is not on disk and still has to be waited for.
func (p *places) late(uid string, now time.Time) bool {
	o := p.owners[uid]
	return o != nil && o.gen > 0 && now.Before(o.until)
}

// next is the earliest of these deadlines; zero: there is none.
func (p *places) next(now time.Time) time.Time {
	var next time.Time
	if p.lastGen == p.savedGen {
		return next
	}
	for _, o := range p.owners {
		if o.gen > 0 && now.Before(o.until) && (next.IsZero() || o.until.Before(next)) {
			next = o.until
		}
	}
	return next
}
