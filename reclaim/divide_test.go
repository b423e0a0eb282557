package reclaim

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestDivide(t *testing.T) {
	for name, c := range map[string]struct {
		milli   int64
		members []Member
		want    []int64
	}{
		"nobody":     {1000, nil, []int64{}},
		"one":        {1234, []Member{{Weight: 2}}, []int64{1230}},
		"both burst": {1000, []Member{{Weight: 1, Held: true}, {Weight: 1, Held: true}}, []int64{500, 500}},
		"both burst, by promises": {1000, []Member{{Weight: 3, Held: true}, {Weight: 1, Held: true}},
			[]int64{745, 255}},
		"one bursts": {1000, []Member{{Weight: 1, Use: 0.05}, {Weight: 1, Held: true}},
			[]int64{110, 890}},
		"nobody bursts": {1000, []Member{{Weight: 1, Use: 0.05}, {Weight: 1, Use: 0.15}}, []int64{450, 550}},
		"one has a limit of its own": {1000, []Member{{Weight: 1, Held: true, Most: 200}, {Weight: 1, Held: true}},
			[]int64{200, 800}},
		"the kernel's least": {20, []Member{{}, {}, {}}, []int64{10, 10, 10}},
		"promised nothing":   {1000, []Member{{Held: true}, {Weight: 0.9, Held: true}}, []int64{108, 892}},
		"a use that cannot be is no need": {1000, []Member{{Weight: 1, Use: -1}, {Weight: 1, Held: true}},
			[]int64{500, 500}},
	} {
		got := Divide(c.milli, c.members)
		for i := range c.want {
			c.want[i] = c.want[i] / leastQuota * leastQuota
		}
		near := len(got) == len(c.want)
		for i := range got {
			near = near && max(got[i]-c.want[i], c.want[i]-got[i]) <= leastQuota
		}
		if !near {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// The last units, too few for a share of each, go to whoever needs them and not to whoever has all that it can use.
func TestDivideTheLastUnits(t *testing.T) {
	held := Member{Weight: 1, Held: true}
	for name, c := range map[string]struct {
		milli   int64
		members []Member
		want    []int64
	}{
		"one unit": {40, []Member{{Weight: 1, Held: true, Most: 10}, held, held}, []int64{10, 20, 10}},
		"one share, then units": {140, []Member{{Weight: 10, Held: true, Most: 20}, held, held, held, held},
			[]int64{20, 30, 30, 30, 30}},
	} {
		if got := Divide(c.milli, c.members); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// The parts never add up to more than the quota, nor to less than can be divided; whoever is held
// has its share by weight, and whoever is not has what it uses where that is less.
func TestNoPartOutgrowsTheWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		milli := rapid.Int64Range(0, 64_000).Draw(t, "quota")
		members := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Member {
			return Member{Weight: rapid.Float64Range(0, 16).Draw(t, "weight"),
				Use: rapid.Float64Range(0, 16).Draw(t, "use"), Held: rapid.Bool().Draw(t, "held"),
				Most: rapid.SampledFrom([]int64{0, 10, 500, 4000}).Draw(t, "most")}
		}), 1, 20).Draw(t, "members")
		parts := Divide(milli, members)
		n, sum, weights := int64(len(members)), int64(0), 0.0
		for i, m := range members {
			sum += parts[i]
			weights += max(m.Weight, leastWeight)
			if parts[i] < leastQuota || parts[i]%leastQuota != 0 {
				t.Fatalf("part %d is %d", i, parts[i])
			}
		}
		if want := max(milli/leastQuota, n) * leastQuota; sum != want {
			t.Fatalf("%v add up to %d, want %d of %d", parts, sum, want, milli)
		}
		for i, m := range members {
			share := int64(float64(max(milli/leastQuota, n)-n) * max(m.Weight, leastWeight) / weights)
			if m.Most > 0 {
				share = min(share, m.Most/leastQuota-1)
			}
			if !m.Held {
				share = min(share, int64(m.Use*1000)/leastQuota)
			}
			if parts[i] < share*leastQuota {
				t.Fatalf("%+v has %d of %v, want %d", m, parts[i], parts, share*leastQuota)
			}
		}
		again := slices.Clone(members)
		for i := range again {
			again[i].ID = fmt.Sprint(i)
		}
		if got := Divide(milli, again); !slices.Equal(got, parts) {
			t.Fatalf("%v, then %v", parts, got)
		}
	})
}
