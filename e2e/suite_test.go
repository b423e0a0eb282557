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
