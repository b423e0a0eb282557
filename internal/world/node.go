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

// phase is how far a pod's sandbox or a container is.
type phase int

const (
	wanted  phase = iota // kubelet will ask for it
	asked                // the runtime is asked
	ready                // a sandbox that runs, a container that is created
	running              // a container with a task
	over
)

// Pod is a pod as kubelet and the runtime know it.
type Pod struct {
	Name           string
	Class          policy.Class
	QoS            policy.QoS
	Request, Limit int64 // in milli-CPUs; no limit: 0

	sandbox  string
	attempts int
	phase    phase
	ctr      *Container // the newest
	made     int        // containers so far
	// grant is what the shell promised the pod for its own; empty: nothing.
	grant cpuset.Set
	// off are the CPUs that were off when they were promised: they may be of the pod too.
	off cpuset.Set
	// excused: CPUs of its own went offline, so that it may be moved.
	excused bool
}

// Container is a container of a pod.
type Container struct {
	ID    string
	Pod   *Pod
	phase phase
	cpus  string // what the runtime stores
	quota int64
	early bool // it was created while the daemon did not know yet who owns what
	apart bool // since it was started it has been off the CPUs of all owners
	// fell is what it has since all the CPUs of a mask on the way to it went off.
	fell cpuset.Set
}

// UID is the pod's, its name by which cgroups are called.
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

// isBE says whether a pod is best effort, in whatever slice.
func (p *Pod) isBE() bool {
	return p.Class == policy.BE || p.Class == "" && p.QoS == policy.BestEffort
}

func cpuOf(request, limit int64, cpus string) *api.LinuxCPU {
	shares := max(request*1024/1000, 2)
	c := &api.LinuxCPU{Shares: api.UInt64(uint64(shares)), Period: api.UInt64(100000), Cpus: cpus}
	if limit > 0 {
		c.Quota = api.Int64(limit * 100)
	}
	return c
}

// API is the pod in the runtime's words, with the sandbox that a request is about.
func (p *Pod) API(sandbox string) *api.PodSandbox {
	labels := map[string]string{}
	if p.Class != "" {
		labels[policy.LabelClass] = string(p.Class)
	}
	return &api.PodSandbox{
		Id: sandbox, Uid: p.UID(), Name: p.Name, Namespace: "default", Labels: labels,
		Linux: &api.LinuxPodSandbox{
			CgroupParent: "/" + p.Parent(),
			PodResources: &api.LinuxResources{Cpu: cpuOf(p.Request, p.Limit, "")},
			Resources:    &api.LinuxResources{Cpu: &api.LinuxCPU{Shares: api.UInt64(2)}},
		},
	}
}

// SandboxID is the pod's present sandbox.
func (p *Pod) SandboxID() string { return p.sandbox }

// API is the container in the runtime's words, with what the runtime stores of it.
func (c *Container) API(sandbox string) *api.Container {
	cpu := cpuOf(c.Pod.Request, c.Pod.Limit, c.cpus)
	if c.quota != 0 {
		cpu.Quota = api.Int64(max(c.quota*100, -1))
	}
	state := api.ContainerState_CONTAINER_CREATED
	if c.phase == running {
		state = api.ContainerState_CONTAINER_RUNNING
	}
	return &api.Container{
		Id: c.ID, PodSandboxId: sandbox, Name: "main", State: state,
		Linux: &api.LinuxContainer{
			CgroupsPath: "/" + c.Path(),
			Resources:   &api.LinuxResources{Memory: &api.LinuxMemory{}, Cpu: cpu},
		},
	}
}

// node is kubelet and the runtime.
type node struct {
	pods      []*Pod // in order of their coming; those that are over are dropped
	named     int
	connected bool
	synced    bool
	// The runtime asks a plugin one thing at a time.
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

// podAt is the pod in whose cgroup a path lies.
func (n *node) podAt(path string) *Pod {
	for _, p := range n.pods {
		if path == p.Parent() || strings.HasPrefix(path, p.Parent()+"/") {
			return p
		}
	}
	return nil
}

func (n *node) enqueue(kind RequestKind, p *Pod, c *Container) {
	n.queue = append(n.queue, &Request{Kind: kind, Pod: p, Container: c, sandbox: p.sandbox})
}

// busy says whether the runtime has something to ask about a pod.
func (n *node) busy(p *Pod) bool {
	return n.inFlight != nil && n.inFlight.Pod == p ||
		slices.ContainsFunc(n.queue, func(r *Request) bool { return r.Pod == p })
}

// due says whether kubelet has a next step for a pod.
func (n *node) due(p *Pod) bool {
	switch {
	case n.busy(p):
		return false
	case p.phase == wanted:
		return true
	case p.phase == ready:
		return p.ctr == nil || p.ctr.phase == ready || p.ctr.phase == over
	}
	return false
}

// newName is the name of the next pod of a kind. Names are part of a choice, so that
// they stay the same where others are left out.
func (n *node) newName(kind string) string { return fmt.Sprintf("p%d-%s", n.named+1, kind) }

// add makes kubelet want a pod, whose name ends in one of podKinds.
func (n *node) add(name string) bool {
	_, kind, _ := strings.Cut(name, "-")
	p, ok := podKinds[kind]
	if !ok || len(n.pods) >= maxPods || n.pod(name) != nil {
		return false
	}
	n.named++
	p.Name = name
	n.pods = append(n.pods, &p)
	return true
}

// podKinds are the pods that kubelet wants, by a short name.
var podKinds = map[string]Pod{
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
}

// kindWeights is how often kubelet wants each of them.
var kindWeights = []struct {
	kind   string
	weight int
}{
	{"lse2", 2}, {"lse4", 3}, {"lse6", 2}, {"lse8", 2}, {"lsr1", 1}, {"lsr2", 3}, {"lsr6", 2}, {"wide2", 2},
	{"web", 4}, {"fixed", 1}, {"low", 2}, {"noisy", 2},
}

// drop forgets what the runtime was about to ask: its connection is gone. What was
// to begin has not begun and is tried again.
func (n *node) drop() {
	lost := n.queue
	if n.inFlight != nil {
		lost = append([]*Request{n.inFlight}, lost...)
	}
	n.queue, n.inFlight, n.connected, n.synced = nil, nil, false, false
	for _, r := range lost {
		switch r.Kind {
		case RunPod:
			r.Pod.phase = wanted
		case Create:
			r.Container.phase = over
		}
	}
}

// lists is what the runtime reports to a Synchronize.
func (n *node) lists() (pods []*Pod, ctrs []*Container) {
	for _, p := range n.pods {
		if p.phase != ready {
			continue
		}
		pods = append(pods, p)
		if c := p.ctr; c != nil && (c.phase == ready || c.phase == running) {
			ctrs = append(ctrs, c)
		}
	}
	return pods, ctrs
}

// requestLimit is the runtime's patience with a plugin.
const requestLimit = 2 * time.Second

// asked is what kubelet asks for a container.
func (c *Container) asked() cgroup.Values { return cgroupQuota(c.Pod.Limit) }

// values are what the runtime writes to a container's cgroup.
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
