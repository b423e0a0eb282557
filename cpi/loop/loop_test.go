package loop

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/cpi/sampler"
	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/topodoc"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// node is a machine of the policy, and the load of its containers: web's five
// tasks, of which the first suffers while batch runs.
type node struct {
	t       *testing.T
	start   time.Time
	mu      sync.Mutex
	machine *policy.Machine
	view    *View
	events  []policy.Event
	notices []string
	found   []Finding
	window  int
	noisy   func(window int) bool // whether batch wants to run
	idle    func(window int) bool // whether web runs too little for a CPI
	threads func(batch *policy.ContainerView) int32
	alter   func(*sampler.Window) *sampler.Window // nil: windows are as they are
}

// newNode is a node whose kernel has no cpu.idle.
func newNode(t *testing.T, grid topology.Grid) *node {
	n := nodeWithIdle(t, grid)
	if err := n.submit(t.Context(), policy.IdleRefused{}); err != nil {
		t.Fatal(err)
	}
	n.events = nil
	return n
}

func nodeWithIdle(t *testing.T, grid topology.Grid) *node {
	topo, err := grid.Build()
	if err != nil {
		t.Fatal(err)
	}
	m, err := policy.New(topo, policy.Config{})
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, start: time.Now(), machine: m, view: NewView("test", nil), noisy: func(int) bool {
		return true
	}, idle: func(int) bool { return false }, threads: func(*policy.ContainerView) int32 { return 0 }}
	for i := range 5 {
		n.run(fmt.Sprint("web-", i), policy.LS, policy.Burstable, "Deployment/web")
	}
	n.run("steady", policy.BE, policy.BestEffort, "Job/steady")
	n.run("batch", policy.BE, policy.BestEffort, "Job/batch")
	return n
}

func (n *node) run(name string, class policy.Class, qos policy.QoS, owner string) {
	n.t.Helper()
	pod := policy.Pod{
		UID: name, Sandbox: name, Namespace: "default", Name: name, QoS: qos,
		Labels: map[string]string{policy.LabelClass: string(class)},
		Facts:  &policy.PodFacts{UID: name, Owner: owner, Resources: policy.Resources{LimitMilli: policy.NoLimit}},
	}
	c := policy.Container{ID: name + "-main", Sandbox: name, Name: "main", CgroupPath: "pods/" + name,
		Resources: policy.Resources{LimitMilli: policy.NoLimit}}
	for _, e := range []policy.Event{policy.PodRun{Pod: pod}, policy.ContainerCreate{Pod: pod, Container: c}} {
		if err := n.submit(context.Background(), e); err != nil {
			n.t.Fatal(err)
		}
	}
	n.events = nil
}

func (n *node) submit(_ context.Context, e policy.Event) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = append(n.events, e)
	_, err := n.machine.Step(time.Now(), e)
	return err
}

func (n *node) snapshot() *policy.Snapshot {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, err := n.machine.Step(time.Now(), policy.Tick{}); err != nil {
		n.t.Error(err)
	}
	return n.machine.Snapshot()
}

func (n *node) boot() time.Duration { return time.Since(n.start) + time.Hour }

// disturbed says whether batch hurts web-0 in this window: it runs, it is not
// capped and its CPUs lie in web's L3 domain.
func (n *node) next() *sampler.Window {
	s := n.snapshot()
	n.window++
	views := n.view.Node(s)
	w := &sampler.Window{Window: sample.Window{End: time.Now(), Boot: n.boot(), Length: 10 * time.Second,
		Reference: true},
		Topology: views.Topology}
	batch := 0.0
	for _, c := range s.Containers {
		if c.Pod == "batch" && n.noisy(n.window) {
			if batch = 2; c.CapMilli > 0 {
				batch = float64(c.CapMilli) / 1000
			}
		}
	}
	for i, c := range s.Containers {
		o := sample.Result{Container: views.Containers[i], Capped: views.Containers[i].Capped,
			Sample: sample.Sample{Length: w.Length, Reference: true, Usage: 1}}
		wobble := float64((n.window*7+i*3)%11) / 100
		switch {
		case c.Pod == "batch":
			o.Usage, o.CPI, o.Threads = max(batch, 0.01), 1, n.threads(c)
		case c.Pod == "web-0":
			o.CPI = 1 + wobble
			if batch > 1 && s.BE.Has(0) {
				o.CPI = 2.5 + wobble
			}
		default:
			o.CPI = 1 + wobble
		}
		if n.idle(n.window) && strings.HasPrefix(c.Pod, "web-") {
			o.Sample = sample.Sample{Length: w.Length, Usage: 1e-5, NoCPI: sample.Idle}
		}
		w.Containers = append(w.Containers, o)
	}
	return w
}

func config() detect.Config {
	c := detect.DefaultConfig()
	c.MinTaskSamples, c.MinTasks, c.Enforce = 10, 5, true
	return c
}

// play runs windows, one a minute, through a loop until it ends.
func (n *node) play(cfg detect.Config, windows int) *Loop {
	n.t.Helper()
	l, err := New(Options{
		Detector: cfg, Submit: n.submit, Clock: Clock{Boot: n.boot},
		Notify:    func(x policy.Notice) { n.notices = append(n.notices, x.Pod.Name+" "+x.Reason) },
		OnFinding: func(f *Finding) { n.found = append(n.found, *f) },
	})
	if err != nil {
		n.t.Fatal(err)
	}
	n.drive(l, windows)
	return l
}

func (n *node) drive(l *Loop, windows int) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); l.Run(ctx) }()
	for range windows {
		time.Sleep(time.Minute)
		w := n.next()
		if n.alter != nil {
			w = n.alter(w)
		}
		l.Take(w)
		synctest.Wait()
	}
	cancel()
	<-done
}

func (n *node) commands() string {
	var all []string
	for _, e := range n.events {
		switch e := e.(type) {
		case policy.CapVerdict:
			all = append(all, fmt.Sprintf("cap %s %dm", e.ID, e.Milli))
		case policy.CapReleased:
			all = append(all, "release "+e.ID)
		case policy.BEKeptOff:
			all = append(all, fmt.Sprintf("off %s %s %t", e.Victim, e.CPUs, e.For > 0))
		}
	}
	return strings.Join(all, ", ")
}

// idle until the specs are there, then on for a while and off for a while.
func bursts(window int) bool { return window > 30 && window%10 >= 4 }

func TestTheAntagonistIsCappedAndReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2})
		n.noisy = bursts
		l := n.play(config(), 120)
		got := n.commands()
		if !strings.HasPrefix(got, "cap batch-main 10m, release batch-main") || strings.Contains(got, "steady") ||
			strings.Contains(got, "off") {
			t.Errorf("commands: %s", got)
		}
		for _, want := range []string{"web-0 CPUInterference", "batch CPUCapped", "batch CPUCapLifted"} {
			if !slices.Contains(n.notices, want) {
				t.Errorf("no notice with %q: %v", want, n.notices)
			}
		}
		outcome := slices.IndexFunc(n.found, func(f Finding) bool { return f.Kind == detect.OutcomeEvent })
		if outcome < 0 || n.found[outcome].Outcome.Result != detect.Success ||
			n.found[outcome].Target.Job != "default/Job/batch/main" || n.found[outcome].Victim.Pod != "web-0" {
			t.Errorf("the outcome was not reported: %d", outcome)
		}
		if c := l.Counters(); c.Analyses == 0 || c.Samples == 0 || l.Replaced() != 0 {
			t.Errorf("counters: %+v", c)
		}
	})
}

// An analysis says what its suspects share with the victim, and what its threshold is
// measured from: the usage band that the victim is in, or in classic mode the whole job.
func TestAnalysesNamePlaceAndBand(t *testing.T) {
	for _, mode := range []detect.Mode{detect.Classic, detect.Contrast} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t, topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2})
			n.noisy = bursts
			cfg := config()
			cfg.Mode = mode
			n.play(cfg, 60)
			at := slices.IndexFunc(n.found, func(f Finding) bool { return f.Kind == detect.AnalysisEvent })
			if at < 0 {
				t.Fatal("nothing was analysed")
			}
			f := &n.found[at]
			for _, s := range f.Suspects {
				if s.Shares != "core" {
					t.Errorf("%s on CPUs %s beside the victim on %s shares %q", s.Pod, s.Place.CPUs,
						f.Victim.Place.CPUs, s.Shares)
				}
			}
			// One CPU is the third octave from 0.25 on.
			want := detect.Normal{Band: 2, CPI: 1.05}
			threshold := f.Normal.CPI * math.Exp(cfg.RobustSigmas*f.Normal.StdDev/f.Normal.CPI)
			if mode == detect.Classic {
				want = detect.Normal{Band: -1, CPI: 1.05}
				threshold = f.Normal.CPI + cfg.Sigmas*f.Normal.StdDev
			}
			if got := f.Normal; got.Band != want.Band || math.Abs(got.CPI-want.CPI) > 0.05 || got.Samples < 50 ||
				math.Abs(threshold/f.Threshold-1) > 1e-9 {
				t.Errorf("%v: normal is %+v, from which %.4f would be the threshold, which is %.4f", mode, got,
					threshold, f.Threshold)
			}
		})
	}
}

// An analysis says which resource the victim lacked, by its own samples and by who may run on
// its cores, where everybody sees it: in the reason.
func TestAnAnalysisNamesTheResource(t *testing.T) {
	for want, misses := range map[sample.Resource]float64{sample.Cache: 9, sample.Sibling: 0.1} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t, topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2})
			n.noisy = bursts
			l, err := New(Options{
				Detector: config(), Submit: n.submit, Clock: Clock{Boot: n.boot},
				OnFinding: func(f *Finding) { n.found = append(n.found, *f) },
				History: func(id string) []sample.Sample {
					if id != "web-0-main" {
						t.Errorf("asked for the history of %s", id)
					}
					return []sample.Sample{{CPI: 1, MPKI: 0.1, HasMPKI: true}, {CPI: 2.5, MPKI: misses, HasMPKI: true}}
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			n.drive(l, 60)
			at := slices.IndexFunc(n.found, func(f Finding) bool { return f.Kind == detect.AnalysisEvent })
			if at < 0 {
				t.Fatal("nothing was analysed")
			}
			f := &n.found[at]
			figures := fmt.Sprintf("; resource: %s (CPI 1.00, now 2.50, misses in 1,000 instructions 0.10, now %.2f)",
				want, misses)
			if f.Evidence == nil || f.Evidence.Resource != want || !strings.HasSuffix(f.Why, figures) {
				t.Errorf("%+v says %q, want %q", f.Evidence, f.Why, figures)
			}
		})
	}
}

func TestWhatCPUsShare(t *testing.T) {
	// CPUs 0-3 are an L3 domain, 0-7 a NUMA node
	topo, err := topology.Grid{NodesPerSocket: 2, L3PerNode: 2, CoresPerL3: 2, ThreadsPerCore: 2}.Build()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ a, b, want string }{
		{"0-3", "3-8", "core"}, {"0", "1", "core"}, {"0-1", "2-3", "L3"}, {"0-1", "4-5", "NUMA"}, {"0-7", "8-15", ""},
		{"0", "900", ""}, {"900", "900", ""},
	} {
		a, b := cpus(t, c.a), cpus(t, c.b)
		if got := shared(topo, a, b); got != c.want {
			t.Errorf("%s and %s share %q, want %q", c.a, c.b, got, c.want)
		}
		if shared(nil, a, b) != "" || shared(topo, nil, b) != "" || shared(topo, a, nil) != "" {
			t.Error("what is not known is shared")
		}
	}
}

func cpus(t *testing.T, list string) *cpuset.Set {
	t.Helper()
	s, err := cpuset.Parse(list)
	if err != nil {
		t.Fatal(err)
	}
	return &s
}

// A window without a CPI is a hole, not another platform: what was learned stays.
func TestIdleWindowsForgetNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2})
		n.noisy = func(int) bool { return false }
		n.idle = func(window int) bool { return window%5 == 4 } // never ten CPIs in a row
		for _, j := range n.play(config(), 30).Jobs() {
			if strings.Contains(j.Job, "web") && j.Source != detect.FromHere {
				t.Errorf("after 24 CPIs of each of five tasks the job has no spec: %+v", j)
			}
		}
	})
}

func TestBestEffortLeavesTheL3First(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, topology.Grid{L3PerNode: 2, CoresPerL3: 4, ThreadsPerCore: 2})
		n.noisy = bursts
		for _, e := range []policy.Event{policy.PodRemoved{Sandbox: "web-0"}} {
			if err := n.submit(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
		// The victim owns CPUs in one L3 domain, so that best effort can leave it.
		pod := policy.Pod{
			UID: "web-0", Sandbox: "web-0", Namespace: "default", Name: "web-0", QoS: policy.Guaranteed,
			Labels: map[string]string{policy.LabelClass: "LSR"},
			Facts: &policy.PodFacts{UID: "web-0", Owner: "Deployment/web",
				Resources: policy.Resources{RequestMilli: 2000, LimitMilli: 2000}},
		}
		c := policy.Container{ID: "web-0-main", Sandbox: "web-0", Name: "main",
			Resources: policy.Resources{RequestMilli: 2000, LimitMilli: 2000}}
		for _, e := range []policy.Event{policy.PodRun{Pod: pod}, policy.ContainerCreate{Pod: pod, Container: c}} {
			if err := n.submit(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
		n.events = nil
		n.play(config(), 60)
		if got := n.commands(); !strings.HasPrefix(got, "off web-0-main 0-7 true") || strings.Contains(got, "cap") {
			t.Errorf("commands: %s", got)
		}
	})
}

// An antagonist that answers its cap with threads is let go and left alone for an hour
// (P5). If the number is unknown, no harm is found.
func TestThreadsThatGrowUnderACapEndIt(t *testing.T) {
	for _, c := range []struct {
		name string
		text func(capped bool) string // of pids.current; empty: there is none
		harm bool
	}{
		{"eight, then eighty", func(capped bool) string {
			return map[bool]string{false: "8\n", true: "80\n"}[capped]
		}, true},
		{"eight throughout", func(bool) string { return "8\n" }, false},
		{"no file", func(bool) string { return "" }, false},
		{"the file is gone once capped", func(capped bool) string {
			return map[bool]string{false: "8\n"}[capped]
		}, false},
		{"the file comes once capped", func(capped bool) string {
			return map[bool]string{true: "80\n"}[capped]
		}, false},
		{"no number", func(capped bool) string { return map[bool]string{false: "8\n", true: "max\n"}[capped] }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t, topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2})
				n.noisy = bursts
				n.threads = func(batch *policy.ContainerView) int32 {
					cgroup := filepath.Join(folder, "batch")
					if err := errors.Join(os.RemoveAll(cgroup), os.Mkdir(cgroup, 0o700)); err != nil {
						t.Fatal(err)
					}
					if text := c.text(batch.CapMilli > 0); text != "" {
						if err := os.WriteFile(filepath.Join(cgroup, "pids.current"), []byte(text), 0o600); err != nil {
							t.Fatal(err)
						}
					}
					count, _ := sampler.ThreadsIn(folder)("/batch")
					return count
				}
				n.play(config(), 90)
				var harm, others int
				for _, f := range n.found {
					switch {
					case f.Kind != detect.OutcomeEvent:
					case f.Outcome.Result == detect.Harm:
						harm++
					default:
						others++
					}
				}
				if c.harm && (harm != 1 || others != 0 || n.commands() != "cap batch-main 10m, release batch-main") ||
					!c.harm && (harm != 0 || others == 0) {
					t.Errorf("%d caps were found to harm, %d not: %s", harm, others, n.commands())
				}
			})
		})
	}
}

func TestObservingOrdersNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2})
		n.noisy = bursts
		cfg := config()
		cfg.Enforce = false
		n.play(cfg, 80)
		if got := n.commands(); got != "" {
			t.Errorf("commands: %s", got)
		}
		if !slices.Contains(n.notices, "web-0 CPUInterference") {
			t.Errorf("no notice was published: %v", n.notices)
		}
	})
}

// A loop that is busy loses old windows, never the newest, and never blocks its callers.
func TestTakeNeverWaits(t *testing.T) {
	n := newNode(t, topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2})
	l, err := New(Options{Detector: config(), Submit: n.submit})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		l.Take(n.next())
	}
	last := n.next()
	l.Take(last)
	if l.Replaced() != 3 || (<-l.windows).Window != last {
		t.Errorf("%d windows were replaced", l.Replaced())
	}
}

// What was learned in one life is known in the next: the antagonist is found at once.
func TestWhatWasLearnedOutlivesTheDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2})
		n.noisy = func(w int) bool { return w > 40 && w%10 >= 4 }
		var saved []State
		first, err := New(Options{
			Detector: config(), Submit: n.submit, Clock: Clock{Boot: n.boot},
			Save: func(s State) error { saved = append(saved, s); return nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		n.drive(first, 35)
		if len(saved) != 4 {
			t.Fatalf("saved %d times in 35 minutes and at the end", len(saved))
		}
		second, err := New(Options{Detector: config(), Submit: n.submit,
			Clock: Clock{Boot: n.boot}})
		if err != nil {
			t.Fatal(err)
		}
		if err := second.Restore(saved[len(saved)-1]); err != nil {
			t.Fatal(err)
		}
		n.drive(second, 25)
		if got := n.commands(); !strings.HasPrefix(got, "cap batch-main 10m") {
			t.Errorf("commands: %s", got)
		}
	})
}

// What the policy refuses is reported as refused, never as done, and the next analysis
// says why nothing came of it.
func TestRefusalsReachTheDetector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2})
		n.noisy = bursts
		learned := 0
		l, err := New(Options{
			Detector: config(), Clock: Clock{Boot: n.boot},
			Submit: func(ctx context.Context, e policy.Event) error {
				if _, ok := e.(policy.CapVerdict); ok {
					return fmt.Errorf("pod default/batch is exempt")
				}
				return n.submit(ctx, e)
			},
			Notify:    func(x policy.Notice) { n.notices = append(n.notices, x.Pod.Name+" "+x.Reason) },
			OnFinding: func(f *Finding) { n.found = append(n.found, *f) },
			OnLearned: func(list []detect.Learned) { learned += len(list) },
		})
		if err != nil {
			t.Fatal(err)
		}
		n.drive(l, 90)
		if slices.Contains(n.notices, "batch CPUCapped") {
			t.Error("a refused cap was reported as a cap")
		}
		refused := slices.IndexFunc(n.found, func(f Finding) bool { return f.Kind == detect.OutcomeEvent })
		if refused < 0 || n.found[refused].Outcome.Result != detect.Refused ||
			n.found[refused].Why != "pod default/batch is exempt" {
			t.Fatalf("the refusal was not reported: %d", refused)
		}
		after := n.found[refused+1:]
		if i := slices.IndexFunc(after, func(f Finding) bool {
			return f.Kind == detect.AnalysisEvent
		}); i < 0 || !strings.Contains(after[i].Why, "is not capped: pod default/batch is exempt") {
			t.Errorf("the next analysis does not say why: %+v", after)
		}
		for _, f := range n.found {
			if f.Kind == detect.CommandEvent {
				t.Errorf("reported: %s", f.Command)
			}
		}
		if want := int(l.Counters().Samples); learned == 0 || learned >= want {
			t.Errorf("%d samples were learned of, of %d", learned, want)
		}
	})
}

// The cluster's word is enough for a job of which this node has seen nothing.
func TestTheClustersSpecs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2})
		n.noisy = func(w int) bool { return w%10 >= 4 }
		cfg := config()
		cfg.MinTaskSamples = 10000 // never learned here
		beside := make(chan struct{})
		var l *Loop
		l, err := New(Options{
			Detector: cfg, Submit: n.submit, Clock: Clock{Boot: n.boot},
			Background: func(ctx context.Context) {
				defer close(beside)
				for len(l.Jobs()) == 0 {
					select {
					case <-ctx.Done():
						return
					case <-time.After(time.Second):
					}
				}
				spec := detect.Spec{Job: "default/Deployment/web/main", Platform: "test", Mean: 1.05, StdDev: 0.05,
					Samples: 1e6, Tasks: 100}
				if refused := l.SetSpecs([]detect.Spec{spec}, 24*time.Hour); len(refused) > 0 {
					t.Error(refused)
				}
				spec.Mean = -1
				if refused := l.SetSpecs([]detect.Spec{spec}, 24*time.Hour); len(refused) != 1 {
					t.Error("a mean below 0 is believed")
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		n.drive(l, 40)
		<-beside
		if got := n.commands(); !strings.HasPrefix(got, "cap batch-main 10m") {
			t.Errorf("commands: %s", got)
		}
	})
}

func TestKindsOfCores(t *testing.T) {
	doc := topodoc.Doc{CPUs: []topodoc.CPU{{ID: 0, Kind: "performance"}, {ID: 1, Core: 1, Kind: "efficiency"}}}
	hybrid, _, err := doc.Build(nil)
	if err != nil {
		t.Fatal(err)
	}
	even, err := topology.Grid{CoresPerL3: 2}.Build()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		topo *topology.Topology
		cpus cpuset.Set
		want string
	}{
		{hybrid, cpuset.Of(0), " performance"}, {hybrid, cpuset.Of(1), " efficiency"},
		{hybrid, cpuset.Of(0, 1), " mixed"},
		{even, cpuset.Of(0), ""},
	} {
		if got := kindOf(c.topo, c.cpus); got != c.want {
			t.Errorf("CPUs %s: %q, want %q", c.cpus, got, c.want)
		}
	}
}

// A view has what the policy says of a container, and its platform distinguishes kinds of
// cycles apart.
func TestViews(t *testing.T) {
	n := newNode(t, topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2})
	s := n.snapshot()
	first := *s.Containers[0]
	first.Claims = "default/cpus"
	s.Containers = slices.Concat([]*policy.ContainerView{&first}, s.Containers[1:])
	views := NewView("EPYC", nil).Node(s)
	if len(views.Containers) != len(s.Containers) || views.Topology != s.Topology {
		t.Fatalf("%+v", views)
	}
	for i, c := range s.Containers {
		got := views.Containers[i]
		want := cpi.Container{ID: c.ID, PodUID: c.PodUID, Namespace: "default", Pod: c.Pod, Name: "main", Job: jobOf(c),
			PodClass: string(c.Class), Class: cpi.LS, Cgroup: c.Cgroup, Place: got.Place,
			Platform:   "EPYC",
			Claims:     c.Claims,
			LimitMilli: got.LimitMilli}
		if c.Class == policy.BE {
			want.Class = cpi.BE
		}
		if !reflect.DeepEqual(*got, want) || *got.Place.CPUs != s.CPUs(c) || got.PodUID == "" {
			t.Errorf("%s: %+v, want %+v", got, *got, want)
		}
	}
}

// What is normal in core cycles is learned apart from what is normal in reference cycles, and
// a container that has neither CPI keeps its platform of the window.
func TestCPIsInTwoKindsOfCyclesNeverMeet(t *testing.T) {
	l, err := New(Options{Detector: detect.DefaultConfig(), Submit: func(context.Context, policy.Event) error {
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	c := &cpi.Container{ID: "a", Job: "j", Class: cpi.LS, Platform: "EPYC"}
	for i, reference := range []bool{true, false, true, true} {
		w := &sampler.Window{Window: sample.Window{Reference: reference, Boot: time.Duration(i) * time.Minute,
			Containers: []sample.Result{{Container: c, Sample: sample.Sample{CPI: 1, Usage: 1, Counted: 1,
				Reference: reference}}}}}
		l.judge(t.Context(), &queued{Window: w})
		want := "EPYC"
		if !reference {
			want += CoreCycles
		}
		for _, j := range l.Jobs() {
			if (j.Containers == 1) != (j.Platform == want) {
				t.Errorf("reference cycles %t: %d containers on platform %q", reference, j.Containers, j.Platform)
			}
		}
	}
	if c.Platform != "EPYC" {
		t.Errorf("the view's platform became %q", c.Platform)
	}
}
