package node

import (
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
	owners map[string]*ownerPlace // by pod UID
	named  map[string]bool        // pods, by UID, that the file names, and those of the save under way
	under  map[string]bool
	gen    uint64 // of the last change
	saving uint64 // up to this one, the save that is under way has them
}

// ownerPlace is the place of one owner.
type ownerPlace struct {
	cpus  cpuset.Set
	gen   uint64    // of the change that the file lacks; 0: it lacks none
	until time.Time // when that is waited for no longer
}

// saveAhead is how long at most an answer and the masks of an owner wait for their save. It
// leaves half of the time that the runtime gives an answer.
const saveAhead = 500 * time.Millisecond

func newPlaces(saved state.Snapshot) places {
	p := places{owners: map[string]*ownerPlace{}, named: map[string]bool{}}
	for uid, pod := range saved.Places() {
		p.named[uid] = true
		if !pod.CPUs.IsEmpty() {
			p.owners[uid] = &ownerPlace{cpus: pod.CPUs}
		}
	}
	return p
}

// changed takes down what was decided of a pod and reports whether the file lacks it.
func (p *places) changed(d *policy.SetPod, online cpuset.Set, until time.Time) bool {
	var own cpuset.Set
	if d.Need.Own != nil {
		own = *d.Need.Own
	}
	o := p.owners[d.Pod.UID]
	switch {
	case o == nil && own.IsEmpty():
		return false
	case o == nil:
		o = &ownerPlace{}
		p.owners[d.Pod.UID] = o
	case o.cpus == own || o.cpus.And(online) == own:
		return o.gen > 0
	}
	if o.gen == 0 {
		o.until = until
	}
	p.gen++
	o.cpus, o.gen = own, p.gen
	return true
}

// begin notes what a save will have brought to disk, and end that it has.
func (p *places) begin(s *state.Snapshot) {
	p.saving, p.under = p.gen, make(map[string]bool, len(s.Pods))
	for i := range s.Pods {
		p.under[s.Pods[i].UID] = true
	}
}

func (p *places) end() {
	p.named = p.under
	for uid, o := range p.owners {
		if o.gen <= p.saving {
			o.gen = 0
		}
		if o.gen == 0 && o.cpus.IsEmpty() {
			delete(p.owners, uid)
		}
	}
}

// late says that an owner's place is not on disk and still waited for.
func (p *places) late(uid string, now time.Time) bool {
	o := p.owners[uid]
	return o != nil && o.gen > 0 && now.Before(o.until)
}

// next is when the first of them is waited for no longer; zero: none is.
func (p *places) next(now time.Time) time.Time {
	var next time.Time
	for _, o := range p.owners {
		if o.gen > 0 && now.Before(o.until) && (next.IsZero() || o.until.Before(next)) {
			next = o.until
		}
	}
	return next
}
