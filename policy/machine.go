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
	reported map[string]string // unknown label values that were reported already, by label

	pools   Pools
	decided Pools // the pools as last decided
	used    usedPools
	output
}

// residents are the pods and containers on the node.
type residents struct {
	pods       map[string]*pod         // by UID
	sandboxes  map[string]*pod         // by sandbox ID
	containers map[string]*container   // by container ID
	bound      map[string]*pod         // LS pods bound to NUMA nodes, by UID
	found      map[string]*FoundPod    // pods that were never announced, by UID
	unread     map[string]*pod         // pods that ask to own CPUs and whose cgroups have not been read yet, by UID
	requests   []*cpuallocator.Request // the most recent ones, for the next pod with an equal request
	order      uint64                  // counts pods, so that "youngest" is defined even if times are equal
}

// ledger lists the holders of grants.
type ledger struct {
	exclusive map[string]*holder // by ID
	owned     owned              // the sums over exclusive
	scratch   *grant             // reused by a trial, which keeps no grant
	promised  *cpuset.Set        // of a trial: what the node keeps for claims; else nil
}

// bookings is what kubelet gives to pods, and how it is configured.
type bookings struct {
	kubelet     KubeletState
	fromKubelet *Kubelet // its own configuration; nil: not read yet
	// overruled are pods, by UID, whose CPUs in kubelet's state do not count: they run where this
	// machine placed them.
	overruled map[string]bool
	// foreign are the claims of other DRA drivers, by CDI device.
	foreign map[string]foreignClaim
	// claims are those of our own driver, by UID, and claimants who has the CPUs of each of their CDI devices.
	claims    map[string]*ownClaim
	claimants map[string]*holder
}

// output is the result of steps.
type output struct {
	rev   uint64
	out   []Decision
	news  bool // this step changed something that is in no decision
	views views
}

// pod is an admitted pod. Its allocation lives as long as the pod.
type pod struct {
	ref     PodRef
	labels  map[string]string
	annots  map[string]string
	devices *cpuset.Set // NUMA node IDs of its devices; nil: none known
	claim   *ownClaim   // not nil: it is no pod, and stands for a request of a claim
	age
	size
	place
	parts
}

// age orders pods by arrival.
type age struct {
	createdAt time.Time
	order     uint64
}

// size is what a pod requests in total, and what else only the API server knows.
type size struct {
	resources *Resources       // without CPUs of claims; nil while unknown
	counted   Counted          // CPUs of claims that Kubernetes counts in addition
	asked     Quota            // what kubelet last wrote for its cgroup
	hidden    bool             // the sum of limits may leave out a container without one
	batch     int64            // request for lent CPUs, in thousandths
	owner     string           // the workload that created it, such as Deployment/web
	known     bool             // the API server's facts have arrived
	specs     []ContainerFacts // its containers, if some are to own CPUs; nil: unknown
}

// place is where a pod runs, and why.
type place struct {
	in intent
	holder
	// holders are the containers, by name, that own CPUs: then the pod owns none as a whole, and
	// its other containers run in its pool.
	holders map[string]*holder
	nodes   *cpuset.Set           // NUMA node IDs an LS pod is bound to; nil: none
	found   *cpuset.Set           // nodes that it was found bound to, until all running pods are placed
	pool    PoolID                // where it runs by the last decision; empty: on its own CPUs, or not decided
	unread  bool                  // what it has is still unknown: it stays where it is
	waits   bool                  // it is unread only because what others have is still unknown
	kubelet bool                  // kubelet's static policy owns its exclusive CPUs
	entries map[string]cpuset.Set // these CPUs, by container name
	several bool                  // more than one container ran at the same time: each keeps its own limit
}

// holder is a pod as a whole or one of its containers that may own CPUs, also before its first run
// and between two crashes. It lives as long as the pod.
type holder struct {
	pod      *pod
	name     string // of the container; empty: the pod as a whole
	grant    *grant
	asks     Resources // of a container: its last known request and limit
	degraded string    // why it is in the shared pool although it asked for more
	demoted  bool      // it owned CPUs before
	since    time.Time // when it began to wait for CPUs
	why      string    // why it runs where it does
}

// id is unique among all holders; that of a pod is its UID.
func (h *holder) id() string {
	if h.name == "" {
		return h.pod.ref.UID
	}
	return h.pod.ref.UID + "/" + h.name
}

// String is the name of a holder for people.
func (h *holder) String() string {
	name := h.pod.ref.Namespace + "/" + h.pod.ref.Name
	if h.pod.claim != nil {
		return "claim " + name
	}
	if h.name != "" {
		name += "/" + h.name
	}
	return name
}

// named is the holder of a container's CPUs: the container, the pod as a whole, or nil if it runs
// in the pool while other containers of the pod own CPUs.
func (p *pod) named(container string) *holder {
	if p.holders == nil {
		return &p.holder
	}
	return p.holders[container]
}

// every lists the holders of a pod: the pod itself, or its containers by name.
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

// owns reports whether the pod, or a container of it, has a grant.
func (p *pod) owns() bool {
	if p.holders == nil {
		return p.grant != nil
	}
	return slices.ContainsFunc(p.every(), func(h *holder) bool { return h.grant != nil })
}

// granted is everything that the pod and its containers own, or keep idle.
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

// parts are the sandboxes, containers and caps of a pod.
type parts struct {
	sandboxes  []string
	containers map[string]*container // the newest of each name
	all        map[string]*container // all of them, by ID: an old one may end after its successor has started
	caps       map[string]Cap        // by container name
	// ended are caps that have ended, by container name: until the container is created again, its
	// cgroup or the runtime's store may still have the cap.
	ended map[string]Cap
	// narrowed lists the containers, "" for the pod itself, whose memory nodes were set by us.
	narrowed []string
	// claims are the CDI devices of the containers that have CPUs by DRA claims, by name, and with name "" those of
	// the claims of our own driver that are reserved for the pod. They stay as long as the pod.
	claims map[string][]string
}

// grant is what a holder owns exclusively. CPUs that are offline stay granted.
type grant struct {
	cpus     cpuset.Set
	withheld cpuset.Set
	request  cpuallocator.Request
	// lost are the NUMA node IDs where its CPUs went offline but its memory stays; nil: none.
	lost *cpuset.Set
	// reservation is set if a newer version gave the CPUs; request is empty then.
	reservation *Reservation
}

// owned is the sum of all grants, so that the cost of deriving the pools does not grow with the
// number of owners.
type owned struct {
	cpus     cpuset.Set
	withheld cpuset.Set
	notBE    cpuset.Set // CPUs whose owners do not share with BE
}

// own adds a grant to the sums; release removes it and leaves its holder without one.
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

// ownAll adds the grants of a pod, releaseAll removes them.
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

// withGrant returns a copy of the machine to judge on, in which a grant is entered already. The copy
// shares everything that judge only reads.
func (m *Machine) withGrant(h *holder) *Machine {
	view := *m
	view.exclusive = maps.Clone(m.exclusive)
	view.own(h)
	view.derive()
	return &view
}

// refusesBE reports whether not even BE may run on a pod's CPUs.
func (p *pod) refusesBE() bool {
	return p.in.class == LSE || kubeletPins(p.labels, p.ref.QoS) || p.reserved()
}

func (g *grant) all() cpuset.Set { return g.cpus.Or(g.withheld) }

// nodesOf are the NUMA node IDs of a grant: of its CPUs, online or offline, and its lost nodes.
func (m *Machine) nodesOf(g *grant) cpuset.Set {
	nodes := m.topo.NodesOf(g.cpus)
	if g.lost != nil {
		nodes.AddSet(g.lost)
	}
	return nodes
}

// follows keeps the memory of a grant on the nodes of the previous one, which lost CPUs.
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
	// storedLimits are limits of ours, in milli-CPUs, that replies made the runtime store; nil:
	// any.
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
		ledger: ledger{exclusive: map[string]*holder{}}, bookings: bookings{overruled: map[string]bool{},
			claims: map[string]*ownClaim{}, claimants: map[string]*holder{}},
		used: newUsedPools(), healing: healing{waiting: map[string]*holder{}},
	}
	if err := m.checkConfig(&cfg); err != nil {
		return nil, err
	}
	m.recompute()
	m.rev++
	return m, nil
}

// checkConfig refuses a configuration that does not fit this machine.
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

// Topology is the machine's current topology, Rev the number of the last change.
func (m *Machine) Topology() *topology.Topology { return m.topo }
func (m *Machine) Rev() uint64                  { return m.rev }

// Has reports whether a container is known to run, or is about to.
func (m *Machine) Has(id string) bool { return m.containers[id] != nil }

// Continue makes an empty machine number its changes from rev on: it replaces a machine that had
// reached rev.
func (m *Machine) Continue(rev uint64) { m.rev = max(m.rev, rev) }

func (m *Machine) decide(d Decision) { m.out = append(m.out, d) }

func (m *Machine) notice(p *pod, reason, format string, args ...any) {
	m.decide(noticeOf(p, reason, format, args...))
}

func noticeOf(p *pod, reason, format string, args ...any) Notice {
	n := Notice{Reason: reason, Message: fmt.Sprintf(format, args...)}
	if p != nil && p.claim == nil {
		n.Pod = p.ref
	}
	return n
}

// stamp sets the revision of this step on each of its decisions.
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
