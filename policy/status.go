package policy

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
)

// scheduled is what a trusted scheduler chose.
type scheduled struct {
	cpus  cpuset.Set
	nodes cpuset.Set    // NUMA node IDs
	milli map[int]int64 // CPU on a node, if the scheduler chose an amount
}

// resourceStatus is the annotation resource-status, in the proposal's and the later format.
type resourceStatus struct {
	CPUSet      string `json:"cpuset"`
	SharedPools []struct {
		Socket int `json:"socket"`
		Node   int `json:"node"`
	} `json:"cpuSharedPools"`
	NUMANodes []struct {
		Node      int                        `json:"node"`
		Resources map[string]json.RawMessage `json:"resources"`
	} `json:"numaNodeResources"`
}

func (m *Machine) statusOf(p *Pod, in *intent) *Refusal {
	if p.Annotations[AnnStatus] == "" || in.class == BE || in.class == SYSTEM {
		return nil
	}
	if !m.cfg.Authority.TrustStatus {
		in.ignored = true
		return nil
	}
	var status resourceStatus
	if err := decode(p, AnnStatus, &status); err != nil {
		return err
	}
	cpus, err := cpuset.Parse(status.CPUSet)
	if err != nil {
		return refuse(InvalidAnnotation, "annotation %s: %v", AnnStatus, err)
	}
	s := &scheduled{cpus: cpus}
	if err := m.poolsIn(s, &status, in); err != nil {
		return err
	}
	if err := m.nodesIn(s, &status); err != nil {
		return err
	}
	if !s.cpus.IsEmpty() && !in.exclusive() {
		return refuse(InvalidRequest,
			"annotation %s gives CPUs %s to a pod of class %s; only LSE and LSR pods own CPUs", AnnStatus, s.cpus,
			in.class)
	}
	if s.cpus.IsEmpty() && s.nodes.IsEmpty() {
		return nil
	}
	in.scheduled = s
	return nil
}

// poolsIn reads cpuSharedPools.
func (m *Machine) poolsIn(s *scheduled, status *resourceStatus, in *intent) *Refusal {
	for i, pool := range status.SharedPools {
		if err := m.addNode(s, pool.Node); err != nil {
			return err
		}
		if !m.onSocket(pool.Node, pool.Socket) {
			return refuse(InvalidAnnotation, "annotation %s names NUMA node %d on socket %d; it has no CPU there",
				AnnStatus, pool.Node, pool.Socket)
		}
		for _, before := range status.SharedPools[:i] {
			if before == pool {
				return refuse(InvalidAnnotation,
					"annotation %s names the shared pool of socket %d and NUMA node %d twice", AnnStatus, pool.Socket,
					pool.Node)
			}
		}
	}
	if len(status.SharedPools) > 0 && in.class != LS {
		return refuse(InvalidRequest,
			"annotation %s gives shared pools to a pod of class %s; only LS pods run in them", AnnStatus, in.class)
	}
	return nil
}

// nodesIn reads numaNodeResources. It ignores resources other than CPU.
func (m *Machine) nodesIn(s *scheduled, status *resourceStatus) *Refusal {
	for i, n := range status.NUMANodes {
		if err := m.addNode(s, n.Node); err != nil {
			return err
		}
		for _, before := range status.NUMANodes[:i] {
			if before.Node == n.Node {
				return refuse(InvalidAnnotation, "annotation %s: numaNodeResources names NUMA node %d twice",
					AnnStatus, n.Node)
			}
		}
		text, ok := n.Resources["cpu"]
		if !ok {
			continue
		}
		milli, ok := milliOf(string(text))
		if !ok {
			return refuse(InvalidAnnotation,
				"annotation %s: numaNodeResources has %s of cpu on NUMA node %d, which is not an amount such as 4 or "+
					"4000m", AnnStatus, literal(string(text)), n.Node)
		}
		if s.milli == nil {
			s.milli = map[int]int64{}
		}
		s.milli[n.Node] = milli
	}
	return nil
}

// milliOf reads an amount of CPU as Kubernetes writes it, a string or a number.
func milliOf(text string) (int64, bool) {
	text = strings.TrimSuffix(strings.TrimPrefix(text, `"`), `"`)
	unit := int64(1000)
	switch {
	case strings.HasSuffix(text, "m"):
		text, unit = strings.TrimSuffix(text, "m"), 1
	case strings.HasSuffix(text, "k"):
		text, unit = strings.TrimSuffix(text, "k"), 1000_000
	}
	whole, fraction, dot := strings.Cut(text, ".")
	if dot && unit != 1000 || dot && (fraction == "" || len(fraction) > 3) || len(whole) > 9 {
		return 0, false
	}
	n, err := strconv.ParseUint(whole, 10, 32)
	if err != nil {
		return 0, false
	}
	milli := int64(n) * unit
	if dot {
		f, err := strconv.ParseUint((fraction + "00")[:3], 10, 16)
		if err != nil {
			return 0, false
		}
		milli += int64(f)
	}
	return milli, true
}

func (m *Machine) addNode(s *scheduled, id int) *Refusal {
	for i := range m.topo.Nodes() {
		if n := &m.topo.Nodes()[i]; n.ID == id && !n.CPUs.IsEmpty() {
			s.nodes.Add(id)
			return nil
		}
	}
	return refuse(InvalidAnnotation, "annotation %s names NUMA node %d; this machine has no such node with CPUs",
		AnnStatus, id)
}

func (m *Machine) onSocket(node, socket int) bool {
	for _, c := range m.topo.CPUs() {
		if c.Node == node && c.Socket == socket {
			return true
		}
	}
	return false
}

// honour gives a pod the CPUs that a trusted scheduler chose, if they fit the state and the rules
// of this node.
func (m *Machine) honour(h *holder, n int) (*grant, *Refusal) {
	p, s := h.pod, h.pod.in.scheduled
	if s.cpus.IsEmpty() {
		return m.honourNodes(h, n)
	}
	cpus := s.cpus
	if given := cpus.Count(); given != n && !m.roundsUp(p, cpus, n) {
		return nil, refuse(InvalidRequest, "annotation %s gives %d CPUs (%s) to a pod that requests %d", AnnStatus,
			cpus.Count(), cpus, n)
	}
	if nodes := m.topo.NodesOf(cpus); !s.nodes.IsEmpty() && !nodes.SubsetOf(&s.nodes) {
		return nil,
			refuse(InvalidRequest, "annotation %s gives CPUs %s, which are on %s, and numaNodeResources names %s",
				AnnStatus, cpus, nodesText(&nodes), nodesText(&s.nodes))
	}
	if taken := cpus.And(m.pools.Kubelet); !taken.IsEmpty() {
		return nil, refuse(KubeletOwned, "annotation %s gives CPUs %s; kubelet's static policy owns %s", AnnStatus,
			cpus, taken)
	}
	free := m.freeFor(h)
	if taken := cpus.And(m.pools.Foreign); !taken.IsEmpty() {
		return nil, refuse(cpuallocator.InsufficientCPUs,
			"annotation %s gives CPUs %s; another DRA driver gave %s to claims", AnnStatus, cpus, taken)
	}
	if !cpus.SubsetOf(&free) {
		return nil, refuse(cpuallocator.InsufficientCPUs, "annotation %s gives CPUs %s; of these %s", AnnStatus, cpus,
			m.whyTaken(h, cpus.Minus(free)))
	}
	if err := m.fits(p, cpus); err != nil {
		return nil, err
	}
	r := *p.in.request
	r.CPUs = n
	g := m.grantOf(h, cpus, r)
	return g, m.mayOwn(claim{holder: h}, g, cpuset.Set{})
}

// roundsUp reports whether a scheduler gave a pod with smt: roundup the whole cores of its request.
func (m *Machine) roundsUp(p *pod, cpus cpuset.Set, n int) bool {
	given := cpus.Count()
	return p.in.request.SMT == cpuallocator.SMTRoundUp && given > n && given < n+m.topo.ThreadsPerCore() &&
		m.wholeCores(cpus)
}

// Status is the annotation that passes the offer to the node, for a node that trusts it; empty if
// there is nothing to pass.
func (o *Offer) Status() string {
	switch {
	case o.Containers != nil:
		return "" // the annotation cannot assign CPUs to containers
	case !o.CPUs.IsEmpty():
		return fmt.Sprintf(`{"cpuset":%q}`, o.CPUs)
	case o.Nodes.IsEmpty():
		return ""
	}
	var nodes []string
	for id := range o.Nodes.All() {
		nodes = append(nodes, fmt.Sprintf(`{"node":%d}`, id))
	}
	return `{"numaNodeResources":[` + strings.Join(nodes, ",") + `]}`
}

// whyTaken explains why CPUs cannot be granted.
func (m *Machine) whyTaken(h *holder, cpus cpuset.Set) string {
	known, isolated, are := m.topo.Known().Or(m.topo.Offline()), cpus.And(m.topo.Isolated()), "are isolated"
	if m.takesIsolated(h) {
		isolated, are = cpus.And(known).Minus(m.topo.Isolated()), "are not isolated"
	}
	var parts []string
	for _, c := range []struct {
		set cpuset.Set
		is  string
	}{
		{cpus.Minus(known), "do not exist"},
		{cpus.And(known).Minus(m.topo.Online()), "are offline"},
		{cpus.And(m.pools.Reserved), "are reserved"},
		{cpus.And(m.pools.System).Minus(m.pools.Reserved), "are the class SYSTEM's"},
		{cpus.And(m.pools.Exclusive), "are owned by another pod"},
		{cpus.And(m.pools.Withheld), "are kept idle for another pod"},
		{cpus.And(m.pools.Kept), "are kept for claims"},
		{isolated, are},
	} {
		if !c.set.IsEmpty() {
			parts = append(parts, fmt.Sprintf("%s %s", c.set, c.is))
		}
	}
	if parts == nil {
		return fmt.Sprintf("%s are not free", cpus)
	}
	return strings.Join(parts, ", ")
}

// fits checks a scheduler's choice against the demands of the pod and its node.
func (m *Machine) fits(p *pod, cpus cpuset.Set) *Refusal {
	r := p.in.request
	if r.Alignment == cpuallocator.AlignSingleNode {
		if nodes := m.topo.NodesOf(cpus); nodes.Count() > 1 {
			return refuse(cpuallocator.TopologyAffinityError,
				"annotation %s gives CPUs %s on NUMA nodes %s, and SingleNUMANode demands one", AnnStatus, cpus, nodes)
		}
	}
	siblings := m.topo.Siblings(cpus).Minus(cpus)
	switch {
	case r.SMT == cpuallocator.SMTIsolate:
		if two := siblings.Count(); two+cpus.Count() < m.threadsOf(cpus) {
			return refuse(cpuallocator.SMTAlignmentError,
				"annotation %s gives CPUs %s, of which some share a core; isolated CPUs do not", AnnStatus, cpus)
		}
		others := m.owned.cpus.Or(m.owned.withheld).Or(m.pools.Kubelet).Or(m.pools.Foreign)
		if taken := siblings.And(others); !taken.IsEmpty() {
			return refuse(cpuallocator.SMTAlignmentError,
				"annotation %s gives CPUs %s, to be isolated; of their siblings %s are owned by other pods", AnnStatus,
				cpus, taken)
		}
	case r.SMT == cpuallocator.SMTAlign || r.BindRequired && r.Bind == cpuallocator.FullPCPUs:
		if siblings = siblings.And(m.topo.Online()); !siblings.IsEmpty() {
			return refuse(cpuallocator.SMTAlignmentError,
				"annotation %s gives CPUs %s without their siblings %s, and whole cores are demanded", AnnStatus, cpus,
				siblings)
		}
	}
	return nil
}

// threadsOf is the number of CPUs on the cores of a set, counted once for each CPU of the set.
func (m *Machine) threadsOf(cpus cpuset.Set) int {
	n := 0
	for cpu := range cpus.All() {
		if core := m.topo.CoreOf(cpu); core >= 0 {
			n += len(m.topo.Cores()[core].CPUs)
		}
	}
	return n
}

// honourNodes gives a pod CPUs on the NUMA nodes that a trusted scheduler chose, as many on each as
// it chose.
func (m *Machine) honourNodes(h *holder, n int) (*grant, *Refusal) {
	p, s := h.pod, h.pod.in.scheduled
	if s.milli == nil {
		return m.allocate(claim{holder: h}, n)
	}
	var sum int64
	for node := range s.nodes.All() {
		amount := s.milli[node]
		if sum += amount; amount%1000 != 0 {
			return nil,
				refuse(InvalidRequest,
					"annotation %s gives %s on NUMA node %d to a pod of class %s, which owns whole CPUs", AnnStatus,
					milli(amount), node, p.in.class)
		}
	}
	if sum != int64(n)*1000 {
		return nil, refuse(InvalidRequest, "annotation %s gives %s on %s to a pod that requests %d CPUs", AnnStatus,
			milli(sum), nodesText(&s.nodes), n)
	}
	var cpus cpuset.Set
	r := *p.in.request
	free := m.freeFor(h)
	q := question{m: m, free: free, held: m.held(h)}
	for node := range s.nodes.All() {
		if s.milli[node] == 0 {
			continue
		}
		r.CPUs, r.Nodes = int(s.milli[node]/1000), cpuset.Of(node)
		found, err := q.ask(&r)
		if err != nil {
			return nil, m.detailRefusal(h, err)
		}
		cpus.AddSet(&found.CPUs)
	}
	if err := m.fits(p, cpus); err != nil {
		return nil, err
	}
	r.CPUs, r.Nodes = n, s.nodes
	g := m.grantOf(h, cpus, r)
	return g, m.mayOwn(claim{holder: h}, g, cpuset.Set{})
}

// OfferIn parses an annotation that Status made; false: it holds no offer.
func OfferIn(status string) (o Offer, ok bool) {
	var s resourceStatus
	p := Pod{Annotations: map[string]string{AnnStatus: status}}
	if decode(&p, AnnStatus, &s) != nil {
		return o, false
	}
	cpus, err := cpuset.Parse(s.CPUSet)
	if err != nil {
		return o, false
	}
	o.CPUs = cpus
	for _, n := range s.NUMANodes {
		if n.Node < 0 || n.Node >= cpuset.MaxCPUs {
			return Offer{}, false
		}
		o.Nodes.Add(n.Node)
	}
	return o, !o.CPUs.IsEmpty() || !o.Nodes.IsEmpty()
}
