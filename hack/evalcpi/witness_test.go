package main

import (
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpi/experiment"
	"github.com/quietcore/quietcore/hack/evalcpi/world"
)

// peers sees the neighbours that nobody may throttle as services, a third of which suffers with the
// victim: each may be a witness, and has tests of its own.
type peers struct{ *trials }

func (p peers) round(now time.Time, rows []world.Row, intervals bool) ([]order, error) {
	for i := range rows {
		if rows[i].Class == "OTHER" {
			rows[i].Class = "LS"
		}
	}
	return p.trials.round(now, rows, intervals)
}

// TestWhatAWitnessCosts the victims that do not lie: how much of the disturbance is taken away without
// witnesses, and where verdicts need one.
func TestWhatAWitnessCosts(t *testing.T) {
	const machines = 12
	for _, kind := range []world.Kind{world.Base, world.Steady, world.Bandwidth, world.Churn} {
		var relief [2]float64
		for i := range relief {
			d := detector{period: time.Minute, make: func(_ world.Kind, seed uint64) (player, error) {
				cfg := experiment.DefaultConfig()
				cfg.NeedWitness = i == 1
				p, err := newExperiment(cfg, seed)
				return peers{p}, err
			}}
			var sum result
			for seed := range uint64(machines) {
				got, err := play(kind, d, 1_000_000+seed)
				if err != nil {
					t.Fatal(err)
				}
				sum.is, sum.wouldBe = sum.is+got.is, sum.wouldBe+got.wouldBe
				sum.right, sum.wrong = sum.right+got.right, sum.wrong+got.wrong
			}
			relief[i] = 1 - sum.is/sum.wouldBe
			t.Logf("%s, witness needed %t: relief %.2f, verdicts right %d, wrong %d", kind, i == 1, relief[i],
				sum.right, sum.wrong)
		}
		if relief[1] < 0.6*relief[0] {
			t.Errorf("%s: relief %.2f, without witnesses %.2f", kind, relief[1], relief[0])
		}
	}
}
