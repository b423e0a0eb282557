package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/quietcore/quietcore/cpi/counter"
	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/loop"
	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/cpi/sampler"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/sysfs"
)

// A second here stands for a minute of the daemon.
const (
	interval = time.Second
	window   = 500 * time.Millisecond
	turn     = 8 // windows for which the antagonist stands still, then runs
)

// experiment holds the loads, their cgroups and what was measured.
type experiment struct {
	plan
	hierarchy
	folder string               // below its root
	loads  map[string]*exec.Cmd // by name

	mu      sync.Mutex // guards what follows
	machine *policy.Machine
	view    *loop.View
	windows int
	record  *record
}

func run(ctx context.Context, p plan, h hierarchy, c *counter.Counter) (result *record, err error) {
	s := newExperiment(p, h)
	defer func() { err = errors.Join(err, s.cleanUp()) }()
	if err := s.build(); err != nil {
		return nil, err
	}
	cfg := detect.DefaultConfig()
	cfg.Period, cfg.OutlierWindow, cfg.Window, cfg.History = interval, 5*interval, 10*interval, 60*interval
	cfg.CapFor, cfg.MoveFor, cfg.RespecEvery = 10*interval, 10*interval, 10*interval
	cfg.MinTasks, cfg.MinTaskSamples, cfg.Enforce = 1, max(p.learn*2/3, 1), true
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l, err := loop.New(loop.Options{
		Detector: cfg, Submit: s.submit, OnFinding: s.onFinding,
	})
	if err != nil {
		return nil, err
	}
	// A floor above the number of CPUs rules out moving the BE pool: only caps remain.
	s.view = loop.NewView("this machine", func(*policy.Snapshot) int { return 1 << 20 })
	counts := sampler.New(sampler.Options{Counter: c, Node: s.node, CgroupID: s.cgroupID, Interval: interval,
		Window: window, Waits: true, Rules: sample.Hardware(window)})
	counts.Subscribe(l.Take)
	counts.Subscribe(func(w *sampler.Window) {
		if s.onWindow(w) {
			cancel()
		}
	})
	var judge sync.WaitGroup
	judge.Go(func() { l.Run(ctx) })
	counts.Run(ctx)
	judge.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record, nil
}

func newExperiment(p plan, h hierarchy) *experiment {
	return &experiment{plan: p, hierarchy: h, folder: fmt.Sprintf("quietcore-pmucheck-%d", os.Getpid()),
		loads: map[string]*exec.Cmd{}, record: &record{}}
}

// build creates the cgroups, starts the loads in them and announces them to the policy.
func (s *experiment) build() error {
	t, _, err := sysfs.Read(os.DirFS("/sys"))
	if err != nil {
		return err
	}
	if s.machine, err = policy.New(t, policy.Config{}); err != nil {
		return err
	}
	if err := s.make(s.folder); err != nil {
		return err
	}
	for name, class := range map[string]policy.Class{victim: policy.LS, antagonist: policy.BE, innocent: policy.BE} {
		if err := s.start(name, class); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return s.stop(antagonist, true)
}

// stop has a load stand still, or go on.
func (s *experiment) stop(name string, still bool) error {
	signal := syscall.SIGCONT
	if still {
		signal = syscall.SIGSTOP
	}
	return s.loads[name].Process.Signal(signal)
}

func (s *experiment) start(name string, class policy.Class) error {
	if err := os.Mkdir(s.path(name), 0o755); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "-load", name, "-threads", fmt.Sprint(s.threads))
	cmd.Stderr = os.Stderr
	err = s.hierarchy.start(cmd, s.path(name))
	if cmd.Process != nil {
		s.loads[name] = cmd
	}
	if err != nil {
		return err
	}
	qos := policy.BestEffort
	if class == policy.LS {
		qos = policy.Burstable
	}
	unlimited := policy.Resources{LimitMilli: policy.NoLimit}
	pod := policy.Pod{
		UID: name, Sandbox: name, Namespace: "pmucheck", Name: name, QoS: qos,
		Labels: map[string]string{policy.LabelClass: string(class)},
		Facts:  &policy.PodFacts{UID: name, Owner: "Job/" + name, Resources: unlimited},
	}
	for _, e := range []policy.Event{policy.PodRun{Pod: pod},
		policy.ContainerCreate{Pod: pod, Container: policy.Container{ID: name, Sandbox: name, Name: "main",
			CgroupPath: filepath.Join("/", s.folder, name), Resources: unlimited}}} {
		if _, err := s.machine.Step(time.Now(), e); err != nil {
			return err
		}
	}
	return nil
}

// cleanUp kills the loads and removes the cgroups.
func (s *experiment) cleanUp() error {
	var errs []error
	for _, cmd := range s.loads {
		errs = append(errs, cmd.Process.Kill())
	}
	for _, cmd := range s.loads {
		_ = cmd.Wait() // killed
	}
	for _, name := range []string{victim, antagonist, innocent, ""} {
		if err := os.Remove(s.path(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (s *experiment) path(name string) string {
	return filepath.Join(s.hierarchy.root, s.folder, name)
}

// submit steps the policy and applies caps.
func (s *experiment) submit(_ context.Context, e policy.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.machine.Step(time.Now(), e); err != nil {
		return err
	}
	switch e := e.(type) {
	case policy.CapVerdict:
		return s.limit(s.path(e.ID), e.Milli)
	case policy.CapReleased:
		return s.limit(s.path(e.ID), 0)
	}
	return nil
}

func (s *experiment) node() sampler.Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.view.Node(s.machine.Snapshot())
}

func (s *experiment) cgroupID(cgroup string) (uint64, error) {
	info, err := os.Lstat(filepath.Join(s.hierarchy.root, cgroup))
	if err != nil {
		return 0, err
	}
	return info.Sys().(*syscall.Stat_t).Ino, nil
}

// onFinding records the detector's caps and their outcomes.
func (s *experiment) onFinding(f *loop.Finding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case f.Kind == detect.CommandEvent && f.Command == detect.DoCap:
		s.record.capped(f.Target.Pod, f.Why)
	case f.Kind == detect.OutcomeEvent:
		s.record.ended(f.Target.Pod, string(f.Outcome.Result))
	}
}

// onWindow records a window, and stops the antagonist or lets it go on. It returns true when
// the experiment is over: a cap has ended, or its time has.
func (s *experiment) onWindow(w *sampler.Window) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.windows++
	if w.Failed != nil {
		fmt.Printf("%4d  nothing was counted: %v\n", s.windows, w.Failed)
	} else {
		s.record.window(s.windows, w)
		fmt.Println(s.record.line())
	}
	since := s.record.since(s.windows, s.learn)
	still := since < 0 || since/turn%2 != 0
	if err := s.stop(antagonist, still && !s.record.inForce()); err != nil {
		fmt.Fprintln(os.Stderr, "pmucheck:", err)
	}
	return since >= s.disturb || s.record.over()
}
