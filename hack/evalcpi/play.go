package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/detect"
)

var epoch = time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC)

const (
	// learningTasks of the victim's job elsewhere have each learningSamples behind
	// them, one in twenty under interference, before the trial begins.
	learningTasks, learningSamples = 10, 300
	missing                        = 0.01 // of all samples
)

// result of a trial.
type result struct {
	right, wrong int           // caps
	firstHit     bool          // the first of them was right
	found        bool          // the antagonist was capped at least once
	after        time.Duration // its arrival
	analyses     int           // while it disturbed
	percentile   float64       // sum over those
	hours        float64
	analysed     int // in all
	outliers     uint64
	samples      uint64
}

// play runs one trial in a closed loop: a capped neighbour does not slow the victim.
func play(t *trial, cfg detect.Config) (result, error) {
	cfg.Enforce = true
	d, err := detect.New(cfg)
	if err != nil {
		return result{}, err
	}
	if err := t.teach(d); err != nil {
		return result{}, err
	}
	victim, err := d.Put(epoch, &cpi.Container{ID: "victim", Job: "victim", Class: cpi.LS})
	if err != nil {
		return result{}, err
	}
	res := result{hours: t.length.Hours()}
	before := d.Counters()
	present := map[detect.Ref]*neighbour{}
	var samples []detect.Sample
	var recent []float64
	for at, next := t.windowOf(0), t.windowOf(1); at <= t.length; at, next = next, t.windowAfter(next) {
		now := epoch.Add(at)
		samples = samples[:0]
		slow := t.slowed(at)
		for _, n := range t.neighbours {
			if at < n.arrives {
				continue
			}
			if n.ref == 0 && present[0] != n {
				ref, err := d.Put(now.Add(-period/2), &n.c)
				if err != nil {
					return result{}, err
				}
				n.ref, present[ref] = ref, n
			}
			u, cpi := n.disturbed(t.others, n.usage(t.r, at), slow)
			if t.r.Float64() >= missing {
				samples = append(samples, detect.Sample{Ref: n.ref, At: now, Usage: u, CPI: cpi})
			}
		}
		recent = append(recent, slow)
		usage, cpi := t.v.sample(t.r, at, slow)
		if t.r.Float64() >= missing {
			samples = append(samples, detect.Sample{Ref: victim, At: now, Usage: usage, CPI: cpi})
		}
		t.carryOut(&res, present, d.Observe(now, samples), recent)
		for {
			due, ok := d.Next()
			if !ok || !due.Before(epoch.Add(next)) {
				break
			}
			t.carryOut(&res, present, d.Tick(due), recent)
		}
	}
	after := d.Counters()
	res.outliers, res.samples = after.Outliers-before.Outliers, uint64(t.length/period)
	return res, nil
}

// teach lets the detector learn the victim's job from its tasks elsewhere.
func (t *trial) teach(d *detect.Detector) error {
	begin := epoch.Add(-(learningSamples + 1) * period)
	var refs [learningTasks]detect.Ref
	var tasks [learningTasks]victim
	for i := range refs {
		var err error
		if refs[i], err = d.Put(begin, &cpi.Container{ID: fmt.Sprint("elsewhere", i), Job: "victim",
			Class: cpi.LS}); err != nil {
			return err
		}
		tasks[i] = t.v
		tasks[i].own, tasks[i].state = nil, t.r.NormFloat64()
	}
	var samples []detect.Sample
	for k := range learningSamples {
		samples = samples[:0]
		at := -time.Duration(learningSamples-k) * period
		for i := range refs {
			slow := 1.0
			if t.r.IntN(20) == 0 {
				slow = 1.3 + 0.7*t.r.Float64()
			}
			usage, cpi := tasks[i].sample(t.r, at, slow)
			samples = append(samples, detect.Sample{Ref: refs[i], At: epoch.Add(at), Usage: usage, CPI: cpi})
		}
		d.Observe(epoch.Add(at), samples)
	}
	for i := range refs {
		d.Forget(epoch.Add(-period/2), fmt.Sprint("elsewhere", i))
	}
	return nil
}

// carryOut does what the detector wants and keeps the score.
func (t *trial) carryOut(res *result, present map[detect.Ref]*neighbour, events []detect.Event, recent []float64) {
	for _, e := range events {
		switch e.Kind {
		case detect.CommandEvent:
			n := present[e.Command.Container]
			switch e.Command.Kind {
			case detect.DoCap:
				n.cap = float64(e.Command.Milli) / 1000
				if res.right+res.wrong == 0 {
					res.firstHit = n == t.antagonist
				}
				if n == t.antagonist {
					if res.right++; !res.found {
						res.found, res.after = true, e.At.Sub(epoch)-n.arrives
					}
				} else {
					res.wrong++
				}
			case detect.DoUncap:
				n.cap = 0
			case detect.DoMove, detect.DoRestore, detect.DoEvict:
			}
		case detect.AnalysisEvent:
			res.analysed++
			t.rank(res, e.Verdict, recent)
		case detect.SpecEvent, detect.OutlierEvent, detect.AnomalyEvent, detect.OutcomeEvent:
		}
	}
}

// rank notes where the antagonist stands among the suspects, where the analysis
// is due to it: two of the last five samples were slowed by at least half of its
// effect.
func (t *trial) rank(res *result, v *detect.Verdict, recent []float64) {
	if t.antagonist == nil || len(v.Suspects) < 2 {
		return
	}
	slowed := 0
	for _, s := range recent[max(0, len(recent)-5):] {
		if s-1 >= (t.effect-1)/2 {
			slowed++
		}
	}
	if slowed < 2 {
		return
	}
	res.analyses++
	at := slices.IndexFunc(v.Suspects, func(s detect.Suspect) bool { return s.Ref == t.antagonist.ref })
	if at >= 0 {
		res.percentile += 1 - float64(at)/float64(len(v.Suspects)-1)
	}
}
