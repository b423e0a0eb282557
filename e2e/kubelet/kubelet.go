// Package kubelet computes what kubelet derives from a pod before it calls a container
// runtime: sums, shares, quotas and cgroup names. It follows the behaviour of kubelet
// 1.36 and its libcontainer, with either cgroup driver, so that the machines can play
// pods without an API server.
//
// Example: a container that requests 1500m with a limit of 2000m gets 1536 shares and
// 200000 of every 100000 microseconds.
//
// Invariant: nothing here knows about Quietcore; the daemon sees what a real kubelet
// would have sent.
package kubelet

import (
	"fmt"
	"sort"
	"strings"
)

// The kinds of containers.
const (
	App     = "app"
	Init    = "init"
	Sidecar = "sidecar" // an init container that is restartable
)

// The QoS classes of Kubernetes.
const (
	Guaranteed = "Guaranteed"
	Burstable  = "Burstable"
	BestEffort = "BestEffort"
)

// Container is the part of a container's spec that concerns CPUs; 0 is "not set".
type Container struct {
	Name         string
	RequestMilli int64
	LimitMilli   int64
	Kind         string
}

// Pod is the part of a pod's spec that concerns CPUs.
type Pod struct {
	Name, Namespace, UID string
	Labels, Annotations  map[string]string
	QoS                  string // empty: derived from the containers
	Containers           []Container
}

// Period is the CFS period in microseconds that kubelet uses unless configured.
const Period = 100000

const (
	minShares = 2
	maxShares = 262144
	minQuota  = 1000
)

// Shares of a request.
func Shares(milli int64) int64 {
	return min(max(milli*1024/1000, minShares), maxShares)
}

// Quota of a limit in microseconds a period; 0 where there is no limit.
func Quota(milli int64) int64 {
	if milli <= 0 {
		return 0
	}
	return max(milli*Period/1000, minQuota)
}

// Weight is the cgroup v2 weight that kubelet gives its own cgroups: the range of
// shares mapped linearly, which newer runtimes do not do for containers.
func Weight(shares int64) int64 {
	if shares <= 0 {
		return 100
	}
	shares = min(max(shares, minShares), maxShares)
	return 1 + (shares-minShares)*9999/(maxShares-minShares)
}

// ClassOf is the pod's QoS class, judged by CPU alone.
func (p *Pod) ClassOf() string {
	if p.QoS != "" {
		return p.QoS
	}
	none, full := true, true
	for _, c := range p.Containers {
		if c.RequestMilli != 0 || c.LimitMilli != 0 {
			none = false
		}
		if c.LimitMilli == 0 || c.Request() != c.LimitMilli {
			full = false
		}
	}
	switch {
	case none:
		return BestEffort
	case full:
		return Guaranteed
	default:
		return Burstable
	}
}

// StartOrder is the order in which kubelet starts containers: init containers and
// sidecars as listed, then the others.
func (p *Pod) StartOrder() []*Container {
	var first, then []*Container
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.Kind == Init || c.Kind == Sidecar {
			first = append(first, c)
		} else {
			then = append(then, c)
		}
	}
	return append(first, then...)
}

// Request is the container's request after the API server's defaulting: a limit
// without a request is both.
func (c *Container) Request() int64 {
	if c.RequestMilli == 0 {
		return c.LimitMilli
	}
	return c.RequestMilli
}

// Requests and Limits are the pod's sums: app containers and sidecars together,
// or the largest init container with the sidecars started before it.
func (p *Pod) Requests() int64 { return p.sum((*Container).Request) }

// Limits sums the limits that are declared; a container without one hides in it.
func (p *Pod) Limits() int64 {
	return p.sum(func(c *Container) int64 { return c.LimitMilli })
}

func (p *Pod) sum(of func(*Container) int64) int64 {
	var running, sidecars, initPeak int64
	for i := range p.Containers {
		c := &p.Containers[i]
		switch c.Kind {
		case Init:
			initPeak = max(initPeak, sidecars+of(c))
		case Sidecar:
			sidecars += of(c)
			initPeak = max(initPeak, sidecars)
		default:
			running += of(c)
		}
	}
	return max(running+sidecars, initPeak)
}

func (p *Pod) limitsDeclared() bool {
	for _, c := range p.Containers {
		if c.LimitMilli == 0 {
			return false
		}
	}
	return true
}

// CPU is what kubelet asks of a cgroup or of the runtime. 0 is "not set"; Quota -1
// is "unlimited".
type CPU struct {
	Shares int64
	Quota  int64
	Period int64
	// CPUs is how many the node has where kubelet names them all, as it does for
	// the root of the pods while it pins nothing itself.
	CPUs int
}

// PodCPU is the configuration of the pod's cgroup at its creation.
func (p *Pod) PodCPU() CPU {
	c := CPU{Shares: Shares(p.Requests())}
	switch class := p.ClassOf(); {
	case class == BestEffort:
		c.Shares = minShares
	case class == Guaranteed || p.limitsDeclared():
		c.Quota, c.Period = Quota(p.Limits()), Period
	}
	return c
}

// Unlimited writes down that there is no quota, where a creation would leave it out.
func (c CPU) Unlimited() CPU {
	if c.Quota == 0 {
		c.Quota, c.Period = -1, Period
	}
	return c
}

// SandboxCPU is `linux.resources` of the sandbox's configuration, which differs
// from the pod's cgroup: it carries the sum of the declared limits even where
// one container has none.
func (p *Pod) SandboxCPU() CPU {
	return CPU{Shares: Shares(p.Requests()), Quota: Quota(p.Limits()), Period: Period}
}

// CPU is what the container is created with.
func (c *Container) CPU() CPU {
	return CPU{Shares: Shares(c.Request()), Quota: Quota(c.LimitMilli), Period: Period}
}

// MaxFile and WeightFile are the contents of cpu.max and cpu.weight.
func (c CPU) MaxFile() string {
	if c.Quota <= 0 {
		return fmt.Sprintf("max %d", c.Period)
	}
	return fmt.Sprintf("%d %d", c.Quota, c.Period)
}

// CPUsFile is the content of cpuset.cpus.
func (c CPU) CPUsFile() string {
	if c.CPUs == 1 {
		return "0"
	}
	return fmt.Sprintf("0-%d", c.CPUs-1)
}

// WeightFile is the content of cpu.weight.
func (c CPU) WeightFile() string { return fmt.Sprint(Weight(c.Shares)) }

// BurstableShares are the shares of the burstable cgroup, which kubelet keeps at
// the sum of its pods' requests.
func BurstableShares(pods []*Pod) int64 {
	var sum int64
	for _, p := range pods {
		if p.ClassOf() == Burstable {
			sum += p.Requests()
		}
	}
	return Shares(sum)
}

// StateFile is a cpu_manager_state of version V2. The checksum is not kubelet's:
// a reader that verifies it would break at kubelet's next release.
func StateFile(policy, defaultSet string, entries map[string]map[string]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"policyName":%q,"defaultCpuSet":%q,"entries":{`, policy, defaultSet)
	for i, uid := range sortedKeys(entries) {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q:{", uid)
		for j, name := range sortedKeys(entries[uid]) {
			if j > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, "%q:%q", name, entries[uid][name])
		}
		b.WriteByte('}')
	}
	b.WriteString(`},"checksum":1}`)
	return b.String()
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// PodSet is one write to a pod's cgroup, and what the runtime is sent for it.
type PodSet struct{ Cgroup, Sandbox CPU }

// ResizePlan is how kubelet takes a pod's cgroup from one specification to the
// next: what grows before the containers are updated, limit first, and what
// shrinks after them, request first. So the runtime sees moments with the limit
// of one and the request of the other.
func ResizePlan(from, to PodSet) (before, after []PodSet) {
	now := from
	quota := func() { now.Cgroup.Quota, now.Sandbox.Quota = to.Cgroup.Quota, to.Sandbox.Quota }
	shares := func() { now.Cgroup.Shares, now.Sandbox.Shares = to.Cgroup.Shares, to.Sandbox.Shares }
	if limitGrows(from.Cgroup.Quota, to.Cgroup.Quota) {
		quota()
		before = append(before, now)
	}
	if to.Cgroup.Shares > from.Cgroup.Shares {
		shares()
		before = append(before, now)
	}
	if to.Cgroup.Shares < from.Cgroup.Shares {
		shares()
		after = append(after, now)
	}
	if to.Cgroup.Quota != now.Cgroup.Quota {
		quota()
		after = append(after, now)
	}
	return before, after
}

// limitGrows knows that no quota is more than any.
func limitGrows(from, to int64) bool { return from > 0 && (to <= 0 || to > from) }
