package policy

import (
	"slices"
	"strings"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
)

// NUMAExclusive defines how strictly a pod that uses one NUMA node and pods that use several must not share
// NUMA nodes.
type NUMAExclusive uint8

const (
	numaShared NUMAExclusive = iota
	NUMAExclusivePreferred
	NUMAExclusiveRequired
)

// numaSpec is the annotation numa-topology-spec.
type numaSpec struct {
	Policy    string `json:"numaTopologyPolicy"`
	Exclusive string `json:"singleNUMANodeExclusive"`
}

func alignmentName(a cpuallocator.Alignment) string {
	return [...]string{"None", "BestEffort", "Restricted", "SingleNUMANode"}[a]
}

func alignmentNamed(name string) (cpuallocator.Alignment, bool) {
	for a := cpuallocator.AlignNone; a <= cpuallocator.AlignSingleNode; a++ {
		if alignmentName(a) == name {
			return a, true
		}
	}
	return cpuallocator.AlignNone, false
}

// binds reports whether an alignment is mandatory; then it applies to LS pods, too.
func binds(a cpuallocator.Alignment) bool {
	return a == cpuallocator.AlignRestricted || a == cpuallocator.AlignSingleNode
}

func (m *Machine) alignmentOf(w *Wish, in *intent) (err *Refusal) {
	own, known := w.alignment, w.aligned
	node, label := labelledAlignment(m.cfg.NodeLabels)
	named := known && own != cpuallocator.AlignNone
	if named && label != "" && own != node && (in.exclusive() || in.class == LS) {
		err = refuse(InvalidRequest,
			"the pod asks for the NUMA policy %s and node label %s demands %s; drop the pod's policy or choose "+
				"another node", alignmentName(own), label, alignmentName(node))
	}
	if in.class == LS {
		// Kubelet's topology manager and the configuration apply to pods that own CPUs.
		in.request.Alignment = node
		if label == "" {
			in.request.Alignment = own
		}
		in.bindNode = !in.burst && binds(in.request.Alignment)
		return err
	}
	in.request.Alignment = m.exclusiveAlignment(node, own, known)
	// BySocket applies only to kubelet's restricted policy, not to a label or the pod's own policy.
	in.request.BySocket = in.request.Alignment == cpuallocator.AlignRestricted && node == cpuallocator.AlignNone &&
		m.cfg.Kubelet.TopologyPolicy == "restricted" && m.cfg.Kubelet.Options["align-by-socket"] == "true"
	return err
}

// exclusiveAlignment is the alignment of a pod that owns CPUs.
func (m *Machine) exclusiveAlignment(node, own cpuallocator.Alignment, named bool) cpuallocator.Alignment {
	if node != cpuallocator.AlignNone {
		return node
	}
	switch m.cfg.Kubelet.TopologyPolicy {
	case "best-effort":
		return cpuallocator.AlignBestEffort
	case "restricted":
		return cpuallocator.AlignRestricted
	case "single-numa-node":
		return cpuallocator.AlignSingleNode
	}
	if named {
		return own
	}
	return m.cfg.Allocation.Alignment
}

// bars are the NUMA nodes that a pod must not use: as its only node (alone), or as one of several
// (several).
type bars struct{ alone, several cpuset.Set }

func (b *bars) bar(nodes cpuset.Set) {
	if nodes.Count() == 1 {
		b.several.AddSet(&nodes)
	} else {
		b.alone.AddSet(&nodes)
	}
}

func (b *bars) hit(nodes cpuset.Set) bool {
	if nodes.Count() == 1 {
		return b.alone.Intersects(&nodes)
	}
	return b.several.Intersects(&nodes)
}

// isBarred reports whether singleNUMANodeExclusive may forbid nodes to a pod: by its own annotation or by
// those of pods on the node.
func (m *Machine) isBarred(p *pod) bool {
	some := p.in.numaExclusive != numaShared
	for _, o := range m.exclusive {
		some = some || o.pod.in.numaExclusive != numaShared
	}
	for _, o := range m.bound {
		some = some || o.in.numaExclusive != numaShared
	}
	return some
}

// barsFor finds the nodes that are forbidden to a pod. hard are the Required ones, soft all of them.
func (m *Machine) barsFor(p *pod) (hard, soft bars) {
	if !m.isBarred(p) {
		return hard, soft
	}
	for _, o := range m.pods {
		nodes := m.usedBy(o)
		level := max(p.in.numaExclusive, o.in.numaExclusive)
		if o == p || level == numaShared || nodes.IsEmpty() {
			continue
		}
		soft.bar(nodes)
		if level == NUMAExclusiveRequired {
			hard.bar(nodes)
		}
	}
	return hard, soft
}

// usedBy are the NUMA nodes that a pod is confined to; none for a pod in a whole pool.
func (m *Machine) usedBy(p *pod) cpuset.Set {
	switch {
	case p.holders != nil:
		var cpus cpuset.Set
		for _, h := range p.holders {
			if h.grant != nil {
				cpus.AddSet(&h.grant.cpus)
			}
		}
		return m.topo.NodesOf(cpus)
	case p.grant != nil:
		return m.topo.NodesOf(p.grant.cpus)
	case p.kubelet:
		return m.topo.NodesOf(union(p.entries))
	case p.nodes != nil:
		return *p.nodes
	}
	return cpuset.Set{}
}

// question is a request to the allocator, with the inputs that stay the same between two attempts.
type question struct {
	m       *Machine
	free    cpuset.Set
	held    []cpuallocator.Held
	devices cpuset.Set // NUMA node IDs of the pod's devices that have CPUs too
}

// search finds CPUs for a claim. A holder that grows keeps its CPUs, so it is not moved nearer to
// anything.
func (m *Machine) search(c claim, r *cpuallocator.Request) (cpuallocator.Result, *Refusal) {
	free := m.freeFor(c.holder)
	first, err := m.searchIn(free, c.holder, *r)
	if err != nil || !m.breaksFloors(c, &first, &r.Keep) {
		return first, err
	}
	free = m.spare(c, free)
	if second, err := m.searchIn(free, c.holder, *r); err == nil {
		return second, nil
	}
	return first, nil
}

// breaksFloors reports whether a result takes CPUs that pods bound to NUMA nodes requested: there may be a
// result without them.
func (m *Machine) breaksFloors(c claim, found *cpuallocator.Result, keep *cpuset.Set) bool {
	return len(m.bound) > 0 && m.keepsFloors(c, found.CPUs.Or(found.Withheld).Minus(*keep)) != nil
}

func (m *Machine) searchIn(free cpuset.Set, h *holder, r cpuallocator.Request) (cpuallocator.Result, *Refusal) {
	p, q := h.pod, question{m: m, free: free, held: m.held(h)}
	if !r.Keep.IsEmpty() {
		return q.ask(&r)
	}
	m.nearMemory(&r)
	if p.devices != nil {
		q.devices = p.devices.And(m.nodesWithCPUs())
	}
	if !m.isBarred(p) {
		return q.near(&r)
	}
	hard, soft := m.barsFor(p)
	return q.avoidBarred(r, hard, soft)
}

func (q *question) ask(r *cpuallocator.Request) (cpuallocator.Result, *Refusal) {
	return q.m.alloc.Allocate(q.free, q.held, *r)
}

// nearMemory keeps a pod that has to be on one NUMA node off nodes without memory.
func (m *Machine) nearMemory(r *cpuallocator.Request) {
	if r.Alignment != cpuallocator.AlignSingleNode || !r.Nodes.IsEmpty() {
		return
	}
	all := m.nodesWithCPUs()
	if some := all.And(m.topo.MemoryNodes()); some != all {
		r.Nodes = some
	}
}

func (m *Machine) nodesWithCPUs() cpuset.Set {
	var nodes cpuset.Set
	for i := range m.topo.Nodes() {
		if n := &m.topo.Nodes()[i]; !n.CPUs.IsEmpty() {
			nodes.Add(n.ID)
		}
	}
	return nodes
}

// avoidBarred answers a request with barred nodes: with the normal result if it avoids them, else with
// one node, else with several nodes that are not barred.
func (q *question) avoidBarred(r cpuallocator.Request, hard, soft bars) (cpuallocator.Result, *Refusal) {
	first, err := q.near(&r)
	if err != nil {
		return first, err
	}
	nodes := q.m.topo.NodesOf(first.CPUs)
	if !soft.hit(nodes) {
		return first, nil
	}
	if better, ok := q.clear(r, soft); ok {
		return better, nil
	}
	if !hard.hit(nodes) {
		return first, nil
	}
	if better, ok := q.clear(r, hard); ok {
		return better, nil
	}
	return first, refuse(cpuallocator.TopologyAffinityError,
		"%d CPUs are requested, and pods on one NUMA node must not share it with pods on several "+
			"(singleNUMANodeExclusive): "+
			"%s, and the other nodes do not hold the request", r.CPUs, hard)
}

func (b bars) String() string {
	var parts []string
	if !b.several.IsEmpty() {
		parts = append(parts, "pods on one node are on "+nodesText(&b.several))
	}
	if !b.alone.IsEmpty() {
		parts = append(parts, "pods on several are on "+nodesText(&b.alone))
	}
	return strings.Join(parts, ", ")
}

// clear answers a request without the barred nodes.
func (q *question) clear(r cpuallocator.Request, b bars) (cpuallocator.Result, bool) {
	allowed := r.Nodes
	if allowed.IsEmpty() {
		allowed = q.m.nodesWithCPUs()
	}
	one := r
	one.Alignment = cpuallocator.AlignSingleNode
	if one.Nodes = allowed.Minus(b.alone); !one.Nodes.IsEmpty() {
		if found, err := q.near(&one); err == nil {
			return found, true
		}
	}
	if r.Alignment == cpuallocator.AlignSingleNode {
		return cpuallocator.Result{}, false
	}
	limit := q.limit(r)
	if r.Nodes = allowed.Minus(b.several); r.Nodes.IsEmpty() {
		return cpuallocator.Result{}, false
	}
	found, err := q.near(&r)
	if err != nil {
		return cpuallocator.Result{}, false
	}
	nodes := q.m.topo.NodesOf(found.CPUs)
	return found, nodes.Count() <= limit && !b.hit(nodes)
}

// limit is the maximum number of NUMA nodes for the request.
func (q *question) limit(r cpuallocator.Request) int {
	switch r.Alignment {
	case cpuallocator.AlignSingleNode:
		return 1
	case cpuallocator.AlignRestricted:
		if r.BySocket {
			return len(q.m.topo.Nodes())
		}
		r.Alignment, r.Exclusive, r.ExclusiveRequired = cpuallocator.AlignNone, cpuallocator.ExclusiveNone, false
		if found, err := q.m.alloc.Allocate(q.m.topo.Online(), nil, r); err == nil {
			nodes := q.m.topo.NodesOf(found.CPUs)
			return nodes.Count()
		}
	}
	return len(q.m.topo.Nodes())
}

// near answers a request close to the pod's devices: on their nodes if the alignment is mandatory.
// Otherwise the devices decide only among results that are equal in everything that comes before
// the choice among equal nodes.
func (q *question) near(r *cpuallocator.Request) (cpuallocator.Result, *Refusal) {
	first, err := q.ask(r)
	if q.devices.IsEmpty() || err != nil {
		return first, err
	}
	nodes := q.m.topo.NodesOf(first.CPUs)
	demand := binds(r.Alignment)
	if q.devices.SubsetOf(&nodes) || !demand && nodes.SubsetOf(&q.devices) {
		return first, nil
	}
	count := nodes.Count()
	if demand && r.BySocket {
		count = max(count, q.devices.Count())
	} else if demand {
		count = q.limit(*r)
		if most := q.devices.Count(); most > count {
			return first, refuse(cpuallocator.TopologyAffinityError,
				"the pod's devices are on %s and %s allows %d for %d CPUs", nodesText(&q.devices),
				alignmentName(r.Alignment), count, r.CPUs)
		}
	}
	asFound := q.costOf(first.CPUs, r)
	best, least, covered := first, asFound, -1
	if !demand {
		both := nodes.And(q.devices)
		covered = both.Count()
	}
	near := *r
	for _, some := range q.around(near, count) {
		near.Nodes = some
		found, err := q.ask(&near)
		if err != nil {
			continue
		}
		on := q.m.topo.NodesOf(found.CPUs)
		both := on.And(q.devices)
		n, c := both.Count(), q.costOf(found.CPUs, &near)
		if demand && n < q.devices.Count() || !demand && slices.Compare(c.before(), asFound.before()) > 0 {
			continue
		}
		if n > covered || n == covered && slices.Compare(c[:], least[:]) < 0 {
			best, least, covered = found, c, n
		}
	}
	if covered < 0 {
		return first, refuse(cpuallocator.TopologyAffinityError,
			"%d CPUs are requested, %s demands them with the devices on %s, and not enough are free there",
			r.CPUs, alignmentName(r.Alignment), nodesText(&q.devices))
	}
	return best, nil
}

// cost rates a choice of NUMA nodes, in the allocator's order: nodes and CPUs of owners to be
// avoided, uneven shares, number of nodes, the distance between them, sockets, and last the
// strategy's preference among equal ones.
type cost [7]int

// before is the part of the cost that comes before the choice among equal nodes.
func (c *cost) before() []int { return c[:len(c)-1] }

func (q *question) costOf(cpus cpuset.Set, r *cpuallocator.Request) (c cost) {
	t := q.m.topo
	nodes := t.NodesOf(cpus)
	for _, h := range q.held {
		if r.Exclusive == cpuallocator.ExclusiveNone || r.Exclusive == cpuallocator.PCPULevel &&
			h.Exclusive != cpuallocator.PCPULevel {
			continue
		}
		if theirs := t.NodesOf(h.CPUs); r.Exclusive == cpuallocator.NUMANodeLevel &&
			h.Exclusive == cpuallocator.NUMANodeLevel && theirs.Intersects(&nodes) {
			c[0]++
		}
		cores := t.Siblings(h.CPUs)
		c[1] += cpus.CountAnd(&cores)
	}
	if r.Exclusive == cpuallocator.NUMANodeLevel && c[0] == 0 {
		c[1] = 0 // the nodes are its own, and their cores with them
	}
	least, most, sockets := cpus.Count(), 0, map[int]bool{}
	for i := range t.Nodes() {
		n := &t.Nodes()[i]
		if !nodes.Has(n.ID) {
			continue
		}
		here := cpus.CountAnd(&n.CPUs)
		least, most = min(least, here), max(most, here)
		c[3]++
		for j := range t.Nodes() {
			if i != j && nodes.Has(t.Nodes()[j].ID) {
				c[4] += t.Distance(i, j)
			}
		}
		c[6] += q.free.CountAnd(&n.CPUs)
	}
	if r.Strategy == cpuallocator.DistributeEvenly && most-least > shareUnit(r, t.ThreadsPerCore()) {
		c[2] = 1
	}
	for cpu := range cpus.All() {
		if on, ok := t.CPU(cpu); ok {
			sockets[on.Socket] = true
		}
	}
	c[5] = len(sockets)
	if r.Strategy != cpuallocator.MostAllocated {
		c[6] = -c[6]
	}
	return c
}

// shareUnit is how much equal shares may differ: by a core if whole cores are demanded, else by a
// CPU.
func shareUnit(r *cpuallocator.Request, threads int) int {
	if r.SMT == cpuallocator.SMTAlign || r.SMT == cpuallocator.SMTRoundUp ||
		r.SMT == cpuallocator.SMTNone && r.BindRequired && r.Bind == cpuallocator.FullPCPUs {
		return threads
	}
	return 1
}

// maxAround bounds the sets of nodes that are tried around devices: all pairs of a machine with a
// dozen nodes.
const maxAround = 66

// around lists the sets of count NUMA nodes that contain the devices' nodes; if the devices are on
// more nodes, only that set.
func (q *question) around(r cpuallocator.Request, count int) []cpuset.Set {
	allowed := r.Nodes
	if allowed.IsEmpty() {
		allowed = q.m.nodesWithCPUs()
	}
	sets := []cpuset.Set{q.devices.And(allowed)}
	if sets[0].IsEmpty() {
		return nil
	}
	for missing := count - sets[0].Count(); missing > 0; missing-- {
		var larger []cpuset.Set
		for _, s := range sets {
			others := allowed.Minus(s)
			for id := range others.All() {
				// Added nodes ascend, so that no set is listed twice.
				if added := s.Minus(q.devices); added.IsEmpty() || id > last(added) {
					next := s
					next.Add(id)
					larger = append(larger, next)
				}
			}
		}
		sets = larger[:min(len(larger), maxAround)]
	}
	return sets
}

func last(s cpuset.Set) int {
	most := -1
	for id := range s.All() {
		most = max(most, id)
	}
	return most
}
