package main

import (
	"testing"

	"github.com/quietcore/quietcore/e2e/kubelet"
)

// The files that are played: all of them, each once, whether or not the drivers
// take turns.
func TestEveryScenarioIsPlayed(t *testing.T) {
	scripts, err := load("scenarios")
	if err != nil {
		t.Fatal(err)
	}
	if len(scripts) < 40 {
		t.Errorf("%d scenarios, want at least 40", len(scripts))
	}
	played := map[string]int{}
	drivers := len(kubelet.Drivers())
	for i := range drivers {
		mine := everyNth(scripts, i, drivers)
		if 2*len(mine) < len(scripts)-1 {
			t.Errorf("driver %d gets %d of %d scenarios", i, len(mine), len(scripts))
		}
		for _, g := range group(mine) {
			for _, s := range g.scripts {
				played[s.Path]++
			}
		}
	}
	for _, s := range scripts {
		if played[s.Path] != 1 {
			t.Errorf("%s is played %d times", s.Path, played[s.Path])
		}
	}
}

// From whichever turn on, two turns play every scenario once, and four with both drivers.
func TestTurnsPlayEveryScenario(t *testing.T) {
	scripts, err := load("scenarios")
	if err != nil {
		t.Fatal(err)
	}
	for first := range 5 {
		played, drivers := map[string]int{}, map[string]map[int]bool{}
		for turn := first; turn < first+4; turn++ {
			for driver := range 2 {
				mine := inTurn(scripts, turn, driver)
				if 4*len(mine) < len(scripts)-4 || 4*len(mine) > len(scripts)+4 {
					t.Errorf("turn %d, driver %d: %d of %d scenarios", turn, driver, len(mine), len(scripts))
				}
				for _, s := range mine {
					if played[s.Path]++; drivers[s.Path] == nil {
						drivers[s.Path] = map[int]bool{}
					}
					drivers[s.Path][driver] = true
				}
			}
			for _, s := range scripts {
				if turn == first+1 && played[s.Path] != 1 {
					t.Errorf("turns %d and %d play %s %d times", first, turn, s.Path, played[s.Path])
				}
			}
		}
		for _, s := range scripts {
			if played[s.Path] != 2 || len(drivers[s.Path]) != 2 {
				t.Errorf("four turns play %s %d times with %d drivers", s.Path, played[s.Path], len(drivers[s.Path]))
			}
		}
	}
}
