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
	"github.com/quietcore/quietcore/plugin/node"
	"github.com/quietcore/quietcore/policy"
)

// session is one connection to the runtime: what the stub calls. The runtime
// calls one handler at a time and drops a plugin that takes too long.
type session struct {
	*Plugin
	stub     stub.Stub
	deadline time.Duration // for one handler
	memory   bool          // the runtime knows memory policies
	timers   sync.Pool     // *time.Timer, of handlers that have returned
}

// watchdogRuntime is the runtime's name with which the watchdog unblocks a stub that waits forever
// to be configured; see connect.go.
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
	s.unannounced.Store(!resizesPods(nri))
	s.rivals.connected()
	s.o.Log.Info("registered with the runtime", "runtime", runtime, "version", version,
		"nri", nri, "deadline", s.deadline.String())
	return subscription(nri), nil
}

// versionOfNRI is the NRI version that the runtime reports, or else the one that its version is known
// to have. CRI-O reports its version without the v in the library's list; distributions append to it.
func versionOfNRI(announced, runtime, version string) string {
	if announced != "" && announced != api.UnknownVersion {
		return announced
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

// subscription is the set of events to subscribe to. A runtime drops a plugin that subscribes to an event that it does
// not know, and an unknown runtime may know the oldest ones alone. containerd before 2.2 does not know a pod's resize.
func subscription(nri string) api.EventMask {
	var events api.EventMask
	events.Set(api.Event_RUN_POD_SANDBOX, api.Event_STOP_POD_SANDBOX, api.Event_REMOVE_POD_SANDBOX,
		api.Event_CREATE_CONTAINER, api.Event_UPDATE_CONTAINER, api.Event_POST_UPDATE_CONTAINER,
		api.Event_START_CONTAINER,
		api.Event_POST_START_CONTAINER, api.Event_STOP_CONTAINER, api.Event_REMOVE_CONTAINER)
	if resizesPods(nri) {
		events.Set(api.Event_UPDATE_POD_SANDBOX, api.Event_POST_UPDATE_POD_SANDBOX)
	}
	// One says that a container has passed all plugins. To validate would name them, but a daemon that dies while it
	// does makes the runtime refuse the container.
	events.Set(api.Event_POST_CREATE_CONTAINER)
	return events
}

func resizesPods(nri string) bool { return nri != "" && atLeast(nri, 0, 10) }

func half(timeout time.Duration) time.Duration {
	if timeout <= 0 {
		timeout = stub.DefaultRequestTimeout
	}
	return timeout / 2
}

// serve gives the core a request and waits for the reply. The core replies by the deadline; the
// handler gives up a little later, in case it does not.
func (s *session) serve(ctx context.Context, handler string, r *node.Request) node.Reply {
	late := s.timer(s.deadline + s.deadline/2)
	defer func() {
		late.Stop()
		s.timers.Put(late)
	}()
	start := time.Now()
	r.Deadline = s.runner.now().Add(s.deadline)
	reply := s.runner.submit(ctx, late.C, r)
	s.o.Metrics.Request(handler, resultOf(reply.Err), time.Since(start))
	return reply
}

// timer is a new timer or a used one, without an old tick in its channel.
func (s *session) timer(d time.Duration) *time.Timer {
	t, used := s.timers.Get().(*time.Timer)
	if !used {
		return time.NewTimer(d)
	}
	t.Reset(d)
	return t
}

// resultOf is the result label of a reply in metrics.
func resultOf(err error) string {
	switch {
	case refused(err):
		return "refused"
	case late(err):
		return "deadline"
	case err != nil:
		return "error"
	}
	return "ok"
}

func refused(err error) bool {
	var refusal *policy.Refusal
	return errors.As(err, &refusal)
}

func late(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// pass passes a failpoint, for tests.
func (s *session) pass(p failpoint.Point) { s.runner.at(p) }

// Synchronize takes over all running pods. They stay on their CPUs.
func (s *session) Synchronize(ctx context.Context, pods []*api.PodSandbox,
	containers []*api.Container) ([]*api.ContainerUpdate, error) {
	start := time.Now()
	s.lookAtClaims(ctx) // before owners get CPUs
	listed := inventoryOf(pods, containers, *s.jobLabel.Load(), s.o.Clock.Now())
	if err := s.serve(ctx, "Synchronize", &node.Request{Inventory: &listed}).Err; err != nil {
		return nil, fmt.Errorf("synchronize %d pods: %w", len(pods), err)
	}
	took := time.Since(start)
	s.o.Metrics.Synchronized(len(containers), took)
	s.o.Log.Info("synchronized", "pods", len(pods), "containers", len(containers), "took", took.String())
	s.pass(failpoint.SyncReply)
	s.connected.Store(true)
	s.synchronised.Store(true)
	return nil, nil
}

// RunPodSandbox is the moment of admission: an error refuses the pod.
func (s *session) RunPodSandbox(ctx context.Context, p *api.PodSandbox) error {
	pod := s.newPod(ctx, p)
	r := s.serve(ctx, "RunPodSandbox", &node.Request{Pod: pod.UID, Event: policy.PodRun{Pod: pod}})
	s.pass(failpoint.RunReply)
	err := s.answer(pod, r.Err)
	if s.refusals.admitted(s.o.Clock.Now(), &pod, err) {
		s.o.Changed()
	}
	return err
}

// newPod is a pod that is about to run, with the API server's facts about it.
func (s *session) newPod(ctx context.Context, p *api.PodSandbox) policy.Pod {
	pod := podOf(p, *s.jobLabel.Load())
	pod.CreatedAt = s.o.Clock.Now()
	if f, ok := s.o.Facts(pod.UID); ok {
		pod.Facts = &f
	}
	if s.o.Devices != nil && pod.QoS != policy.BestEffort { // best effort is placed without regard to devices
		s.findDevices(ctx, &pod)
	}
	return pod
}

// findDevices asks where a pod's devices are: kubelet has chosen them by now.
func (s *session) findDevices(ctx context.Context, pod *policy.Pod) {
	nodes, err := s.o.Devices(ctx, pod.Namespace, pod.Name)
	if err != nil {
		s.o.Log.Debug("the NUMA nodes of a pod's devices are not known", "pod", pod.Namespace+"/"+pod.Name, "err", err)
		return
	}
	if !nodes.IsEmpty() {
		pod.DeviceNodes = &nodes
	}
}

// UpdatePodSandbox is called when kubelet is about to resize a pod; an error refuses the resize.
func (s *session) UpdatePodSandbox(ctx context.Context, p *api.PodSandbox, _, r *api.LinuxResources) error {
	if !resizes(r.GetCpu()) {
		return nil
	}
	pod := podOf(p, *s.jobLabel.Load())
	reply := s.serve(ctx, "UpdatePodSandbox", &node.Request{Pod: pod.UID, Event: resizeOf(pod.Sandbox, r.GetCpu())})
	s.notify(ctx, node.Recheck{Pod: pod.UID}) // kubelet writes the pod's quota
	s.pass(failpoint.ResizeReply)
	return s.answer(pod, reply.Err)
}

// resizes reports whether an update changes shares or quota, and not the cpuset alone.
func resizes(cpu *api.LinuxCPU) bool {
	return cpu.GetShares().GetValue() != 0 || cpu.GetQuota().GetValue() != 0
}

// lookAtClaims takes over what other DRA drivers have given by now.
func (s *session) lookAtClaims(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.deadline)
	defer cancel()
	s.o.Claims(ctx)
}

// notify gives the core an input that needs no reply.
func (s *session) notify(ctx context.Context, in node.In) {
	ctx, cancel := context.WithTimeout(ctx, s.deadline)
	defer cancel()
	if err := s.runner.put(ctx, in); err != nil {
		s.o.Log.Debug("the daemon is too busy for an input; the next audit covers it", "input", fmt.Sprintf("%+v", in),
			"err", err)
	}
}

// PostUpdatePodSandbox has the pod's quota read again.
func (s *session) PostUpdatePodSandbox(ctx context.Context, p *api.PodSandbox) error {
	s.notify(ctx, node.Recheck{Pod: uidOf(p)})
	return nil
}

// StopPodSandbox releases nothing: the pod's containers may still be stopping, and a pod that only
// lost its sandbox gets a new one. But if its cgroup disappears now, the pod has ended.
func (s *session) StopPodSandbox(ctx context.Context, p *api.PodSandbox) error {
	s.notify(ctx, node.Stopping{Pod: uidOf(p)})
	return nil
}

// RemovePodSandbox is the end of a sandbox. A refused one comes here too.
func (s *session) RemovePodSandbox(ctx context.Context, p *api.PodSandbox) error {
	r := s.serve(ctx, "RemovePodSandbox",
		&node.Request{Pod: uidOf(p), Event: policy.PodRemoved{Sandbox: clip(p.GetId())}})
	s.logError(r.Err)
	s.pass(failpoint.RemoveReply)
	return nil
}

// CreateContainer places a container. It returns once the container can start without sharing a CPU
// that has an owner.
func (s *session) CreateContainer(ctx context.Context, p *api.PodSandbox,
	c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	v, err := s.create(ctx, p, c, false)
	s.pass(failpoint.CreateReply)
	if err != nil || s.Observes() {
		return nil, nil, err
	}
	return v.adjustment(s.memory), nil, nil
}

// create enters a container. made: it exists already, and gets no values.
func (s *session) create(ctx context.Context, p *api.PodSandbox, c *api.Container, made bool) (values, error) {
	pod := s.newPod(ctx, p)
	ctr := containerOf(c, &pod, pod.CreatedAt)
	if len(ctr.Claims) > 0 {
		pod.Claim(ctr.Name, ctr.Claims)
		s.lookAtClaims(ctx) // its driver has just written what they are
	}
	r := s.serve(ctx, "CreateContainer", &node.Request{
		Pod: pod.UID, Event: policy.ContainerCreate{Pod: pod, Container: ctr}, Made: made,
	})
	switch {
	case late(r.Err) && !pod.Exclusive():
		// Unpinned it runs in the pool of its slice, which is safe, and the runtime goes on.
		// StartContainer adds it to the policy.
		s.o.Log.Error("no decision in time; the container starts in its slice's pool", "pod",
			pod.Namespace+"/"+pod.Name, "container", ctr.Name, "err", r.Err)
		return values{}, nil
	case r.Err != nil:
		return values{}, s.answer(pod, r.Err)
	case r.Container == nil:
		s.rivals.answer(&pod, &ctr, false)
		return values{}, nil
	}
	v := valuesOf(r.Container, r.Topology)
	if !made {
		s.rivals.answer(&pod, &ctr, v.cpus != "" && !s.Observes())
	}
	v.env = envOf(s.o.CPUsEnv, r.Container)
	return v, nil
}

// UpdateContainer replies to kubelet's change with our whole desired state, so that our values
// override kubelet's.
func (s *session) UpdateContainer(ctx context.Context, p *api.PodSandbox, c *api.Container,
	r *api.LinuxResources) ([]*api.ContainerUpdate, error) {
	uid := uidOf(p)
	reply := s.serve(ctx, "UpdateContainer", &node.Request{Pod: uid, Event: updateOf(clip(c.GetId()), r)})
	if s.unannounced.Load() && resizes(r.GetCpu()) {
		s.notify(ctx, node.Recheck{Pod: uid, Soon: true}) // kubelet may write the pod's quota in any case
	}
	s.pass(failpoint.UpdateReply)
	if reply.Err != nil {
		return nil, s.answer(podOf(p, ""), reply.Err)
	}
	if reply.Container == nil || s.Observes() {
		return nil, nil
	}
	u := valuesOf(reply.Container, reply.Topology).update(c.GetId())
	if u == nil {
		return nil, nil
	}
	return []*api.ContainerUpdate{u}, nil
}

// PostCreateContainer says that all plugins have let the container pass.
func (s *session) PostCreateContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	s.rivals.made(clip(c.GetId()))
	return nil
}

// StartContainer adds a container whose CreateContainer was missed or came too late. It starts once the mask that it
// was created with is read, and replaced if it has CPUs of others.
func (s *session) StartContainer(ctx context.Context, p *api.PodSandbox, c *api.Container) error {
	known, err := ask(ctx, s.runner, func(core *node.Core) bool { return core.Knows(clip(c.GetId())) })
	if err != nil || known {
		return nil
	}
	_, err = s.create(ctx, p, c, true)
	return err
}

// PostStartContainer and PostUpdateContainer have the container's cgroup read back.
func (s *session) PostStartContainer(ctx context.Context, _ *api.PodSandbox, c *api.Container) error {
	s.notify(ctx, node.Verify{Container: clip(c.GetId())})
	return nil
}

func (s *session) PostUpdateContainer(ctx context.Context, _ *api.PodSandbox, c *api.Container) error {
	s.notify(ctx, node.Verify{Container: clip(c.GetId())})
	return nil
}

// StopContainer and RemoveContainer end a container, in any order and any number of times. What its
// pod owns stays with the pod.
func (s *session) StopContainer(ctx context.Context, _ *api.PodSandbox,
	c *api.Container) ([]*api.ContainerUpdate, error) {
	s.stopped(ctx, c, "StopContainer")
	return nil, nil
}

func (s *session) RemoveContainer(ctx context.Context, p *api.PodSandbox, c *api.Container) error {
	s.stopped(ctx, c, "RemoveContainer")
	s.notify(ctx, node.Stopping{Pod: uidOf(p)})
	return nil
}

func (s *session) stopped(ctx context.Context, c *api.Container, handler string) {
	s.rivals.gone(clip(c.GetId()))
	s.logError(s.serve(ctx, handler, &node.Request{Event: policy.ContainerStopped{ID: clip(c.GetId())}}).Err)
	s.pass(failpoint.StopReply)
}

// Shutdown is called when the runtime ends. The end of the connection follows.
func (s *session) Shutdown(context.Context) {
	s.o.Log.Info("the runtime shuts down")
}

// answer turns the policy's error into the handler's. In mode observe no pod is refused.
func (s *session) answer(pod policy.Pod, err error) error {
	if err == nil {
		return nil
	}
	var refusal *policy.Refusal
	if errors.As(err, &refusal) {
		s.o.Metrics.Rejected(refusal.Code)
	}
	s.refusals.note(s.o.Clock.Now(), pod, err)
	if s.Observes() {
		return nil
	}
	return err
}

// logError logs the error of an end, which cannot be refused: the rounds that look for pods and
// containers that are gone release their CPUs later.
func (s *session) logError(err error) {
	if err != nil {
		s.o.Log.Error("the end of a pod or container was not processed; its CPUs are released by the next round", "err",
			err)
	}
}
