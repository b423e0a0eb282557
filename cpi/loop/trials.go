package loop

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/experiment"
	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/policy"
)

// trials is package experiment at work: it throws the coins, and keeps in force what they
// say.
type trials struct {
	l       *Loop
	d       *experiment.Detector
	period  time.Duration
	refs    map[string]experiment.Ref // by container ID
	inForce map[string]held           // by container ID
	told    map[string]toldAction     // caps and moves that were reported, and not their end, by container ID
	ended   map[string]string         // why a job's verdict ended in this window
	core    bool                      // CPIs are in core cycles
	began   time.Duration             // when the last window's interval began
	looked  time.Time                 // when Options.Node was last asked
	samples []experiment.Sample
	coins   []experiment.Thrown
}

// held is what a throttle leaves of a container: CPU, the CPUs off those around the victim, idle ones, or little memory
// bandwidth.
type held struct {
	milli int64 // thousandths of a CPU
	step  experiment.Step
}

type toldAction struct {
	ends detect.CommandKind
	why  string // of an end that is known before the window's coins
}

func newTrials(l *Loop, d *experiment.Detector) *trials {
	return &trials{l: l, d: d, period: l.o.Experiment.Period, refs: map[string]experiment.Ref{},
		inForce: map[string]held{}, told: map[string]toldAction{}, ended: map[string]string{}}
}

// errNoSample says that a container is followed from its first sample on, so that of a
// job whose pods come and go it is known what it used.
var errNoSample = errors.New("it has no sample yet")

func (t *trials) take(w *queued, now time.Time) (orders []order, unsaved bool) {
	t.samples, t.core = t.samples[:0], !w.Reference
	t.l.follow(w, t.put, t.forget)
	found := map[string]*Finding{}
	clear(t.ended)
	if w.Between {
		t.handle(t.d.Between(now, t.samples), now, found)
	} else {
		t.handle(t.d.ObserveAfter(t.steps(w), now, t.samples), now, found)
	}
	t.learn()
	t.coins = t.coins[:0]
	for _, trial := range t.d.Trials() {
		t.coins = append(t.coins, experiment.Thrown{Trial: trial, On: t.l.o.Coin() < trial.P})
	}
	t.handle(t.d.Throw(t.coins), now, found)
	t.tellCoins(now)
	t.looked = now
	return t.reconcile(now, found), len(t.coins) > 0 // a coin is saved before it takes effect
}

// steps are the intervals that have begun since the last window's. A window lies anywhere
// in its own, so that its end does not say.
func (t *trials) steps(w *queued) int64 {
	passed := w.began - t.began
	t.began = w.began
	return int64(math.Round(float64(passed) / float64(t.period)))
}

func (t *trials) put(r *sample.Result) error {
	if _, known := t.refs[r.ID]; !known && r.Dropped != sample.None {
		return errNoSample
	}
	ref, err := t.follow(r.Container)
	if err != nil || r.Dropped != sample.None {
		return err
	}
	s := experiment.Sample{Ref: ref, Usage: r.Usage}
	// A victim that is throttled itself says nothing of others.
	if r.NoCPI == sample.None && !(r.Capped && r.Class.LatencySensitive()) {
		s.CPI = r.CPI
	}
	t.samples = append(t.samples, s)
	return nil
}

func (t *trials) follow(c *cpi.Container) (experiment.Ref, error) {
	ref, err := t.d.Put(onPlatform(c, !t.core))
	if err == nil {
		t.refs[c.ID] = ref
	}
	return ref, err
}

func (t *trials) forget(id string) {
	t.d.Forget(id)
	delete(t.refs, id)
	delete(t.inForce, id)
	delete(t.told, id)
}

// learn passes on what is normal for jobs.
func (t *trials) learn() {
	var list []detect.Learned
	least := t.l.o.Detector.MinUsage
	for _, x := range t.d.Learned() {
		if x.Usage >= least {
			list = append(list, detect.Learned{Job: x.Job, Platform: x.Platform, Band: detect.BandOf(x.Usage, least),
				Usage: x.Usage, CPI: x.CPI})
		}
	}
	t.l.o.OnLearned(list)
}

// reconcile what is in force with what the coins say. A throttle is told anew in every
// window, and ends by itself when the next window can no longer be under way.
func (t *trials) reconcile(now time.Time, found map[string]*Finding) (orders []order) {
	at := t.l.wall(now)(now)
	for _, id := range slices.Sorted(maps.Keys(t.refs)) {
		ended := t.uncapped(id, at)
		if f := found[id]; f != nil {
			t.told[id] = toldAction{ends: ending(f.Command)}
		}
		from := len(orders)
		if orders = t.enforce(orders, id, found[id]); ended == nil {
			continue
		}
		if len(orders) > from && orders[from].finding == nil {
			orders[from].finding = ended
		} else {
			t.l.report(ended)
		}
	}
	return orders
}

// ending is the command that ends another one.
func ending(c detect.CommandKind) detect.CommandKind {
	switch c {
	case detect.DoMove:
		return detect.DoRestore
	case detect.DoIdle:
		return detect.DoWake
	case detect.DoNarrow:
		return detect.DoWiden
	}
	return detect.DoUncap
}

// uncapped is the finding that a container's cap or move has ended; nil: there was none, or it has
// not.
func (t *trials) uncapped(id string, at time.Time) *Finding {
	target := t.d.Container(t.refs[id])
	job := experiment.JobOf(target)
	told, is := t.told[id]
	if on, verdict := t.d.Throttled(job); !is || on && verdict && told.why == "" {
		return nil
	}
	delete(t.told, id)
	why, over := t.ended[job]
	if !over {
		why = cmp.Or(told.why, "for a window, to see whether it is still needed")
	}
	return &Finding{Kind: detect.CommandEvent, Command: told.ends, At: at, Target: target, Why: why}
}

// loosened is how much more a throttle has to leave before one in force is replaced. The
// policy never loosens one.
const loosened = 1.25

func (t *trials) enforce(orders []order, id string, f *Finding) []order {
	target := t.d.Container(t.refs[id])
	milli, _ := t.d.ThrottleOf(t.refs[id])
	off, least := t.d.MovedOff(t.refs[id])
	had, is := t.inForce[id]
	next := held{milli: milli}
	switch {
	case off != nil:
		next.step = experiment.ByMove
	case t.d.Idles(t.refs[id]):
		next.step = experiment.ByIdling
	case t.d.Narrowed(t.refs[id]):
		next.step = experiment.ByBandwidth
	}
	if is && (had.step != next.step || next == held{}) {
		orders = append(orders, had.release(target))
		delete(t.inForce, id)
		is = false
	}
	switch {
	case next.step == experiment.ByIdling:
		t.inForce[id] = next
		return append(orders, order{event: policy.Idled{Pod: target.PodUID, For: 2 * t.period}, target: target,
			finding: f})
	case next.step == experiment.ByBandwidth:
		t.inForce[id] = next
		narrow := 2 * t.period
		return append(orders, order{narrow: &narrow, target: target, finding: f})
	case off != nil:
		t.inForce[id] = next
		victim := target.ID
		if v := t.victimOf(experiment.JobOf(target)); v != nil {
			victim = v.ID
		}
		return append(orders, order{event: policy.BEKeptOff{Victim: victim, Pod: target.PodUID, CPUs: *off,
			Least: least, For: 2 * t.period}, target: target, finding: f})
	case milli > 0:
		if is && float64(milli) > loosened*float64(had.milli) {
			orders = append(orders, had.release(target))
		} else if is {
			milli = min(milli, had.milli)
		}
		t.inForce[id] = held{milli: milli}
		return append(orders, order{event: policy.CapVerdict{ID: id, Milli: milli, For: 2 * t.period}, target: target,
			finding: f})
	}
	return orders
}

func (h *held) release(target *cpi.Container) order {
	o := order{event: policy.CapReleased{ID: target.ID}, target: target}
	switch h.step {
	case experiment.ByMove:
		o.event = policy.BEKeptOff{Victim: target.ID, Pod: target.PodUID}
	case experiment.ByIdling:
		o.event = policy.Idled{Pod: target.PodUID}
	case experiment.ByBandwidth:
		o.event, o.narrow = nil, new(time.Duration)
	case experiment.ByQuota:
	}
	return o
}

// looksPerPeriod is how often containers of throttled jobs are looked for that were
// created meanwhile.
const looksPerPeriod = 12

func (t *trials) next() (time.Time, bool) {
	return t.looked.Add(t.period / looksPerPeriod), t.l.o.Node != nil && len(t.inForce) > 0
}

// tick throttles containers that were created since the window, where their job is.
func (t *trials) tick(now time.Time) (orders []order) {
	t.looked = now
	node := t.l.o.Node()
	for _, c := range node.Containers {
		if _, known := t.refs[c.ID]; known {
			continue
		}
		if on, _ := t.d.Throttled(experiment.JobOf(c)); !on {
			continue
		}
		if _, err := t.follow(c); err != nil {
			continue
		}
		t.l.known[c.ID] = true
		orders = t.enforce(orders, c.ID, nil)
	}
	return orders
}

func (t *trials) refuse(o *order, now time.Time, why string) {
	delete(t.inForce, o.target.ID)
	kind, news := detect.DoCap, false
	switch e := o.event.(type) {
	case policy.CapVerdict:
		news = t.d.Refuse(experiment.JobOf(o.target))
	case policy.BEKeptOff:
		kind, news = detect.DoMove, e.For > 0 && t.d.RefuseStep(experiment.JobOf(o.target), experiment.ByMove)
		delete(t.told, o.target.ID)
	case policy.Idled:
		kind, news = detect.DoIdle, e.For > 0 && t.d.RefuseStep(experiment.JobOf(o.target), experiment.ByIdling)
		delete(t.told, o.target.ID)
	case nil:
		kind = detect.DoNarrow
		news = *o.narrow > 0 && t.d.RefuseStep(experiment.JobOf(o.target), experiment.ByBandwidth)
		delete(t.told, o.target.ID)
	}
	if !news {
		return
	}
	f := &Finding{Kind: detect.OutcomeEvent, At: t.l.wall(now)(now), Target: o.target, Why: why,
		Outcome: &detect.Outcome{Kind: kind, Result: detect.Refused, Why: why}}
	if f.Victim = t.victimOf(experiment.JobOf(o.target)); f.Victim != nil {
		t.l.report(f)
	}
}

func (t *trials) throttles(now time.Time) (list []Throttle) {
	at := t.l.wall(now)
	for _, id := range slices.Sorted(maps.Keys(t.inForce)) {
		target := t.d.Container(t.refs[id])
		c := t.coinOf(experiment.JobOf(target))
		if c == nil {
			continue
		}
		test := t.d.TestOf(c.Pair)
		one := Throttle{Target: target, Victim: test.Victim, Verdict: test.Stage == experiment.Verdict}
		least := t.l.o.Experiment.Threshold
		switch {
		case one.Verdict && c.P < 1:
			one.Why = fmt.Sprintf("it disturbs %s: its test has an e-value of %.3g, %.0f is a verdict; in one of %.0f "+
				"windows, at random, it is let go to see whether that still holds", c.Pair.Victim, test.E, least,
				1/(1-c.P))
		case one.Verdict:
			one.Why = fmt.Sprintf("it disturbs %s: its test has an e-value of %.3g, %.0f is a verdict; at random it "+
				"is let go for a while to see whether that still holds", c.Pair.Victim, test.E, least)
		default:
			one.Why = fmt.Sprintf("it is tested whether it disturbs %s: throttled in this window by a coin that says "+
				"so with probability %.2g; e-value %.3g so far, %.0f is a verdict", c.Pair.Victim, c.P, test.E, least)
		}
		if one.Verdict {
			one.Why += "; " + test.Witness.Text()
		}
		one.Until = at(t.d.Until(t.refs[id]))
		if off, _ := t.d.MovedOff(t.refs[id]); off != nil {
			one.Off = off.String()
			one.Why = fmt.Sprintf("moved off CPUs %s around %s until %s, in place of a quota: %s", off, c.Pair.Victim,
				one.Until.UTC().Format(time.TimeOnly), one.Why)
		}
		if one.Idle = t.d.Idles(t.refs[id]); one.Idle {
			one.Why = fmt.Sprintf("runs only on otherwise idle CPUs, for the sake of %s, until %s, in place of a "+
				"quota: %s", c.Pair.Victim, one.Until.UTC().Format(time.TimeOnly), one.Why)
		}
		if one.Narrow = t.d.Narrowed(t.refs[id]); one.Narrow {
			one.Why = fmt.Sprintf("gets the least memory bandwidth and L3, for the sake of %s, until %s, in place of "+
				"a quota: %s", c.Pair.Victim, one.Until.UTC().Format(time.TimeOnly), one.Why)
		}
		list = append(list, one)
	}
	return list
}

// coinOf is the coin that was thrown last for a job; nil: none was.
func (t *trials) coinOf(job string) *experiment.Thrown {
	for i := range t.coins {
		if t.coins[i].Pair.Suspect == job {
			return &t.coins[i]
		}
	}
	return nil
}

// victimOf the coin that was thrown for a job.
func (t *trials) victimOf(job string) *cpi.Container {
	if c := t.coinOf(job); c != nil {
		return t.d.TestOf(c.Pair).Victim
	}
	return nil
}

// short is how long the next windows are to be.
func (t *trials) short() time.Duration {
	if t.d.ShortWindows() {
		return t.l.o.Experiment.Window
	}
	return 0
}

func (t *trials) questions() []cpi.Question { return t.d.Questions() }

func (t *trials) counters() Counters {
	c := t.d.Counters()
	return Counters{Samples: c.Samples, Outliers: c.Outliers, Anomalies: c.Anomalies, Analyses: c.Analyses, Tests: c}
}

func (t *trials) jobs(now time.Time) []detect.JobInfo {
	var list []detect.JobInfo
	for _, j := range t.d.Jobs() {
		info := detect.JobInfo{Job: j.Job, Platform: j.Platform, Containers: j.Containers}
		switch {
		case !j.Judged:
			info.Lack = detect.LacksSamples
			info.From = now.Add(time.Duration(experiment.MinWindows-j.Windows) * t.period)
		case j.FromOthers:
			info.Source = detect.FromCluster
		default:
			info.Source, info.Tasks = detect.FromHere, j.Containers
		}
		list = append(list, info)
	}
	return list
}

// setSpec is good until the job has a history of its own, whenever that is.
func (t *trials) setSpec(_ time.Time, s *detect.Spec, _ time.Time) error {
	if err := s.Check(t.l.o.Detector); err != nil {
		return err
	}
	return t.d.SetSpec(s.Job, s.Platform, s.Mean, s.StdDev)
}

func (t *trials) save() State {
	s := t.d.Save()
	return State{Experiment: &s}
}

func (t *trials) restore(now time.Time, s State) error {
	if s.Experiment == nil {
		return errors.New("the state is another detector's")
	}
	return t.d.Restore(now, *s.Experiment)
}

// tellCoins reports what was thrown.
func (t *trials) tellCoins(now time.Time) {
	at := t.l.wall(now)
	for i := range t.coins {
		c := &t.coins[i]
		test := t.d.TestOf(c.Pair)
		if test.Victim != nil {
			t.l.report(&Finding{Kind: TestEvent, At: at(now), Victim: test.Victim, Target: t.someOf(c.Pair.Suspect),
				Until: at(now.Add(cmp.Or(t.short(), t.period))),
				Test: &Test{Job: c.Pair.Suspect, P: c.P, On: c.On, E: test.E,
					Verdict: test.Stage == experiment.Verdict, Arms: test.Arms, Harm: test.Harm,
					Witness: test.Witness}})
		}
	}
}

// someOf the containers of a job; where none runs, one that has its name alone.
func (t *trials) someOf(job string) *cpi.Container {
	if refs := t.d.Containers(job); len(refs) > 0 {
		return t.d.Container(refs[0])
	}
	return &cpi.Container{Job: job}
}

// handle reports events. Those that go with an order are kept by the container's ID, to be
// reported once the policy has accepted it.
func (t *trials) handle(events []experiment.Event, now time.Time, found map[string]*Finding) {
	at := t.l.wall(now)
	for i := range events {
		e := &events[i]
		f := &Finding{Kind: detect.Kind(e.Kind), At: at(e.At), Victim: e.Victim, CPI: e.CPI, Threshold: e.Threshold,
			Why: e.Why}
		if f.Victim == nil {
			continue // it has ended
		}
		switch e.Kind {
		case experiment.OutlierEvent, experiment.AnomalyEvent:
			t.l.report(f)
		case experiment.LineEvent:
			f.Kind, f.Spec = detect.SpecEvent, specOf(e)
			t.l.report(f)
		case experiment.AnalysisEvent:
			t.analysis(f, e)
			t.l.report(f)
		case experiment.BegunEvent:
			f.Kind, f.Target, f.Test = TestEvent, t.someOf(e.Job), &Test{Job: e.Job, Begun: true, E: e.E}
			t.l.report(f)
		case experiment.VerdictEvent:
			t.outcome(f, e, detect.Success)
		case experiment.GivenUpEvent:
			t.outcome(f, e, detect.Failure)
		case experiment.ReleasedEvent:
			t.ended[e.Job] = e.Why
		case experiment.HardenedEvent:
			for _, ref := range t.d.Containers(e.Job) {
				id := t.d.Container(ref).ID
				if told, is := t.told[id]; is && told.ends != detect.DoUncap {
					told.why = e.Why
					t.told[id] = told
				}
			}
		case experiment.CapEvent, experiment.EvictEvent:
			t.commands(f, e, at, found)
		case experiment.ProbeEvent, experiment.UncapEvent: // the coins are reported, and what they end
		}
	}
}

func specOf(e *experiment.Event) *detect.Spec {
	return &detect.Spec{Job: experiment.JobOf(e.Victim), Platform: e.Victim.Platform, Mean: e.Normal.CPI,
		StdDev: e.Normal.CPI * e.Normal.StdDev, Samples: float64(e.Normal.Samples), Tasks: 1}
}

// outcome of a test: whether throttling the suspect helps the victim.
func (t *trials) outcome(f *Finding, e *experiment.Event, result detect.Result) {
	alone, throttled := &e.Arms[0], &e.Arms[1]
	f.Kind, f.Target = detect.OutcomeEvent, t.someOf(e.Job)
	f.Outcome = &detect.Outcome{Kind: detect.DoCap, Result: result, Before: alone.Excess, After: throttled.Excess,
		Samples: throttled.Windows, Why: e.Why}
	f.Test = &Test{Job: e.Job, E: e.E, Verdict: result == detect.Success, Arms: e.Arms, Harm: e.Harm,
		Witness: e.Witness}
	t.l.report(f)
}

// analysis names the suspects. Antagonists are those whose test has ended in a verdict.
func (t *trials) analysis(f *Finding, e *experiment.Event) {
	f.Spec = specOf(e)
	f.Normal = detect.Normal{Band: -1, CPI: f.Spec.Mean, StdDev: f.Spec.StdDev, Samples: f.Spec.Samples}
	f.Verdict = detect.None
	testing := false
	for i := range e.Suspects {
		s := &e.Suspects[i]
		refs := t.d.Containers(s.Job)
		if i < maxSuspects && len(refs) > 0 {
			c := t.d.Container(refs[0])
			f.Suspects = append(f.Suspects, Suspect{Container: c, Score: s.Correlation, Prior: s.Prior, EValue: s.E,
				Shares: shared(t.l.topology, e.Victim.Place.CPUs, c.Place.CPUs)})
		}
		switch t.d.Stage(e.Victim, s.Job) {
		case experiment.Verdict:
			for _, ref := range refs {
				f.Antagonists = append(f.Antagonists, t.d.Container(ref))
			}
		case experiment.Testing:
			testing = true
		case experiment.Parked, experiment.Resting:
		}
	}
	switch {
	case len(f.Antagonists) > 0:
		f.Verdict = detect.Cap
	case testing:
		f.Verdict = detect.Test
	case len(e.Suspects) > 0 && e.Suspects[0].Prior >= experiment.PriorToTest:
		f.Verdict = detect.Observe
		s := &e.Suspects[0]
		f.Why = fmt.Sprintf("%s is the most suspicious (score %.1f; %.0f %% of those with such a score are guilty, on "+
			"simulated machines), and untested: %s", s.Job, s.Prior, 100*experiment.PrecisionOf(s.Prior), e.Why)
	}
}

// commands are findings of a job's containers: a cap, an eviction that is wished for.
func (t *trials) commands(f *Finding, e *experiment.Event, at func(time.Time) time.Time, found map[string]*Finding) {
	for _, th := range e.Throttles {
		one := *f
		one.Kind, one.Target = detect.CommandEvent, t.d.Container(th.Container)
		if e.Kind == experiment.EvictEvent {
			one.Command = detect.DoEvict
			t.l.report(&one)
			continue
		}
		one.Until, found[one.Target.ID] = at(e.Until), &one
		switch e.Step {
		case experiment.ByIdling:
			one.Command = detect.DoIdle
		case experiment.ByBandwidth:
			one.Command = detect.DoNarrow
		case experiment.ByMove:
			one.Command, one.Off = detect.DoMove, e.Off.Off.String()
		case experiment.ByQuota:
			one.Command, one.Milli = detect.DoCap, th.Milli
		}
	}
}
