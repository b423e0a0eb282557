package node

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/cgroup/cgrouptest"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// stepped is a core that a test steps by hand, over a kernel in memory whose effects fail
// or hang as the test says. It plays the runtime: what may start starts.
type stepped struct {
	t      *testing.T
	kernel *cgrouptest.Kernel
	topo   *topology.Topology
	core   *Core
	now    time.Time
	log    bytes.Buffer

	// fail is what an effect returns in place of being carried out; nil: it is carried out.
	fail func(*Effect) error
	// hangs reports which effects do not return before resume.
	hangs    func(*Effect) bool
	hanging  []*Effect
	done     []*Effect // carried out, in order
	queue    []func() In
	replies  map[*Request]Reply
	before   map[*Request]int // how much was done before the answer
	saved    state.Snapshot
	pods     map[string]policy.Pod       // that run, by UID
	ctrs     map[string]policy.Container // that run, by ID
	panicked bool                        // a panic is part of the test
}

var testGrid = topology.Grid{Sockets: 2, NodesPerSocket: 1, L3PerNode: 1, CoresPerL3: 4, ThreadsPerCore: 2}

func grid(t testing.TB, g topology.Grid) *topology.Topology {
	t.Helper()
	topo, err := g.Build()
	if err != nil {
		t.Fatal(err)
	}
	return topo
}

// newStepped is a core that has taken over an empty node.
func newStepped(t *testing.T, change ...func(*Options)) *stepped {
	t.Helper()
	s := newNode(t, testGrid)
	s.start(change...)
	s.synchronize()
	s.settle()
	return s
}

// newNode is a node without a core.
func newNode(t *testing.T, g topology.Grid) *stepped {
	t.Helper()
	topo := grid(t, g)
	s := &stepped{
		t: t, kernel: cgrouptest.New(topo.Online()), topo: topo, now: time.Unix(1e9, 0),
		pods: map[string]policy.Pod{}, ctrs: map[string]policy.Container{},
	}
	for _, path := range []string{"kubepods/burstable", "kubepods/besteffort"} {
		s.kernel.Mkdir(path, 0)
	}
	t.Cleanup(func() {
		if s.core != nil {
			s.core.Stop()
		}
		if !s.panicked && strings.Contains(s.log.String(), "panicked") {
			t.Error("the core panicked")
		}
		if t.Failed() {
			t.Log(s.log.String())
		}
	})
	return s
}

// start begins a daemon's life: it knows what was saved.
func (s *stepped) start(change ...func(*Options)) {
	s.t.Helper()
	if s.core != nil {
		s.core.Stop()
	}
	s.queue, s.hanging, s.done, s.replies = nil, nil, nil, map[*Request]Reply{}
	s.before = map[*Request]int{}
	o := Options{
		Topology: s.topo, Saved: s.saved, Stores: true, Tree: TreeOptions{Reads: true, Writes: true},
		Config: policy.Config{Authority: policy.Authority{Profile: policy.ProfileOpen}},
		Log:    slog.New(slog.NewTextHandler(&s.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, c := range change {
		c(&o)
	}
	core, err := New(o)
	if err != nil {
		s.t.Fatal(err)
	}
	s.core = core
}

// step gives the core an input, and lets everything happen that follows without time passing.
func (s *stepped) step(in In) {
	s.t.Helper()
	s.queue = append(s.queue, func() In { return in })
	s.run()
}

// run carries out effects one by one, and what is due.
func (s *stepped) run() {
	s.t.Helper()
	for range 1_000_000 {
		if len(s.queue) == 0 {
			if next := s.core.Next(); next.IsZero() || next.After(s.now) {
				return
			}
			s.queue = append(s.queue, func() In { return Wake{} })
		}
		next := s.queue[0]
		s.queue = s.queue[1:]
		s.take(s.core.Step(s.now, next()))
	}
	s.t.Fatal("the core finds no end of work")
}

func (s *stepped) take(out Out) {
	s.t.Helper()
	for _, r := range out.Replies {
		if _, twice := s.replies[r.To]; twice {
			s.t.Errorf("a request is answered twice: %+v", r.To.Event)
		}
		s.replies[r.To], s.before[r.To] = r, len(s.done)
		s.obey(r)
	}
	for _, e := range out.Effects {
		if s.hangs != nil && s.hangs(e) {
			s.hanging = append(s.hanging, e)
			continue
		}
		s.queue = append(s.queue, func() In { return Done{Op: e.Op, Result: s.perform(e)} })
	}
}

func (s *stepped) perform(e *Effect) *Result {
	s.done = append(s.done, e)
	if s.fail != nil {
		if err := s.fail(e); err != nil {
			return &Result{Err: err}
		}
	}
	b := Backend{Driver: s.kernel, Reader: s.kernel, Save: func(next state.Snapshot) error {
		s.saved = next
		return nil
	}}
	return b.Perform(context.Background(), e)
}

// resume lets what hangs come back: all, or those that which names.
func (s *stepped) resume(which ...func(*Effect) bool) {
	s.t.Helper()
	back := s.hanging
	s.hanging = nil
	for _, e := range back {
		if len(which) > 0 && !which[0](e) {
			s.hanging = append(s.hanging, e)
			continue
		}
		s.queue = append(s.queue, func() In { return Done{Op: e.Op, Result: s.perform(e)} })
	}
	s.run()
}

// pass lets time pass, from one timer to the next.
func (s *stepped) pass(d time.Duration) {
	s.t.Helper()
	until := s.now.Add(d)
	for next := s.core.Next(); !next.IsZero() && !next.After(until); next = s.core.Next() {
		if next.After(s.now) {
			s.now = next
		}
		s.run()
	}
	s.now = until
	s.run()
}

// settle lets time pass until everything is done.
func (s *stepped) settle() {
	s.t.Helper()
	for range 1000 {
		if s.core.Settled() {
			return
		}
		s.pass(100 * time.Millisecond)
	}
	s.t.Fatal("the core is still not settled")
}

// obey does what a runtime does with an answer, and fails if it starts a container that
// shares a CPU with an owner then.
func (s *stepped) obey(r Reply) {
	s.t.Helper()
	e, creates := r.To.Event.(policy.ContainerCreate)
	if !creates || r.Err != nil {
		return
	}
	c := e.Container
	s.kernel.Mkdir(c.CgroupPath, 1)
	if s.core.mode.observe { // the runtime gets no values, and owners have neighbours
		s.ctrs[c.ID] = c
		return
	}
	if mask := maskIn(r); mask != nil {
		v := cgroup.Values{CPUs: cgroup.Only(*mask)}
		if err := s.kernel.Apply(context.Background(), c.CgroupPath, v); err != nil {
			s.t.Fatal(err)
		}
	}
	s.ctrs[c.ID] = c
	s.apart("as " + c.ID + " starts")
}

// maskIn is the mask with which a runtime creates a container after a reply; nil: none.
func maskIn(r Reply) *cpuset.Set {
	switch d := r.Container; {
	case d == nil || r.To.Made:
		return nil
	case d.Need.Own != nil:
		return d.Need.Own
	default:
		return d.StartMask
	}
}

// apart requires that no other pod is on the CPUs of an owner that has started; best effort may
// run beside an owner of class LSR.
func (s *stepped) apart(when string) {
	s.t.Helper()
	if s.core.mode.observe {
		return // nobody keeps neighbours off an owner's CPUs
	}
	tasks := s.kernel.Tasks()
	for uid, own := range s.core.Grants() {
		p := s.pods[uid]
		if !s.hasStarted(p.Sandbox) {
			continue
		}
		for _, path := range slices.Sorted(maps.Keys(tasks)) {
			beside := p.Labels[policy.LabelClass] == string(policy.LSR) &&
				strings.HasPrefix(path, "kubepods/besteffort")
			on := tasks[path]
			if both := on.And(own); !both.IsEmpty() && !beside && !strings.Contains(path, "pod"+uid+"/") {
				s.t.Errorf("%s: %s is on %s, which %s owns", when, path, both, uid)
			}
		}
	}
}

func (s *stepped) hasStarted(sandbox string) bool {
	for _, c := range s.ctrs {
		if c.Sandbox == sandbox {
			return true
		}
	}
	return false
}

// on is where a container runs.
func (s *stepped) on(id string) string {
	s.t.Helper()
	return s.allows(s.ctrs[id].CgroupPath)
}

// allows is what a cgroup allows.
func (s *stepped) allows(path string) string {
	s.t.Helper()
	e, err := s.kernel.Effective(path)
	if err != nil {
		s.t.Fatal(err)
	}
	return e.CPUs.String()
}

func (s *stepped) want(id, cpus string) {
	s.t.Helper()
	if got := s.on(id); got != cpus {
		s.t.Errorf("container %s runs on %s, want %s", id, got, cpus)
	}
}

// podOf is a pod with a container main of so many milli-CPUs.
func podOf(name string, class policy.Class, qos policy.QoS, milli int64) policy.Pod {
	slice := map[policy.QoS]string{
		policy.Guaranteed: "kubepods", policy.Burstable: "kubepods/burstable", policy.BestEffort: "kubepods/besteffort",
	}[qos]
	r := policy.Resources{RequestMilli: milli, LimitMilli: milli}
	if qos != policy.Guaranteed {
		r.LimitMilli = policy.NoLimit
	}
	p := policy.Pod{
		UID: "uid-" + name, Sandbox: "sb-" + name, Namespace: "default", Name: name, QoS: qos,
		CgroupParent: slice + "/poduid-" + name, Resources: &r, Asked: policy.QuotaOf(r.LimitMilli),
		Labels: map[string]string{},
	}
	if class != "" {
		p.Labels[policy.LabelClass] = string(class)
	}
	return p
}

func lsr(name string, milli int64) policy.Pod {
	return podOf(name, policy.LSR, policy.Guaranteed, milli)
}
func lse(name string, milli int64) policy.Pod {
	return podOf(name, policy.LSE, policy.Guaranteed, milli)
}
func burstable(name string) policy.Pod  { return podOf(name, "", policy.Burstable, 100) }
func bestEffort(name string) policy.Pod { return podOf(name, policy.BE, policy.BestEffort, 0) }

// mainOf is the pod's container.
func mainOf(p policy.Pod) policy.Container {
	return policy.Container{
		ID: p.Name + "-main", Sandbox: p.Sandbox, Name: "main", Resources: *p.Resources,
		CgroupPath: p.CgroupParent + "/" + p.Name + "-main",
	}
}

// sandbox runs a pod's sandbox.
func (s *stepped) sandbox(p policy.Pod) {
	s.t.Helper()
	s.kernel.Mkdir(p.CgroupParent, 0)
	s.pods[p.UID] = p
	r := &Request{Event: policy.PodRun{Pod: p}, Pod: p.UID}
	s.step(r)
	if answer, ok := s.replies[r]; !ok || answer.Err != nil {
		s.t.Fatalf("pod %s: answered %t, error %v", p.Name, ok, answer.Err)
	}
}

// create asks for a pod's container, and has no deadline.
func (s *stepped) create(p policy.Pod) *Request {
	s.t.Helper()
	return s.createBy(p, time.Time{})
}

func (s *stepped) createBy(p policy.Pod, deadline time.Time) *Request {
	s.t.Helper()
	r := &Request{Event: policy.ContainerCreate{Pod: p, Container: mainOf(p)}, Pod: p.UID, Deadline: deadline}
	s.step(r)
	return r
}

// up runs pods, each with its container, and settles.
func (s *stepped) up(pods ...policy.Pod) {
	s.t.Helper()
	for _, p := range pods {
		s.sandbox(p)
		if r := s.create(p); !s.started(r) {
			s.t.Fatalf("container %s-main does not start: %v", p.Name, s.replies[r].Err)
		}
		s.settle()
	}
}

// started reports that a container was let start.
func (s *stepped) started(r *Request) bool {
	answer, ok := s.replies[r]
	return ok && answer.Err == nil
}

// owns is what a pod owns.
func (s *stepped) owns(p policy.Pod) cpuset.Set { return s.core.Grants()[p.UID] }

// remove ends a pod.
func (s *stepped) remove(p policy.Pod) {
	s.t.Helper()
	for id, c := range s.ctrs {
		if c.Sandbox == p.Sandbox {
			delete(s.ctrs, id)
		}
	}
	delete(s.pods, p.UID)
	s.kernel.Rmdir(p.CgroupParent)
	s.step(&Request{Event: policy.PodRemoved{Sandbox: p.Sandbox}, Pod: p.UID})
}

// listed is what the runtime lists.
func (s *stepped) listed() *Inventory {
	listed := &Inventory{}
	for _, uid := range slices.Sorted(maps.Keys(s.pods)) {
		listed.Pods = append(listed.Pods, s.pods[uid])
	}
	for i, id := range slices.Sorted(maps.Keys(s.ctrs)) {
		c := s.ctrs[id]
		if c.CreatedAt.IsZero() {
			c.CreatedAt = time.Unix(1e8+int64(i), 0)
		}
		listed.Containers = append(listed.Containers, c)
	}
	return listed
}

// synchronize has the core take over what runs, and has no deadline.
func (s *stepped) synchronize() *Request {
	s.t.Helper()
	return s.synchronizeBy(time.Time{})
}

func (s *stepped) synchronizeBy(deadline time.Time) *Request {
	s.t.Helper()
	r := &Request{Inventory: s.listed(), Deadline: deadline}
	s.step(r)
	return r
}

// writes are the paths that were written since done was emptied.
func (s *stepped) writes() []string {
	var paths []string
	for _, e := range s.done {
		if e.Kind == Write {
			paths = append(paths, e.Path)
		}
	}
	return paths
}

// places is where everything runs.
func (s *stepped) places() map[string]string {
	all := map[string]string{}
	for id := range s.ctrs {
		all[id] = s.on(id)
	}
	return all
}

func (s *stepped) wantPlaces(want map[string]string) {
	s.t.Helper()
	if got := s.places(); !maps.Equal(got, want) {
		for id := range got {
			if got[id] != want[id] {
				s.t.Errorf("container %s moved from %s to %s", id, want[id], got[id])
			}
		}
	}
	s.apart("at the end")
}

// isRead reports whether an effect only reads.
func isRead(e *Effect) bool { return e.Kind != Write && e.Kind != Save }

// at is an effect of a kind on a cgroup.
func at(kind EffectKind, path string) func(*Effect) bool {
	return func(e *Effect) bool { return e.Kind == kind && strings.Trim(e.Path, "/") == path }
}

func (s *stepped) wantHanging(n int, what string) {
	s.t.Helper()
	if len(s.hanging) != n {
		list := []string{}
		for _, e := range s.hanging {
			list = append(list, fmt.Sprint(e.Kind, " ", e.Path))
		}
		s.t.Fatalf("%s: under way are %q, want %d: the test shows nothing", what, list, n)
	}
}
