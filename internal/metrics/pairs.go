package metrics

import (
	"cmp"
	"slices"
	"strings"
)

// jobPairs counts events by victim job and antagonist job for a metric with a bounded
// number of series, whatever jobs come and go. The most frequent pairs have a series
// each; the rest share one. It is not safe for concurrent use.
//
// A pair that gets a series starts it with the events counted from then on. One that loses
// its series and gets it back continues the old count, or begins at 0 if it was forgotten
// meanwhile, which Prometheus takes for the reset that it is. Otherwise counts never decrease.
// So rates and increases over all series are correct.
type jobPairs struct {
	// limit is the number of series besides the shared one; 0 means 20.
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
	// pairMemory is how many pairs per series are tracked as candidates.
	pairMemory = 8
	// pairLead is the lead that a pair needs to take another one's series, so that two
	// equal ones do not alternate.
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

// short copies as much of a name as is shown, so that the rest is not retained.
func short(job string) string {
	if len(job) > maxPairLabel {
		job = strings.Clone(job[:maxPairLabel])
	}
	return strings.ToValidUTF8(job, "?")
}

func (p *jobPairs) most() int { return cmp.Or(p.limit, defaultPairs) }

// watch finds a pair. If there are too many, it forgets the least frequent one without
// a series (the space-saving algorithm of Metwally et al., 2005).
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

// promote gives a pair a series: a free one, or that of the least frequent pair.
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

// counts returns the series, the largest first and the shared one last.
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
