package policy

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/topology"
)

// Machine is the state of one node. One goroutine owns it.
type Machine struct {
	cfg   Config
	topo  *topology.Topology
	alloc *cpuallocator.Allocator

	residents
	ledger
	bookings
	caps int // how many caps are in force
	be   beLimits
	healing
	reported map[string]string // unknown values of labels that a notice was about, by label

	pools   Pools
	decided Pools // the pools as last decided
	used    usedPools
	output
}

// residents is what is on the node.
type residents struct {
	pods       map[string]*pod         // by UID
	sandboxes  map[string]*pod         // by sandbox ID
	containers map[string]*container   // by container ID
	bound      map[string]*pod         // LS pods bound to NUMA nodes, by UID
	found      map[string]*FoundPod    // pods that were never announced, by UID
	unread     map[string]*pod         // pods that ask to own CPUs and whose cgroups are not read yet, by UID
	requests   []*cpuallocator.Request // the last that were new, for the next pod that asks for the same
	order      uint64                  // counts pods, so that "youngest" is defined when times are equal
}

// ledger is who holds a grant.
type ledger struct {
	exclusive map[string]*holder // by ID
	owned     owned              // the sums over exclusive
	scratch   *grant             // a trial's, which keeps none
}

// bookings is what kubelet gives away, and how it is configured.
type bookings struct {
	kubelet     KubeletState
	fromKubelet *Kubelet // its own configuration; nil: not read yet
	// overruled are pods, by UID, whose CPUs in kubelet's state do not count: they run
	// where this machine put them.
	overruled map[string]bool
}

// output is what steps produce.
type output struct {
	rev   uint64
	out   []Decision
	news  bool // this step changed something that no decision carries
	views views
}

// pod is a pod that was admitted. Its allocation lives as long as it does.
type pod struct {
	ref     PodRef
	labels  map[string]string
	annots  map[string]string
	devices *cpuset.Set // NUMA node IDs of its devices; nil: none known
	age
	size
	place
	parts
}

// age orders pods by when they came.
type age struct {
	createdAt time.Time
	order     uint64
}

// size is what a pod asks for in sum, and what else only the API server knows.
type size struct {
	resources *Resources       // nil while unknown
	asked     Quota            // what kubelet last wrote for its cgroup
	hidden    bool             // the sum of limits may lack a container without one
	batch     int64            // requested of lent CPUs, in thousandths
	owner     string           // the workload that made it, such as Deployment/web
	known     bool             // the API server has been heard
	specs     []ContainerFacts // its containers, where some are to own CPUs; nil: not known
}

// place is where a pod runs, and why.
type place struct {
	in intent
	holder
	// holders are the containers, by name, that own CPUs of their own: then the pod owns none
	// as a whole, and its other containers run in its pool.
	holders map[string]*holder
	nodes   *cpuset.Set           // NUMA node IDs an LS pod is bound to; nil: none
	found   *cpuset.Set           // those that it was found bound to, until all pods that run are placed
	pool    PoolID                // where it runs by the last decision; empty: on CPUs of its own, or not decided
	unread  bool                  // what it has is not known yet: it stays where it is
	waits   bool                  // unread, since what others have is not known yet
	kubelet bool                  // kubelet's static policy owns its exclusive CPUs
	entries map[string]cpuset.Set // these, by container name
	several bool                  // more than one container ran at a time: each keeps its own limit
}

// holder is who may own CPUs: a pod as a whole, or one container of it, also before it
// first runs and between two crashes. It lives as long as the pod.
type holder struct {
	pod      *pod
	name     string // of the container; empty: the pod as a whole
	grant    *grant
	asks     Resources // of a container, as last known
	degraded string    // why it is in the shared pool although it asked for more
	demoted  bool      // it owned CPUs before
	since    time.Time // when it began to wait for CPUs
	why      string    // it runs where it does
}

// id names a holder among all; that of a pod is its UID.
func (h *holder) id() string {
	if h.name == "" {
		return h.pod.ref.UID
	}
	return h.pod.ref.UID + "/" + h.name
}

// String is what people call it.
func (h *holder) String() string {
	name := h.pod.ref.Namespace + "/" + h.pod.ref.Name
	if h.name != "" {
		name += "/" + h.name
	}
	return name
}

// named is the holder of that container's CPUs: the container, the pod as a whole, or nil
// for one that runs in the pool beside containers that own theirs.
func (p *pod) named(container string) *holder {
	if p.holders == nil {
		return &p.holder
	}
	return p.holders[container]
}

// every lists the holders of a pod: itself, or its containers by name.
func (p *pod) every() []*holder {
	if p.holders == nil {
		return []*holder{&p.holder}
	}
	list := make([]*holder, 0, len(p.holders))
	for _, name := range sortedKeys(p.holders) {
		list = append(list, p.holders[name])
	}
	return list
}

// owns says that the pod, or a container of it, has a grant.
func (p *pod) owns() bool {
	if p.holders == nil {
		return p.grant != nil
	}
	return slices.ContainsFunc(p.every(), func(h *holder) bool { return h.grant != nil })
}

// granted is all that the pod and its containers own, or keep idle.
func (p *pod) granted() cpuset.Set {
	var all cpuset.Set
	for _, h := range p.every() {
		if h.grant != nil {
			both := h.grant.all()
			all.AddSet(&both)
		}
	}
	return all
}

// parts is what a pod consists of.
type parts struct {
	sandboxes  []string
	containers map[string]*container // the newest of each name
	all        map[string]*container // every one, by ID: an old one may end after its successor began
	caps       map[string]Cap        // by container name
	// ended are caps that are over, by container name: until the container is made anew, its
	// cgroup or the runtime's store may still have one.
	ended map[string]Cap
	// narrowed are the containers, "" for the pod itself, whose memory nodes are ours.
	narrowed []string
}

// grant is what a pod owns exclusively. CPUs that are offline stay granted.
type grant struct {
	cpus     cpuset.Set
	withheld cpuset.Set
	request  cpuallocator.Request
	// lost are NUMA node IDs on which hardware took CPUs and its memory stays; nil: none.
	lost *cpuset.Set
	// reservation is set where a newer version gave the CPUs; request is empty then.
	reservation *Reservation
}

// owned adds up the grants of all pods, so that deriving the pools costs the same
// however many owners there are.
type owned struct {
	cpus     cpuset.Set
	withheld cpuset.Set
	notBE    cpuset.Set // CPUs whose owners do not share with BE
}

// own enters a grant; release takes it out and leaves its holder without one.
func (m *Machine) own(h *holder) {
	m.exclusive[h.id()] = h
	m.owned.cpus.AddSet(&h.grant.cpus)
	m.owned.withheld.AddSet(&h.grant.withheld)
	if h.pod.refusesBE() {
		m.owned.notBE.AddSet(&h.grant.cpus)
	}
}

func (m *Machine) release(h *holder) {
	if m.exclusive[h.id()] == h {
		m.owned.cpus.RemoveSet(&h.grant.cpus)
		m.owned.withheld.RemoveSet(&h.grant.withheld)
		m.owned.notBE.RemoveSet(&h.grant.cpus)
		delete(m.exclusive, h.id())
	}
	h.grant = nil
}

// ownAll enters the grants of a pod, releaseAll takes them out.
func (m *Machine) ownAll(p *pod) {
	for _, h := range p.every() {
		if h.grant != nil {
			m.own(h)
		}
	}
}

func (m *Machine) releaseAll(p *pod) {
	for _, h := range p.every() {
		m.release(h)
	}
}

// having is a copy of the machine to judge on, where a grant is entered already. It shares
// all that judge only reads.
func (m *Machine) having(h *holder) *Machine {
	view := *m
	view.exclusive = maps.Clone(m.exclusive)
	view.own(h)
	view.derive()
	return &view
}

// refusesBE says that not even BE may run on a pod's CPUs.
func (p *pod) refusesBE() bool {
	return p.in.class == LSE || kubeletPins(p.labels, p.ref.QoS) || p.reserved()
}

func (g *grant) all() cpuset.Set { return g.cpus.Or(g.withheld) }

// nodesOf are the NUMA node IDs of a grant: of its CPUs, on or off, and those of lost ones.
func (m *Machine) nodesOf(g *grant) cpuset.Set {
	nodes := m.topo.NodesOf(g.cpus)
	if g.lost != nil {
		nodes.AddSet(g.lost)
	}
	return nodes
}

// follows leaves the memory of a grant on the nodes of the one before, which lost CPUs.
func (m *Machine) follows(g, before *grant) {
	lost := m.nodesOf(before).Minus(m.topo.NodesOf(g.cpus))
	g.lost = nonEmpty(&lost)
}

// container is one container of an admitted pod.
type container struct {
	ref       ContainerRef
	sandbox   string
	pod       *pod
	resources Resources
	shares    int64
	asked     Asked
	stopped   bool
	createdAt time.Time
	// storedLimits are the limits of ours, in milli-CPUs, that replies had the runtime store; nil: any.
	storedLimits []int64
}

// New makes the machine of an empty node.
func New(t *topology.Topology, cfg Config) (*Machine, error) {
	m := &Machine{
		cfg: cfg, topo: t, alloc: cpuallocator.New(t),
		residents: residents{
			pods: map[string]*pod{}, sandboxes: map[string]*pod{}, containers: map[string]*container{},
			bound: map[string]*pod{}, found: map[string]*FoundPod{}, unread: map[string]*pod{},
		},
		ledger: ledger{exclusive: map[string]*holder{}}, bookings: bookings{overruled: map[string]bool{}},
		used: newUsedPools(), healing: healing{waiting: map[string]*holder{}},
	}
	if err := m.checkConfig(&cfg); err != nil {
		return nil, err
	}
	m.recompute()
	m.rev++
	return m, nil
}

// checkConfig refuses a configuration that this machine cannot have.
func (m *Machine) checkConfig(cfg *Config) error {
	known := m.topo.Known().Or(m.topo.Offline())
	for _, s := range []struct {
		key string
		set cpuset.Set
	}{{"reserved CPUs", cfg.reserved()}, {"system.cpus", cfg.System.CPUs}} {
		if missing := s.set.Minus(known); !missing.IsEmpty() {
			return fmt.Errorf("policy: %s %s: this machine has no CPU %s, it has %s", s.key, s.set, missing, known)
		}
	}
	left := m.topo.Online().Minus(m.topo.Isolated())
	if cfg.reservedStrict() {
		left = left.Minus(cfg.reserved())
	}
	if cfg.System.Exclusive {
		left = left.Minus(cfg.System.CPUs)
	}
	if n, floor := left.Count(), m.floorOf(cfg); n < floor {
		return fmt.Errorf(
			"policy: reserved, isolated and system CPUs leave %d CPUs for the shared pool, whose floor is %d; "+
				"reserve fewer", n, floor)
	}
	return nil
}

func (m *Machine) floorOf(cfg *Config) int {
	if cfg.SharedFloor > 0 {
		return cfg.SharedFloor
	}
	return m.topo.ThreadsPerCore()
}

// Topology is the machine as it is now, Rev the number of the last change.
func (m *Machine) Topology() *topology.Topology { return m.topo }
func (m *Machine) Rev() uint64                  { return m.rev }

// Has says that a container is known to run, or to be about to.
func (m *Machine) Has(id string) bool { return m.containers[id] != nil }

// Continue makes an empty machine number its changes from rev on: it takes the place
// of one that had come so far.
func (m *Machine) Continue(rev uint64) { m.rev = max(m.rev, rev) }

func (m *Machine) decide(d Decision) { m.out = append(m.out, d) }

func (m *Machine) notice(p *pod, reason, format string, args ...any) {
	m.decide(noticeOf(p, reason, format, args...))
}

func noticeOf(p *pod, reason, format string, args ...any) Notice {
	n := Notice{Reason: reason, Message: fmt.Sprintf(format, args...)}
	if p != nil {
		n.Pod = p.ref
	}
	return n
}

// stamp puts the revision of this step on every decision of it.
func (m *Machine) stamp() {
	for i, d := range m.out {
		switch d := d.(type) {
		case SetPod:
			d.Rev = m.rev
			m.out[i] = d
		case SetContainer:
			d.Rev = m.rev
			m.out[i] = d
		}
	}
}
