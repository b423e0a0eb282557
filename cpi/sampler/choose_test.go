package sampler

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/quietcore/quietcore/cpi"
)

func crowd(namespace string, class cpi.Class, n int, use float64) (list []candidate) {
	for i := range n {
		c := &cpi.Container{ID: fmt.Sprintf("%s-%s-%03d", namespace, class, i), Namespace: namespace, Class: class}
		list = append(list, candidate{Container: c, use: use})
	}
	return list
}

// chosen counts what was chosen by namespace and class.
func chosen(list []candidate) map[string]int {
	sums := map[string]int{}
	for _, c := range list {
		sums[c.Namespace+" "+c.Class.String()]++
	}
	return sums
}

func TestWhoIsCountedWhereThereAreTooMany(t *testing.T) {
	idle := crowd("idle", cpi.LS, 1000, 0.001)
	batch := crowd("jobs", cpi.BE, 50, 4)
	web := crowd("web", cpi.LS, 50, 1)
	small := crowd("small", cpi.LS, 2, 0.01)
	many := slices.Concat(idle, batch, web, small)
	for _, c := range []struct {
		what string
		list []candidate
		n    int
		want map[string]int
	}{
		{"all fit", slices.Concat(web, batch), 100, map[string]int{"web LS": 50, "jobs BE": 50}},
		{"a crowd that came first hides nobody", many, 120,
			map[string]int{"idle LS": 19, "jobs BE": 50, "web LS": 49, "small LS": 2}},
		{"use decides about half of the places", many, 60,
			map[string]int{"idle LS": 9, "jobs BE": 40, "web LS": 9, "small LS": 2}},
		{"one place", many, 1, map[string]int{"jobs BE": 1}},
	} {
		got := choose(slices.Clone(c.list), c.n)
		if sums := chosen(got); len(got) != min(c.n, len(c.list)) || fmt.Sprint(sums) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v, want %v", c.what, sums, c.want)
		}
	}
}

// TestChoices: whatever runs, the order in which it came does not matter, no namespace is left
// out while there are places for all, and who is counted stays so until another uses more than
// twice as much.
func TestChoices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var list []candidate
		shares := map[share]int{}
		for i := range rapid.IntRange(1, 60).Draw(t, "containers") {
			c := candidate{
				Container: &cpi.Container{ID: fmt.Sprintf("%03d", i),
					Namespace: rapid.SampledFrom([]string{"a", "a", "a", "b", "c"}).Draw(t, "namespace"),
					Class:     rapid.SampledFrom([]cpi.Class{cpi.LS, cpi.LSR, cpi.Batch, cpi.BE}).Draw(t, "class")},
				use: rapid.SampledFrom([]float64{0, 0.01, 0.5, 1, 1.9, 4}).Draw(t, "use"),
			}
			shares[share{c.Namespace, c.Class.LatencySensitive()}]++
			list = append(list, c)
		}
		n := rapid.IntRange(1, 70).Draw(t, "places")
		ids := func(list []candidate) []string {
			var all []string
			for _, c := range list {
				all = append(all, c.ID)
			}
			slices.Sort(all)
			return all
		}
		got := choose(slices.Clone(list), n)
		if len(got) != min(n, len(list)) {
			t.Fatalf("%d of %d chosen, for %d places", len(got), len(list), n)
		}
		mixed := rapid.Permutation(list).Draw(t, "another order")
		if again := choose(mixed, n); !slices.Equal(ids(again), ids(got)) {
			t.Fatalf("in another order %v are chosen, %v before", ids(again), ids(got))
		}
		each := map[share]int{}
		for _, c := range got {
			each[share{c.Namespace, c.Class.LatencySensitive()}]++
		}
		for of, there := range shares {
			if least := min(there, n/2/len(shares)); each[of] < least {
				t.Fatalf("%+v has %d places of %d, want %d", of, each[of], n, least)
			}
		}
		in := ids(got)
		for i := range list {
			list[i].counted = slices.Contains(in, list[i].ID)
			list[i].use *= rapid.Float64Range(1, 1.99).Draw(t, "uses more")
		}
		twice := slices.ContainsFunc(list, func(a candidate) bool {
			return !a.counted && slices.ContainsFunc(list, func(b candidate) bool {
				return b.counted && a.use > 2*b.use
			})
		})
		if again := choose(list, n); !twice && !slices.Equal(ids(again), in) {
			t.Fatalf("%v are chosen after %v, and none uses twice as much", ids(again), in)
		}
	})
}
