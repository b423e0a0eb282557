package node

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// recovery finds out which CPUs pods had before the daemon started. It has four witnesses:
//
//	state file  what was decided. It is written before replies and masks, so it is right unless the disk failed: then
//	            it is behind. It names all pods of its time, also those in the pool.
//	store       what the runtime was told of the containers that still run. A move is not told.
//	mask        what was written last: the pod's own CPUs, the pool's, or those of a step between two places.
//	request     how many CPUs the pod is to have: by its cgroup's quota and weight, which only kubelet writes, else
//	            by its creation and its running containers, which may not be all.
//
// The file decides, unless two of the others contradict it together:
//
//	it has       it is behind if
//	CPUs         store and mask have as many others, or one of them where the other cannot (replaced); or the pod
//	             requests another number, which store or mask have, or on which both agree (outdated); or its mask
//	             is not known, and a pod that came later was given them (told)
//	the pool     the store has as many as requested, or the mask, too (toldSince); or a confirmed mask is not the
//	             pool's (promoted)
//	no such pod  always. The store counts if the mask is the same or on the way to it (passes, narrows), else the
//	             mask, unless it may be the pool's or on its way and nothing confirms it (distrust)
//
// No pod is given CPUs that others were found to have by a stronger witness.
type recovery struct {
	reader cgroup.Reader // nil: cgroups cannot be read
	topo   *topology.Topology
	saved  map[string]state.Pod // by pod UID
	caps   []state.Cap
	// claimed are the CPUs of claims of our own driver, which no cgroup and no pod in the file shows.
	claimed cpuset.Set
	// placed are the pods, by UID, that this daemon placed itself, and what they own; nil: nothing.
	placed map[string]*policy.Recovered
	toldLimits
	now time.Time

	poolBefore
	owners   cpuset.Set                   // CPUs of owners by masks or by the state file
	newer    cpuset.Set                   // CPUs of owners that the state file does not name, by mask, else by store
	found    []*running                   // all pods
	observed map[string]*cgroup.Effective // what was read, by path; nil: no mask
	resized  []policy.PodResized          // resizes that happened without a daemon
}

// poolBefore is the shared pool before the start, as derived from masks.
type poolBefore struct {
	pool  cpuset.Set
	slice cpuset.Set // the same by the mask of its slice alone; empty: it has none
	// batch means that best effort is in that slice: then the slice may have CPUs that owners share with it.
	batch bool
}

// toldLimits are the limits that the policy has already.
type toldLimits struct {
	lost bool // there is no state file, and caps have to be guessed
	// limited are the containers, by ID, whose limit this daemon manages, or has written: the kernel's is ours, and no
	// earlier daemon's.
	limited map[string]bool
	// guessed are the containers, by ID, as an earlier taking answered them before they were read: the limits that
	// the policy has for them are not known to be right.
	guessed map[string]policy.Container
}

// Inventory is the runtime's list of pods and of their containers that have not stopped. A
// container's CPUs are those that the runtime stores. It is never modified.
type Inventory struct {
	Pods       []policy.Pod
	Containers []policy.Container
}

// Recovery is what is known about a node without its daemon.
type Recovery struct {
	Reader   cgroup.Reader
	Topology *topology.Topology
	Saved    state.Snapshot
	Now      time.Time
}

// Recover finds out what pods and containers own and request, and which masks cgroups have, by
// path; nil: none.
func Recover(from Recovery, listed Inventory) (policy.Synchronized, map[string]*cgroup.Effective) {
	r := recovery{reader: from.Reader, topo: from.Topology, now: from.Now, saved: from.Saved.Places(),
		caps: from.Saved.Caps, claimed: claimedIn(from.Saved.Claims),
		toldLimits: toldLimits{lost: from.Saved.Revision == 0 || from.Saved.CapsUnknown}}
	event := r.synchronized(listed)
	event.Claims = from.Saved.Claims
	return event, r.observed
}

// running is one pod with its running containers.
type running struct {
	pod        policy.Pod
	containers []policy.Container
	kernel     cpuset.Set // the pod cgroup's own mask
	asks       int64      // what an owner requests, in milli-CPUs; 0: unknown
	all        bool       // asks is from the pod's quota
	weighs     int64      // the request that the pod's weight shows, in milli-CPUs; 0: none
	owned      cpuset.Set // what the pod was found to own
	later      cpuset.Set // its mask, if the pod came after the state file and more than its mask shows these CPUs
	// mixed means that containers of the pod own CPUs of their own, and the pod as a whole requests none.
	// claims are the CPUs that these containers were found with, and kernel is the sum of them; agreed are
	// those that the runtime stores and that the kernel or a lifted limit confirms.
	mixed  bool
	claims []policy.RecoveredContainer
	agreed cpuset.Set
}

// synchronized turns the runtime's lists into the event.
func (r *recovery) synchronized(listed Inventory) policy.Synchronized {
	r.observed, r.caps = map[string]*cgroup.Effective{}, slices.Clone(r.caps)
	found := slices.DeleteFunc(r.group(listed), r.ended)
	r.found = found
	for _, p := range found {
		p.pod.Asked = r.podQuota(&p.pod)
		p.kernel = r.read(p.pod.CgroupParent)
		if _, p.mixed = p.pod.Names(""); p.mixed {
			r.claim(p)
			continue
		}
		p.asks, p.all = r.asked(p, p.containers)
	}
	r.distrust(found)
	r.place(found)
	var s policy.Synchronized
	for _, p := range found {
		for _, c := range p.containers {
			s.Containers = append(s.Containers, r.container(p, c))
		}
		r.follow(p, p.all)
		s.Pods = append(s.Pods, p.pod)
	}
	for _, c := range r.caps {
		s.Caps = append(s.Caps, c.Policy())
	}
	return s
}

// podQuota is kubelet's quota of a pod: after a resize the runtime may still report the old one, but
// the state file has the number of CPUs that an owner requested.
func (r *recovery) podQuota(p *policy.Pod) policy.Quota {
	saved := r.saved[p.UID]
	if asked := p.Asked; asked.Micros <= 0 || !p.Exclusive() || saved.CPUs.IsEmpty() ||
		saved.Reservation != nil || saved.Containers != nil {
		return asked
	}
	n := int64(cmp.Or(saved.Request, saved.CPUs.Count()))
	return policy.Quota{Micros: n * p.Asked.Period, Period: p.Asked.Period}
}

// asked is how much an owner requests now, in milli-CPUs; 0: that is not known. all: it is from the
// pod's quota. The runtime keeps reporting the pod's sums from its creation. We lift the pod's
// quota, and kubelet writes it at a resize: a quota that is there is newer. Otherwise the
// request is the sum of the running containers, which may not be all. If none runs, it is
// derived from the pod's weight, which only kubelet writes.
func (r *recovery) asked(p *running, containers []policy.Container) (milli int64, all bool) {
	if !p.pod.Exclusive() || r.reader == nil {
		return 0, false
	}
	e, err := r.reader.Effective(p.pod.CgroupParent)
	p.weighs = weighed(e.Weight)
	switch {
	case errors.Is(err, errUnread):
		return 0, false
	case err == nil && e.QuotaMilli > 0:
		// A resize to more raises the quota first, then the weight: so a weight of just the CPUs that the pod
		// has means that it does not request more yet. Otherwise the weight may be any, and does not count.
		if own := int64(p.kernel.Count()) * 1000; own > 0 && own < e.QuotaMilli && p.weighs == own {
			return own, true
		}
		return e.QuotaMilli, true
	case len(containers) == 0:
		return p.weighs, false
	}
	for _, c := range newestOf(containers) {
		milli += c.Resources.RequestMilli
	}
	return milli, false
}

// weighed is the request in whole CPUs, in milli-CPUs, for which kubelet sets a weight; 0: there is
// none, for example because the runtime converts weights differently.
func weighed(weight uint64) int64 {
	cpus := int64(weight) / int64(cgroup.WeightOf(1000)) // each CPU adds a little more than that
	for milli := cpus * 1000; milli > 0 && cgroup.WeightOf(milli) >= weight; milli -= 1000 {
		if cgroup.WeightOf(milli) == weight {
			return milli
		}
	}
	return 0
}

// follow records a resize that happened without a daemon. Without the pod's quota (all) only growth
// can be seen.
func (r *recovery) follow(p *running, all bool) {
	if p.asks == 0 || !all && p.asks <= r.owned(p) {
		return
	}
	if before := p.pod.Resources; !all && before != nil && p.asks <= before.RequestMilli {
		return
	}
	r.resized = append(r.resized, policy.PodResized{Sandbox: p.pod.Sandbox,
		Resources: policy.Resources{RequestMilli: p.asks, LimitMilli: p.asks}})
}

// owned is how much a pod owns, or was found to own, in milli-CPUs.
func (r *recovery) owned(p *running) int64 {
	o := p.pod.Recovered
	if o == nil {
		o = r.placed[p.pod.UID]
	}
	if o != nil && o.CPUs != nil {
		return milli(o.CPUs)
	}
	return 0
}

// ended reports whether a pod has ended and only its sandbox is still listed: kubelet has removed its
// cgroup.
func (r *recovery) ended(p *running) bool {
	if len(p.containers) > 0 || r.reader == nil || p.pod.CgroupParent == "" {
		return false
	}
	gone, err := cgroup.Gone(r.reader, p.pod.CgroupParent)
	return err == nil && gone
}

func (r *recovery) group(listed Inventory) []*running {
	bySandbox := make(map[string]*running, len(listed.Pods))
	found := make([]*running, 0, len(listed.Pods))
	for _, p := range listed.Pods {
		next := &running{pod: p}
		bySandbox[p.Sandbox] = next
		found = append(found, next)
	}
	for _, c := range listed.Containers {
		p := bySandbox[c.Sandbox]
		if p == nil {
			continue
		}
		p.containers = append(p.containers, c)
		// The runtime does not report when a pod was created; its first container is close.
		if p.pod.CreatedAt.IsZero() || c.CreatedAt.Before(p.pod.CreatedAt) {
			p.pod.CreatedAt = c.CreatedAt
		}
	}
	for _, p := range found {
		if p.pod.CreatedAt.IsZero() {
			p.pod.CreatedAt = r.now
		}
		if saved, ok := r.saved[p.pod.UID]; ok && !saved.CreatedAt.IsZero() {
			p.pod.CreatedAt = saved.CreatedAt
		}
	}
	return found
}

// read returns a cgroup's own mask; empty: it has none or cannot be read.
func (r *recovery) read(path string) cpuset.Set {
	if r.reader == nil || path == "" {
		return cpuset.Set{}
	}
	e, err := r.reader.CPUs(path)
	if err != nil {
		return cpuset.Set{}
	}
	r.observed[path] = nil
	if !e.OwnCPUs.IsEmpty() {
		found := e
		r.observed[path] = &found
	}
	return e.OwnCPUs
}

// shrunk is the part of a pod's mask that does not belong to others, if it is as large as the request: the
// pod was shrinking, and others received the rest. Empty: that is not known.
func (p *running) shrunk(others cpuset.Set) (left cpuset.Set) {
	rest := p.kernel.Minus(others)
	if !p.sized() || milli(&rest) < p.asks {
		return left
	}
	for cpu := range rest.All() {
		if milli(&left) < p.asks {
			left.Add(cpu)
		}
	}
	return left
}

// sized reports whether the request is from the pod's own cgroup.
func (p *running) sized() bool { return !p.mixed && p.asks > 0 && (p.all || len(p.containers) == 0) }

// fits reports whether CPUs are enough for what a pod requests as a whole, or as many as its weight shows. The
// requests of its running containers alone do not tell: they may not be all.
func (p *running) fits(cpus *cpuset.Set) bool {
	return p.sized() && p.asks <= milli(cpus) || p.weighs > 0 && p.weighs == milli(cpus)
}

// confirmed reports whether more than its mask shows that a pod owns these CPUs: the state file, what
// the runtime stores for its containers, or that they are as many as it requests and not the
// pool. Its slice may not have been written yet.
func (r *recovery) confirmed(p *running, pool cpuset.Set) bool {
	if saved := r.saved[p.pod.UID].CPUs; !saved.IsEmpty() && r.same(saved, p.kernel) {
		return true
	}
	if p.mixed {
		return len(p.claims) > 0
	}
	stored := r.storedBy(p)
	return !p.kernel.IsEmpty() && p.kernel != pool && (!stored.IsEmpty() && r.same(stored, p.kernel) ||
		p.all && p.asks == milli(&p.kernel) || p.weighs == milli(&p.kernel) || p.createdFor(&p.kernel))
}

// place finds the CPUs of pods. Pods that the file has in the pool come last: they may have received CPUs
// since, but none that others own.
func (r *recovery) place(found []*running) {
	for _, waited := range []bool{false, true} {
		for _, p := range found {
			if r.known(p.pod.UID) || (r.saved[p.pod.UID].Degraded != "") != waited {
				continue
			}
			p.pod.Recovered = narrowed(r.placeOf(p), r.saved[p.pod.UID].Narrowed)
			if p.pod.Recovered == nil {
				continue
			}
			p.owned = ownedBy(p.pod.Recovered)
			if p.all && p.asks%1000 == 0 && p.asks < r.owned(p) {
				p.pod.Recovered.ResizedTo = int(p.asks / 1000)
			}
		}
	}
}

// narrowed is a place with the containers ("": the pod) whose memory nodes we have set: only the file has these.
func narrowed(found *policy.Recovered, names []string) *policy.Recovered {
	if len(names) == 0 {
		return found
	}
	if found == nil {
		found = &policy.Recovered{From: "kernel"}
	}
	found.Narrowed = names
	return found
}

// ownedBy is what a pod and its containers are found to own.
func ownedBy(found *policy.Recovered) (all cpuset.Set) {
	if found.CPUs != nil {
		all = *found.CPUs
	}
	for _, c := range found.Owners {
		if c.CPUs != nil {
			all.AddSet(c.CPUs)
		}
	}
	return all
}

// placeOf is what a pod owned or was bound to; nil: nothing is known.
func (r *recovery) placeOf(p *running) *policy.Recovered {
	saved, isSaved := r.saved[p.pod.UID]
	kernel, stored := p.kernel, r.storedBy(p)
	switch {
	case isSaved && saved.Reservation != nil:
		return saved.Recovered()
	case isSaved && saved.Containers != nil:
		return r.corrected(p, saved)
	}
	var given cpuset.Set
	if saved.Degraded != "" {
		if given = r.promoted(p, stored); given.IsEmpty() {
			return saved.Recovered()
		}
	}
	if p.mixed {
		if len(p.claims) == 0 {
			return nil
		}
		return &policy.Recovered{From: "runtime", Several: len(p.containers) > 1, Owners: p.claims}
	}
	if !p.pod.Exclusive() {
		return r.sharedPlace(p)
	}
	switch {
	case !given.IsEmpty() && given == stored:
		return &policy.Recovered{CPUs: &given, From: "runtime", Several: len(p.containers) > 1}
	case isSaved && !saved.CPUs.IsEmpty() && !r.outdated(p, saved, stored):
		return r.left(p, saved)
	case !stored.IsEmpty() && (r.same(stored, kernel) || r.passes(p, stored, kernel)) || p.narrows(&stored, &kernel):
		return &policy.Recovered{CPUs: &stored, From: "runtime", Several: len(p.containers) > 1}
	case !kernel.IsEmpty():
		return &policy.Recovered{CPUs: &kernel, From: "kernel", Doubt: r.doubt(p), Several: len(p.containers) > 1}
	}
	if !stored.IsEmpty() {
		return &policy.Recovered{CPUs: &stored, From: "runtime", Several: len(p.containers) > 1}
	}
	return nil
}

// same reports whether the kernel's mask is the saved one. CPUs that went offline leave the mask and
// stay with their owner; an owner without online CPUs runs in a pool and has its mask.
func (r *recovery) same(saved, kernel cpuset.Set) bool {
	on := saved.And(r.topo.Online())
	return saved == kernel || !kernel.IsEmpty() && (on == kernel || on.IsEmpty())
}

// outdated reports whether the state file is behind. The pod requests another number of CPUs than in the
// file, and the kernel's mask or the runtime's store has that number; or the pod was moved, and a newer
// owner has its former CPUs. An owner's CPUs are saved before the runtime gets the reply, so this happens
// only if the disk fails.
func (r *recovery) outdated(p *running, saved state.Pod, stored cpuset.Set) bool {
	if r.replaced(p, saved, stored) {
		return true
	}
	n := cmp.Or(saved.Request, saved.CPUs.Count())
	if p.asks == int64(n)*1000 {
		return saved.CPUs.Intersects(&r.newer) && p.kernel.Count() == n && !p.kernel.Intersects(&r.newer)
	}
	if p.kernel.IsEmpty() || r.same(saved.CPUs, p.kernel) {
		return r.passes(p, stored, saved.CPUs)
	}
	within := saved.CPUs.SubsetOf(&p.kernel)
	switch {
	case r.recorded(p, p.kernel):
		return false // the mask is from before others came
	case within && p.asks == milli(&p.kernel):
		return true // it grew. Its weight may not show that yet: a container that restarts has its new size at once
	case within && p.fits(&saved.CPUs):
		return false // the mask is from before the pod shrank
	}
	shows := p.sized() || p.weighs != int64(n)*1000 // the running containers may not be all
	return shows && (p.asks == milli(&p.kernel) || !stored.IsEmpty() && r.same(stored, p.kernel))
}

// recorded reports whether the file has some of these CPUs as a claim's, or as another pod's, which has not left them:
// its mask has some of them, or it has none, or it still has the pool's, or one of another number than it requests.
func (r *recovery) recorded(p *running, cpus cpuset.Set) bool {
	if r.claimed.Intersects(&cpus) {
		return true
	}
	for _, other := range r.found {
		theirs := r.saved[other.pod.UID].CPUs.And(cpus)
		if other.pod.UID != p.pod.UID && !theirs.IsEmpty() &&
			(theirs.Intersects(&other.kernel) || other.kernel.SubsetOf(&r.pool) ||
				other.asks > 0 && !other.requests(&other.kernel)) {
			return true
		}
	}
	return false
}

// left is a pod's place in the file without the CPUs of newer owners that its mask has left: a resize that was not
// saved took these. Nor has it other CPUs that its mask has left, if it requests no more than the mask has. Of what
// remains it has only what the runtime stores, if it requests as many: its mask was not narrowed yet.
func (r *recovery) left(p *running, saved state.Pod) *policy.Recovered {
	found := saved.Recovered()
	if told := r.told(); p.kernel.IsEmpty() && saved.CPUs.SubsetOf(&told) {
		return nil // it was moved, and no witness says where to
	}
	rest := saved.CPUs.Minus(r.newer.Minus(p.kernel))
	if on := rest.And(r.topo.Online()); p.fits(&p.kernel) && p.kernel.SubsetOf(&on) && p.asks < milli(&rest) {
		rest = p.kernel
	}
	if stored := r.storedBy(p); p.narrows(&stored, &rest) {
		rest = stored
	}
	if rest != saved.CPUs && !rest.IsEmpty() {
		found.CPUs, found.Request = &rest, 0
	}
	return found
}

// narrows reports whether a pod was resized to those of its CPUs that the runtime stores, and its mask was not
// narrowed yet.
func (p *running) narrows(stored, has *cpuset.Set) bool {
	return p.sized() && p.asks == milli(stored) && stored.SubsetOf(has)
}

// told are the CPUs of owners that came after the file, by their masks and something else: whoever had these CPUs in
// the file had left them when such a mask was written, even where it looks like the pool's.
func (r *recovery) told() (cpus cpuset.Set) {
	for _, p := range r.found {
		cpus.AddSet(&p.later)
	}
	return cpus
}

// replaced reports whether a pod has other CPUs than in the file, but as many: runtime and kernel agree on them, and
// the file does not have them as others': then both may be from before the pod shrank and grew again.
// If no other pod has them, one of the two is enough: the runtime if the pod requests as many and some of the
// file's CPUs are offline, the kernel if the runtime stores none and they are known not to be the pool's.
func (r *recovery) replaced(p *running, saved state.Pod, stored cpuset.Set) bool {
	has := stored
	if stored.IsEmpty() {
		has = p.kernel
	}
	online := r.topo.Online()
	on, others := saved.CPUs.And(online), has.Minus(saved.CPUs)
	switch {
	case has == saved.CPUs || has.Count() != saved.CPUs.Count() || !has.SubsetOf(&online):
		return false
	case stored == p.kernel:
		return !r.recorded(p, has)
	case !stored.IsEmpty():
		return p.asks == int64(cmp.Or(saved.Request, saved.CPUs.Count()))*1000 &&
			on != saved.CPUs && on.SubsetOf(&has) && !others.Intersects(&r.owners)
	}
	return !r.slice.IsEmpty() && !has.Intersects(&r.pool) && !has.Intersects(&r.newer) && !r.othersOwn(p, has)
}

// promoted returns the CPUs that a pod has received since the file was written, which has it in the pool; empty:
// it has none. No other pod may own any of them. They are
//   - what the runtime stores, if the pod requests as many or more (it may have grown since): a pod that never owned
//     CPUs has none in its store, or all of them, whatever its mask is, which may still be the pool's. The store
//     of one that lost its CPUs counts only if its mask is a part of it outside the pool, or the same;
//   - or its mask, if it is confirmed and the pool has CPUs that it lacks.
//
// Of a pod whose containers own CPUs the runtime has to store all of them, and the kernel's masks or lifted
// limits have to agree.
func (r *recovery) promoted(p *running, stored cpuset.Set) (given cpuset.Set) {
	var none cpuset.Set
	switch {
	case p.mixed:
		if given = p.agreed; given != p.kernel {
			return none
		}
	case !p.pod.Exclusive():
		return none
	case r.toldSince(p, stored):
		given = stored
	case r.confirmed(p, r.pool) && !r.slice.IsEmpty() && !r.slice.SubsetOf(&p.kernel):
		given = p.kernel
	}
	if r.othersOwn(p, given) {
		return none
	}
	return given
}

// toldSince reports whether the runtime stores what a pod was given since the file was written, which has it in the
// pool.
func (r *recovery) toldSince(p *running, stored cpuset.Set) bool {
	outside := !p.kernel.IsEmpty() && !r.slice.IsEmpty() && !p.kernel.Intersects(&r.slice)
	onTheWay := p.kernel.SubsetOf(&stored) && outside && r.passes(p, stored, p.kernel)
	sized := (p.asks >= milli(&stored) || p.requests(&stored)) && !r.saved[p.pod.UID].Demoted
	return !stored.IsEmpty() && (sized || onTheWay || r.same(stored, p.kernel))
}

// requests reports whether something shows that a pod requests as many CPUs: what is known of its request, its weight,
// or its creation.
func (p *running) requests(cpus *cpuset.Set) bool {
	return p.asks == milli(cpus) || p.weighs == milli(cpus) || p.createdFor(cpus)
}

// createdFor reports whether a pod requested as many CPUs at its creation and nothing shows a smaller request
// since: the running containers may not be all of them. Weight and mask show one if they agree: kubelet lowers
// the weight at a resize, and not where CPUs are offline.
func (p *running) createdFor(cpus *cpuset.Set) bool {
	asked := p.pod.Resources
	if asked == nil || asked.RequestMilli != milli(cpus) || p.sized() && p.asks < asked.RequestMilli {
		return false
	}
	return p.weighs == 0 || p.weighs >= asked.RequestMilli || p.weighs != milli(&p.kernel)
}

func milli(cpus *cpuset.Set) int64 { return int64(cpus.Count()) * 1000 }

// othersOwn reports whether another pod, or a claim, was found to own any of these CPUs.
func (r *recovery) othersOwn(p *running, cpus cpuset.Set) bool {
	return r.claimed.Intersects(&cpus) || slices.ContainsFunc(r.found, func(other *running) bool {
		return other.pod.UID != p.pod.UID && other.owned.Intersects(&cpus)
	})
}

// passes reports whether the kernel's mask is only intermediate, since the runtime stores as many CPUs
// as the pod requests: the pod was moving to them, or some were offline and are back. If the mask
// is a part of the stored CPUs, the pod may be shrinking instead by a resize that the runtime does not know
// yet; then the freed CPUs may have another owner. A pod that requests more than both was growing to the stored ones,
// and was resized again since.
func (r *recovery) passes(p *running, stored, kernel cpuset.Set) bool {
	grew := !kernel.IsEmpty() && kernel.SubsetOf(&stored) && p.asks > milli(&stored)
	if !p.requests(&stored) && !grew || stored.SubsetOf(&kernel) {
		return false
	}
	freed := stored.Minus(kernel)
	return !kernel.SubsetOf(&stored) || !freed.Intersects(&r.owners)
}

// sharedPlace keeps an LS pod on the NUMA node that it was bound to, and a pod that we moved off
// kubelet's CPUs where it is.
func (r *recovery) sharedPlace(p *running) *policy.Recovered {
	if saved, ok := r.saved[p.pod.UID]; ok {
		return saved.Recovered()
	}
	if p.pod.QoS == policy.BestEffort {
		return nil
	}
	// Where the pool lies on one NUMA node itself, so do all in it.
	if nodes := r.topo.NodesOf(p.kernel); nodes.Count() == 1 && r.topo.NodesOf(r.pool).Count() > 1 {
		node := nodes.First()
		return &policy.Recovered{From: "kernel", BoundNode: &node}
	}
	return nil
}

// storedBy is the cpuset that the runtime stores for a pod's containers. One without CPUs shows that the pod has lost
// those that are stored for others, but not of a pod that has waited for its first ones, or of one that grew and whose
// mask is still that of the file: then it started without a daemon.
func (r *recovery) storedBy(p *running) cpuset.Set {
	told, saved := p.containers, r.saved[p.pod.UID]
	grew := p.sized() && saved.CPUs == p.kernel && milli(&saved.CPUs) < p.asks
	if saved.Degraded != "" && !saved.Demoted || grew {
		told = slices.DeleteFunc(slices.Clone(told), func(c policy.Container) bool { return c.CPUs == "" })
	}
	if all := storedBy(told); !all.IsEmpty() {
		return all
	}
	return p.toldLast(told)
}

// toldLast is what the runtime stores for one of a pod's containers and not for all: a resize tells only the container
// that it is of, and those that are created later. It is as many CPUs as the pod requests, and a part of the others'
// or they of it; empty: there is no such set, or a container has none.
func (p *running) toldLast(containers []policy.Container) (last cpuset.Set) {
	var sets []cpuset.Set
	for _, c := range containers {
		s, err := cpuset.Parse(c.CPUs)
		if err != nil || s.IsEmpty() {
			return cpuset.Set{}
		}
		if sets = append(sets, s); milli(&s) == p.asks {
			last = s
		}
	}
	for i := range sets {
		if !sets[i].SubsetOf(&last) && !last.SubsetOf(&sets[i]) {
			return cpuset.Set{}
		}
	}
	return last
}

// storedBy is the cpuset that the runtime stores for the pod's containers, if all agree. A container
// without one, which started without a daemon, does not contradict later ones.
func storedBy(containers []policy.Container) cpuset.Set {
	var all cpuset.Set
	for _, c := range containers {
		s, err := cpuset.Parse(c.CPUs)
		if err != nil || !s.IsEmpty() && !all.IsEmpty() && s != all {
			return cpuset.Set{}
		}
		all.AddSet(&s)
	}
	for i := range containers {
		bare := containers[i].CPUs == ""
		if bare && slices.ContainsFunc(containers, func(c policy.Container) bool {
			return c.CPUs != "" && !c.CreatedAt.After(containers[i].CreatedAt)
		}) {
			return cpuset.Set{}
		}
	}
	return all
}

// podsOf are the pods that the machine has placed, by UID, and what they own.
func podsOf(kept []policy.Pod) map[string]*policy.Recovered {
	pods := map[string]*policy.Recovered{}
	for i := range kept {
		pods[kept[i].UID] = kept[i].Recovered
	}
	return pods
}

// claimedIn are the CPUs that claims have.
func claimedIn(claims []policy.RecoveredClaim) (all cpuset.Set) {
	for i := range claims {
		for j := range claims[i].Given {
			cpus := ownedBy(&claims[i].Given[j])
			all.AddSet(&cpus)
		}
	}
	return all
}

// known reports whether this daemon placed a pod itself.
func (r *recovery) known(uid string) bool {
	_, placed := r.placed[uid]
	return placed
}
