package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

// A minute of the daemon is a second here.
const (
	interval = time.Second
	window   = 500 * time.Millisecond
	turn     = 8 // windows that the antagonist rests, and works
)

// stage is the machine while the loads play.
type stage struct {
	plan
	folder string // below root
	loads  []*exec.Cmd

	mu      sync.Mutex // guards what follows
	machine *policy.Machine
	view    *loop.View
	windows int
	saw     *sight
}

func run(ctx context.Context, p plan, c *counter.Counter) (saw *sight, err error) {
	s := &stage{plan: p, folder: fmt.Sprintf("quietcore-pmucheck-%d", os.Getpid()), saw: &sight{learn: p.learn}}
	defer func() { err = errors.Join(err, s.strike()) }()
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
		Detector: cfg, Submit: s.submit, Told: s.told,
	})
	if err != nil {
		return nil, err
	}
	status := c.Status()
	var present [sample.NumEvents]bool
	for _, e := range counter.Events() {
		present[e] = status.Sources[e].Kind == counter.Hardware
	}
	// Best effort keeps more CPUs than there are, so that nothing is moved, only capped.
	s.view = loop.NewView("this machine", present[sample.RefCycles], func(*policy.Snapshot) int { return 1 << 20 })
	counts := sampler.New(sampler.Options{Counter: c, Node: s.node, Life: s.life, Interval: interval, Window: window,
		Rules: sample.Hardware(window)}, present, true)
	counts.Subscribe(l.Take)
	counts.Subscribe(func(w *sampler.Window) {
		if s.look(w) {
			cancel()
		}
	})
	var judge sync.WaitGroup
	judge.Go(func() { l.Run(ctx) })
	counts.Run(ctx)
	judge.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.saw, nil
}

// build makes the cgroups, starts the loads in them and has the policy know them.
func (s *stage) build() error {
	t, _, err := sysfs.Read(os.DirFS("/sys"))
	if err != nil {
		return err
	}
	if s.machine, err = policy.New(t, policy.Config{}); err != nil {
		return err
	}
	if err := os.Mkdir(s.path(""), 0o755); err != nil {
		return err
	}
	for _, parent := range []string{s.root, s.path("")} {
		if err := os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), []byte("+cpu"), 0); err != nil {
			return fmt.Errorf("the cpu controller is needed below %s: %w", parent, err)
		}
	}
	for name, class := range map[string]policy.Class{victim: policy.LS, antagonist: policy.BE, innocent: policy.BE} {
		if err := s.start(name, class); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return s.write(antagonist, "cgroup.freeze", "1")
}

func (s *stage) start(name string, class policy.Class) error {
	if err := os.Mkdir(s.path(name), 0o755); err != nil {
		return err
	}
	dir, err := os.Open(s.path(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "-load", name, "-threads", fmt.Sprint(s.threads))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd()), Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.loads = append(s.loads, cmd)
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

// strike ends the loads and removes the cgroups.
func (s *stage) strike() error {
	var errs []error
	for _, cmd := range s.loads {
		errs = append(errs, cmd.Process.Kill())
	}
	if len(s.loads) > 0 {
		errs = append(errs, s.write(antagonist, "cgroup.freeze", "0"))
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

func (s *stage) path(name string) string { return filepath.Join(s.root, s.folder, name) }

func (s *stage) write(name, file, text string) error {
	return os.WriteFile(filepath.Join(s.path(name), file), []byte(text), 0)
}

// submit has the policy decide, and carries out what is about caps.
func (s *stage) submit(_ context.Context, e policy.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.machine.Step(time.Now(), e); err != nil {
		return err
	}
	switch e := e.(type) {
	case policy.CapVerdict:
		return s.write(e.ID, "cpu.max", fmt.Sprintf("%d 100000", max(e.Milli*100, 1000)))
	case policy.CapReleased:
		return s.write(e.ID, "cpu.max", "max 100000")
	}
	return nil
}

func (s *stage) node() sampler.Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.view.Node(s.machine.Snapshot())
}

func (s *stage) life(cgroup string) (uint64, error) {
	info, err := os.Lstat(filepath.Join(s.root, cgroup))
	if err != nil {
		return 0, err
	}
	return info.Sys().(*syscall.Stat_t).Ino, nil
}

// told keeps what the detector did.
func (s *stage) told(f *loop.Finding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case f.Kind == detect.CommandEvent && f.Command == detect.DoCap:
		s.saw.capped(f.Target.Pod, f.Why)
	case f.Kind == detect.OutcomeEvent:
		s.saw.ended(f.Target.Pod, string(f.Outcome.Result))
	}
}

// look takes a window, has the antagonist rest or work, and says whether the play is
// over: its time is, or a cap has ended.
func (s *stage) look(w *sampler.Window) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.windows++
	if w.Failed != nil {
		fmt.Printf("%4d  nothing was counted: %v\n", s.windows, w.Failed)
	} else {
		s.saw.window(s.windows, w)
		fmt.Println(s.saw.line())
	}
	since := s.windows - s.learn
	frozen := "1"
	if since >= 0 && since/turn%2 == 0 || s.saw.inForce() {
		frozen = "0"
	}
	if err := s.write(antagonist, "cgroup.freeze", frozen); err != nil {
		fmt.Fprintln(os.Stderr, "pmucheck:", strings.TrimSpace(err.Error()))
	}
	return since >= s.disturb || s.saw.over()
}
