package policy

import (
	"cmp"
	"slices"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/topology"
)

// Snapshot is the state of a node at one revision. It is immutable, so any number of readers may
// hold it.
type Snapshot struct {
	*Pools     // shared by successive snapshots with equal pools
	Rev        uint64
	Topology   *topology.Topology
	Containers []*ContainerView // by namespace, pod and name
	Owners     []*OwnerView     // by UID and container
	// Unannounced are the pods that were found but never announced, sorted by UID.
	Unannounced []FoundPod
	Powers      []PowersView          // pods that ask for powers
	Waiting     []Waiting             // pods that wait for CPUs of their own, the oldest first
	Short       []Shortage            // parts of the shared pool with fewer CPUs than their pods request
	Claims      []ClaimView           // of our own DRA driver, by UID
	Ledger      *Ledger               // what pods hold, for the scheduler
	parts       map[PoolID]cpuset.Set // CPUs of the parts of pools; shared by successive snapshots with equal parts
}

// Free is what may be given exclusively. The shared pool overlaps owners if hardware left it no other CPUs.
func (s *Snapshot) Free() cpuset.Set {
	free := s.Shared
	for _, taken := range []*cpuset.Set{&s.Reserved, &s.System, &s.Exclusive, &s.Withheld} {
		free.RemoveSet(taken)
	}
	return free
}

// Spare is how many CPUs may leave the shared pool before it reaches its floor; floor 0 means one physical core.
func (s *Snapshot) Spare(floor int) int {
	if floor <= 0 {
		floor = s.Topology.ThreadsPerCore()
	}
	return max(0, s.Shared.Count()-floor)
}

// OwnerView is a pod, or a container of one, with CPUs of its own. It owns them even while no
// container runs, such as between two crashes.
type OwnerView struct {
	PodUID    string
	Namespace string
	Pod       string
	Container string     // empty: the pod as a whole
	CPUs      cpuset.Set // the online ones
	// ByKubelet means that kubelet's static policy pinned the pod: to these CPUs, or to others that
	// were taken, so that we replaced them by these.
	ByKubelet bool
	// Reservation is the kind of owner if a newer version gave the CPUs by rules that this one does
	// not know; else empty.
	Reservation string
}

// ContainerView is one running container.
type ContainerView struct {
	ID         string
	PodUID     string
	Namespace  string
	Pod        string
	Name       string
	Class      Class
	Pool       PoolKind
	Need       Need
	Withheld   *cpuset.Set // nil: none
	Mems       *cpuset.Set // nil: every NUMA node
	QuotaMilli int64
	OwnMilli   int64 // what QuotaMilli is without a cap
	Shares     int64
	CapMilli   int64 // 0: no cap
	CapUntil   time.Time
	MayCap     bool   // it may be capped to protect other pods
	MayIdle    bool   // its pod may be let run on otherwise idle CPUs alone, and does not always
	QoS        QoS    // Kubernetes' own class of the pod
	Cgroup     string // as the runtime reports it; empty while unknown
	BatchMilli int64  // its pod's request for lent CPUs
	ByKubelet  bool   // kubelet owns its CPUs
	Owner      string // the workload that created the pod, such as Deployment/web; empty while unknown
	Claims     string // of CPUs, that it has: their names, or the CDI devices of another driver; empty: none
	Why        string
}

// CPUs returns the CPUs that a container may run on.
func (s *Snapshot) CPUs(c *ContainerView) cpuset.Set {
	if c.Need.Own != nil {
		return *c.Need.Own
	}
	if cpus, ok := s.parts[c.Need.Pool]; ok {
		return cpus
	}
	return s.of(c.Need.Pool.Kind())
}

// MemsOf returns the NUMA nodes whose memory a container may use.
func (s *Snapshot) MemsOf(c *ContainerView) cpuset.Set {
	if c.Mems != nil {
		return *c.Mems
	}
	return s.Topology.MemoryNodes()
}

// views keeps the list of container views sorted and copies it only if something changed: a step
// with a thousand containers costs one copy of pointers.
type views struct {
	list         []*ContainerView
	touched      []*container
	poolsChanged bool
	partsStale   bool
	ownersStale  bool
	foundStale   bool
	found        []FoundPod
	owners       []*OwnerView
	claims       []ClaimView
	current      *Snapshot

	podsStale bool    // the sum of the pods' requests may have changed
	rules     *Config // nil: changed
	holdings  []Holding
	booked    cpuset.Packed
	boundSeen bool // pods were bound when holdings was built
}

func (v *views) touch(c *container) { v.touched = append(v.touched, c) }

func (v *views) dirty() bool {
	return v.poolsChanged || v.partsStale || v.ownersStale || v.foundStale || v.podsStale || v.rules == nil ||
		len(v.touched) > 0
}

func compareViews(a, b *ContainerView) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.PodUID, b.PodUID))
}

// Snapshot returns the current state. It is built on demand, so that a step costs nothing while no
// caller reads it.
func (m *Machine) Snapshot() *Snapshot {
	m.refreshViews()
	return m.views.current
}

func (m *Machine) refreshViews() {
	v := &m.views
	if v.current != nil && !v.dirty() {
		return
	}
	if len(v.touched) > 0 {
		v.list = append(make([]*ContainerView, 0, len(v.list)+len(v.touched)), v.list...)
		for _, c := range v.touched {
			m.refreshView(c)
		}
	}
	if v.ownersStale {
		v.owners, v.claims = m.ownerViews(v.owners), m.claimViews()
	}
	if v.foundStale {
		v.found = m.foundPods()
	}
	var parts map[PoolID]cpuset.Set
	if v.partsStale {
		parts = m.used.parts()
	} else if v.current != nil {
		parts = v.current.parts
	}
	floors := m.floors(claim{})
	var before *Ledger
	if v.current != nil {
		before = v.current.Ledger
	}
	ledger := m.publish(before, floors)
	v.touched, v.poolsChanged, v.partsStale, v.ownersStale, v.foundStale = nil, false, false, false, false
	v.podsStale = false
	var pools *Pools
	if v.current != nil && *v.current.Pools == m.pools {
		pools = v.current.Pools
	} else {
		now := m.pools
		pools = &now
	}
	v.current = &Snapshot{Pools: pools, Rev: m.rev, Topology: m.topo, Containers: v.list, Owners: v.owners,
		Unannounced: v.found, Short: m.shortages(floors), Powers: m.powerViews(), Waiting: m.waitingViews(),
		Claims: v.claims, Ledger: ledger, parts: parts}
}

// ownerViews lists the owners. It reuses the previous views of unchanged owners: most do not change
// when one arrives or ends.
func (m *Machine) ownerViews(before []*OwnerView) []*OwnerView {
	list := make([]*OwnerView, 0, len(m.exclusive)+len(m.kubelet.Entries))
	add := func(p *pod, name string, cpus cpuset.Set) {
		cpus = cpus.And(m.topo.Online())
		if cpus.IsEmpty() {
			return
		}
		byKubelet, kind := kubeletPins(p.labels, p.ref.QoS), ""
		if p.reserved() {
			byKubelet, kind = false, p.grant.reservation.Kind
		}
		key := OwnerView{PodUID: p.ref.UID, Container: name}
		at, found := slices.BinarySearchFunc(before, &key, compareOwners)
		if found && before[at].CPUs == cpus && before[at].ByKubelet == byKubelet && before[at].Reservation == kind {
			list = append(list, before[at])
			return
		}
		list = append(list, &OwnerView{PodUID: p.ref.UID, Namespace: p.ref.Namespace, Pod: p.ref.Name,
			Container: name, CPUs: cpus, ByKubelet: byKubelet, Reservation: kind})
	}
	for _, h := range m.exclusive {
		if h.pod.claim != nil {
			continue
		}
		add(h.pod, h.name, h.grant.cpus)
	}
	for uid := range m.kubelet.Entries {
		if p := m.pods[uid]; p != nil && p.kubelet {
			add(p, "", union(p.entries))
		}
	}
	slices.SortFunc(list, compareOwners)
	return list
}

func compareOwners(a, b *OwnerView) int {
	return cmp.Or(cmp.Compare(a.PodUID, b.PodUID), cmp.Compare(a.Container, b.Container))
}

func (m *Machine) refreshView(c *container) {
	p := c.pod
	key := &ContainerView{Namespace: p.ref.Namespace, Pod: p.ref.Name, Name: c.ref.Name, PodUID: p.ref.UID}
	at, found := slices.BinarySearchFunc(m.views.list, key, compareViews)
	newest := p.containers[c.ref.Name]
	switch {
	case newest == nil:
		if found {
			m.views.list = slices.Delete(m.views.list, at, at+1)
		}
	case found:
		m.views.list[at] = m.viewOf(newest)
	default:
		m.views.list = slices.Insert(m.views.list, at, m.viewOf(newest))
	}
}

func (m *Machine) viewOf(c *container) *ContainerView {
	p := c.pod
	need, pool := m.needOf(p, c.ref.Name)
	v := &ContainerView{
		ID: c.ref.ID, PodUID: p.ref.UID, Namespace: p.ref.Namespace, Pod: p.ref.Name, Name: c.ref.Name,
		Class: p.in.class, Pool: pool, Need: need, Mems: m.memsOf(p, c.ref.Name, need),
		QuotaMilli: m.quotaOf(c), Shares: c.shares, ByKubelet: p.kubelet, Owner: m.ownerOf(p),
		Why: m.whyOf(p, c.ref.Name), Claims: m.claimNames(p, c.ref.Name),
		MayCap: m.mayCap(p), MayIdle: m.mayIdle(p), QoS: p.ref.QoS, Cgroup: c.ref.CgroupPath, BatchMilli: p.batch,
	}
	if h := p.named(c.ref.Name); h != nil && h.grant != nil {
		v.Withheld = nonEmpty(&h.grant.withheld)
	}
	v.OwnMilli = v.QuotaMilli
	if limit, ok := p.caps[c.ref.Name]; ok {
		v.CapMilli, v.CapUntil = limit.Milli, limit.Until
		if v.QuotaMilli == NoLimit || limit.Milli < v.QuotaMilli {
			v.QuotaMilli = limit.Milli
		}
	}
	return v
}
