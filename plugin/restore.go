package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/plugin/node"
	"github.com/quietcore/quietcore/policy"
)

// Restored is the result for one slice, pod or container.
type Restored struct {
	Name, Path      string
	CPUs, Was       cpuset.Set // effective sets now and before
	Quota, QuotaWas cgroup.Quota
	// StillMasked: the kernel refused to empty its own mask, which is left as wide
	// as it can be: CPUs that come online later are not in it.
	StillMasked bool
	Err         error

	id        string // in the tree
	wantQuota *cgroup.Quota
	weight    uint64 // to give back; 0: it was not touched
	idle      bool   // to be undone
}

// Changed reports whether anything is different now.
func (r *Restored) Changed() bool { return r.CPUs != r.Was || r.Quota != r.QuotaWas }

// Restore gives every pod and container the CPUs and the quota that it would have without
// Quietcore, in the cgroups and in what the runtime stores, and returns a result for each. kubelet
// is its CPU manager's state: with the policy static its pins stay. The daemon must not run.
func Restore(ctx context.Context, o Options, kubelet policy.KubeletState) ([]Restored, error) {
	o.fill()
	if o.Reader == nil || o.Driver == nil {
		return nil, errors.New("restore: the options have no cgroup tree (Reader and Driver)")
	}
	r := &restorer{o: o, kubelet: kubelet, stored: map[string]values{}}
	first, err := r.listen(ctx, r.plan)
	if err != nil {
		return nil, err
	}
	defer first.end()
	// The runtime registers plugins one after the other, so when it calls a second one it has
	// carried out the first one's reply.
	second, err := r.listen(ctx, r.check)
	if err != nil {
		return nil, err
	}
	defer second.end()
	return r.apply(ctx)
}

// restorer undoes what a daemon did.
type restorer struct {
	o       Options
	kubelet policy.KubeletState
	stored  map[string]values // what the runtime has to store, by container ID

	tree  *cgroup.Tree
	found []Restored
}

// listing is a plugin that only handles Synchronize.
type listing struct {
	stub stub.Stub
	take func(context.Context, []*api.PodSandbox, []*api.Container) ([]*api.ContainerUpdate, error)
	done chan error
}

// Synchronize only plans, and replies with what the runtime has to store. Cgroups are written after
// it: the runtime's timeout is for the whole node.
func (l *listing) Synchronize(ctx context.Context, pods []*api.PodSandbox,
	containers []*api.Container) ([]*api.ContainerUpdate, error) {
	ctx, cancel := context.WithTimeout(ctx, half(l.stub.RequestTimeout()))
	defer cancel()
	updates, err := l.take(ctx, pods, containers)
	l.done <- err
	return updates, err
}

// RemovePodSandbox exists because a plugin has to subscribe to some event.
func (l *listing) RemovePodSandbox(context.Context, *api.PodSandbox) error { return nil }

// listen registers and returns when take has been called.
func (r *restorer) listen(ctx context.Context, take func(context.Context, []*api.PodSandbox,
	[]*api.Container) ([]*api.ContainerUpdate, error)) (*link, error) {
	handler := &listing{take: take, done: make(chan error, 1)}
	l, err := r.register(ctx, handler)
	if err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	select {
	case err = <-handler.done:
	case <-l.closed:
		err = errors.New("the runtime closed the connection")
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		l.end()
		return nil, fmt.Errorf("restore: %w", err)
	}
	return l, nil
}

// register tries several times: the NRI library waits at most five seconds for the runtime, which
// can be too short on a busy node.
func (r *restorer) register(ctx context.Context, handler *listing) (*link, error) {
	for i := 1; ; i++ {
		l, err := register(ctx, &r.o, handler, func(st stub.Stub) { handler.stub = st })
		var dial *net.OpError
		if err == nil || i == registerTries || errors.As(err, &dial) || ctx.Err() != nil {
			return l, err
		}
		r.o.Log.Warn("the runtime did not register the plugin; trying again", "attempt", i, "of", registerTries,
			"err", err)
	}
}

const registerTries = 6

// check compares what the runtime stores with the reply of plan.
func (r *restorer) check(_ context.Context, _ []*api.PodSandbox,
	containers []*api.Container) ([]*api.ContainerUpdate, error) {
	for _, c := range containers {
		want, ok := r.stored[clip(c.GetId())]
		now := c.GetLinux().GetResources().GetCpu()
		if !ok || (want.cpus == "" || want.cpus == now.GetCpus()) && (want.quota == nil ||
			want.quota.Milli() == cgroup.Quota(quotaIn(now)).Milli()) {
			continue
		}
		for i := range r.found {
			if n := &r.found[i]; n.id == clip(c.GetId()) {
				n.Err = fmt.Errorf(
					"the runtime does not store CPUs %s and quota %s; its next update writes CPUs %s and quota %s "+
						"again: restart the container, or run restore once more",
					want.cpus, want.quota, now.GetCpus(), cgroup.Quota(quotaIn(now)))
			}
		}
	}
	return nil, nil
}

func (r *restorer) plan(ctx context.Context, pods []*api.PodSandbox,
	containers []*api.Container) ([]*api.ContainerUpdate, error) {
	online := r.o.Topology.Online()
	r.tree = cgroup.NewTree(online, cgroup.Options{Flat: r.o.Flat})
	if err := r.tree.SetPool(everything, online); err != nil {
		return nil, err
	}
	now := r.o.Clock.Now()
	for _, path := range node.KubeletSlices() { // one may be empty
		if _, err := r.o.Reader.CPUs(path); !errors.Is(err, cgroup.ErrGone) {
			r.slice(path)
		}
	}
	event, observed := node.Recover(node.Recovery{
		Reader: r.o.Reader, Topology: r.o.Topology, Saved: r.o.Saved, Now: now,
	}, inventoryOf(pods, containers, "", now))
	bySandbox := map[string]*policy.Pod{}
	for i := range event.Pods {
		p := &event.Pods[i]
		bySandbox[p.Sandbox] = p
		r.slice(cgroup.Parent(p.CgroupParent))
		r.pod(p, requested(p, event.Containers))
	}
	stored := map[string]*api.Container{}
	for _, c := range containers {
		stored[clip(c.GetId())] = c
	}
	var updates []*api.ContainerUpdate
	for i := range event.Containers {
		c := &event.Containers[i]
		if pod := bySandbox[c.Sandbox]; pod != nil {
			updates = append(updates, r.container(pod, c, stored[c.ID])...)
		}
	}
	for path, e := range observed {
		if e != nil {
			r.tree.Observe(path, *e)
		}
	}
	return updates, ctx.Err()
}

// everything is the pool of pods that may run anywhere.
const everything = "everything"

// leastWeight is what kubelet gives every pod that requests no CPU.
const leastWeight = 1

func (r *restorer) slice(path string) {
	switch cgroup.Classify(path) {
	case cgroup.Burstable, cgroup.BestEffort:
	default:
		return
	}
	if _, known := r.tree.Want(path); known || r.tree.PutSlice(cgroup.Slice{Path: path,
		Need: cgroup.InPool(everything)}) != nil {
		return
	}
	n := Restored{Name: path, Path: path, id: path}
	if cgroup.Classify(path) == cgroup.BestEffort {
		none := cgroup.Quota(policy.QuotaOf(policy.NoLimit))
		n.wantQuota = &none
	}
	r.note(n)
}

// note records the state of a cgroup before anything is written; one that is gone is left out.
func (r *restorer) note(n Restored) {
	e, err := r.o.Reader.Effective(n.Path)
	if errors.Is(err, cgroup.ErrGone) {
		return
	}
	n.Err, n.Was, n.QuotaWas = err, e.CPUs, e.Quota
	r.tree.Observe(n.Path, e)
	r.found = append(r.found, n)
}

// requested is what a pod requests, as far as the runtime knows: it goes on saying of a pod what it
// was created with, and of its containers what they have now.
func requested(p *policy.Pod, containers []policy.Container) policy.Resources {
	sum, unlimited := policy.Resources{}, false
	for i := range containers {
		if c := &containers[i]; c.Sandbox == p.Sandbox {
			sum.RequestMilli += max(c.Resources.RequestMilli, 0)
			sum.LimitMilli += max(c.Resources.LimitMilli, 0)
			unlimited = unlimited || c.Resources.LimitMilli <= 0
		}
	}
	if r := p.Resources; r != nil {
		sum.RequestMilli, sum.LimitMilli = max(sum.RequestMilli, r.RequestMilli), max(sum.LimitMilli, r.LimitMilli)
	}
	if unlimited || sum.LimitMilli <= 0 {
		sum.LimitMilli = policy.NoLimit
	}
	return sum
}

// pod undoes what was done to a pod's cgroup. requests is what it requests now.
func (r *restorer) pod(p *policy.Pod, requests policy.Resources) {
	n := Restored{Name: p.Namespace + "/" + p.Name, Path: p.CgroupParent, id: p.UID}
	if n.Path == "" {
		return
	}
	if n.Err = r.tree.PutPod(cgroup.Pod{ID: p.UID, Path: p.CgroupParent, Need: cgroup.InPool(everything),
		Mems: r.mems(n.Path)}); n.Err != nil {
		r.found = append(r.found, n)
		return
	}
	// Owners' quotas were lifted.
	if quota := cgroup.Quota(p.Asked); p.Exclusive() && quota.Micros > 0 {
		n.wantQuota = &quota
	}
	r.batch(&n, p, requests)
	r.note(n)
}

// batch undoes what was done to a pod's cgroup because the pod is best effort. One in kubelet's slice
// has the least weight and no quota. Any other weighed less than it requests, or more than the
// nothing that it does, or had a quota without a limit.
func (r *restorer) batch(n *Restored, p *policy.Pod, requests policy.Resources) {
	e, err := r.o.Reader.Effective(n.Path)
	weight := cgroup.WeightOf(requests.RequestMilli)
	switch {
	case err != nil:
	case p.QoS == policy.BestEffort:
		if e.Weight > leastWeight || e.Idle || e.QuotaMilli > 0 {
			n.weight, n.wantQuota, n.idle = leastWeight, &cgroup.Quota{Micros: -1}, e.Idle
		}
	case policy.Class(p.Labels[policy.LabelClass]) != policy.BE:
	case e.Weight < weight, requests.RequestMilli == 0 && e.Weight > weight,
		requests.LimitMilli == policy.NoLimit && e.QuotaMilli > 0:
		quota := cgroup.Quota(policy.QuotaOf(requests.LimitMilli))
		n.weight, n.wantQuota = weight, &quota
	}
}

// mems is the widest set of memory nodes where a cgroup has one of its own.
func (r *restorer) mems(path string) cpuset.Set {
	if e, err := r.o.Reader.Effective(path); err != nil || e.OwnMems.IsEmpty() {
		return cpuset.Set{}
	}
	return r.o.Topology.MemoryNodes()
}

func (r *restorer) container(p *policy.Pod, c *policy.Container, stored *api.Container) []*api.ContainerUpdate {
	n := Restored{Name: p.Namespace + "/" + p.Name + "/" + c.Name, Path: c.CgroupPath, id: c.ID}
	if n.Path == "" {
		return nil
	}
	need, cpus := cgroup.InPool(everything), r.o.Topology.Online()
	if set := r.kubeletsOwn(p.UID, c.Name); !set.IsEmpty() {
		need, cpus = cgroup.On(set), set
	}
	mems := r.mems(n.Path)
	if n.Err = r.tree.PutContainer(cgroup.Container{ID: c.ID, Pod: p.UID, Path: n.Path, Need: need,
		Mems: mems}); n.Err != nil {
		r.found = append(r.found, n)
		return nil
	}
	v := values{}
	if quota := cgroup.Quota(c.Asked.Quota); c.Asked.OurQuota {
		v.quota, n.wantQuota = &quota, &quota
	}
	if now := stored.GetLinux().GetResources().GetCpu(); now.GetCpus() != "" && now.GetCpus() != cpus.String() {
		v.cpus = cpus.String()
	}
	if stored.GetLinux().GetResources().GetCpu().GetMems() != "" && !mems.IsEmpty() {
		v.mems = mems.String()
	}
	r.note(n)
	u := v.update(c.ID)
	if u == nil {
		return nil
	}
	u.IgnoreFailure = true
	r.stored[c.ID] = v
	return []*api.ContainerUpdate{u}
}

// kubeletsOwn are the CPUs of a container under kubelet's static policy: its own, or those that
// kubelet leaves to all others. Kubelet itself would set them only at its next change.
func (r *restorer) kubeletsOwn(uid, container string) cpuset.Set {
	if r.kubelet.PolicyName != "static" {
		return cpuset.Set{}
	}
	if own, ok := r.kubelet.Entries[uid][container]; ok {
		return own
	}
	return r.kubelet.Default
}

// apply widens the masks, restores the quotas, and reads the results back.
func (r *restorer) apply(ctx context.Context) ([]Restored, error) {
	failures := map[string]error{}
	err := r.tree.Execute(r.tree.Plan(), func(w cgroup.Write) error {
		err := r.o.Driver.Apply(ctx, w.Path, w.Values())
		if err != nil && !errors.Is(err, cgroup.ErrGone) {
			failures[w.Path] = err
		}
		return err
	})
	for i := range r.found {
		n := &r.found[i]
		if q := n.wantQuota; q != nil && n.Err == nil && (n.QuotaWas.Milli() != q.Milli() || n.weight > 0) {
			v := cgroup.Values{Quota: q, Weight: n.weight}
			if n.idle {
				v.Idle = new(bool)
			}
			if n.Err = r.o.Driver.Apply(ctx, n.Path, v); n.Err != nil {
				err = errors.Join(err, n.Err)
			}
		}
		n.Err = cmp.Or(n.Err, failures[n.Path])
		r.look(n)
	}
	r.found = slices.DeleteFunc(r.found, func(n Restored) bool { return errors.Is(n.Err, cgroup.ErrGone) })
	slices.SortFunc(r.found, func(a, b Restored) int { return cmp.Compare(a.Name, b.Name) })
	return r.found, err
}

// look reads back the kernel's values.
func (r *restorer) look(n *Restored) {
	e, err := r.o.Reader.Effective(n.Path)
	if err != nil {
		n.Err = cmp.Or(n.Err, err)
		return
	}
	n.CPUs, n.Quota = e.CPUs, e.Quota
	online := r.o.Topology.Online()
	n.StillMasked = online.SubsetOf(&e.OwnCPUs)
	if want, ok := r.tree.Want(n.id); ok && n.Err == nil && e.CPUs != want {
		n.Err = fmt.Errorf("cgroup %s: runs on CPUs %s instead of %s", n.Path, e.CPUs, want)
	}
}
