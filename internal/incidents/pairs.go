package incidents

import (
	"cmp"
	"slices"
)

// Pairs counts events by victim job and antagonist job for a metric whose number
// of series is bounded, whatever jobs come and go. The pairs seen most have a
// series each, the rest share one. It is a plain value with one owner.
//
// What is counted never decreases: a pair that gets a series of its own begins
// there with what is counted from then on, and one that loses it takes it up again
// where it was. So rates and increases over all series are right.
type Pairs struct {
	// Most series beside the shared one; 0 means 20.
	Most  int
	known map[Pair]*pairCount
	shown int
	other uint64
}

// Pair of jobs.
type Pair struct{ Victim, Antagonist string }

// PairCount is one series.
type PairCount struct {
	Pair
	Count uint64
}

// Other is the name of both jobs of the series that the rest shares.
const Other = "other"

const (
	defaultPairs = 20
	// pairMemory is how many pairs per series are watched for becoming frequent.
	pairMemory = 8
	// pairLead is by how much a pair has to lead before it takes another one's
	// series, so that two alike do not take turns.
	pairLead = 1.25
	maxLabel = 128
)

type pairCount struct {
	seen  uint64 // an upper bound: a pair that takes a forgotten one's place has its count
	own   uint64 // counted in its own series
	shown bool
}

// Add counts n events.
func (p *Pairs) Add(victim, antagonist string, n uint64) {
	key := Pair{cut(victim, maxLabel), cut(antagonist, maxLabel)}
	c := p.watch(key)
	c.seen += n
	if !c.shown {
		p.promote(c)
	}
	if c.shown {
		c.own += n
	} else {
		p.other += n
	}
}

func (p *Pairs) most() int { return cmp.Or(p.Most, defaultPairs) }

// watch finds a pair, forgetting the one seen least that has no series if there
// are too many (the space-saving algorithm of Metwally et al., 2005).
func (p *Pairs) watch(key Pair) *pairCount {
	if c := p.known[key]; c != nil {
		return c
	}
	if p.known == nil {
		p.known = map[Pair]*pairCount{}
	}
	c := &pairCount{}
	if len(p.known) >= pairMemory*p.most() {
		least, at := Pair{}, (*pairCount)(nil)
		for k, v := range p.known {
			if !v.shown && (at == nil || cmp.Or(cmp.Compare(v.seen, at.seen), compare(k, least)) < 0) {
				least, at = k, v
			}
		}
		delete(p.known, least)
		c.seen = at.seen
	}
	p.known[key] = c
	return c
}

func compare(a, b Pair) int {
	return cmp.Or(cmp.Compare(a.Victim, b.Victim), cmp.Compare(a.Antagonist, b.Antagonist))
}

// promote gives a pair a series: one that is left, or that of the least frequent.
func (p *Pairs) promote(c *pairCount) {
	if p.shown < p.most() {
		c.shown = true
		p.shown++
		return
	}
	least, at := Pair{}, (*pairCount)(nil)
	for k, v := range p.known {
		if v.shown && (at == nil || cmp.Or(cmp.Compare(v.seen, at.seen), compare(k, least)) < 0) {
			least, at = k, v
		}
	}
	if float64(c.seen) > pairLead*float64(at.seen) {
		at.shown, c.shown = false, true
	}
}

// Counts are the series, the largest first and the shared one last.
func (p *Pairs) Counts() []PairCount {
	list := make([]PairCount, 0, p.shown+1)
	for k, v := range p.known {
		if v.shown {
			list = append(list, PairCount{k, v.own})
		}
	}
	slices.SortFunc(list, func(a, b PairCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), compare(a.Pair, b.Pair))
	})
	return append(list, PairCount{Pair{Other, Other}, p.other})
}
