package plugin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/cgroup/cgrouptest"
	"github.com/quietcore/quietcore/policy"
)

// stepped is an enforcer that a test steps by hand over a kernel whose writes it
// lets fail.
type stepped struct {
	t      *testing.T
	kernel *cgrouptest.Kernel
	plugin *Plugin
	now    time.Time
	// fail is asked before each write.
	fail func(path string, v cgroup.Values) error
	// unseen are paths that the reader does not see for a while.
	unseen string
}

func newStepped(t *testing.T) *stepped {
	topo := grid(t, testGrid)
	s := &stepped{t: t, kernel: cgrouptest.New(topo.Online()), now: time.Unix(1e9, 0)}
	for _, path := range []string{"kubepods/burstable", "kubepods/besteffort"} {
		s.kernel.Mkdir(path, 0)
	}
	s.kernel.Before = func(path string, v cgroup.Values) error {
		if s.fail == nil {
			return nil
		}
		return s.fail(path, v)
	}
	p, err := New(Options{Topology: topo, Driver: s, Reader: &glimpse{s.kernel, s},
		Clock: Clock{Now: func() time.Time { return s.now }}})
	if err != nil {
		t.Fatal(err)
	}
	s.plugin = p
	s.step(policy.Synchronized{})
	s.settle()
	return s
}

// Apply is the kernel's, but for what is not seen.
func (s *stepped) Apply(ctx context.Context, path string, v cgroup.Values) error {
	if s.unseen != "" && strings.HasPrefix(path, s.unseen) {
		return cgroup.ErrGone
	}
	return s.kernel.Apply(ctx, path, v)
}

type glimpse struct {
	cgroup.Reader
	s *stepped
}

func (g *glimpse) CPUs(path string) (cgroup.Effective, error) {
	if g.s.unseen != "" && strings.HasPrefix(path, g.s.unseen) {
		return cgroup.Effective{}, cgroup.ErrGone
	}
	return g.Reader.CPUs(path)
}

// step lets the policy decide and hands that on to the enforcer.
func (s *stepped) step(event policy.Event) (uint64, []policy.Decision) {
	s.t.Helper()
	m := s.plugin.loop.machine
	decisions, err := m.Step(s.now, event)
	if err != nil {
		s.t.Fatal(err)
	}
	_, synchronized := event.(policy.Synchronized)
	return s.plugin.enforcer.put(batch{decisions: decisions, topo: m.Topology(), rev: m.Rev(),
		synchronized: synchronized}), decisions
}

func (s *stepped) turn() { s.plugin.enforcer.turn(context.Background()) }

func (s *stepped) settle() {
	for s.plugin.enforcer.turn(context.Background()) {
	}
}

func (s *stepped) pod(p spec) policy.Pod {
	s.kernel.Mkdir(strings.Trim(p.parent(), "/"), 0)
	return podOf(p.sandbox("sb-"+p.name), "")
}

func (s *stepped) run(p spec) { s.step(policy.PodRun{Pod: s.pod(p)}) }

// create steps the creation of an owner's container and returns the number of its
// batch and the CPUs that the pod owns.
func (s *stepped) create(p spec) (uint64, *cpuset.Set) {
	s.t.Helper()
	pod := s.pod(p)
	seq, decisions := s.step(policy.ContainerCreate{Pod: pod, Container: policy.Container{
		ID: p.name + "-main", Sandbox: pod.Sandbox, Name: "main",
		CgroupPath: strings.Trim(p.parent(), "/") + "/" + p.name + "-main",
		Resources:  policy.Resources{RequestMilli: p.ctrs[0].request, LimitMilli: p.ctrs[0].limit},
	}})
	for _, d := range decisions {
		if d, ok := d.(policy.SetContainer); ok && d.Container.ID == p.name+"-main" && d.Need.Own != nil {
			return seq, d.Need.Own
		}
	}
	s.t.Fatalf("pod %s owns no CPUs", p.name)
	return 0, nil
}

// started reports that the owner may start, and fails if others are on its CPUs then.
func (s *stepped) started(seq uint64, own *cpuset.Set, others ...string) bool {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // what is not decided by now is refused
	if err := s.plugin.enforcer.vacated(ctx, seq, own); err != nil {
		return false
	}
	for _, path := range others {
		e, err := s.kernel.Effective(path)
		if err != nil {
			s.t.Fatal(err)
		}
		if e.CPUs.Intersects(own) {
			s.t.Errorf("the owner of %s is started while %s runs on %s", own, path, e.CPUs)
		}
	}
	return true
}

var errDisk = errors.New("input/output error")

const web = "kubepods/burstable/poduid-web/web-main"

func (s *stepped) burstable() {
	s.kernel.Mkdir(web, 1)
	s.run(burstable("web"))
	s.settle()
}

// D1: a write fails, other news arrives, and while the write is tried again nobody
// may take what was held for free.
func TestWhileAFailedWriteIsTriedAgainItsCPUsStayHeld(t *testing.T) {
	s := newStepped(t)
	s.burstable()
	s.fail = func(path string, _ cgroup.Values) error {
		if path == "kubepods/burstable" {
			return errDisk
		}
		return nil
	}
	s.run(lsr("db", 4000))
	seq, own := s.create(lsr("db", 4000))
	s.turn()
	if s.started(seq, own, web) {
		t.Fatal("an owner is started although the others could not be moved")
	}
	tried := false
	s.fail = func(path string, _ cgroup.Values) error {
		if path != "kubepods/burstable" {
			return nil
		}
		tried = true
		if s.started(seq, own, web) { // it waits and looks while the write is tried again
			t.Error("an owner is started while the write is tried again")
		}
		return errDisk
	}
	s.plugin.enforcer.verify("db-main") // other news
	s.turn()
	if !tried {
		t.Fatal("the write was not tried again: the test shows nothing")
	}
	s.fail = nil
	s.plugin.enforcer.verify("db-main")
	s.turn()
	if !s.started(seq, own, web) {
		t.Error("the owner is refused although everybody has left its CPUs")
	}
}

// D6: what is left out since another write failed keeps owners out as if it had
// failed itself.
func TestAWriteThatIsLeftOutKeepsTheOwnerOut(t *testing.T) {
	s := newStepped(t)
	s.burstable()
	s.run(lse("a", 8000))
	s.settle()
	s.run(lse("b", 6000))
	s.settle() // web is left with two CPUs
	s.step(policy.PodRemoved{Sandbox: "sb-a"})
	s.turn() // and before the pool grows
	s.fail = func(path string, _ cgroup.Values) error {
		if strings.Contains(path, "poduid-c") {
			return errDisk
		}
		return nil
	}
	s.run(lsr("c", 2000))
	seq, own := s.create(lsr("c", 2000))
	before, err := s.kernel.Effective(web)
	if err != nil || !before.CPUs.Intersects(own) {
		t.Fatalf("c gets %s, web is on %s, %v: the test shows nothing", own, before.CPUs, err)
	}
	s.turn()
	s.started(seq, own, web)
	s.fail = nil
	s.plugin.enforcer.verify("c-main")
	s.turn()
	if !s.started(seq, own, web) {
		t.Error("the owner is refused although everybody has left its CPUs")
	}
}

// D7: a write that was given up may take effect later. Until the mask was read twice
// no owner gets what that would take back.
func TestAWriteInFlightKeepsOwnersOutUntilItsMaskWasReadTwice(t *testing.T) {
	s := newStepped(t)
	s.burstable()
	s.run(lse("a", 8000))
	s.settle()
	s.run(lse("b", 4000))
	s.settle()
	s.step(policy.PodRemoved{Sandbox: "sb-a"})
	var late cgroup.Values
	s.fail = func(path string, v cgroup.Values) error {
		if path == "kubepods/burstable" {
			late = v
			return fmt.Errorf("systemd does not answer: %w", cgroup.ErrInFlight)
		}
		return nil
	}
	s.settle() // the pool grows, and the write is given up
	if late.CPUs.IsZero() {
		t.Fatal("the pool did not grow: the test shows nothing")
	}
	s.fail = nil
	s.run(lsr("c", 8000))
	seq, own := s.create(lsr("c", 8000))
	s.turn()
	if s.started(seq, own, web) {
		t.Error("an owner is started although a write in flight may put others onto its CPUs")
	}
	if err := s.kernel.Apply(context.Background(), "kubepods/burstable", late); err != nil { // and so it does
		t.Fatal(err)
	}
	for range 3 {
		s.now = s.now.Add(time.Minute)
		s.plugin.enforcer.verify("c-main")
		s.settle()
	}
	if !s.started(seq, own, web) {
		t.Error("the owner is refused although everybody has left its CPUs for good")
	}
}

// D2b: a slice that cannot be seen for a moment is not gone with all that run in it.
func TestASliceOutOfSightIsNotGone(t *testing.T) {
	s := newStepped(t)
	s.burstable()
	s.unseen = "kubepods/burstable"
	s.run(lsr("db", 4000))
	seq, own := s.create(lsr("db", 4000))
	s.turn()
	if s.started(seq, own, web) {
		t.Error("an owner is started while nobody sees who is on its CPUs")
	}
	s.unseen = ""
	s.plugin.enforcer.verify("db-main")
	s.settle()
	if !s.started(seq, own, web) {
		t.Error("the owner is refused although everybody has left its CPUs")
	}
}
