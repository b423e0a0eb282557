package node

import (
	"slices"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/policy"
)

// places are the CPUs of owners as the state file tells them. What is decided of an owner is
// on disk before the runtime is told, and before a mask is written that the file contradicts:
// then a daemon that is killed at any moment leaves no owner that its successor has to guess.
// A disk that fails or hangs holds nobody up for longer than saveAhead.
type places struct {
	owners map[string]*ownerPlace // by pod UID, with those of its containers
	named  map[string]bool        // pods, by UID, that the file names, and those of the save under way
	under  map[string]bool
	gen    uint64 // of the last change
	saving uint64 // up to this one, the save that is under way has them
	saved  uint64 // up to this one, the file has them
}

// ownerPlace is the place of a pod that owns CPUs, or of whose containers some do.
type ownerPlace struct {
	cpus  cpuset.Set     // of the pod as a whole
	named []policy.Owned // of its containers, by name
	gen   uint64         // of the change that the file lacks; 0: it lacks none
	until time.Time      // when that is waited for no longer
}

// saveAhead is how long at most an answer and the masks of an owner wait for their save. It
// leaves half of the time that the runtime gives an answer.
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
	o := &ownerPlace{}
	for i := range p.Containers {
		if c := &p.Containers[i]; c.CPUs != nil {
			o.named = append(o.named, policy.Owned{Container: c.Container, CPUs: *c.CPUs})
		}
	}
	return o
}

func (o *ownerPlace) isEmpty() bool { return o.cpus.IsEmpty() && len(o.named) == 0 }

// tells says that a place is the one that was decided: CPUs that are off are in no decision.
func (o *ownerPlace) tells(is *ownerPlace, online cpuset.Set) bool {
	same := func(was, is cpuset.Set) bool { return was == is || was.And(online) == is }
	return same(o.cpus, is.cpus) && slices.EqualFunc(o.named, is.named, func(a, b policy.Owned) bool {
		return a.Container == b.Container && same(a.CPUs, b.CPUs)
	})
}

// changed takes down what was decided of a pod and reports whether the file lacks it.
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
	case o.tells(is, online) && !p.leftOut(d.Pod.UID):
		return o.gen > 0
	}
	p.gen++
	o.cpus, o.named, o.gen, o.until = is.cpus, is.named, p.gen, until
	return true
}

// leftOut says that the save under way has nothing of a pod whose place it would have: the pod was gone
// when the save began.
func (p *places) leftOut(uid string) bool {
	gen := p.owners[uid].gen
	return gen > 0 && gen <= p.saving && !p.under[uid]
}

// begin notes what a save will have brought to disk, and end that it has. The latter reports whether
// there are places that it lacks: the disk is back, so they are waited for anew.
func (p *places) begin(s *state.Snapshot) {
	p.saving, p.under = p.gen, make(map[string]bool, len(s.Pods))
	for i := range s.Pods {
		p.under[s.Pods[i].UID], p.named[s.Pods[i].UID] = true, true
	}
	for i := range s.Owners {
		p.under[s.Owners[i].UID], p.named[s.Owners[i].UID] = true, true
	}
}

func (p *places) end(until time.Time) (more bool) {
	p.named, p.saved = p.under, p.saving
	for uid, o := range p.owners {
		if o.gen <= p.saving {
			o.gen = 0
		}
		switch {
		case o.gen > 0:
			o.until, more = until, true
		case o.isEmpty() || !p.under[uid]: // it has none, or it was left out with what gave it some
			delete(p.owners, uid)
		}
	}
	return more
}

// contradicted is until when an owner is waited for of which the file tells another place; zero: of none.
func (p *places) contradicted(now time.Time) (until time.Time) {
	if p.gen == p.saved { // as with nearly every container that starts
		return until
	}
	for uid, o := range p.owners {
		if p.named[uid] && p.late(uid, now) && o.until.After(until) {
			until = o.until
		}
	}
	return until
}

// late says that an owner's place is not on disk and still waited for.
func (p *places) late(uid string, now time.Time) bool {
	o := p.owners[uid]
	return o != nil && o.gen > 0 && now.Before(o.until)
}

// next is when the first of them is waited for no longer; zero: none is.
func (p *places) next(now time.Time) time.Time {
	var next time.Time
	if p.gen == p.saved {
		return next
	}
	for _, o := range p.owners {
		if o.gen > 0 && now.Before(o.until) && (next.IsZero() || o.until.Before(next)) {
			next = o.until
		}
	}
	return next
}
