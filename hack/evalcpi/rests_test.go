package main

import (
	"slices"
	"testing"
	"time"

	"github.com/quietcore/quietcore/hack/evalcpi/world"
)

// TestRestingInWindowsGainsNothing: an antagonist that rests in a part of each minute is found and quieted as one that
// does not. Windows are at random in each minute, and follow one another while it is tested.
func TestRestingInWindowsGainsNothing(t *testing.T) {
	const machines = 12
	for _, d := range detectors() {
		if d.name != "default" && d.name != "default-1m" {
			continue
		}
		found := map[world.Kind]int{}
		relief := map[world.Kind]float64{}
		for _, kind := range []world.Kind{world.Steady, world.Rests} {
			var is, wouldBe float64
			var after []time.Duration
			wrong := 0
			for seed := range uint64(machines) {
				got, err := play(kind, d, 2_000_000+seed)
				if err != nil {
					t.Fatal(err)
				}
				is, wouldBe, wrong = is+got.is, wouldBe+got.wouldBe, wrong+got.wrong
				found[kind], after = found[kind]+got.found, append(after, got.after...)
			}
			relief[kind] = 1 - is/wouldBe
			slices.Sort(after)
			t.Logf("%s, %s: %d of %d found, half of them after %v, relief %.2f, %d innocents blamed", d.name, kind,
				found[kind], machines, after[len(after)/2], relief[kind], wrong)
		}
		if found[world.Rests] < found[world.Steady]-1 || relief[world.Rests] < 0.8*relief[world.Steady] {
			t.Errorf("%s: resting pays", d.name)
		}
	}
}
