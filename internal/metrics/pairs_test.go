package metrics

import (
	"fmt"
	"maps"
	"testing"

	"pgregory.net/rapid"
)

func TestPairsAreBoundedAndNeverDecrease(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := jobPairs{limit: rapid.IntRange(1, 5).Draw(t, "most")}
		before, ever := map[jobPair]uint64{}, map[jobPair]bool{}
		total, sum := uint64(0), func() (n uint64) {
			for _, c := range p.counts() {
				n += c.Count
			}
			return n
		}
		steps := rapid.SliceOfN(rapid.IntRange(0, 100), 1, 500).Draw(t, "pairs")
		for _, n := range steps {
			was := sum()
			p.add(fmt.Sprint("v", n%11), fmt.Sprint("a", n), 2)
			total += 2
			now := map[jobPair]uint64{}
			for _, c := range p.counts() {
				now[c.jobPair] = c.Count
				if old, ok := before[c.jobPair]; ok && c.Count < old {
					t.Fatalf("%v fell from %d to %d", c.jobPair, old, c.Count)
				}
				before[c.jobPair], ever[c.jobPair] = c.Count, true
			}
			maps.DeleteFunc(before, func(pair jobPair, _ uint64) bool {
				return p.known[pair] == nil && now[pair] == 0 // forgotten without a series: it begins anew
			})
			if len(now) > p.limit+1 || len(p.known) > pairMemory*p.limit+1 {
				t.Fatalf("%d series, %d pairs known", len(now), len(p.known))
			}
			if len(now) <= p.limit && sum() != was+2 {
				t.Fatalf("%d became %d", was, sum())
			}
		}
		if len(ever) <= p.limit+1 && sum() != total {
			t.Fatalf("%d counted, %d added", sum(), total)
		}
	})
	// One that comes late and is frequent gets a series.
	p := jobPairs{limit: 3}
	for n := range 30 {
		p.add("v", fmt.Sprint("a", n), 1)
	}
	p.add("web", "batch", 1)
	for range 50 {
		p.add("web", "batch", 1)
	}
	if c := p.counts(); c[0].jobPair != (jobPair{"web", "batch"}) || c[0].Count < 40 {
		t.Errorf("%+v", c)
	}
}
