package record

import (
	"slices"

	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/loop"
	"github.com/quietcore/quietcore/internal/incidents"
)

// recordTest keeps a test in the incidents of the victim's job: all its containers are judged
// by it. A test keeps them open, a verdict that stands does not.
func (r *Recorder) recordTest(f *loop.Finding) {
	for _, e := range r.open {
		if e.job != f.Victim.Job {
			continue
		}
		x := e.experiment(f.Test.Job)
		x.EValue = f.Test.E
		if w := &f.Test.Witness; f.Test.Verdict && !w.Own {
			x.Witness = &incidents.Witness{Job: w.Job, EValue: w.E, Jobs: w.Jobs}
		}
		if f.Kind == detect.OutcomeEvent || !f.Test.Verdict { // a verdict refunds
			x.Minutes = f.Test.Harm
		}
		for i, arm := range []*incidents.Arm{&x.Alone, &x.Under} {
			*arm = incidents.Arm{Windows: f.Test.Arms[i].Windows, CPI: f.Test.Arms[i].Excess * e.Threshold}
		}
		switch {
		case f.Kind == detect.OutcomeEvent && f.Test.Verdict:
			x.Result = incidents.Guilty
		case f.Kind == detect.OutcomeEvent:
			x.Result = incidents.Innocent
		case !f.Test.Begun && len(x.Coins) < maxPoints:
			x.Coins = append(x.Coins, incidents.Coin{Offset: f.At.Sub(e.At), Length: f.Until.Sub(f.At), P: f.Test.P,
				On: f.Test.On})
		}
		if !f.Test.Verdict {
			e.last = f.At
		}
		r.publish(e)
	}
}

// experiment on a job: a new one where there was none, or where it is tested anew.
func (e *episode) experiment(job string) *incidents.Experiment {
	for i := range slices.Backward(e.Experiments) {
		if x := &e.Experiments[i]; x.Job == job && x.Result != incidents.Innocent {
			return x
		}
	}
	e.Experiments = append(e.Experiments, incidents.Experiment{Job: job})
	return &e.Experiments[len(e.Experiments)-1]
}
