package world

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/policy"
)

// phase is the phase of a pod's sandbox or a container.
type phase int

const (
	wanted  phase = iota // kubelet will ask the runtime for it
	asked                // kubelet has asked the runtime
	ready                // the sandbox runs, the container is created
	running              // the container has a task
	over
)

// Spec is the spec of a pod.
type Spec struct {
	Class          policy.Class
	QoS            policy.QoS
	Request, Limit int64 // in milli-CPUs; no limit: 0
	// Side is the second container's part of these; 0: the pod has one container.
	Side int64
	// Mixed means that its first container owns CPUs of its own and the second shares the pool.
	Mixed bool
	// Claims is how many CPUs it has by a claim, on which its first container runs; 0: it has none.
	Claims int
}

// Pod is a pod as kubelet and the runtime know it.
type Pod struct {
	Name string
	Spec

	sandbox  string
	reported size // what the runtime got with the sandbox, and still reports
	attempts int
	phase    phase
	parts    []*part
	made     int // containers so far
	// grant are the CPUs that the shell granted the pod; empty: none.
	grant cpuset.Set
	// off are CPUs that were offline at a grant: the pod may own them too.
	off cpuset.Set
	// unannounced means that it was created without a connection, and no Synchronize has listed it since.
	unannounced bool
	// sliceWrites are the writes of its slice that were in flight, or could still take effect, when it was
	// announced, and whose plan did not include it.
	sliceWrites []*Op
	// excused means that CPUs of its own went offline, so it may be moved.
	excused bool
	claim   *Claim
	inPlace inPlace
}

// size is a request and a limit in milli-CPUs; no limit: 0.
type size struct{ request, limit int64 }

// part is one of the containers in a pod's spec.
type part struct {
	name string
	size size
	ctr  *Container // the newest
}

// Container is a container of a pod.
type Container struct {
	ID    string
	Pod   *Pod
	part  *part
	phase phase
	size  size   // the last size that the runtime got
	cpus  string // what the runtime stores
	quota int64
	// created is when kubelet asked for it.
	created time.Time
	early   bool // it was created before the daemon knew all owners
	// unheard means that the daemon was neither asked about it nor has seen it in a list.
	unheard bool
	// writes are those of its pod and of the slice that were in flight, or could still take effect, when it was created
	// without a connection, or listed.
	writes   []*Op
	isolated bool // it has been off the CPUs of all owners
	lent     bool // it is on its pod's claim's CPUs: see lends
	// limitLost means that nothing shows kubelet's limit any more: see loseLimits.
	limitLost bool
	// fallback are the CPUs that it uses since all CPUs of a mask above it went offline.
	fallback cpuset.Set
}

// UID is the pod's UID, which its cgroup is named after.
func (p *Pod) UID() string { return "uid-" + p.Name }

// Parent is the pod's cgroup.
func (p *Pod) Parent() string {
	switch p.QoS {
	case policy.Burstable:
		return "kubepods/burstable/pod" + p.UID()
	case policy.BestEffort:
		return "kubepods/besteffort/pod" + p.UID()
	}
	return "kubepods/pod" + p.UID()
}

// Path is the container's cgroup.
func (c *Container) Path() string { return c.Pod.Parent() + "/" + c.ID }

func (p *Pod) owns() bool { return p.Class == policy.LSE || p.Class == policy.LSR }

// owns reports whether a container runs on CPUs of its own, or on its pod's.
func (c *Container) owns() bool { return c.Pod.owns() && (!c.Pod.Mixed || c.part == c.Pod.parts[0]) }

// ownSize is the part of a pod's size that asks for CPUs of its own.
func (p *Pod) ownSize() size {
	if p.Mixed {
		return p.parts[0].size
	}
	return p.size()
}

// isBE reports whether a pod is best effort, in whatever slice.
func (p *Pod) isBE() bool {
	return p.Class == policy.BE || p.Class == "" && p.QoS == policy.BestEffort && p.Claims == 0
}

func cpuOf(s size, cpus string) *api.LinuxCPU {
	c := &api.LinuxCPU{Shares: api.UInt64(s.shares()), Period: api.UInt64(100000), Cpus: cpus}
	if s.limit > 0 {
		c.Quota = api.Int64(s.limit * 100)
	}
	return c
}

func (s size) shares() uint64 { return uint64(max(s.request*1024/1000, 2)) }

// size is the sum of the pod's containers in its current spec.
func (p *Pod) size() size {
	var sum size
	for _, part := range p.parts {
		sum.request += part.size.request
		sum.limit += part.size.limit
	}
	return sum
}

// running are the pod's parts whose container runs.
func (p *Pod) running() []*part {
	return slices.DeleteFunc(slices.Clone(p.parts), func(o *part) bool { return !o.is(running) })
}

// part finds a part by its name; empty: the first one.
func (p *Pod) part(name string) *part {
	for _, o := range p.parts {
		if name == "" || o.name == name {
			return o
		}
	}
	return nil
}

// is reports whether the part has a container in one of these phases.
func (o *part) is(phases ...phase) bool { return o.ctr != nil && slices.Contains(phases, o.ctr.phase) }

// due reports whether kubelet has to create or start the part's container.
func (o *part) due() bool { return o.ctr == nil || o.is(ready, over) }

// API is the pod as the runtime reports it, with the sandbox that a request is about.
func (p *Pod) API(sandbox string) *api.PodSandbox {
	labels := map[string]string{}
	if p.Class != "" {
		labels[policy.LabelClass] = string(p.Class)
	}
	var annotations map[string]string
	if p.Mixed {
		annotations = map[string]string{policy.AnnContainers: p.parts[0].name}
	}
	return &api.PodSandbox{
		Id: sandbox, Uid: p.UID(), Name: p.Name, Namespace: "default", Labels: labels, Annotations: annotations,
		Linux: &api.LinuxPodSandbox{
			CgroupParent: "/" + p.Parent(),
			PodResources: &api.LinuxResources{Cpu: cpuOf(p.reported, "")},
			Resources:    &api.LinuxResources{Cpu: &api.LinuxCPU{Shares: api.UInt64(2)}},
		},
	}
}

// SandboxID is the pod's current sandbox.
func (p *Pod) SandboxID() string { return p.sandbox }

// API is the container as the runtime reports it, with the resources that the runtime stores.
func (c *Container) API(sandbox string) *api.Container {
	cpu := cpuOf(c.size, c.cpus)
	if c.quota != 0 {
		cpu.Quota = api.Int64(max(c.quota*100, -1))
	}
	state := api.ContainerState_CONTAINER_CREATED
	if c.phase == running {
		state = api.ContainerState_CONTAINER_RUNNING
	}
	var devices []*api.CDIDevice
	if c.has(c.Pod.claim) {
		devices = []*api.CDIDevice{{Name: policy.ClaimDevice(c.Pod.claim.UID(), 0)}}
	}
	return &api.Container{
		CDIDevices: devices,
		Id:         c.ID, PodSandboxId: sandbox, Name: c.part.name, State: state, CreatedAt: c.created.UnixNano(),
		Linux: &api.LinuxContainer{
			CgroupsPath: "/" + c.Path(),
			Resources:   &api.LinuxResources{Memory: &api.LinuxMemory{}, Cpu: cpu},
		},
	}
}

// node is kubelet and the runtime.
type node struct {
	pods      []*Pod   // in order of creation, without those that have ended
	claims    []*Claim // of these, and those of pods that have ended until they are unprepared
	named     int
	connected bool
	synced    bool
	// The runtime sends a plugin one request at a time.
	queue    []*Request
	inFlight *Request
}

func (n *node) pod(name string) *Pod {
	for _, p := range n.pods {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// running are the containers that run.
func (n *node) running() []*Container {
	var all []*Container
	for _, p := range n.pods {
		for _, o := range p.running() {
			all = append(all, o.ctr)
		}
	}
	return all
}

// made are the containers that are created or run.
func (n *node) made() []*Container {
	var all []*Container
	for _, p := range n.pods {
		for _, o := range p.parts {
			if o.is(ready, running) {
				all = append(all, o.ctr)
			}
		}
	}
	return all
}

// containerAt is the running container whose cgroup has a path.
func (n *node) containerAt(path string) *Container {
	for _, c := range n.running() {
		if c.Path() == path {
			return c
		}
	}
	return nil
}

func (n *node) enqueue(kind RequestKind, p *Pod, c *Container) {
	n.queue = append(n.queue, &Request{Kind: kind, Pod: p, Container: c, sandbox: p.sandbox})
}

// busy reports whether the runtime has a request about a pod.
func (n *node) busy(p *Pod) bool {
	return n.inFlight != nil && n.inFlight.Pod == p ||
		slices.ContainsFunc(n.queue, func(r *Request) bool { return r.Pod == p })
}

// due reports whether kubelet has a next step for a pod.
func (n *node) due(p *Pod) bool {
	switch {
	case n.busy(p):
		return false
	case p.phase == wanted:
		return p.claim == nil || p.claim.prepared
	case p.phase == ready:
		return slices.ContainsFunc(p.parts, (*part).due) || p.toResize() != nil
	}
	return false
}

// newName is the name of the next pod of a kind. Names are part of a choice, so they stay the same
// when other choices are left out.
func (n *node) newName(kind string) string { return fmt.Sprintf("p%d-%s", n.named+1, kind) }

// add adds a pod to kubelet's list. Its name ends in one of podKinds.
func (n *node) add(name string) bool {
	_, kind, _ := strings.Cut(name, "-")
	k, ok := podKinds[kind]
	if !ok || len(n.pods) >= maxPods || n.pod(name) != nil {
		return false
	}
	n.named++
	p := &Pod{Name: name, Spec: k}
	limit := int64(0)
	if p.Limit > 0 {
		limit = p.Side
	}
	p.parts = []*part{{name: "main", size: size{p.Request - p.Side, p.Limit - limit}}}
	if p.Side > 0 {
		p.parts = append(p.parts, &part{name: "side", size: size{p.Side, limit}})
	}
	n.pods = append(n.pods, p)
	return true
}

// podKinds are the kinds of pods, by a short name.
var podKinds = map[string]Spec{
	"lse2":  {Class: policy.LSE, QoS: policy.Guaranteed, Request: 2000, Limit: 2000},
	"lse4":  {Class: policy.LSE, QoS: policy.Guaranteed, Request: 4000, Limit: 4000},
	"lse6":  {Class: policy.LSE, QoS: policy.Guaranteed, Request: 6000, Limit: 6000},
	"lse8":  {Class: policy.LSE, QoS: policy.Guaranteed, Request: 8000, Limit: 8000},
	"lsr1":  {Class: policy.LSR, QoS: policy.Guaranteed, Request: 1000, Limit: 1000},
	"lsr2":  {Class: policy.LSR, QoS: policy.Guaranteed, Request: 2000, Limit: 2000},
	"lsr6":  {Class: policy.LSR, QoS: policy.Guaranteed, Request: 6000, Limit: 6000},
	"wide2": {Class: policy.LSR, QoS: policy.Burstable, Request: 2000, Limit: 2000},
	"web":   {QoS: policy.Burstable, Request: 500},
	"fixed": {QoS: policy.Guaranteed, Request: 500, Limit: 500},
	"low":   {QoS: policy.BestEffort},
	"noisy": {Class: policy.BE, QoS: policy.Burstable, Request: 1000, Limit: 2000},
	"pair4": {Class: policy.LSE, QoS: policy.Guaranteed, Request: 4000, Limit: 4000, Side: 1000},
	"pair":  {QoS: policy.Burstable, Request: 600, Side: 100},
	"mix2":  {Class: policy.LSR, QoS: policy.Guaranteed, Request: 2500, Limit: 2500, Side: 500, Mixed: true},
	"mix3":  {Class: policy.LSE, QoS: policy.Burstable, Request: 3200, Limit: 3200, Side: 200, Mixed: true},
	// They run on the CPUs of claims.
	"claim1": {QoS: policy.BestEffort, Claims: 1},
	"claim2": {QoS: policy.Burstable, Request: 600, Side: 100, Claims: 2},
	"claim4": {QoS: policy.Burstable, Request: 500, Claims: 4},
}

// claimWeights is how often each of those with claims is chosen, where there are any.
var claimWeights = []struct {
	kind   string
	weight int
}{{"claim1", 3}, {"claim2", 5}, {"claim4", 4}}

// kindWeights is how often each of them is chosen.
var kindWeights = []struct {
	kind   string
	weight int
}{
	{"lse2", 2}, {"lse4", 3}, {"lse6", 2}, {"lse8", 2}, {"lsr1", 1}, {"lsr2", 3}, {"lsr6", 2}, {"wide2", 2},
	{"web", 4}, {"fixed", 1}, {"low", 2}, {"noisy", 2},
	{"pair4", 2}, {"pair", 1}, {"mix2", 2}, {"mix3", 2},
}

// drop ends the runtime's connection. The runtime goes on with its requests without a reply.
func (n *node) drop() {
	if r := n.inFlight; r != nil && r.Kind != Synchronize {
		n.queue = slices.Insert(n.queue, 0, r)
	}
	n.inFlight, n.connected, n.synced = nil, false, false
}

// lists is what the runtime reports to a Synchronize.
func (n *node) lists() (pods []*Pod, ctrs []*Container) {
	for _, p := range n.pods {
		if p.phase != ready {
			continue
		}
		pods = append(pods, p)
		for _, o := range p.parts {
			if o.is(ready, running) {
				ctrs = append(ctrs, o.ctr)
			}
		}
	}
	return pods, ctrs
}

// requestLimit is the runtime's timeout of a plugin.
const requestLimit = 2 * time.Second

// asked are the values that kubelet requests for a container's cgroup.
func (c *Container) asked() cgroup.Values { return cgroupQuota(c.size.limit) }

// values are those that the runtime writes to a container's cgroup.
func (c *Container) values() cgroup.Values {
	v := c.asked()
	if c.quota != 0 {
		v.Quota.Micros = max(c.quota*100, -1)
	}
	if set, err := cpuset.Parse(c.cpus); err == nil && !set.IsEmpty() {
		v.CPUs = cgroup.Only(set)
	}
	return v
}
