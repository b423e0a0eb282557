package plugin

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	nrilog "github.com/containerd/nri/pkg/log"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/cgroup/cgrouptest"
	"github.com/quietcore/quietcore/internal/script"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// limitOfWait bounds every wait in these tests; it is long because the machine
// may be busy, and no test waits for it to pass.
const limitOfWait = 30 * time.Second

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(limitOfWait)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("after %s: %s is still not so", limitOfWait, what)
		}
		time.Sleep(time.Millisecond)
	}
}

// node is a runtime with NRI's own side of the protocol on a real socket, a
// kernel in memory and, if started, the plugin.
type rig struct {
	noHeal bool
	t      testing.TB
	socket string
	topo   *topology.Topology
	kernel *cgrouptest.Kernel
	store  *memoryStore
	log    *logBuffer
	direct bool // nothing between the plugin and the adaptation's socket

	mu         sync.Mutex
	nri        *adaptation.Adaptation
	listener   net.Listener
	lines      []net.Conn
	synced     int
	pods       map[string]*api.PodSandbox
	containers map[string]*api.Container

	plugin *Plugin
	stop   context.CancelFunc
	done   chan struct{}
}

type quietNRI struct{}

func (quietNRI) Debugf(context.Context, string, ...any) {}
func (quietNRI) Infof(context.Context, string, ...any)  {}
func (quietNRI) Warnf(context.Context, string, ...any)  {}
func (quietNRI) Errorf(context.Context, string, ...any) {}

func TestMain(m *testing.M) {
	nrilog.Set(quietNRI{})
	if socket := os.Getenv(helperEnv); socket != "" {
		helper(socket)
		return
	}
	m.Run()
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

func newNode(t testing.TB, topo *topology.Topology) *rig {
	t.Helper()
	n := &rig{
		t: t, socket: filepath.Join(t.TempDir(), "nri.sock"), topo: topo, store: &memoryStore{}, log: &logBuffer{},
		kernel: cgrouptest.New(topo.Online()), pods: map[string]*api.PodSandbox{},
		containers: map[string]*api.Container{},
	}
	for _, slice := range []string{"kubepods", "kubepods/burstable", "kubepods/besteffort"} {
		n.kernel.Mkdir(slice, 0)
	}
	t.Cleanup(func() {
		n.kill()
		n.stopRuntime()
		if t.Failed() {
			t.Log(n.log.String())
		}
	})
	return n
}

// patient makes runtimes wait longer for the plugin until the test ends: where many daemons share two busy
// processors, one can be late without having done anything wrong.
func patient(t testing.TB) {
	adaptation.SetPluginRequestTimeout(limitOfWait)
	t.Cleanup(func() { adaptation.SetPluginRequestTimeout(adaptation.DefaultPluginRequestTimeout) })
}

// startRuntime makes the socket and takes connections.
func (n *rig) startRuntime() {
	n.t.Helper()
	behind := n.socket + ".real"
	if n.direct {
		behind = n.socket
	}
	nri, err := adaptation.New("containerd", "v2.3.0", n.sync, func(context.Context,
		[]*adaptation.ContainerUpdate) ([]*adaptation.ContainerUpdate, error) {
		n.t.Error("the plugin called the unsolicited UpdateContainers")
		return nil, nil
	}, adaptation.WithSocketPath(behind), adaptation.WithPluginPath(n.t.TempDir()),
		adaptation.WithPluginConfigPath(n.t.TempDir()))
	if err != nil {
		n.t.Fatal(err)
	}
	if err := nri.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.nri = nri
	if n.direct {
		return
	}
	l, err := net.Listen("unix", n.socket)
	if err != nil {
		n.t.Fatal(err)
	}
	n.listener = l
	go n.forward(l)
}

// forward carries connections to the adaptation, which never closes those of
// external plugins itself: ending a runtime is ending these.
func (n *rig) forward(l net.Listener) {
	for {
		plugin, err := l.Accept()
		if err != nil {
			return
		}
		runtime, err := net.Dial("unix", n.socket+".real")
		if err != nil {
			plugin.Close()
			continue
		}
		n.mu.Lock()
		n.lines = append(n.lines, plugin, runtime)
		n.mu.Unlock()
		for _, pair := range [][2]net.Conn{{plugin, runtime}, {runtime, plugin}} {
			go func() {
				_, _ = io.Copy(pair[0], pair[1])
				pair[0].Close()
			}()
		}
	}
}

func (n *rig) stopRuntime() {
	n.mu.Lock()
	nri, lines := n.nri, n.lines
	n.nri, n.lines = nil, nil
	if n.listener != nil {
		n.listener.Close()
		n.listener = nil
	}
	n.mu.Unlock()
	if nri != nil {
		nri.Stop()
	}
	for _, c := range lines {
		c.Close()
	}
}

// lists are what the runtime knows.
func (n *rig) lists() ([]*api.PodSandbox, []*api.Container) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Values(n.pods)), slices.Collect(maps.Values(n.containers))
}

// sync is the runtime's side of Synchronize.
func (n *rig) sync(ctx context.Context, cb adaptation.SyncCB) error {
	pods, containers := n.lists()
	updates, err := cb(ctx, pods, containers)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.synced++
	for _, u := range updates {
		c := n.containers[u.ContainerId]
		mergeCPU(c.Linux.Resources.Cpu, u.GetLinux().GetResources().GetCpu())
		if err := n.kernel.Apply(context.Background(), c.Linux.CgroupsPath, storedValues(c)); err != nil {
			n.t.Error(err)
		}
	}
	return err
}

// options are the plugin's, for this node.
func (n *rig) options() Options {
	return Options{
		Topology: n.topo, Driver: n.kernel, Reader: n.kernel, Store: n.store, Saved: n.store.load(),
		Log: slog.New(slog.NewTextHandler(n.log, &slog.HandlerOptions{Level: slog.LevelDebug})), Socket: n.socket,
		Config:    policy.Config{NoHeal: n.noHeal, Authority: policy.Authority{Profile: policy.ProfileOpen}},
		Clock:     Clock{Tick: make(chan time.Time), Audit: make(chan time.Time), Vanish: make(chan time.Time)},
		saveEvery: time.Nanosecond, // settle waits for the state to be saved
	}
}

// start runs a new plugin: a daemon that knows nothing but what it finds.
func (n *rig) start(change ...func(*Options)) *Plugin {
	n.t.Helper()
	o := n.options()
	for _, c := range change {
		c(&o)
	}
	p, err := New(o)
	if err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.plugin, n.stop, n.done = p, cancel, make(chan struct{})
	go func() {
		defer close(n.done)
		p.Run(ctx)
	}()
	return p
}

// up starts a runtime and a plugin and waits until they know each other.
func (n *rig) up(change ...func(*Options)) *Plugin {
	n.t.Helper()
	if n.nri == nil {
		n.startRuntime()
	}
	p := n.start(change...)
	n.settle()
	return p
}

func (n *rig) settle() {
	n.t.Helper()
	eventually(n.t, "the plugin is settled", n.plugin.Settled)
	n.admitted()
}

// admitted returns when the adaptation, which learns of a plugin's readiness
// after the plugin itself, sends it events. A runtime holds its requests back
// meanwhile, as a request of ours does here.
func (n *rig) admitted() { n.nri.BlockPluginSync().Unblock() }

// kill ends the plugin; what it knew is gone.
func (n *rig) kill() {
	if n.plugin == nil {
		return
	}
	n.stop()
	<-n.done
	n.plugin = nil
}

// ctr is a container of a pod, in milli-CPUs.
type ctr struct {
	name           string
	request, limit int64
	cpus           string
	claim          string // the CDI device of its DRA claim
}

func main1(milli int64) []ctr { return []ctr{{name: "main", request: milli, limit: milli}} }

// spec is a pod.
type spec struct {
	name  string
	class policy.Class
	qos   policy.QoS
	ctrs  []ctr
	annot map[string]string
	job   string // the label of that name
}

func (s spec) uid() string { return "uid-" + s.name }

func (s spec) parent() string {
	switch s.qos {
	case policy.Burstable:
		return "/kubepods/burstable/pod" + s.uid()
	case policy.BestEffort:
		return "/kubepods/besteffort/pod" + s.uid()
	}
	return "/kubepods/pod" + s.uid()
}

func cpuOf(request, limit int64, cpus string) *api.LinuxCPU {
	c := &api.LinuxCPU{Shares: api.UInt64(uint64(script.Shares(request))), Period: api.UInt64(100000), Cpus: cpus}
	if limit > 0 {
		c.Quota = api.Int64(limit * 100)
	}
	return c
}

func (s spec) sandbox(id string) *api.PodSandbox {
	labels := map[string]string{}
	if s.class != "" {
		labels[policy.LabelClass] = string(s.class)
	}
	if s.job != "" {
		labels["job"] = s.job
	}
	var request, limit int64
	for _, c := range s.ctrs {
		request += c.request
		limit += c.limit
	}
	return &api.PodSandbox{
		Id: id, Uid: s.uid(), Name: s.name, Namespace: "default", Labels: labels, Annotations: s.annot,
		Linux: &api.LinuxPodSandbox{
			CgroupParent: s.parent(), PodResources: &api.LinuxResources{Cpu: cpuOf(request, limit, "")},
			Resources: &api.LinuxResources{Cpu: &api.LinuxCPU{Shares: api.UInt64(2)}},
		},
	}
}

func (s spec) container(sandbox, id string, c ctr) *api.Container {
	var devices []*api.CDIDevice
	if c.claim != "" {
		devices = []*api.CDIDevice{{Name: c.claim}}
	}
	return &api.Container{
		CDIDevices: devices,
		Id:         id, PodSandboxId: sandbox, Name: c.name, State: api.ContainerState_CONTAINER_CREATED,
		Linux: &api.LinuxContainer{
			CgroupsPath: s.parent() + "/" + id, Resources: &api.LinuxResources{Memory: &api.LinuxMemory{},
				Cpu: cpuOf(c.request, c.limit, c.cpus)},
		},
	}
}

func short(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), limitOfWait)
	t.Cleanup(cancel)
	return ctx
}

// run plays kubelet and the runtime for one pod: its cgroup, its sandbox, its
// containers.
func (n *rig) run(s spec) error {
	n.kernel.Mkdir(s.parent(), 0)
	sandbox := s.sandbox("sb-" + s.name)
	asked := cgroup.Quota(quotaIn(sandbox.Linux.PodResources.Cpu))
	if err := n.kernel.Apply(short(n.t), s.parent(), cgroup.Values{Quota: &asked}); err != nil {
		return err
	}
	n.kernel.Writes() // kubelet's, not ours
	if err := n.nri.RunPodSandbox(short(n.t), &api.RunPodSandboxRequest{Pod: sandbox}); err != nil {
		n.removeSandbox(sandbox)
		return err
	}
	n.mu.Lock()
	n.pods[sandbox.Id] = sandbox
	n.mu.Unlock()
	for _, c := range s.ctrs {
		if err := n.startContainer(s, s.name+"-"+c.name, c); err != nil {
			return err
		}
	}
	return nil
}

func (n *rig) removeSandbox(p *api.PodSandbox) {
	_ = n.nri.StopPodSandbox(short(n.t), &api.StopPodSandboxRequest{Pod: p})
	_ = n.nri.RemovePodSandbox(short(n.t), &api.RemovePodSandboxRequest{Pod: p})
}

func (n *rig) startContainer(s spec, id string, c ctr) error {
	sandbox := n.pods["sb-"+s.name]
	container := s.container(sandbox.Id, id, c)
	if _, err := n.create(sandbox, container); err != nil {
		return err
	}
	return n.launch(sandbox, container)
}

// create applies the reply to what the runtime stores, as a runtime does.
func (n *rig) create(sandbox *api.PodSandbox, c *api.Container) (*api.CreateContainerResponse, error) {
	r, err := n.nri.CreateContainer(short(n.t), &api.CreateContainerRequest{Pod: sandbox, Container: c})
	if err != nil {
		return nil, err
	}
	if len(r.Update) > 0 {
		n.t.Errorf("the reply to CreateContainer changes other containers: %v", r.Update)
	}
	c.CreatedAt = time.Now().UnixNano()
	mergeCPU(c.Linux.Resources.Cpu, r.GetAdjust().GetLinux().GetResources().GetCpu())
	n.mu.Lock()
	n.containers[c.Id] = c
	n.mu.Unlock()
	return r, nil
}

func mergeCPU(into, from *api.LinuxCPU) {
	if from.GetCpus() != "" {
		into.Cpus = from.Cpus
	}
	if from.GetQuota() != nil {
		into.Quota = from.Quota
	}
	if from.GetShares().GetValue() != 0 {
		into.Shares = from.Shares
	}
}

// launch starts the container's task in its cgroup, as runc would.
func (n *rig) launch(sandbox *api.PodSandbox, c *api.Container) error {
	if err := n.nri.StartContainer(short(n.t), &api.StartContainerRequest{Pod: sandbox, Container: c}); err != nil {
		return err
	}
	n.kernel.Mkdir(c.Linux.CgroupsPath, 1)
	cpu := c.Linux.Resources.Cpu
	v := cgroup.Values{Quota: &cgroup.Quota{Micros: -1, Period: 100000}}
	if q := cpu.GetQuota().GetValue(); q > 0 {
		v.Quota.Micros = q
	}
	if cpu.Cpus != "" {
		set, err := cpuset.Parse(cpu.Cpus)
		if err != nil {
			return err
		}
		v.CPUs = cgroup.Only(set)
	}
	if err := n.kernel.Apply(context.Background(), c.Linux.CgroupsPath, v); err != nil {
		return err
	}
	c.State = api.ContainerState_CONTAINER_RUNNING
	return n.nri.PostStartContainer(short(n.t), &api.PostStartContainerRequest{Pod: sandbox, Container: c})
}

// update is the runtime's UpdateContainerResources: the request, overlaid by the
// reply, overlays the store and is written.
func (n *rig) update(id string, request *api.LinuxCPU) error {
	c := n.containers[id]
	sandbox := n.pods[c.PodSandboxId]
	r, err := n.nri.UpdateContainer(short(n.t), &api.UpdateContainerRequest{
		Pod: sandbox, Container: c, LinuxResources: &api.LinuxResources{Memory: &api.LinuxMemory{}, Cpu: request},
	})
	if err != nil {
		return err
	}
	final := request
	for _, u := range r.Update {
		if u == nil {
			continue // no plugin answered
		}
		if u.ContainerId != id {
			n.t.Errorf("the reply to UpdateContainer of %s changes %s", id, u.ContainerId)
			continue
		}
		final = u.GetLinux().GetResources().GetCpu()
	}
	mergeCPU(c.Linux.Resources.Cpu, final)
	if err := n.kernel.Apply(context.Background(), c.Linux.CgroupsPath, storedValues(c)); err != nil {
		return err
	}
	return n.nri.PostUpdateContainer(short(n.t), &api.PostUpdateContainerRequest{Pod: sandbox, Container: c})
}

// storedValues is what a runtime writes at every update.
func storedValues(c *api.Container) cgroup.Values {
	v := cgroup.Values{}
	if set, err := cpuset.Parse(c.Linux.Resources.Cpu.Cpus); err == nil && !set.IsEmpty() {
		v.CPUs = cgroup.Only(set)
	}
	if q := c.Linux.Resources.Cpu.GetQuota().GetValue(); q != 0 {
		v.Quota = &cgroup.Quota{Micros: q, Period: 100000}
	}
	return v
}

// end stops and removes a container.
func (n *rig) end(id string) {
	c := n.containers[id]
	n.kernel.Rmdir(c.Linux.CgroupsPath)
	_, _ = n.nri.StopContainer(short(n.t), &api.StopContainerRequest{Pod: n.pods[c.PodSandboxId], Container: c})
	_ = n.nri.RemoveContainer(short(n.t), &api.RemoveContainerRequest{Pod: n.pods[c.PodSandboxId], Container: c})
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.containers, id)
}

// remove ends a pod with everything in it.
func (n *rig) remove(s spec) {
	sandbox := n.pods["sb-"+s.name]
	for id, c := range maps.Clone(n.containers) {
		if c.PodSandboxId == sandbox.Id {
			n.end(id)
		}
	}
	n.kernel.Rmdir(s.parent())
	n.mu.Lock()
	delete(n.pods, sandbox.Id)
	n.mu.Unlock()
	n.removeSandbox(sandbox)
}

// on is the effective set of a container in the kernel.
func (n *rig) on(id string) string {
	n.t.Helper()
	e, err := n.kernel.Effective(n.containers[id].Linux.CgroupsPath)
	if err != nil {
		n.t.Fatal(err)
	}
	return e.CPUs.String()
}

func (n *rig) quota(path string) int64 {
	n.t.Helper()
	e, err := n.kernel.Effective(path)
	if err != nil {
		n.t.Fatal(err)
	}
	return e.QuotaMilli
}

func (n *rig) want(id, cpus string) {
	n.t.Helper()
	n.settle()
	if got := n.on(id); got != cpus {
		n.t.Errorf("container %s runs on %s, want %s", id, got, cpus)
	}
}

// checkOwners is P2 in the kernel: no task of another pod may run on CPUs that a
// pod of class LSE owns; LSR admits BE.
func (n *rig) checkOwners() {
	n.t.Helper()
	s := n.plugin.Snapshot()
	best := map[string]bool{} // of class BE, in whatever slice
	for _, c := range s.Containers {
		if n.containers[c.ID] != nil {
			best[strings.Trim(n.containers[c.ID].Linux.CgroupsPath, "/")] = c.Class == policy.BE
		}
	}
	for _, owner := range s.Containers {
		if owner.Pool != policy.PoolExclusive {
			continue
		}
		own := s.CPUs(owner)
		for path, cpus := range n.kernel.Tasks() {
			be := best[path] || strings.HasPrefix(path, "kubepods/besteffort")
			mine := n.containers[owner.ID] != nil && "/"+path == n.containers[owner.ID].Linux.CgroupsPath
			if mine || be && owner.Class == policy.LSR || samePod(path, owner.PodUID) {
				continue
			}
			if both := cpus.And(own); !both.IsEmpty() {
				n.t.Errorf("%s runs on CPUs %s, which %s/%s owns", path, both, owner.Pod, owner.Name)
			}
		}
	}
}

func samePod(path, uid string) bool {
	for part := range filepathParts(path) {
		if part == "pod"+uid {
			return true
		}
	}
	return false
}

func filepathParts(path string) map[string]bool {
	parts := map[string]bool{}
	for path != "" && path != "." {
		parts[filepath.Base(path)] = true
		path = filepath.Dir(path)
	}
	return parts
}

// logBuffer collects the log of a test.
type logBuffer struct {
	mu   sync.Mutex
	text []byte
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text = append(b.text, p...)
	return len(p), nil
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.text)
}

var _ io.Writer = (*logBuffer)(nil)

func mustRun(t testing.TB, n *rig, specs ...spec) {
	t.Helper()
	for _, s := range specs {
		if err := n.run(s); err != nil {
			t.Fatal(fmt.Errorf("pod %s: %w", s.name, err))
		}
	}
}
