package page

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/incidents"
	"github.com/quietcore/quietcore/internal/printable"
	"github.com/quietcore/quietcore/internal/render"
	"github.com/quietcore/quietcore/internal/topodoc"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// Look is the daemon's state at one moment.
type Look struct {
	Snapshot                *policy.Snapshot
	Connected, Synchronised bool
	Observe                 bool // nothing is written
	Unpinned                int
	Performance             control.Performance
	Lending                 *Lending // nil: not measured
}

// Lending is the use of idle CPUs, in CPUs.
type Lending struct {
	Known             bool // what is used was measured
	Production, Batch float64
	Offered           bool // Offer is known
	Offer             float64
}

// The parts of the document. Each is sent again only after a change.
const (
	partMachine    = "machine"
	partNode       = "node"
	partCPUs       = "cpus"
	partContainers = "containers"
	partSamples    = "samples"
	partIncidents  = "incidents"
	partLoad       = "load"
)

func partNames() []string {
	return []string{partMachine, partNode, partCPUs, partContainers, partSamples, partIncidents, partLoad}
}

// Bounds of a tenant's text.
const (
	maxName = 260 // a pod's name has at most 253 characters
	maxWhy  = 1000
	// maxContainers bounds the list; a node has a few hundred.
	maxContainers = 5000
)

func name(text string) string { return printable.Clip(text, maxName) }

func clip(text string) string { return printable.Clip(text, maxWhy) }

type machinePart struct {
	Sockets    []socketPart `json:"sockets"`
	MemoryOnly []int        `json:"memoryOnly,omitempty"` // NUMA nodes without CPUs
	Hybrid     bool         `json:"hybrid,omitempty"`
	Isolated   string       `json:"isolated,omitempty"`
}

type socketPart struct {
	ID    int       `json:"id"`
	Nodes []nodeBox `json:"nodes"`
}

type nodeBox struct {
	ID          int     `json:"id"`
	MemoryBytes uint64  `json:"memoryBytes,omitempty"`
	L3s         []l3Box `json:"l3s"`
}

type l3Box struct {
	ID    int       `json:"id"`
	Cores []coreBox `json:"cores"`
}

type coreBox struct {
	ID         int   `json:"id"`
	CPUs       []int `json:"cpus"`
	Efficiency bool  `json:"efficiency,omitempty"`
}

// machineOf nests the machine for drawing. If domains do not nest, a node or an L3
// appears wherever some of its cores are; a core appears once.
func machineOf(t *topology.Topology) machinePart {
	isolated := t.Isolated()
	out := machinePart{Hybrid: topodoc.Hybrid(t), Isolated: isolated.String()}
	for _, s := range t.Sockets() {
		socket := socketPart{ID: s.ID}
		at := map[int]int{}
		for _, core := range s.Cores {
			n := t.Cores()[core].Node
			i, seen := at[n]
			if !seen {
				i, at[n] = len(socket.Nodes), len(socket.Nodes)
				socket.Nodes = append(socket.Nodes, nodeBox{ID: t.Nodes()[n].ID, MemoryBytes: t.Nodes()[n].MemoryBytes})
			}
			socket.Nodes[i].add(t, core)
		}
		slices.SortFunc(socket.Nodes, func(a, b nodeBox) int { return cmp.Compare(a.ID, b.ID) })
		out.Sockets = append(out.Sockets, socket)
	}
	for _, n := range t.Nodes() {
		if len(n.Cores) == 0 {
			out.MemoryOnly = append(out.MemoryOnly, n.ID)
		}
	}
	return out
}

func (n *nodeBox) add(t *topology.Topology, core int) {
	c := t.Cores()[core]
	id := t.L3s()[c.L3].ID
	i := slices.IndexFunc(n.L3s, func(l l3Box) bool { return l.ID == id })
	if i < 0 {
		i = len(n.L3s)
		n.L3s = append(n.L3s, l3Box{ID: id})
	}
	n.L3s[i].Cores = append(n.L3s[i].Cores, coreBox{ID: c.ID, CPUs: c.CPUs, Efficiency: c.Kind == topology.Efficiency})
}

// isolated marks a CPU, in addition to the words of package render.
const isolated = "isolated"

type cpusPart struct {
	Pools  map[string]string `json:"pools"` // CPU lists
	CPUs   []cpuMark         `json:"cpus"`
	Owners []ownerPart       `json:"owners"`
}

// cpuMark is one CPU. Its pool is its owner's, else the narrowest one that it is in.
type cpuMark struct {
	ID    int    `json:"id"`
	Pool  string `json:"pool"`
	Owner *int   `json:"owner,omitempty"` // index of Owners
	BE    string `json:"be,omitempty"`    // "in": best effort may run here too; "off": it is kept away for a time
}

type ownerPart struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Container string `json:"container,omitempty"` // empty: the pod as a whole
	Claim     string `json:"claim,omitempty"`     // by which the pod has them; of its namespace
	Pool      string `json:"pool"`
	CPUs      string `json:"cpus"`
	Withheld  string `json:"withheld,omitempty"`
	ByKubelet bool   `json:"byKubelet,omitempty"`
	Running   bool   `json:"running"` // it has a container now
	set, kept cpuset.Set
}

func ownersOf(s *policy.Snapshot) []ownerPart {
	type owner struct{ uid, container string } // no container: any of the pod
	containers := make(map[owner]*policy.ContainerView, len(s.Owners))
	for _, c := range s.Containers {
		if c.Pool == policy.PoolExclusive {
			containers[owner{c.PodUID, ""}], containers[owner{c.PodUID, c.Name}] = c, c
		}
	}
	list := make([]ownerPart, 0, len(s.Owners))
	for _, o := range s.Owners {
		p := ownerPart{Namespace: name(o.Namespace), Pod: name(o.Pod), Container: name(o.Container),
			Pool: render.Exclusive, CPUs: o.CPUs.String(), ByKubelet: o.ByKubelet, set: o.CPUs}
		if c := containers[owner{o.PodUID, o.Container}]; c != nil {
			p.Running = true
			switch c.Class {
			case policy.LSE:
				p.Pool = render.LSE
			case policy.LSR:
				p.Pool = render.LSR
			}
			if c.Withheld != nil {
				p.kept = *c.Withheld
				p.Withheld = p.kept.String()
			}
		}
		if o.ByKubelet {
			p.Pool = render.Kubelet
		}
		list = append(list, p)
	}
	for i := range s.Claims {
		list = append(list, claimOf(s, &s.Claims[i])...)
	}
	slices.SortStableFunc(list, func(a, b ownerPart) int { return cmp.Compare(a.set.First(), b.set.First()) })
	return list
}

// claimOf is a claim of our own DRA driver, if it has CPUs: they are the first's of its pods that runs here.
func claimOf(s *policy.Snapshot, c *policy.ClaimView) []ownerPart {
	p := ownerPart{Namespace: name(c.Namespace), Claim: name(c.Name), Pool: render.Exclusive}
	for _, r := range c.Requests {
		p.set, p.kept = p.set.Or(r.CPUs), p.kept.Or(r.Withheld)
	}
	if p.set.IsEmpty() {
		return nil
	}
	p.CPUs = p.set.String()
	if !p.kept.IsEmpty() {
		p.Withheld = p.kept.String()
	}
	i := slices.IndexFunc(s.Containers, func(v *policy.ContainerView) bool { return slices.Contains(c.Pods, v.PodUID) })
	if i >= 0 {
		p.Pod, p.Running = name(s.Containers[i].Pod), true
	}
	return []ownerPart{p}
}

func cpusOf(s *policy.Snapshot) cpusPart {
	t := s.Topology
	out := cpusPart{Owners: ownersOf(s), Pools: map[string]string{
		"shared": s.Shared.String(), "be": s.BE.String(), "beWhole": s.BEWhole.String(),
		"reserved":  s.Reserved.String(),
		"exclusive": s.Exclusive.String(), "withheld": s.Withheld.String(), "system": s.System.String(),
		"kubelet": s.Kubelet.String(),
	}}
	owner := map[int]int{}
	for i, o := range out.Owners {
		for cpu := range o.set.All() {
			owner[cpu] = i
		}
		for cpu := range o.kept.All() {
			owner[cpu] = i
		}
	}
	apart := t.Isolated()
	offline := t.Offline()
	for _, c := range t.CPUs() {
		m := cpuMark{ID: c.ID}
		if i, owned := owner[c.ID]; owned && !offline.Has(c.ID) {
			m.Owner = &i
		}
		switch {
		case offline.Has(c.ID):
			m.Pool = render.Offline
		case s.Withheld.Has(c.ID):
			m.Pool = render.Withheld
		case m.Owner != nil:
			m.Pool = out.Owners[*m.Owner].Pool
		case s.Exclusive.Has(c.ID):
			m.Pool = render.Exclusive
		case s.System.Has(c.ID):
			m.Pool = render.System
		case s.Reserved.Has(c.ID):
			m.Pool = render.Reserved
		case s.Shared.Has(c.ID):
			m.Pool = render.Shared
		case s.BEWhole.Has(c.ID):
			m.Pool = render.BE
		case apart.Has(c.ID):
			m.Pool = isolated
		}
		switch {
		case s.BE.Has(c.ID):
			m.BE = "in"
		case s.BEWhole.Has(c.ID):
			m.BE = "off"
		}
		out.CPUs = append(out.CPUs, m)
	}
	return out
}

type containersPart struct {
	Containers []containerPart `json:"containers"`
	More       int             `json:"more,omitempty"` // that are not listed
}

type containerPart struct {
	ID        string          `json:"id"`
	Namespace string          `json:"namespace"`
	Pod       string          `json:"pod"`
	Container string          `json:"container"`
	Workload  string          `json:"workload,omitempty"`
	Class     policy.Class    `json:"class"`
	Pool      policy.PoolKind `json:"pool"`
	// CPUs are empty if they are its pool's, so that a change of the pool does not change
	// a thousand containers.
	CPUs       string `json:"cpus,omitempty"`
	Withheld   string `json:"withheld,omitempty"`
	Mems       string `json:"mems,omitempty"` // empty: all NUMA nodes
	QuotaMilli int64  `json:"quotaMilli"`     // below 0: none
	CapMilli   int64  `json:"capMilli,omitempty"`
	CapUntil   int64  `json:"capUntil,omitempty"` // Unix milliseconds
	BatchMilli int64  `json:"batchMilli,omitempty"`
	ByKubelet  bool   `json:"byKubelet,omitempty"`
	Why        string `json:"why"`
}

func containersOf(s *policy.Snapshot) containersPart {
	out := containersPart{Containers: make([]containerPart, 0, min(len(s.Containers), maxContainers)),
		More: max(0, len(s.Containers)-maxContainers)}
	pools := map[policy.PoolKind]cpuset.Set{policy.PoolShared: s.Shared, policy.PoolBE: s.BE,
		policy.PoolReserved: s.Reserved, policy.PoolSystem: s.System}
	for _, c := range s.Containers[:min(len(s.Containers), maxContainers)] {
		p := containerPart{
			ID: name(c.ID), Namespace: name(c.Namespace), Pod: name(c.Pod), Container: name(c.Name),
			Workload: name(c.Owner), Class: c.Class, Pool: c.Pool,
			QuotaMilli: c.QuotaMilli, CapMilli: c.CapMilli, BatchMilli: c.BatchMilli, ByKubelet: c.ByKubelet,
			Why: clip(c.Why),
		}
		if c.CapMilli > 0 {
			p.CapUntil = c.CapUntil.UnixMilli()
		}
		if cpus := s.CPUs(c); cpus != pools[c.Pool] {
			p.CPUs = cpus.String()
		}
		if c.Withheld != nil {
			p.Withheld = c.Withheld.String()
		}
		if c.Mems != nil {
			p.Mems = c.Mems.String()
		}
		out.Containers = append(out.Containers, p)
	}
	return out
}

type nodePart struct {
	Name         string  `json:"name"`
	Version      string  `json:"version"`
	Instance     string  `json:"instance"` // of the daemon: another after a restart
	Assets       string  `json:"assets"`   // of the page: another after an update
	Started      int64   `json:"started"`  // Unix milliseconds
	Connected    bool    `json:"connected"`
	Synchronised bool    `json:"synchronised"`
	Observe      bool    `json:"observe,omitempty"`
	Unpinned     int     `json:"unpinned"`
	CPI          cpiPart `json:"cpi"`
	// KeepsIncidents says whether there can be any.
	KeepsIncidents bool `json:"keepsIncidents"`
}

// cpiPart is the state of counting, without what changes every second.
type cpiPart struct {
	Mode     string  `json:"mode"`
	Counting bool    `json:"counting"`
	Why      string  `json:"why,omitempty"`
	Interval float64 `json:"interval,omitempty"`
	Window   float64 `json:"window,omitempty"`
	// Judged says how many jobs are judged, and why others are not; Counted who was counted,
	// where not everybody is.
	Judged  string `json:"judged,omitempty"`
	Counted string `json:"counted,omitempty"`
}

func cpiOf(c control.CPI) cpiPart {
	out := cpiPart{Mode: c.Mode, Counting: c.Counting, Why: clip(c.Why), Interval: c.Interval, Window: c.Window}
	if c.Jobs != nil {
		jobs := *c.Jobs
		if jobs.Next != nil { // in whole minutes, so that the page does not change every second
			next := 60 * math.Ceil(*jobs.Next/60)
			jobs.Next = &next
		}
		out.Judged = clip(jobs.String())
	}
	if c.Watchlist != nil {
		out.Counted = clip(c.Watchlist.String())
	}
	return out
}

type samplesPart struct {
	Dropped string                    `json:"dropped,omitempty"`
	Samples map[string]control.Sample `json:"samples"` // by container id
}

func samplesOf(p control.Performance) samplesPart {
	out := samplesPart{Dropped: clip(p.CPI.Dropped), Samples: make(map[string]control.Sample, len(p.Samples))}
	for id, s := range p.Samples {
		if len(out.Samples) == maxContainers {
			break
		}
		s.Why = clip(s.Why)
		out.Samples[name(id)] = s
	}
	return out
}

// maxListed bounds the incidents on the page; `quietcore incidents` shows the rest.
const maxListed = 100

type incidentsPart struct {
	Incidents []incidentRow `json:"incidents"`
	Kept      int           `json:"kept"`
	Why       string        `json:"why,omitempty"` // none can be read
}

type incidentRow struct {
	ID         string    `json:"id"`
	At         time.Time `json:"at"`
	Victim     string    `json:"victim"`
	CPI        float64   `json:"cpi"`
	Threshold  float64   `json:"threshold"`
	Mean       float64   `json:"mean"`
	Verdict    string    `json:"verdict"`
	Resource   string    `json:"resource,omitempty"`
	Antagonist string    `json:"antagonist,omitempty"`
	Others     int       `json:"others,omitempty"` // other antagonists
	Result     string    `json:"result,omitempty"`
	Active     bool      `json:"active,omitempty"`
}

func incidentsOf(l *incidents.Listing) incidentsPart {
	out := incidentsPart{Kept: l.Kept, Incidents: make([]incidentRow, 0, len(l.Incidents))}
	for _, i := range l.Incidents {
		row := incidentRow{
			ID: i.ID, At: i.At, Victim: subject(i.Victim), CPI: i.CPI, Threshold: i.Threshold, Mean: i.Mean,
			Verdict: name(i.Verdict), Resource: name(i.Resource), Result: name(i.Result), Active: i.Active,
			Others: max(0, len(i.Antagonists)-1),
		}
		if len(i.Antagonists) > 0 {
			row.Antagonist = subject(i.Antagonists[0].Subject)
		}
		out.Incidents = append(out.Incidents, row)
	}
	return out
}

// subject is namespace/pod/container. Each part is cut by itself, so that the last one
// is always included.
func subject(s incidents.Subject) string {
	return name(s.Namespace) + "/" + name(s.Pod) + "/" + name(s.Container)
}
