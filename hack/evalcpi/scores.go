package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/quietcore/quietcore/cpi/experiment"
	"github.com/quietcore/quietcore/hack/evalcpi/world"
)

// scores counts, by the score of the most suspicious job of an analysis that could be tested,
// how often it was guilty. Nobody is throttled: this is what an analysis is worth alone.
type scores [experiment.Scores]struct{ guilty, of int }

func (s *scores) count(score float64, guilty bool) {
	for i := len(s) - 1; i >= 0; i-- {
		if score >= experiment.Precisions()[i].From {
			s[i].of++
			if guilty {
				s[i].guilty++
			}
			return
		}
	}
}

// observe machines of a kind.
func (s *scores) observe(kind world.Kind, trials int, seed uint64) error {
	for i := range trials {
		seed := seed + uint64(i)
		guilty := map[string]bool{}
		for _, j := range world.New(kind, seed).Jobs {
			guilty[j.Name] = j.Guilty
		}
		cfg := experiment.DefaultConfig()
		cfg.Enforce = false
		if _, err := play(kind, detector{"observed", time.Minute, func(world.Kind, uint64) (player, error) {
			t, err := newExperiment(cfg, seed)
			if err != nil {
				return nil, err
			}
			t.watch = func(e *experiment.Event) {
				if e.Kind != experiment.AnalysisEvent {
					return
				}
				for k := range e.Suspects {
					if x := &e.Suspects[k]; x.MayBeThrottled {
						s.count(x.Prior, guilty[x.Job])
						return
					}
				}
			}
			return t, nil
		}}, seed); err != nil {
			return err
		}
	}
	return nil
}

func (s *scores) String() string {
	var b strings.Builder
	for i, n := range s {
		low, high := interval(n.guilty, n.of)
		fmt.Fprintf(&b, "score from %g on: %d of %d guilty, %.2f (%.2f to %.2f)\n", experiment.Precisions()[i].From,
			n.guilty, n.of,
			float64(n.guilty)/float64(max(n.of, 1)), low, high)
	}
	return b.String()
}
