package placement

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"unique"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
)

// State is one node at one moment. It is never changed.
type State struct {
	site       *site
	ledger     *policy.Ledger
	generation uint64
	flights    []flight
	more       []policy.Holding // of the flights that the ledger lacks
	last       *memo
	broken     error // why there is no ledger
	counts
}

// counts are what is told at a glance.
type counts struct {
	free   cpuset.Packed // CPUs that nobody holds
	spare  int           // how many of them are to be had
	beyond int           // CPUs that are withheld, or more than was requested: nobody's request pays for them
	apart  int           // held of those that the kernel isolates, which only their owners' requests pay for
	sums   policy.Sums
	glance Glance
}

// flight is a pod on its way to a node.
type flight struct {
	holding policy.Holding
	wish    *Wish // of a pod that another scheduler sent, or this one before it was started
	offer   policy.Offer
	started bool // the pod runs, so that the node has decided about it
	silent  int  // generations since then that do not have it
}

// enoughSilence is how many generations of the ledger that do not know a pod say that the node
// gave it nothing. The first may have been made before the pod ran and have come late.
const enoughSilence = 2

// Load is what a caller knows of a node beyond its state.
type Load struct {
	// SharedMilli is what pods request of the shared pool, those on their way included.
	SharedMilli int64
	// Without are UIDs of pods that count as gone, More what others hold that come first.
	Without []string
	More    []policy.Holding
}

// Place is what a node would give a pod.
type Place struct {
	policy.Offer
	Holding policy.Holding
	Cost    Cost
	Trusted bool // the node takes the scheduler's word for it
	// Generation is that of the ledger that it was chosen by.
	Generation uint64
}

// Known says that the node publishes what is needed to ask it; Why says what is missing.
func (s *State) Known() bool { return s != nil && s.site != nil }
func (s *State) Why() error  { return s.broken }

// Generation is that of the node's ledger.
func (s *State) Generation() uint64 { return s.generation }

// Glance is what the node means to a pod that asks for nothing.
func (s *State) Glance() Glance {
	if s == nil {
		return 0
	}
	return s.glance
}

// Owner is what a pod owns here, or is on its way to: how many CPUs of its request; false: none.
func (s *State) Owner(uid string) (cpus int, owns bool) {
	if !s.Known() {
		return 0, false
	}
	list := s.ledger.Holdings
	at, _ := slices.BinarySearchFunc(list, uid, func(h policy.Holding, uid string) int {
		return strings.Compare(h.UID, uid)
	})
	for ; at < len(list) && list[at].UID == uid; at++ {
		cpus, owns = cpus+int(list[at].Requested), owns || list[at].Owns()
	}
	for i := range s.more {
		if h := &s.more[i]; h.UID == uid && h.Owns() {
			cpus, owns = cpus+int(h.Requested), true
		}
	}
	return cpus, owns
}

// memo keeps the last answer, and what followed from the node's pods when they were last of a generation.
type memo struct {
	mu sync.Mutex
	answer
	sharedAt int64
	shared   int64
	endingAt int64
	ending   []string
}

// SharedOf is what pods request of the shared pool here, which count finds out: once for each generation of the
// node's pods, since a pod that is placed asks hundreds of nodes and most have changed in nothing. Generation 0
// is none that could be told again.
func (s *State) SharedOf(generation int64, count func() int64) int64 {
	s.last.mu.Lock()
	defer s.last.mu.Unlock()
	if generation == 0 || s.last.sharedAt != generation {
		s.last.shared, s.last.sharedAt = count(), generation
	}
	return s.last.shared
}

// answer is what was last found out of a state: most pods are one of several that are alike,
// and most nodes have not changed since the one before was looked at.
type answer struct {
	alike   unique.Handle[string] // what the pod asked for
	shared  int64
	cost    Cost
	refusal *policy.Refusal
}

// Rate is what a place on the node would cost a pod, or why it has none.
func (s *State) Rate(w *Wish, l Load) (Cost, *policy.Refusal) {
	asked := answer{alike: w.alike(), shared: l.SharedMilli}
	// A pod that is being placed holds nothing anywhere; one whose binding went through although that
	// was answered with an error counts as another until the node or the pod itself says it.
	known := len(l.Without) == 0 && len(l.More) == 0
	if known {
		s.last.mu.Lock()
		a := s.last.answer
		s.last.mu.Unlock()
		if a.shared == asked.shared && a.alike == asked.alike {
			return a.cost, a.refusal
		}
	}
	t := s.site.trial()
	defer s.site.giveBack(t)
	var o policy.Offer
	if _, asked.refusal = s.judge(t, w, &l, &o, known); asked.refusal == nil {
		asked.cost = s.cost(&o, &l)
	}
	if known {
		s.last.mu.Lock()
		s.last.answer = asked
		s.last.mu.Unlock()
	}
	return asked.cost, asked.refusal
}

// Ask is what the node would answer to a pod.
func (s *State) Ask(w *Wish, l Load) (Place, *policy.Refusal) {
	var p Place
	t := s.site.trial()
	defer s.site.giveBack(t)
	_, here := s.Owner(w.Pod.UID)
	a, refusal := s.judge(t, w, &l, &p.Offer, !here && len(l.Without) == 0 && len(l.More) == 0)
	if refusal != nil {
		return p, refusal
	}
	p.Generation, p.Trusted = s.generation, s.site.rules.Authority.TrustStatus
	p.Holding, p.Cost = a.Holding(&p.Offer), s.cost(&p.Offer, &l)
	return p, nil
}

// judge asks; known says that neither the pod nor the load change what is held.
func (s *State) judge(t *policy.Trial, w *Wish, l *Load, o *policy.Offer, known bool) (*policy.Applicant,
	*policy.Refusal) {
	r := w.on(s.site, t)
	if r.refusal != nil {
		return nil, r.refusal
	}
	if refusal := s.tooFew(r.applicant, l); refusal != nil {
		return nil, refusal
	}
	more := s.more
	if len(l.More) > 0 {
		more = append(slices.Clone(s.more), l.More...)
	}
	standing := policy.Standing{Ledger: s.ledger, More: more, Without: l.Without, SharedMilli: l.SharedMilli}
	if known {
		standing.Sums = &s.sums
	}
	return r.applicant, t.Judge(r.applicant, standing, o)
}

// Ending are owners, by UID, that the node still shows and that are not there any more: soon
// their CPUs will be free, so that nobody need be preempted for the sake of them. there are the UIDs of
// the node's pods, asked for once for each generation of them, as with SharedOf.
func (s *State) Ending(generation int64, there func() map[string]bool) []string {
	s.last.mu.Lock()
	defer s.last.mu.Unlock()
	if generation != 0 && s.last.endingAt == generation {
		return s.last.ending
	}
	var list []string
	present := there()
	for i := range s.ledger.Holdings {
		h := &s.ledger.Holdings[i]
		if h.Owns() && h.Kind != policy.KindClaim && !present[h.UID] && !slices.Contains(list, h.UID) {
			list = append(list, h.UID)
		}
	}
	s.last.ending, s.last.endingAt = list, generation
	return list
}

// tooFew counts before anything is searched.
func (s *State) tooFew(a *policy.Applicant, l *Load) *policy.Refusal {
	n := a.CPUs()
	if n == 0 || len(l.Without) > 0 || a.TakesIsolated() {
		return nil
	}
	left := s.spare - int((l.SharedMilli+999)/1000) - s.ledger.Waiting
	if n <= left {
		return nil
	}
	waiting := ""
	if s.ledger.Waiting > 0 {
		waiting = fmt.Sprintf(", pods there wait for %d", s.ledger.Waiting)
	}
	return &policy.Refusal{Code: cpuallocator.InsufficientCPUs, Message: fmt.Sprintf(
		"%d CPUs are asked for; %d are free, of which pods of the shared pool request %dm%s", n, s.spare, l.SharedMilli,
		waiting)}
}

// count looks at what is taken, once a state.
func (s *State) count() {
	if !s.Known() {
		return
	}
	free, isolated := s.site.usable, s.site.topology.Isolated()
	free.RemovePacked(s.ledger.Booked)
	for _, list := range [][]policy.Holding{s.ledger.Holdings, s.more} {
		for i := range list {
			h := &list[i]
			free.RemovePacked(h.CPUs)
			free.RemovePacked(h.Withheld)
			s.beyond += h.Withheld.Count() + h.Surplus()
			if !isolated.IsEmpty() {
				held := h.CPUs.Set().Or(h.Withheld.Set())
				s.apart += held.CountAnd(&isolated)
			}
		}
	}
	s.spare = free.Count() // those that are kept for claims are the shared pool's until then
	free.RemovePacked(s.ledger.Kept)
	s.counts.free = free.Pack()
	s.glance = s.site.glance(s.site.usable.Count()+s.apart-s.beyond, s.beyond > 0)
	s.sums = policy.SumsOf(s.ledger.Holdings, s.more)
	if s.ledger.Overlap {
		s.spare = 0
	}
}

// freeWith are the CPUs that nobody holds and that are not kept for claims.
func (s *State) freeWith(l *Load) cpuset.Set {
	if len(l.Without) == 0 && len(l.More) == 0 {
		return s.free.Set()
	}
	free := s.site.usable
	free.RemovePacked(s.ledger.Booked)
	free.RemovePacked(s.ledger.Kept)
	for _, list := range [][]policy.Holding{s.ledger.Holdings, s.more, l.More} {
		for i := range list {
			if !slices.Contains(l.Without, list[i].UID) {
				free.RemovePacked(list[i].CPUs)
				free.RemovePacked(list[i].Withheld)
			}
		}
	}
	return free
}

// SharedMilli is what pods request of the shared pool as the node last said.
func (s *State) SharedMilli() int64 { return s.ledger.SharedMilli }
