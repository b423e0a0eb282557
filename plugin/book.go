package plugin

import (
	"sync"

	"github.com/containerd/nri/pkg/api"

	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/policy"
)

// facts are what kubelet last asked for, which no reply of ours may lose: the
// runtime's own store holds our values once we have replied.
type facts struct {
	qos       policy.QoS
	shares    int64
	resources policy.Resources
	quota     cgroup.Quota
	hasCPUs   bool // the runtime's store has a cpuset for it
	ourQuota  bool // the runtime's store has a quota of ours
}

// cpu puts the facts back into the runtime's form.
func (f facts) cpu() *api.LinuxCPU {
	return &api.LinuxCPU{
		Shares: api.UInt64(uint64(f.shares)), Quota: api.Int64(f.quota.Micros),
		Period: api.UInt64(uint64(f.quota.Period)),
	}
}

func factsOf(c *api.Container, qos policy.QoS) facts {
	cpu := c.GetLinux().GetResources().GetCpu()
	return facts{
		qos: qos, shares: int64(min(cpu.GetShares().GetValue(), policy.MaxShares)),
		resources: bookResourcesOf(cpu, qos), quota: cgroup.Quota(quotaIn(cpu)), hasCPUs: cpu.GetCpus() != "",
	}
}

// book keeps the facts of every container that runs and the quota that kubelet
// wrote for every pod. Handlers and the enforcer read it.
type book struct {
	mu         sync.Mutex
	containers map[string]facts
	pods       map[string]cgroup.Quota // by pod UID
}

func newBook() *book {
	return &book{containers: map[string]facts{}, pods: map[string]cgroup.Quota{}}
}

func (b *book) container(id string) (facts, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f, ok := b.containers[id]
	return f, ok
}

func (b *book) putContainer(id string, f facts) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.containers[id] = f
}

func (b *book) pod(uid string) (cgroup.Quota, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	q, ok := b.pods[uid]
	return q, ok
}

func (b *book) putPod(uid string, cpu *api.LinuxCPU) {
	if cpu != nil {
		b.setPod(uid, cgroup.Quota(quotaIn(cpu)))
	}
}

func (b *book) setPod(uid string, q cgroup.Quota) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pods[uid] = q
}

// What a step dropped is dropped here too, so that the book is as large as the node.
func (b *book) dropContainer(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.containers, id)
}

func (b *book) dropPod(uid string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.pods, uid)
}

// updateOf is what a request to change a container changes; known is what the
// container had. A field that is 0 or empty in the request stays as it is.
func bookUpdateOf(id string, r *api.LinuxResources, known facts) (policy.ContainerUpdate, facts) {
	cpu := r.GetCpu()
	u := policy.ContainerUpdate{ID: id, CPUs: clip(cpu.GetCpus())}
	next := known
	if shares := cpu.GetShares().GetValue(); shares > 0 {
		u.Shares = int64(min(shares, policy.MaxShares))
		next.shares = u.Shares
	}
	if quota := cpu.GetQuota().GetValue(); quota != 0 {
		next.quota = cgroup.Quota(quotaIn(cpu))
	}
	if u.Shares > 0 || cpu.GetQuota().GetValue() != 0 {
		next.resources = bookResourcesOf(next.cpu(), known.qos)
		changed := next.resources
		u.Resources = &changed
	}
	if u.CPUs != "" {
		next.hasCPUs = true
	}
	return u, next
}

func bookResourcesOf(cpu *api.LinuxCPU, qos policy.QoS) policy.Resources {
	return policy.ResourcesOf(sharesIn(cpu), quotaIn(cpu), qos)
}
