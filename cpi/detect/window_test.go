package detect

import (
	"testing"

	"pgregory.net/rapid"
)

// ringOf holds these times; of two that are equal the second is refused.
func ringOf(size int, times ...int64) *ring {
	r := &ring{entries: make([]entry, size)}
	for _, at := range times {
		r.put(entry{at: at})
	}
	return r
}

// TestNearest compares the walk over a ring with a look at every sample.
func TestNearest(t *testing.T) {
	const period = 60
	rapid.Check(t, func(t *rapid.T) {
		r := ringOf(8, rapid.SliceOfN(rapid.Int64Range(0, 400), 0, 20).Draw(t, "samples")...)
		from := 0
		var at int64
		for range rapid.IntRange(1, 8).Draw(t, "looks") {
			at += rapid.Int64Range(1, 80).Draw(t, "later")
			var want *entry
			for i := range r.n {
				off := max(r.at(i).at-at, at-r.at(i).at)
				if 2*off < period && (want == nil || off < max(want.at-at, at-want.at)) {
					want = r.at(i)
				}
			}
			var got *entry
			if got, from = r.nearest(at, period, from); got != want {
				t.Fatalf("at %d: %+v, want %+v", at, got, want)
			}
		}
	})
}

func TestMissesAreThoseOfTheWindow(t *testing.T) {
	c := &container{window: *ringOf(8, 10, 20, 30, 40)}
	for i := range c.window.n {
		c.window.at(i).misses = float32([]int{1000, 100, 10, 4}[i])
	}
	for since, want := range map[int64]float64{0: 278.5, 19: 38, 20: 7, 30: 4, 40: 0} {
		if got := missesOf(c, since); got != want {
			t.Errorf("since %d: %v misses, want %v", since, got, want)
		}
	}
}
