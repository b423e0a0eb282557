package world

import (
	"errors"
	"slices"
	"strconv"

	"github.com/containerd/nri/pkg/api"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/policy"
)

// inPlace is the state of a pod's resizes in place.
type inPlace struct {
	resize  *resize // the resize in progress; nil: none
	written size    // the last values that kubelet wrote to the pod's cgroup
	missed  bool    // the daemon was not notified of the last resize
	// resized means that the daemon may have fewer or more CPUs for the pod than grant, since a
	// resize is in progress or was given up. held are those.
	resized bool
	held    cpuset.Set
	// recorded are the CPUs in each of the records that a new daemon finds where none shows grant.
	recorded []cpuset.Set
	once     cpuset.Set // all CPUs that the pod ever owned: a state file may still have them
}

// resize is a resize of a pod in place. Kubelet raises values of the pod's cgroup first, then resizes
// the containers, then lowers values of the pod's cgroup. It notifies the runtime of each of the pod's
// values before it writes them; the runtime may refuse, which ends the resize.
type resize struct {
	part  *part
	steps []resizeStep
	// current are the values of the pod's cgroup as kubelet knows them.
	current size
	to      size
}

// resizeStep is one step of a resize.
type resizeStep string

const (
	stepLimit     resizeStep = "limit"
	stepRequest   resizeStep = "request"
	stepContainer resizeStep = "container"
)

// resizeTo are the requests, in milli-CPUs, that a pod's first container may be resized to.
var resizeTo = map[bool][]string{true: {"1000", "2000", "3000", "4000", "6000", "2500"}, false: {"300", "900", "1500"}}

func (w *World) offerResize(add offer, p *Pod) {
	if p.QoS == policy.BestEffort || len(p.running()) < len(p.parts) {
		return
	}
	to := resizeTo[p.owns()]
	if next := to[w.rng.IntN(len(to))]; next != strconv.FormatInt(p.parts[0].size.request, 10) {
		add(2, "resize", p.Name, next)
	}
}

// wantResize changes the spec of a pod's first container.
func (w *World) wantResize(p *Pod, request string) bool {
	milli, err := strconv.ParseInt(request, 10, 64)
	o := p.parts[0]
	if err != nil || milli <= 0 || p.phase != ready || len(p.running()) < len(p.parts) ||
		p.QoS == policy.BestEffort || milli == o.size.request {
		return false
	}
	limit := int64(0)
	if o.size.limit > 0 {
		limit = milli * o.size.limit / o.size.request
	}
	o.size = size{milli, limit}
	if !p.inPlace.resized {
		p.inPlace.resized, p.inPlace.held = true, p.grant
	}
	return true
}

// toResize is a part that runs with another size than in the spec; nil: none does.
func (p *Pod) toResize() *part {
	for _, o := range p.running() {
		if o.ctr.size != o.size {
			return o
		}
	}
	return nil
}

func (w *World) beginResize(p *Pod) {
	o := p.toResize()
	if o == nil {
		return
	}
	e, err := w.kernel.Effective(p.Parent())
	if err != nil {
		return
	}
	r := &resize{part: o, current: size{request: p.inPlace.written.request, limit: max(e.QuotaMilli, -1)}, to: p.size()}
	from := size{o.ctr.size.request, o.ctr.size.limit}
	if o.size.limit > from.limit {
		r.steps = append(r.steps, stepLimit)
	}
	if o.size.request > from.request {
		r.steps = append(r.steps, stepRequest)
	}
	r.steps = append(r.steps, stepContainer)
	if o.size.request < from.request {
		r.steps = append(r.steps, stepRequest)
	}
	if o.size.limit < from.limit {
		r.steps = append(r.steps, stepLimit)
	}
	p.inPlace.resize = r
	w.stepResize(p)
}

// stepResize queues the runtime's request for the next step.
func (w *World) stepResize(p *Pod) {
	r := p.inPlace.resize
	if len(r.steps) == 0 {
		p.inPlace.resize = nil
		return
	}
	req := &Request{Kind: UpdatePod, Pod: p, sandbox: p.sandbox}
	switch r.steps[0] {
	case stepLimit:
		req.Resources = cpuOf(size{r.current.request, r.to.limit}, "")
	case stepRequest:
		req.Resources = cpuOf(size{r.to.request, r.current.limit}, "")
	default:
		req.Kind, req.Container = UpdateCtr, r.part.ctr
		req.Resources = cpuOf(r.part.size, "")
	}
	if r.current.limit < 0 && r.steps[0] == stepRequest {
		req.Resources.Quota = api.Int64(-1)
	}
	w.node.queue = append(w.node.queue, req)
}

// resizeAnswered continues a resize. If it is refused, the spec is reverted.
func (w *World) resizeAnswered(a Answer) {
	p := a.To.Pod
	r := p.inPlace.resize
	if r == nil {
		return
	}
	if a.Err != nil { // kubelet tries again, until the user sees the refusal
		p.inPlace.resize = nil
		if refusal := (*policy.Refusal)(nil); errors.As(a.Err, &refusal) {
			r.part.size = r.part.ctr.size
		}
		return
	}
	step := r.steps[0]
	r.steps = r.steps[1:]
	switch step {
	case stepLimit:
		r.current.limit = r.to.limit
		w.node.enqueue(PostUpdatePod, p, nil)
	case stepRequest:
		r.current.request = r.to.request
		w.node.enqueue(PostUpdatePod, p, nil)
	default:
		w.updated(r.part, a)
		w.node.enqueue(PostUpdateCtr, p, r.part.ctr)
		w.stepResize(p)
	}
}

// podUpdated is kubelet's write of the pod's cgroup after the runtime was notified.
func (w *World) podUpdated(p *Pod) {
	r := p.inPlace.resize
	if r == nil {
		return
	}
	p.inPlace.written.request = r.current.request
	w.weigh(p)
	if r.current.limit > 0 {
		p.inPlace.written.limit = r.current.limit
		if err := w.apply(p.Parent(), cgroupQuota(r.current.limit)); err != nil {
			w.note("kubelet cannot write %s: %v", p.Parent(), err)
		}
	}
	w.stepResize(p)
}

// weigh is kubelet's write of a pod's weight. The kernel refuses it if the cgroup is idle.
func (w *World) weigh(p *Pod) {
	if milli := p.inPlace.written.request; milli > 0 {
		_ = w.apply(p.Parent(), cgroup.Values{Weight: cgroup.WeightOf(milli)})
	}
}

// updated is the runtime's write of a container's new values: kubelet's, or those of the reply.
func (w *World) updated(o *part, a Answer) {
	c, p := o.ctr, o.ctr.Pod
	if c.phase != running {
		return
	}
	c.size, c.limitLost, p.inPlace.missed = o.size, false, a.unconnected
	c.quota = a.Quota
	if a.CPUs != "" {
		c.cpus = a.CPUs
		e, _ := w.kernel.Effective(c.Path()) // a cgroup that is gone has no CPUs
		w.checkStart(c, e.CPUs)
	}
	if err := w.apply(c.Path(), c.values()); err != nil {
		w.note("the runtime cannot write %s: %v", c.Path(), err)
	}
}

// nameOf is the name of a part in a choice: empty for the first one.
func (p *Pod) nameOf(o *part) string {
	if slices.Index(p.parts, o) == 0 {
		return ""
	}
	return o.name
}

// followResizes updates grants after resizes. CPUs that the daemon took from an owner are not granted any
// more, since others may get them. CPUs that it added are granted once the pod runs on them and nobody else
// does: an owner that ran in the pool, or that was not told yet that it shrank, has others beside it until these
// have moved. A daemon whose Synchronize failed after it had taken over what runs decides too.
func (w *World) followResizes(view View, grants map[string]cpuset.Set) {
	for _, p := range w.node.pods {
		grant := grants[p.UID()]
		p.inPlace.once.AddSet(&grant)
		if !p.live() || !view.Synced && grant.IsEmpty() || !p.follows(grant) {
			continue
		}
		now := p.grant.Or(w.confinedTo(p)).And(grant)
		if more := now.Minus(p.grant); !more.IsEmpty() {
			tasks := w.tasks()
			now = now.Minus(more.And(w.shared(p, tasks)))
			excludeEarly(tasks, more)
		}
		p.inPlace.held, p.inPlace.recorded, p.grant = grant, nil, now
		p.off = p.off.Or(w.heldOff(view))
		p.inPlace.resized = p.inPlace.missed || p.inPlace.resize != nil || p.toResize() != nil ||
			p.inPlace.written != p.size() ||
			int64(grant.Count())*1000 != p.ownSize().request || grant != p.grant
	}
}

// shared are the CPUs that others may run on: other pods, and containers of a mixed pod that own none. This
// includes containers that are created and not started.
func (w *World) shared(p *Pod, tasks []task) cpuset.Set {
	others := func(c *Container) bool { return (c.Pod != p || !c.owns()) && !p.admits(c.Pod) }
	var all cpuset.Set
	for i := range tasks {
		if others(tasks[i].ctr) {
			all.AddSet(&tasks[i].cpus)
		}
	}
	for _, c := range w.node.made() {
		if c.phase != ready || !others(c) {
			continue
		}
		if may, err := w.kernel.Allowed(c.Path()); err == nil {
			all.AddSet(&may)
		}
	}
	return all
}

// confinedTo are the CPUs that a pod runs on; empty if one of its containers was created without a daemon,
// and so may run anywhere.
func (w *World) confinedTo(p *Pod) cpuset.Set {
	if slices.ContainsFunc(p.running(), func(o *part) bool { return o.ctr.early }) {
		return cpuset.Set{}
	}
	return w.runsOn(p)
}

// runsOn are the CPUs that a pod's containers with CPUs of their own may run on.
func (w *World) runsOn(p *Pod) cpuset.Set {
	var cpus cpuset.Set
	for _, o := range p.running() {
		if !o.ctr.owns() {
			continue
		}
		if may, err := w.kernel.Allowed(o.ctr.Path()); err == nil {
			cpus.AddSet(&may)
		}
	}
	return cpus
}

// follows reports whether CPUs may be the result of a resize of the pod: fewer than it has, or more, also of those that
// a record shows.
func (p *Pod) follows(cpus cpuset.Set) bool {
	if back := p.inPlace.once; back != p.grant && p.grant.SubsetOf(&cpus) && cpus.SubsetOf(&back) {
		return true
	}
	if slices.ContainsFunc(p.inPlace.recorded, func(found cpuset.Set) bool { return found.SubsetOf(&cpus) }) {
		return true
	}
	had := p.inPlace.held.Or(p.grant)
	return p.inPlace.resized && !cpus.IsEmpty() && (cpus.SubsetOf(&had) || p.grant.SubsetOf(&cpus))
}
