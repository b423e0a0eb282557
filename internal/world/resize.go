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

// inPlace is what resizes in place make of a pod.
type inPlace struct {
	resize  *resize // what kubelet is about to change; nil: nothing
	written size    // what kubelet wrote to the pod's cgroup last
	missed  bool    // the daemon was not notified of the last one
	// resized means that the daemon may hold fewer or more CPUs to be the pod's than grant, since
	// a resize is under way or was given up. held are those.
	resized bool
	held    cpuset.Set
	once    cpuset.Set // all that was ever the pod's: a state file may still say so
}

// resize is what kubelet is doing to change a pod in place: first what grows of the pod's
// cgroup, then the containers, then what shrinks. The runtime is notified of each half of the
// pod's values before kubelet writes it, and may refuse it, which ends the resize.
type resize struct {
	part  *part
	steps []resizeStep
	// current is what kubelet holds the pod's cgroup to have.
	current size
	to      size
}

// resizeStep is one thing that kubelet does for a resize.
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

// toResize is the part that runs with another size than its spec's.
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

// stepResize asks the runtime for the next step.
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

// resizeAnswered goes on with a resize. Of one that is refused the spec is taken back.
func (w *World) resizeAnswered(a Answer) {
	p := a.To.Pod
	r := p.inPlace.resize
	if r == nil {
		return
	}
	if a.Err != nil { // kubelet tries it again, until the user sees that it is refused
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

// podUpdated is kubelet's own write, after the runtime was notified.
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

// weigh is kubelet's write of a pod's weight. It is refused where the cgroup is idle.
func (w *World) weigh(p *Pod) {
	if milli := p.inPlace.written.request; milli > 0 {
		_ = w.apply(p.Parent(), cgroup.Values{Weight: cgroup.WeightOf(milli)})
	}
}

// updated is a container that the runtime gives other values: kubelet's, or the answer's.
func (w *World) updated(o *part, a Answer) {
	c, p := o.ctr, o.ctr.Pod
	if c.phase != running {
		return
	}
	c.size, p.inPlace.missed = o.size, a.unasked
	c.quota = a.Quota
	if a.CPUs != "" {
		c.cpus = a.CPUs
		e, _ := w.kernel.Effective(c.Path()) // gone: it has none
		w.checkStart(c, e.CPUs)
	}
	if err := w.apply(c.Path(), c.values()); err != nil {
		w.note("the runtime cannot write %s: %v", c.Path(), err)
	}
}

// nameOf is how a choice names a part: the first one has no name there.
func (p *Pod) nameOf(o *part) string {
	if slices.Index(p.parts, o) == 0 {
		return ""
	}
	return o.name
}

// followResizes takes over what resizes made the daemon take from owners: it may be others'.
// What they made it add is promised once the pod runs on it and no other pod does: an owner that ran in
// the pool has others beside it until they have left.
func (w *World) followResizes(view View, grants map[string]cpuset.Set) {
	for _, p := range w.node.pods {
		grant := grants[p.UID()]
		p.inPlace.once.AddSet(&grant)
		if !p.live() || !view.Synced || !p.follows(grant) {
			continue
		}
		now := p.grant.Or(w.confinedTo(p)).And(grant)
		if more := now.Minus(p.grant); !more.IsEmpty() {
			tasks := w.tasks()
			now = now.Minus(more.And(w.shared(p, tasks)))
			cameFirst(tasks, more)
		}
		p.inPlace.held, p.grant = grant, now
		p.off = p.off.Or(w.heldOff(view))
		p.inPlace.resized = p.inPlace.missed || p.inPlace.resize != nil || p.toResize() != nil ||
			p.inPlace.written != p.size() ||
			int64(grant.Count())*1000 != p.ownSize().request || grant != p.grant
	}
}

// shared is what others than a pod may run on, those included that are created and not started.
func (w *World) shared(p *Pod, tasks []task) cpuset.Set {
	var all cpuset.Set
	for i := range tasks {
		if other := tasks[i].ctr.Pod; other != p && !p.admits(other) {
			all.AddSet(&tasks[i].cpus)
		}
	}
	for _, other := range w.node.pods {
		for _, o := range other.parts {
			if other == p || p.admits(other) || !o.is(ready) {
				continue
			}
			if may, err := w.kernel.Allowed(other.Parent()); err == nil {
				all.AddSet(&may)
			}
		}
	}
	return all
}

// confinedTo is where a pod runs that was given CPUs when it was created: a container that came
// while there was no daemon may run anywhere.
func (w *World) confinedTo(p *Pod) cpuset.Set {
	if slices.ContainsFunc(p.running(), func(o *part) bool { return o.ctr.early }) {
		return cpuset.Set{}
	}
	return w.runsOn(p)
}

// runsOn is where a pod's containers may run.
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

// follows reports whether CPUs are what a resize may make of the pod's: some fewer, or some more.
func (p *Pod) follows(cpus cpuset.Set) bool {
	if back := p.inPlace.once; back != p.grant && p.grant.SubsetOf(&cpus) && cpus.SubsetOf(&back) {
		return true
	}
	had := p.inPlace.held.Or(p.grant)
	return p.inPlace.resized && !cpus.IsEmpty() && (cpus.SubsetOf(&had) || p.grant.SubsetOf(&cpus))
}
