package detect

import (
	"cmp"
	"slices"
	"time"

	"github.com/quietcore/quietcore/cpi"
)

// PairKey names the jobs of a victim and an antagonist. What was learned of one pair of
// their containers holds for the next.
type PairKey struct {
	Victim     string `json:"victim"`
	Antagonist string `json:"antagonist"`
}

// Pair records the outcomes of acting on the antagonist for the victim.
type Pair struct {
	PairKey
	Success int `json:"success,omitempty"`
	Partial int `json:"partial,omitempty"`
	Failure int `json:"failure,omitempty"`
	Harm    int `json:"harm,omitempty"`
	// Row counts failures since the last success.
	Row int `json:"row,omitempty"`
	// Level is the next cap in milli-CPUs; 0: the configured one.
	Level int64 `json:"level,omitempty"`

	Failed  time.Time `json:"failed,omitzero"`  // last failure
	Moved   time.Time `json:"moved,omitzero"`   // last move of the pool that did not help
	Blocked time.Time `json:"blocked,omitzero"` // not tried until then
	Seen    time.Time `json:"seen,omitzero"`
}

const (
	maxPairs = 4096
	// failuresInRow failures in a row block a pair for blockFor.
	failuresInRow = 2
	blockFor      = time.Hour
)

type pairs struct{ known map[PairKey]*Pair }

func keyOf(victim, antagonist *cpi.Container) PairKey {
	return PairKey{Victim: cmp.Or(victim.Job, victim.ID), Antagonist: cmp.Or(antagonist.Job, antagonist.ID)}
}

func (p *pairs) of(victim, antagonist *cpi.Container) *Pair {
	return p.known[keyOf(victim, antagonist)]
}

// learn returns the pair and creates it if it is unknown, in place of the one unseen
// for longest if there are too many.
func (p *pairs) learn(now int64, victim, antagonist *cpi.Container) *Pair {
	key := keyOf(victim, antagonist)
	got := p.known[key]
	if got == nil {
		if len(p.known) >= maxPairs {
			list := p.sorted()
			oldest := slices.MinFunc(list, func(a, b *Pair) int { return a.Seen.Compare(b.Seen) })
			delete(p.known, oldest.PairKey)
		}
		got = &Pair{PairKey: key}
		p.known[key] = got
	}
	got.Seen = stamp(now)
	return got
}

func (p *pairs) sorted() []*Pair {
	list := make([]*Pair, 0, len(p.known))
	for _, pair := range p.known {
		list = append(list, pair)
	}
	slices.SortFunc(list, func(a, b *Pair) int {
		return cmp.Or(cmp.Compare(a.Victim, b.Victim), cmp.Compare(a.Antagonist, b.Antagonist))
	})
	return list
}

// prior weighs a suspect by the outcomes of earlier actions.
func (p *pairs) prior(victim, antagonist *container) float64 {
	pair := p.of(victim.Container, antagonist.Container)
	if pair == nil {
		return 1
	}
	good := float64(2*pair.Success + pair.Partial)
	bad := float64(2*pair.Failure + 2*pair.Harm)
	return min(max((1+good)/(1+bad), 0.1), 10)
}

// forgetTimes clears times after the clock went back.
func (p *pairs) forgetTimes() {
	for _, pair := range p.known {
		pair.Failed, pair.Moved, pair.Blocked, pair.Seen = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	}
}
