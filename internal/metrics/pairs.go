package metrics

import (
	"cmp"
	"slices"
	"strings"
)

// jobPairs counts events by victim job and antagonist job for a metric whose number
// of series is bounded, whatever jobs come and go. The pairs seen most have a
// series each, the rest share one. It is a plain value with one owner.
//
// What is counted never decreases: a pair that gets a series of its own begins
// there with what is counted from then on, and one that loses it takes it up again
// where it was. So rates and increases over all series are right.
type jobPairs struct {
	// limit is how many series there are beside the shared one; 0 means 20.
	limit int
	known map[jobPair]*pairCount
	shown int
	other uint64
}

// jobPair is two jobs.
type jobPair struct{ Victim, Antagonist string }

// pairTotal is one series.
type pairTotal struct {
	jobPair
	Count uint64
}

const (
	defaultPairs = 20
	// pairMemory is how many pairs per series are watched for becoming frequent.
	pairMemory = 8
	// pairLead is by how much a pair has to lead before it takes another one's
	// series, so that two alike do not take turns.
	pairLead = 1.25
	// maxPairLabel bounds a job's name in bytes.
	maxPairLabel = 128
)

type pairCount struct {
	seen  uint64 // an upper bound: a pair that takes a forgotten one's place has its count
	own   uint64 // counted in its own series
	shown bool
}

// add counts n events.
func (p *jobPairs) add(victim, antagonist string, n uint64) {
	key := jobPair{short(victim), short(antagonist)}
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

// short holds on to no more of a name than is shown.
func short(job string) string {
	if len(job) > maxPairLabel {
		job = strings.Clone(job[:maxPairLabel])
	}
	return strings.ToValidUTF8(job, "?")
}

func (p *jobPairs) most() int { return cmp.Or(p.limit, defaultPairs) }

// watch finds a pair, forgetting the one seen least that has no series if there
// are too many (the space-saving algorithm of Metwally et al., 2005).
func (p *jobPairs) watch(key jobPair) *pairCount {
	if c := p.known[key]; c != nil {
		return c
	}
	if p.known == nil {
		p.known = map[jobPair]*pairCount{}
	}
	c := &pairCount{}
	if len(p.known) >= pairMemory*p.most() {
		least, at := jobPair{}, (*pairCount)(nil)
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

func compare(a, b jobPair) int {
	return cmp.Or(cmp.Compare(a.Victim, b.Victim), cmp.Compare(a.Antagonist, b.Antagonist))
}

// promote gives a pair a series: one that is left, or that of the least frequent.
func (p *jobPairs) promote(c *pairCount) {
	if p.shown < p.most() {
		c.shown = true
		p.shown++
		return
	}
	least, at := jobPair{}, (*pairCount)(nil)
	for k, v := range p.known {
		if v.shown && (at == nil || cmp.Or(cmp.Compare(v.seen, at.seen), compare(k, least)) < 0) {
			least, at = k, v
		}
	}
	if float64(c.seen) > pairLead*float64(at.seen) {
		at.shown, c.shown = false, true
	}
}

// counts are the series, the largest first and the shared one last.
func (p *jobPairs) counts() []pairTotal {
	list := make([]pairTotal, 0, p.shown+1)
	for k, v := range p.known {
		if v.shown {
			list = append(list, pairTotal{k, v.own})
		}
	}
	slices.SortFunc(list, func(a, b pairTotal) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), compare(a.jobPair, b.jobPair))
	})
	return append(list, pairTotal{jobPair{other, other}, p.other})
}
