package plugin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"

	"github.com/quietcore/quietcore/internal/failpoint"
	"github.com/quietcore/quietcore/policy"
)

// session is one connection to the runtime: what the stub calls. The runtime
// calls one handler at a time and drops a plugin that takes too long.
type session struct {
	*Plugin
	stub     stub.Stub
	deadline time.Duration // for one handler
	memory   bool          // the runtime knows memory policies
}

// watchdogRuntime is the name under which the watchdog unblocks a stub that waits
// for ever to be configured; see connect.go.
const watchdogRuntime = "quietcore watchdog"

// Configure learns from the runtime how long a handler may take.
func (s *session) Configure(_ context.Context, _, runtime, version string) (api.EventMask, error) {
	if runtime == watchdogRuntime {
		return 0, errors.New("the runtime did not configure the plugin in time")
	}
	s.deadline = half(s.stub.RequestTimeout())
	s.o.Metrics.RequestTimeout(2 * s.deadline)
	nri := versionOfNRI(s.stub.RuntimeNRIVersion(), runtime, version)
	s.memory = atLeast(nri, 0, 11)
	events := subscription(nri)
	s.unsaid.Store(events != 0)
	s.o.Log.Info("registered with the runtime", "runtime", runtime, "version", version,
		"nri", nri, "deadline", s.deadline.String())
	return events, nil
}

// versionOfNRI is what the runtime says, or else what it is known to have. Releases
// of CRI-O leave out the v that the list of them has, distributions add to the version.
func versionOfNRI(said, runtime, version string) string {
	if said != "" && said != api.UnknownVersion {
		return said
	}
	if end := strings.IndexAny(version, "+~"); end >= 0 {
		version = version[:end]
	}
	known, err := api.InferVersionFromRuntime(runtime, "v"+strings.TrimPrefix(version, "v"))
	if err != nil {
		return ""
	}
	return known
}

// subscription is the events to ask for, 0 for all that there are handlers for. A
// runtime drops a plugin that asks for one that it does not know: containerd before
// 2.2 does not know those of a pod's resize, and an unknown one may not.
func subscription(nri string) api.EventMask {
	if nri != "" && atLeast(nri, 0, 10) {
		return 0
	}
	var events api.EventMask
	events.Set(api.Event_RUN_POD_SANDBOX, api.Event_STOP_POD_SANDBOX, api.Event_REMOVE_POD_SANDBOX,
		api.Event_CREATE_CONTAINER, api.Event_UPDATE_CONTAINER, api.Event_POST_UPDATE_CONTAINER,
		api.Event_START_CONTAINER,
		api.Event_POST_START_CONTAINER, api.Event_STOP_CONTAINER, api.Event_REMOVE_CONTAINER)
	return events
}

func half(timeout time.Duration) time.Duration {
	if timeout <= 0 {
		timeout = stub.DefaultRequestTimeout
	}
	return timeout / 2
}

// timed counts a handler's answer and the time to it.
func (s *session) timed(event string) func(error) {
	start := time.Now()
	return func(err error) {
		var refusal *policy.Refusal
		result := "ok"
		switch {
		case errors.As(err, &refusal):
			result = "refused"
		case late(err):
			result = "deadline"
		case err != nil:
			result = "error"
		}
		s.o.Metrics.Request(event, result, time.Since(start))
	}
}

func (s *session) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.deadline)
}

// Synchronize takes over everything that runs. What it finds stays where it is.
func (s *session) Synchronize(ctx context.Context, pods []*api.PodSandbox,
	containers []*api.Container) ([]*api.ContainerUpdate, error) {
	ctx, cancel := s.within(ctx)
	defer cancel()
	count, start := s.timed("Synchronize"), time.Now()
	listed := inventoryOf(pods, containers, s.o.Config.JobLabel, s.o.Clock.Now())
	err := s.synchronize(ctx, listed, s.deadline/2)
	if err != nil {
		err = fmt.Errorf("synchronize %d pods: %w", len(pods), err)
	}
	count(err)
	if err != nil {
		return nil, err
	}
	took := time.Since(start)
	s.o.Metrics.Synchronized(len(containers), took)
	s.o.Log.Info("synchronized", "pods", len(pods), "containers", len(containers), "took", took.String())
	s.at.at(failpoint.SyncReply)
	s.synced()
	return nil, nil
}

// RunPodSandbox is the moment of admission: an error refuses the pod.
func (s *session) RunPodSandbox(ctx context.Context, p *api.PodSandbox) error {
	ctx, cancel := s.within(ctx)
	defer cancel()
	pod := s.newPod(ctx, p)
	s.ending.name(pod.UID)
	count := s.timed("RunPodSandbox")
	o := s.loop.submit(ctx, policy.PodRun{Pod: pod}, nil)
	count(o.err)
	s.at.at(failpoint.RunReply)
	return s.answer(pod, o.err)
}

// newPod is a pod that is about to run, with what the API server says of it.
func (s *session) newPod(ctx context.Context, p *api.PodSandbox) policy.Pod {
	pod := podOf(p, s.o.Config.JobLabel)
	pod.CreatedAt = s.o.Clock.Now()
	if f, ok := s.o.Facts(pod.UID); ok {
		pod.Facts = &f
	}
	if s.o.Devices != nil && pod.QoS != policy.BestEffort { // whose place does not depend on it
		s.findDevices(ctx, &pod)
	}
	return pod
}

// findDevices asks where a pod's devices are: kubelet has chosen them by now.
func (s *session) findDevices(ctx context.Context, pod *policy.Pod) {
	nodes, err := s.o.Devices(ctx, pod.Namespace, pod.Name)
	if err != nil {
		s.o.Log.Debug("where a pod's devices are is not known", "pod", pod.Namespace+"/"+pod.Name, "err", err)
		return
	}
	if !nodes.IsEmpty() {
		pod.DeviceNodes = &nodes
	}
}

// UpdatePodSandbox is kubelet about to resize a pod; an error vetoes it.
func (s *session) UpdatePodSandbox(ctx context.Context, p *api.PodSandbox, _, r *api.LinuxResources) error {
	cpu := r.GetCpu()
	if !resizes(cpu) {
		return nil
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	pod := podOf(p, s.o.Config.JobLabel)
	count := s.timed("UpdatePodSandbox")
	o := s.loop.submit(ctx, policy.PodResized{Sandbox: pod.Sandbox, Shares: sharesIn(cpu),
		Quota: cpu.GetQuota().GetValue(), Period: periodIn(cpu)}, nil)
	count(o.err)
	s.enforcer.recheck(pod.UID) // kubelet has written the pod's quota
	s.at.at(failpoint.ResizeReply)
	return s.answer(pod, o.err)
}

// resizes says whether an update has a size, and not a place alone.
func resizes(cpu *api.LinuxCPU) bool {
	return cpu.GetShares().GetValue() != 0 || cpu.GetQuota().GetValue() != 0
}

// PostUpdatePodSandbox looks at the pod's quota once more.
func (s *session) PostUpdatePodSandbox(_ context.Context, p *api.PodSandbox) error {
	s.enforcer.recheck(podOf(p, "").UID)
	return nil
}

// StopPodSandbox releases nothing: the pod's containers may still be stopping,
// and a pod that only lost its sandbox gets a new one. But if its cgroup goes now,
// the pod has ended.
func (s *session) StopPodSandbox(_ context.Context, p *api.PodSandbox) error {
	s.ending.add(podOf(p, "").UID)
	return nil
}

// RemovePodSandbox is the end of a sandbox. A refused one comes here too.
func (s *session) RemovePodSandbox(ctx context.Context, p *api.PodSandbox) error {
	ctx, cancel := s.within(ctx)
	defer cancel()
	count := s.timed("RemovePodSandbox")
	err := s.loop.submit(ctx, policy.PodRemoved{Sandbox: clip(p.GetId())}, nil).err
	s.ending.announced(podOf(p, "").UID)
	count(err)
	s.forgiven(err)
	s.at.at(failpoint.RemoveReply)
	return nil
}

// CreateContainer places a container. The answer for one that owns CPUs is given
// once everybody else has left them.
func (s *session) CreateContainer(ctx context.Context, p *api.PodSandbox,
	c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	ctx, cancel := s.within(ctx)
	defer cancel()
	count := s.timed("CreateContainer")
	v, err := s.create(ctx, p, c)
	count(err)
	s.at.at(failpoint.CreateReply)
	if err != nil || s.o.Observe {
		return nil, nil, err
	}
	return v.adjustment(s.memory), nil, nil
}

func (s *session) create(ctx context.Context, p *api.PodSandbox, c *api.Container) (values, error) {
	pod := s.newPod(ctx, p)
	s.ending.name(pod.UID)
	ctr := containerOf(c, &pod, pod.CreatedAt)
	o := s.loop.submit(ctx, policy.ContainerCreate{Pod: pod, Container: ctr}, nil)
	if o.err != nil {
		if late(o.err) && !exclusive(&pod) {
			s.late.add(ctr.ID)
			// Unpinned it lands in the pool of its slice: safe, and the runtime goes on.
			// It is entered when it starts.
			s.o.Log.Error("no decision in time; the container starts in its slice's pool", "pod",
				podName(policy.PodRef{Namespace: pod.Namespace, Name: pod.Name}), "container", ctr.Name, "err", o.err)
			return values{}, nil
		}
		return values{}, s.answer(pod, o.err)
	}
	d, ok := subject(o.decisions, ctr.ID)
	if !ok {
		return values{}, nil
	}
	if err := s.clear(ctx, &o, &d, pod.CgroupParent); err != nil && !s.o.Observe {
		return values{}, s.answer(pod, &policy.Refusal{Code: "Busy", Message: err.Error() +
			"; the container is tried again"})
	}
	v := valuesOf(&d, o.topo)
	v.env = envOf(s.o.CPUsEnv, &d)
	return v, nil
}

// clear waits until a container can start without sharing a CPU that has an owner.
func (s *session) clear(ctx context.Context, o *outcome, d *policy.SetContainer, parent string) error {
	switch {
	case d.Need.Own != nil:
		if err := s.enforcer.vacated(ctx, o.seq, d.Need.Own); err != nil {
			return err
		}
		s.at.at(failpoint.CreateVacated)
	case o.placed > 0:
		return s.enforcer.masked(ctx, o.placed, strings.Trim(parent, "/"), o.exposed)
	}
	return nil
}

func late(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// UpdateContainer answers kubelet's own change with our whole desired state, so
// that what kubelet writes passes through us and ours wins.
func (s *session) UpdateContainer(ctx context.Context, p *api.PodSandbox, c *api.Container,
	r *api.LinuxResources) ([]*api.ContainerUpdate, error) {
	ctx, cancel := s.within(ctx)
	defer cancel()
	id := clip(c.GetId())
	s.ending.name(podOf(p, "").UID)
	if s.unsaid.Load() && resizes(r.GetCpu()) {
		defer s.enforcer.recheckSoon(podOf(p, "").UID) // kubelet may write the pod's quota, whatever we answer
	}
	count := s.timed("UpdateContainer")
	o := s.loop.submit(ctx, updateOf(id, r), nil)
	count(o.err)
	if o.err != nil {
		return nil, s.answer(podOf(p, ""), o.err)
	}
	d, ok := subject(o.decisions, id)
	if !ok || s.o.Observe {
		return nil, nil // nobody we placed: as kubelet says
	}
	if d.Need.Own != nil {
		if err := s.enforcer.vacated(ctx, o.seq, d.Need.Own); err != nil {
			// It keeps running where it is; the writer goes on and the audit repairs.
			s.o.Log.Error("an update is answered before its CPUs are free", "container", id, "err", err)
			return nil, nil
		}
		s.at.at(failpoint.UpdateVacated)
	}
	v := valuesOf(&d, o.topo)
	u := v.update(c.GetId())
	s.at.at(failpoint.UpdateReply)
	if u == nil {
		return nil, nil
	}
	return []*api.ContainerUpdate{u}, nil
}

// PostCreateContainer, StartContainer and PostStartContainer confirm that a
// container is there. One that slipped past its creation is entered now.
func (s *session) StartContainer(ctx context.Context, p *api.PodSandbox, c *api.Container) error {
	ctx, cancel := s.within(ctx)
	defer cancel()
	if id := clip(c.GetId()); !s.late.take(id) && s.knows(ctx, id) {
		return nil
	}
	_, err := s.create(ctx, p, c)
	return err
}

// knows says that the policy has a container.
func (s *session) knows(ctx context.Context, id string) bool {
	known := false
	err := s.loop.ask(ctx, func(m *policy.Machine) { known = m.Has(id) })
	return err == nil && known
}

// lateCreates are containers whose creation was answered without a decision. Whether the
// policy has them by now or not, nobody has waited until they may start.
type lateCreates struct {
	mu  sync.Mutex
	ids map[string]bool
}

// maxLate bounds how many are remembered: not every one starts.
const maxLate = 256

func (l *lateCreates) add(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ids == nil || len(l.ids) >= maxLate {
		l.ids = map[string]bool{}
	}
	l.ids[id] = true
}

// take says whether a container is one of them, and forgets it.
func (l *lateCreates) take(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	is := l.ids[id]
	delete(l.ids, id)
	return is
}

func (s *session) PostStartContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	s.enforcer.verify(clip(c.GetId()))
	return nil
}

// PostUpdateContainer reads back what the runtime made of an update.
func (s *session) PostUpdateContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	s.enforcer.verify(clip(c.GetId()))
	return nil
}

// StopContainer and RemoveContainer end a container, in whatever order and
// however often they come. What its pod owns stays with the pod.
func (s *session) StopContainer(ctx context.Context, _ *api.PodSandbox,
	c *api.Container) ([]*api.ContainerUpdate, error) {
	s.stopped(ctx, c, "StopContainer")
	return nil, nil
}

func (s *session) RemoveContainer(ctx context.Context, p *api.PodSandbox, c *api.Container) error {
	s.stopped(ctx, c, "RemoveContainer")
	s.ending.add(podOf(p, "").UID)
	return nil
}

func (s *session) stopped(ctx context.Context, c *api.Container, event string) {
	ctx, cancel := s.within(ctx)
	defer cancel()
	count := s.timed(event)
	err := s.loop.submit(ctx, policy.ContainerStopped{ID: clip(c.GetId())}, nil).err
	count(err)
	s.forgiven(err)
	s.at.at(failpoint.StopReply)
}

// Shutdown says that the runtime ends; the connection's end says it again.
func (s *session) Shutdown(context.Context) {
	s.o.Log.Info("the runtime shuts down")
}

// answer turns the policy's word into a handler's. Observing refuses nobody.
func (s *session) answer(pod policy.Pod, err error) error {
	if err == nil {
		return nil
	}
	var refusal *policy.Refusal
	if errors.As(err, &refusal) {
		s.o.Metrics.Rejected(refusal.Code)
	}
	s.refusals.note(s.o.Clock.Now(), pod, err)
	if s.o.Observe {
		return nil
	}
	return err
}

// forgiven is for events after which there is nothing to refuse: what they would
// have released is found by the collection of the vanished.
func (s *session) forgiven(err error) {
	if err != nil {
		s.o.Log.Error("an event was not taken; what it ends is collected later", "err", err)
	}
}
