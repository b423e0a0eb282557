package daemon

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/experiment"
	"github.com/quietcore/quietcore/cpi/loop"
	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/cpi/sampler"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/metrics"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// neighbours are a victim that is slow while the job batch is busy, and a steady job.
type neighbours struct {
	t      *testing.T
	began  time.Time
	mu     sync.Mutex
	m      *policy.Machine
	view   *loop.View
	minute int
}

func newNeighbours(t *testing.T) *neighbours {
	topo, err := topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2}.Build()
	if err != nil {
		t.Fatal(err)
	}
	m, err := policy.New(topo, policy.Config{})
	if err != nil {
		t.Fatal(err)
	}
	n := &neighbours{t: t, began: time.Now(), m: m, view: loop.NewView("test", nil)}
	n.run("web", policy.LS, policy.Burstable, "Deployment/web")
	n.run("batch", policy.BE, policy.BestEffort, "Job/batch")
	n.run("steady", policy.BE, policy.BestEffort, "Job/steady")
	return n
}

func (n *neighbours) run(name string, class policy.Class, qos policy.QoS, owner string) {
	pod := policy.Pod{UID: name, Sandbox: name, Namespace: "default", Name: name, QoS: qos,
		Labels: map[string]string{policy.LabelClass: string(class)},
		Facts:  &policy.PodFacts{UID: name, Owner: owner, Resources: policy.Resources{LimitMilli: policy.NoLimit}}}
	c := policy.Container{ID: name, Sandbox: name, Name: "main",
		Resources: policy.Resources{LimitMilli: policy.NoLimit}}
	for _, e := range []policy.Event{policy.PodRun{Pod: pod}, policy.ContainerCreate{Pod: pod, Container: c}} {
		if err := n.submit(n.t.Context(), e); err != nil {
			n.t.Fatal(err)
		}
	}
}

func (n *neighbours) submit(_ context.Context, e policy.Event) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, err := n.m.Step(time.Now(), e)
	return err
}

func (n *neighbours) snapshot() *policy.Snapshot {
	if err := n.submit(n.t.Context(), policy.Tick{}); err != nil {
		n.t.Error(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.m.Snapshot()
}

func (n *neighbours) boot() time.Duration { return time.Since(n.began) + time.Hour }

// window of a minute. batch is busy for six minutes in ten, once what is normal is known.
func (n *neighbours) window() *sampler.Window {
	s := n.snapshot()
	n.minute++
	node := n.view.Node(s)
	w := &sampler.Window{Topology: node.Topology,
		Window: sample.Window{End: time.Now(), Boot: n.boot(), Length: 10 * time.Second, Reference: true}}
	loud := n.minute > 50 && n.minute%10 >= 4
	for i, c := range s.Containers {
		loud = loud && (c.Pod != "batch" || c.CapMilli == 0)
		w.Containers = append(w.Containers, sample.Result{Container: node.Containers[i], Capped: c.CapMilli > 0,
			Sample: sample.Sample{Length: w.Length, Reference: true, Usage: 1}})
	}
	for i, c := range s.Containers {
		o := &w.Containers[i]
		o.CPI = 1 + float64((n.minute*7+i*3)%11)/100
		switch busy := n.minute > 50 && n.minute%10 >= 4; {
		case c.Pod == "web" && loud:
			o.CPI += 1.5
		case c.Pod == "batch" && busy && c.CapMilli > 0:
			o.Usage = float64(c.CapMilli) / 1000
		case c.Pod == "batch" && busy:
			o.Usage = 2
		case c.Pod == "batch":
			o.Usage = 0.001
		}
	}
	return w
}

func (n *neighbours) drive(l *loop.Loop, minutes int, until func() bool) {
	ctx, cancel := context.WithCancel(n.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); l.Run(ctx) }()
	for range minutes {
		time.Sleep(time.Minute)
		l.Take(n.window())
		synctest.Wait()
		if until() {
			break
		}
	}
	cancel()
	<-done
}

func experimenting(t *testing.T, edit func(*config.Config)) *counting {
	cfg := config.Default()
	cfg.CPI.Mode, cfg.State.Dir = config.CPIEnforce, t.TempDir()
	if edit != nil {
		edit(&cfg)
	}
	return newCounting(countingOptions{config: &cfg, node: &node{}, proven: newProven(),
		metrics: metrics.New("v", noStats), log: NewLog(t.Output(), config.LogText, nil)})
}

// options of a daemon's loop, on the neighbours' machine instead of the node's.
func (n *neighbours) options(p *counting, seed uint64) loop.Options {
	o := p.loopOptions()
	o.Submit, o.Clock, o.Coin = n.submit, loop.Clock{Boot: n.boot}, rand.New(rand.NewPCG(seed, 1)).Float64
	o.Node = func() sampler.Node { return n.view.Node(n.snapshot()) }
	return o
}

// coinOf the newest window that a state holds for batch.
func coinOf(s *experiment.State) (on bool) {
	newest := int64(-1)
	for i := range s.Pairs {
		for _, c := range s.Pairs[i].Process.Coins {
			if s.Pairs[i].Suspect == "default/Job/batch/main" && c.Window > newest {
				newest, on = c.Window, c.On
			}
		}
	}
	return on
}

// TestADaemonByExperiment: every coin is on disk before it takes effect; a daemon that is
// killed while one is in force leaves a throttle that ends by itself, and the next one goes on
// with the evidence.
func TestADaemonByExperiment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNeighbours(t)
		first := experimenting(t, nil)
		dir := first.o.config.State.Dir
		probes, killed := 0, loop.State{}
		o := n.options(first, 7)
		o.Submit = func(ctx context.Context, e policy.Event) error {
			if c, is := e.(policy.CapVerdict); is {
				saved, err := readLearned(learnedFile(dir, true), true)
				if err != nil || !coinOf(saved.Experiment) {
					t.Errorf("a throttle whose coin is not on disk: %v", err)
				}
				if c.ID != "batch" || c.For > 2*time.Minute {
					t.Errorf("%+v", c)
				}
				if probes++; probes == 3 {
					killed = saved // what a daemon that is killed now leaves behind
				}
			}
			return n.submit(ctx, e)
		}
		l, err := loop.New(o)
		if err != nil {
			t.Fatal(err)
		}
		n.drive(l, 240, func() bool { return probes >= 3 })
		if probes < 3 {
			t.Fatalf("%d probes", probes)
		}
		if got := n.m.Caps(); len(got) != 1 || got[0].PodUID != "batch" {
			t.Fatalf("in force: %+v", got)
		}
		if why := throttled(l); len(why) != 1 || why["batch"].Verdict || why["batch"].Victim != "default/web/main" ||
			!strings.Contains(why["batch"].Why, "tested whether it disturbs default/Deployment/web/main") {
			t.Errorf("it is throttled since %+v", why)
		}
		time.Sleep(2 * time.Minute)
		n.snapshot()
		if got := n.m.Caps(); len(got) != 0 {
			t.Errorf("two minutes after the daemon was killed: %+v", got)
		}
		if err := keepLearned(dir, &killed); err != nil {
			t.Fatal(err)
		}
		second := newCounting(first.o)
		if l, err = loop.New(n.options(second, 8)); err != nil {
			t.Fatal(err)
		}
		second.restore(l, true)
		if jobs := l.Jobs(); len(jobs) != 1 || jobs[0].Source != detect.FromHere {
			t.Errorf("the next daemon knows of %+v", jobs)
		}
		n.drive(l, 240, func() bool { return l.Counters().Tests.Verdicts > 0 })
		// The test of the first daemon goes on: none is begun.
		if why := throttled(l)["batch"]; !why.Verdict || !strings.Contains(why.Why, "it disturbs default/Deployment/") {
			t.Errorf("it is capped since %+v", why)
		}
		if c := l.Counters().Tests; c.Verdicts != 1 || c.Tests != 0 {
			t.Errorf("in the next daemon: %+v", c)
		}
	})
}

// TestWhoMayExperiment: where either mode observes, or the budget is 0, nobody is throttled.
func TestWhoMayExperiment(t *testing.T) {
	for name, c := range map[string]struct {
		edit  func(*config.Config)
		saves bool
		why   string
	}{
		"mode observe":     {func(c *config.Config) { c.Mode = config.Observe }, false, "nothing is enforced"},
		"cpi.mode observe": {func(c *config.Config) { c.CPI.Mode = config.CPIObserve }, true, "nothing is enforced"},
		"budget":           {func(c *config.Config) { c.CPI.Probe.Budget = 0 }, true, "the budget of probes is 0"},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := newNeighbours(t)
			p := experimenting(t, c.edit)
			o := n.options(p, 7)
			err := o.Save(loop.State{Experiment: new(experiment.State)})
			_, missing := os.Stat(learnedFile(p.o.config.State.Dir, true))
			if err != nil || (missing == nil) != c.saves || (p.kept.Load() == nil) != c.saves {
				t.Errorf("%s: something is written: %t, %v", name, missing == nil, err)
			}
			o.Submit = func(_ context.Context, e policy.Event) error {
				t.Errorf("%s: %+v", name, e)
				return nil
			}
			untested := ""
			o.OnFinding = func(f *loop.Finding) {
				if f.Kind == detect.AnalysisEvent && f.Verdict == detect.Observe {
					untested = f.Why
				}
			}
			l, err := loop.New(o)
			if err != nil {
				t.Fatal(err)
			}
			n.drive(l, 120, func() bool { return false })
			for _, want := range []string{fmt.Sprintf("untested: nobody is tested: %s", c.why),
				"default/Job/batch/main is the most suspicious", "% of those with such a score are guilty"} {
				if !strings.Contains(untested, want) {
					t.Errorf("%s: %q, want %q in it", name, untested, want)
				}
			}
		})
	}
}
