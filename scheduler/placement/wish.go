package placement

import (
	"encoding/json"
	"sync"
	"time"
	"unique"

	"github.com/quietcore/quietcore/policy"
)

// Wish is what a pod asks for, with its reading by each set of rules that it met.
type Wish struct {
	Pod    policy.Pod
	Says   policy.Wish                  // whatever node it comes to
	Bad    *policy.Refusal              // why no node takes it
	alike  func() unique.Handle[string] // equal for pods that every node answers alike; costly, and few are asked
	mu     sync.Mutex
	byRule map[*site]reading
}

type reading struct {
	applicant *policy.Applicant
	refusal   *policy.Refusal
}

// NewWish reads a pod.
func NewWish(p *policy.Pod) *Wish {
	w := &Wish{Pod: *p, byRule: map[*site]reading{}}
	w.alike = sync.OnceValue(w.sum)
	w.Says, w.Bad = policy.ReadWish(p)
	return w
}

// sum is equal for pods that every node answers alike.
func (w *Wish) sum() unique.Handle[string] {
	asks := w.Pod
	asks.UID, asks.Sandbox, asks.Name, asks.CreatedAt = "", "", "", time.Time{}
	if asks.Facts != nil {
		facts := *asks.Facts
		facts.UID, facts.Owner = "", "" // whose task it is decides about no CPUs
		asks.Facts = &facts
	}
	text, err := json.Marshal(&asks) // maps by key
	if err != nil {
		return unique.Make(w.Pod.UID)
	}
	return unique.Make(string(text))
}

// Alike says that every node answers two pods alike.
func (w *Wish) Alike(o *Wish) bool { return w.alike() == o.alike() }

// Plain says that the pod asks for nothing that the scheduler's other plugins do not know, and
// for no power that a node's configuration may deny it.
func (w *Wish) Plain() bool {
	s := &w.Says
	return w.Bad == nil && !s.Owns() && !s.Binds() && !s.Unmanaged && s.Class != policy.SYSTEM &&
		(s.Class != policy.LS || w.Pod.QoS != policy.BestEffort)
}

// on is the pod as nodes of a site read it.
func (w *Wish) on(s *site, t *policy.Trial) reading {
	w.mu.Lock()
	defer w.mu.Unlock()
	r, ok := w.byRule[s]
	if !ok {
		r.applicant, r.refusal = t.Applicant(&w.Pod)
		w.byRule[s] = r
	}
	return r
}
