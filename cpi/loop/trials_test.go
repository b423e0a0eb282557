package loop

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/experiment"
	"github.com/quietcore/quietcore/cpi/sampler"
	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// byExperiment is a loop on a node whose coins follow from a seed.
func (n *node) byExperiment(edit func(*Options)) *Loop {
	n.t.Helper()
	cfg := experiment.DefaultConfig()
	coins := rand.New(rand.NewPCG(1, 2))
	o := Options{
		Detector: detect.DefaultConfig(), Experiment: &cfg, Coin: coins.Float64, Submit: n.submit,
		Clock: Clock{Boot: n.boot}, Node: func() sampler.Node { return n.view.Node(n.snapshot()) },
		Notify:    func(x policy.Notice) { n.notices = append(n.notices, x.Pod.Name+" "+x.Reason) },
		OnFinding: func(f *Finding) { n.found = append(n.found, *f) },
	}
	if edit != nil {
		edit(&o)
	}
	l, err := New(o)
	if err != nil {
		n.t.Fatal(err)
	}
	return l
}

func (n *node) has(match func(*Finding) bool) bool {
	return slices.ContainsFunc(n.found, func(f Finding) bool { return match(&f) })
}

// TestByExperiment: the guilty alone is tested and capped, every throttle has a deadline
// of its own, and each coin is told.
func TestByExperiment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2})
		n.noisy = bursts
		learned := 0
		n.alter = func(w *sampler.Window) *sampler.Window {
			for i := range w.Containers {
				if w.Containers[i].Pod == "batch" {
					w.Containers[i].Usage *= 0.95 // 7 % of that is no whole percent
				}
			}
			return w
		}
		l := n.byExperiment(func(o *Options) { o.OnLearned = func(list []detect.Learned) { learned += len(list) } })
		n.drive(l, 240)
		for _, e := range n.events {
			switch e := e.(type) {
			case policy.CapVerdict:
				if e.ID != "batch-main" || e.For != 2*time.Minute || e.Milli < 10 || e.Milli%10 != 0 {
					t.Errorf("%+v", e)
				}
			case policy.CapReleased:
				if e.ID != "batch-main" {
					t.Errorf("%+v", e)
				}
			}
		}
		for _, f := range n.found {
			if f.Command == detect.DoCap && (f.Milli < 10 || f.Milli%10 != 0) {
				t.Errorf("a finding of %dm", f.Milli)
			}
		}
		for _, want := range []string{"batch CPUTested", "batch CPUCapped", "batch CPUCapLifted"} {
			if !slices.Contains(n.notices, want) {
				t.Errorf("no notice with %q", want)
			}
		}
		for name, match := range map[string]func(*Finding) bool{
			"coin on":  func(f *Finding) bool { return f.Kind == TestEvent && f.Test.On && f.Test.P > 0 },
			"coin off": func(f *Finding) bool { return f.Kind == TestEvent && !f.Test.On && f.Test.P > 0 },
			"proof": func(f *Finding) bool {
				return f.Kind == detect.OutcomeEvent && f.Outcome.Result == detect.Success &&
					f.Outcome.Kind == detect.DoCap && f.Victim.Job == "default/Deployment/web/main" &&
					f.Target.Job == "default/Job/batch/main" && f.Outcome.Before > 1.5 && f.Outcome.After < 1
			},
			"test": func(f *Finding) bool {
				return f.Kind == detect.AnalysisEvent && f.Verdict == detect.Test && f.Threshold > 1 &&
					f.CPI > f.Threshold
			},
			"a cap that ends": func(f *Finding) bool { return f.Command == detect.DoUncap && f.Why != "" },
		} {
			if !n.has(match) {
				t.Errorf("nothing was found such as %s", name)
			}
		}
		c := l.Counters()
		if c.Tests.Verdicts != 1 || c.Tests.Harm == 0 || c.Anomalies == 0 || learned == 0 {
			t.Errorf("%+v, %d samples learned", c, learned)
		}
		for _, j := range l.Jobs() {
			if strings.Contains(j.Job, "web") && (j.Source != detect.FromHere || j.Containers != 5 || j.Tasks != 5) {
				t.Errorf("%+v", j)
			}
		}
		last := n.commands()
		if strings.Contains(last, "steady") || strings.Contains(last, "web") {
			t.Error(last)
		}
	})
}

// TestNobodyIsThrottled: where nothing is enforced, nothing may be spent, or every coin
// falls on the other side, nothing is ordered. Then the most suspicious is named as
// untested.
func TestNobodyIsThrottled(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*Options)
		want detect.VerdictKind
	}{
		"observe": {func(o *Options) { o.Experiment.Enforce = false }, detect.Observe},
		"budget":  {func(o *Options) { o.Experiment.Budget = 0 }, detect.Observe},
		"coins":   {func(o *Options) { o.Coin = func() float64 { return 0.9999 } }, detect.Test},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t, topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2})
			n.noisy = bursts
			n.drive(n.byExperiment(c.edit), 120)
			if got := n.commands(); got != "" {
				t.Errorf("%s: %s", name, got)
			}
			if !n.has(func(f *Finding) bool {
				return f.Kind == detect.AnalysisEvent && f.Verdict == c.want && len(f.Suspects) > 0 &&
					f.Suspects[0].Job == "default/Job/batch/main" &&
					strings.Contains(f.Why, "untested") == (c.want == detect.Observe)
			}) {
				t.Errorf("%s: no analysis has the verdict %s", name, c.want)
			}
		})
	}
}

// TestNewbornsAreThrottled within seconds, where their job is.
func TestNewbornsAreThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2})
		n.noisy = bursts
		ctx, cancel := context.WithCancel(t.Context())
		l := n.byExperiment(nil)
		done := make(chan struct{})
		go func() { defer close(done); l.Run(ctx) }()
		defer func() { cancel(); <-done }()
		for range 240 {
			time.Sleep(time.Minute)
			l.Take(n.next())
			synctest.Wait()
			if strings.HasSuffix(n.commands(), "batch-main 10m") || strings.HasSuffix(n.commands(), "0m") {
				break
			}
		}
		n.run("batch-2", policy.BE, policy.BestEffort, "Job/batch")
		n.run("other", policy.BE, policy.BestEffort, "Job/other")
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if got := n.commands(); !strings.HasPrefix(got, "cap batch-2-main ") || strings.Contains(got, "other") {
			t.Errorf("six seconds after they were created: %q", got)
		}
	})
}

// TestCoinsAreSavedBeforeTheyTakeEffect, and what was saved goes on in the next daemon.
func TestCoinsAreSavedBeforeTheyTakeEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2})
		n.noisy = bursts
		var last State
		savedAt, caps := time.Time{}, 0
		l := n.byExperiment(func(o *Options) {
			o.Save = func(s State) error { last, savedAt = s, time.Now(); return nil }
			o.Submit = func(ctx context.Context, e policy.Event) error {
				if _, is := e.(policy.CapVerdict); is && caps >= 0 {
					if caps++; !savedAt.Equal(time.Now()) {
						t.Errorf("a throttle that is not saved: last saved %s ago", time.Since(savedAt))
					}
				}
				return n.submit(ctx, e)
			}
		})
		n.drive(l, 100)
		if caps == 0 || last.Experiment == nil || len(last.Experiment.Pairs) == 0 {
			t.Fatalf("%d throttles, saved %+v", caps, last)
		}
		second := n.byExperiment(nil)
		if err := second.Restore(last); err != nil {
			t.Fatal(err)
		}
		if err := second.Restore(State{Detector: &detect.State{}}); err == nil {
			t.Error("the state of another detector is taken")
		}
		n.drive(second, 140)
		if c := second.Counters(); c.Tests.Verdicts+l.Counters().Tests.Verdicts != 1 {
			t.Errorf("%+v after %+v", c.Tests, l.Counters().Tests)
		}
	})
}

// TestRefusedThrottlesAreReported once, and not as done.
func TestRefusedThrottlesAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2})
		n.noisy = bursts
		tried := 0
		n.drive(n.byExperiment(func(o *Options) {
			o.Submit = func(ctx context.Context, e policy.Event) error {
				if _, is := e.(policy.CapVerdict); is {
					tried++
					return errors.New("pod default/batch is exempt")
				}
				return n.submit(ctx, e)
			}
		}), 120)
		refused := 0
		for i := range n.found {
			if o := n.found[i].Outcome; o != nil && o.Result == detect.Refused {
				refused++
				if n.found[i].Why != "pod default/batch is exempt" || n.found[i].Victim == nil {
					t.Errorf("%+v", n.found[i])
				}
			}
		}
		if tried == 0 || refused != tried || tried > 120/5 || slices.Contains(n.notices, "batch CPUCapped") {
			t.Errorf("%d throttles were tried, %d refusals reported, notices %v", tried, refused, n.notices)
		}
	})
}

// TestIntervalsAreCounted by their beginnings: a window lies anywhere in its own.
func TestIntervalsAreCounted(t *testing.T) {
	n := newNode(t, topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2})
	boot := time.Hour
	l := n.byExperiment(func(o *Options) { o.Clock.Boot = func() time.Duration { return boot } })
	tr := l.detector.(*trials)
	for i, c := range []struct {
		begins, ends time.Duration // after an hour
		want         int64
	}{
		{0, 10 * time.Second, 60}, {time.Minute, 119 * time.Second, 1}, {2 * time.Minute, 130 * time.Second, 1},
		{5*time.Minute + 3*time.Millisecond, 359 * time.Second, 3},
	} {
		boot = time.Hour + c.begins
		l.Begin()
		boot = time.Hour + c.ends
		w := n.next()
		w.Boot = boot
		l.Take(w)
		q := <-l.windows
		if got := tr.steps(&q); got != c.want {
			t.Errorf("window %d: %d intervals, want %d", i, got, c.want)
		}
	}
}

// TestACapHidesNoLimit: what a throttle leaves must be the same in windows with and
// without it.
func TestACapHidesNoLimit(t *testing.T) {
	n := newNode(t, topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2})
	limited := policy.Resources{LimitMilli: 50}
	pod := policy.Pod{UID: "small", Sandbox: "small", Namespace: "default", Name: "small", QoS: policy.Burstable,
		Labels: map[string]string{policy.LabelClass: "BE"}, Facts: &policy.PodFacts{UID: "small", Resources: limited}}
	for _, e := range []policy.Event{policy.PodRun{Pod: pod}, policy.ContainerCreate{Pod: pod,
		Container: policy.Container{ID: "small-main", Sandbox: "small", Name: "main", Resources: limited}},
		policy.CapVerdict{ID: "small-main", Milli: 20, For: time.Hour}} {
		if err := n.submit(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	s := n.snapshot()
	views := n.view.Node(s)
	for i, c := range s.Containers {
		if c.ID == "small-main" && (c.QuotaMilli != 20 || views.Containers[i].LimitMilli != 50) {
			t.Errorf("quota %dm, limit %dm", c.QuotaMilli, views.Containers[i].LimitMilli)
		}
	}
}

// TestAVerdictMovesBeforeItCaps: who is found guilty leaves the CPUs around the victim, for as long as that helps.
// Where it does not, a quota follows. What is done is told, measured and taken back.
func TestAVerdictMovesBeforeItCaps(t *testing.T) {
	for name, helps := range map[string]bool{"helps": true, "does not": false} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t, topology.Grid{L3PerNode: 2, CoresPerL3: 4, ThreadsPerCore: 2})
			n.noisy = bursts
			n.pinned("db")
			var l *Loop
			moved, capped := 0, 0
			n.alter = func(w *sampler.Window) *sampler.Window {
				n.disturb(w, "db", helps)
				for _, th := range l.Throttles() {
					switch left := time.Until(th.Until); {
					case th.Off == "" && th.Verdict:
						capped++
					case th.Off == "":
					case th.Off != "0-7" || !th.Verdict || th.Target.Pod != "batch" || th.Victim.Pod != "db" ||
						left < 0 || left > 45*time.Minute ||
						!strings.HasPrefix(th.Why, "moved off CPUs 0-7 around default/Deployment/db"):
						t.Errorf("%s: %+v, for %s", name, th, left)
					default:
						moved++
					}
				}
				return w
			}
			l = n.byExperiment(nil)
			n.drive(l, 400)
			n.checkMoves(name)
			for reason, want := range map[string]bool{ReasonAway: true, ReasonBack: true, ReasonCapped: !helps} {
				if slices.Contains(n.notices, "batch "+reason) != want {
					t.Errorf("%s: a notice with %s: %t", name, reason, !want)
				}
			}
			if why := "off the CPUs around the victim it disturbs it"; helps == n.has(func(f *Finding) bool {
				return f.Command == detect.DoRestore && strings.HasPrefix(f.Why, why)
			}) {
				t.Errorf("%s: a move ends since %q: %t", name, why, helps)
			}
			c := l.Counters().Tests
			if c.Verdicts != 1 || c.Steps[experiment.ByMove].Begun != 1 ||
				(c.Steps[experiment.ByMove].Failed == 0) != helps || moved == 0 || (capped == 0) != helps ||
				helps && 10*c.Capped.Well[1] < 9*c.Capped.All[1] {
				t.Errorf("%s: %+v, %d windows moved, %d capped", name, c, moved, capped)
			}
			time.Sleep(2 * time.Minute) // its daemon is gone
			if s := n.snapshot(); n.cpusOf(s, "batch") != s.BE {
				t.Errorf("%s: in the end it has CPUs %s of %s", name, n.cpusOf(s, "batch"), s.BE)
			}
		})
	}
}

// checkMoves looks at the orders: a verdict comes first, each has a deadline of its own, and nobody else is moved.
func (n *node) checkMoves(name string) {
	n.t.Helper()
	verdict := slices.IndexFunc(n.found, func(f Finding) bool { return f.Kind == detect.OutcomeEvent })
	move := slices.IndexFunc(n.found, func(f Finding) bool { return f.Command == detect.DoMove })
	if verdict < 0 || move < verdict || n.found[move].Off != "0-7" || n.found[move].Victim.Pod != "db" {
		n.t.Errorf("%s: the verdict is finding %d, the move %d", name, verdict, move)
	}
	for _, e := range n.events {
		if e, is := e.(policy.BEKeptOff); is && (e.Pod != "batch" ||
			e.For > 0 && (e.For != 2*time.Minute || e.CPUs != cpuset.Range(0, 7) || e.Least != 2 ||
				e.Victim != "db-main")) {
			n.t.Errorf("%s: %+v", name, e)
		}
	}
}

// pinned runs a pod on a core of its own.
func (n *node) pinned(name string) {
	n.t.Helper()
	own := policy.Resources{RequestMilli: 2000, LimitMilli: 2000}
	pod := policy.Pod{UID: name, Sandbox: name, Namespace: "default", Name: name, QoS: policy.Guaranteed,
		Resources: &own, Labels: map[string]string{policy.LabelClass: string(policy.LSR)},
		Facts: &policy.PodFacts{UID: name, Owner: "Deployment/" + name, Resources: own}}
	for _, e := range []policy.Event{policy.PodRun{Pod: pod}, policy.ContainerCreate{Pod: pod,
		Container: policy.Container{ID: name + "-main", Sandbox: name, Name: "main", Resources: own}}} {
		if err := n.submit(n.t.Context(), e); err != nil {
			n.t.Fatal(err)
		}
	}
	n.events = nil
}

// disturb a container while batch runs and, where that helps, has a CPU in its L3 domain; nobody else.
func (n *node) disturb(w *sampler.Window, victim string, near bool) {
	s, busy := n.snapshot(), false
	for i := range w.Containers {
		if c := &w.Containers[i]; c.Pod == "batch" {
			at := n.cpusOf(s, "batch")
			busy = c.Usage > 1 && (!near || at.Has(0))
		}
	}
	for i := range w.Containers {
		switch c := &w.Containers[i]; {
		case c.Pod == victim && busy:
			c.CPI = 2.5 + float64(n.window%11)/100
		case c.Pod == "web-0":
			c.CPI = 1 + float64(n.window%11)/100
		}
	}
}

func (n *node) cpusOf(s *policy.Snapshot, pod string) cpuset.Set {
	for _, c := range s.Containers {
		if c.Pod == pod {
			return s.CPUs(c)
		}
	}
	n.t.Fatalf("%s does not run", pod)
	return cpuset.Set{}
}
