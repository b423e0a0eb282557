package policy

import (
	"encoding/json"
	"strings"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
)

// The labels and annotations of pods and nodes. All except quietcore.dev are Koordinator's.
const (
	LabelClass       = "koordinator.sh/qosClass"
	AnnSpec          = "scheduling.koordinator.sh/resource-spec"
	AnnStatus        = "scheduling.koordinator.sh/resource-status"
	AnnNUMASpec      = "scheduling.koordinator.sh/numa-topology-spec"
	AnnSMT           = "quietcore.dev/smt"
	AnnManaged       = "quietcore.dev/managed"
	AnnCap           = "quietcore.dev/cap"
	AnnHeal          = "quietcore.dev/heal"
	AnnContainers    = "quietcore.dev/exclusive-containers"
	AnnIsolated      = "quietcore.dev/isolated-cpus"
	healOff          = "off"
	capExempt        = "exempt"
	capAllow         = "allow"
	isolatedOnly     = "required"
	LabelBind        = "node.koordinator.sh/cpu-bind-policy"
	LabelStrategy    = "node.koordinator.sh/numa-allocate-strategy"
	LabelAlignment   = "node.koordinator.sh/numa-topology-alignment-policy"
	LabelAlignment2  = "node.koordinator.sh/numa-topology-policy"
	LabelArch        = "kubernetes.io/arch" // of a Node, as Go names architectures
	maxAnnotation    = 4 << 10
	maxQuotedLiteral = 40
)

// podKeys are the labels and annotations that policy reads; callers need to keep no others.
var podKeys = []string{LabelClass, AnnSpec, AnnStatus, AnnNUMASpec, AnnSMT, AnnManaged, AnnCap, AnnHeal, AnnContainers,
	AnnIsolated}

// Relevant returns the part of a pod's labels or annotations that decisions depend on, so that no
// other text of a tenant is stored. A value that is too large is cut to just over the limit, so
// that it is still refused. Config.JobLabel is relevant, too; only the caller knows it.
func Relevant(all map[string]string, jobLabel string) map[string]string {
	var kept map[string]string
	keep := func(k string) {
		v, ok := all[k]
		if !ok {
			return
		}
		if len(v) > maxAnnotation {
			v = strings.Clone(v[:maxAnnotation+1])
		}
		if kept == nil {
			kept = map[string]string{}
		}
		kept[k] = v
	}
	for _, k := range podKeys {
		keep(k)
	}
	if jobLabel != "" {
		keep(jobLabel)
	}
	return kept
}

// intent is what a pod asks for after all levels of precedence.
type intent struct {
	class     Class
	unmanaged bool
	burst     bool // ConstrainedBurst
	bindNode  bool // an LS pod that alignment binds to a NUMA node
	isolated  bool // its CPUs must be ones that the kernel isolates
	// request takes two kilobytes: pods with equal requests share it, so it is never changed.
	request *cpuallocator.Request
	// scheduled is what a trusted scheduler chose; nil: nothing.
	scheduled *scheduled
	// ignored means that there is a resource-status that is not trusted.
	ignored       bool
	numaExclusive NUMAExclusive // singleNUMANodeExclusive
	named         []string      // the containers that are to own CPUs; nil: the pod owns as a whole
	capping
	powers  []Power  // powers that it asks for, allowed or not
	reasons string   // which policy of the node decided, for people
	unused  []string // annotations that do not apply to its class, for people
}

// capping defines whether a pod may be capped.
type capping struct {
	exempt    bool // never
	notExempt bool // it asked to be exempt and its namespace may not
	capped    bool // it may be, although it is not best effort
}

func (i *intent) exclusive() bool { return !i.unmanaged && (i.class == LSE || i.class == LSR) }

// literal makes tenant text safe and short enough for a message.
func literal(s string) string {
	if len(s) > maxQuotedLiteral {
		s = s[:maxQuotedLiteral] + "…"
	}
	b, _ := json.Marshal(s)
	return string(b)
}

// intentOf evaluates the labels and annotations of a pod and its node. The result does not depend
// on which CPUs are free.
func (m *Machine) intentOf(p *Pod) (intent, *Refusal) {
	in := intent{request: &cpuallocator.Request{}}
	err := m.readIntent(p, &in)
	in.request = m.shared(in.request)
	return in, err
}

// shared returns an equal request that another pod has, if it is among the most recent ones.
func (m *Machine) shared(r *cpuallocator.Request) *cpuallocator.Request {
	const most = 8
	for _, known := range m.requests {
		if *known == *r {
			return known
		}
	}
	m.requests = append(m.requests[max(len(m.requests)-most+1, 0):], r)
	return r
}

func (m *Machine) readIntent(p *Pod, in *intent) *Refusal {
	w, first := ReadWish(p)
	in.class, in.unmanaged, in.unused = w.Class, w.Unmanaged, w.Unused()
	if w.unread {
		return first
	}
	if in.unmanaged {
		return m.authorise(p, in)
	}
	in.burst, in.capped, in.numaExclusive = w.burst, w.cap == capAllow, w.numaExclusive
	in.isolated = w.isolated && in.exclusive()
	// Every part is read even after a violation: a pod that runs already keeps its place, whatever
	// its node demands by now, and the rest of what it asked for.
	for _, part := range []func() *Refusal{
		func() *Refusal { return m.authorise(p, in) },
		func() *Refusal { m.capOf(p, &w, in); return m.bindOf(&w, in) },
		func() *Refusal { return m.exclusiveOf(&w, in) },
		func() *Refusal { m.strategyOf(in); return m.alignmentOf(&w, in) },
		func() *Refusal { m.smtOf(&w, in); return m.statusOf(p, in) },
		func() *Refusal { return m.nameOwners(&w, in) },
		func() *Refusal { in.request.Nodes = in.nodes(); return nil },
	} {
		if err := part(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// capOf determines whether the pod is exempt from caps. A pod that may not be exempt gets a notice,
// and runs.
func (m *Machine) capOf(p *Pod, w *Wish, in *intent) {
	if w.cap == capExempt {
		in.exempt = m.cfg.Allows(p.Namespace, PowerCapExemption)
		in.notExempt = !in.exempt
	}
}

// nodes are the NUMA nodes that a trusted scheduler chose for an owner.
func (i *intent) nodes() cpuset.Set {
	if i.scheduled == nil || !i.exclusive() {
		return cpuset.Set{}
	}
	return i.scheduled.nodes
}

// nodeBind is the bind policy that the node demands, by its label or else by kubelet's options.
func (m *Machine) nodeBind() (bind cpuallocator.BindPolicy, source string) {
	switch label := m.cfg.NodeLabels[LabelBind]; {
	case label == "FullPCPUsOnly" || label == "PCPUOnly":
		return cpuallocator.FullPCPUs, "node label " + LabelBind
	case label == "SpreadByPCPUs" && !m.cfg.arm():
		return cpuallocator.SpreadByPCPUs, "node label " + LabelBind
	}
	if m.cfg.Kubelet.Options["full-pcpus-only"] == "true" {
		return cpuallocator.FullPCPUs, "kubelet's option full-pcpus-only"
	}
	return 0, ""
}

func bindName(b cpuallocator.BindPolicy) string {
	if b == cpuallocator.SpreadByPCPUs {
		return "SpreadByPCPUs"
	}
	return "FullPCPUs"
}

func (m *Machine) bindOf(w *Wish, in *intent) *Refusal {
	r := in.request
	switch {
	case w.badBind || w.burst:
		return nil
	case w.bind == nil:
		r.Bind, r.BindRequired = m.cfg.Allocation.Bind, m.cfg.Allocation.BindRequired
		if m.cfg.Kubelet.Options["distribute-cpus-across-cores"] == "true" {
			r.Bind, r.BindRequired = cpuallocator.SpreadByPCPUs, false // kubelet treats it as best effort, too
		}
	default:
		r.Bind, r.BindRequired = *w.bind, w.bindRequired
	}
	if !in.exclusive() {
		return nil
	}
	if m.cfg.arm() && r.Bind == cpuallocator.SpreadByPCPUs {
		if w.bind != nil {
			return refuse(cpuallocator.InvalidRequest,
				"the pod asks for SpreadByPCPUs, and nodes of architecture arm64 know FullPCPUs only; drop the pod's "+
					"policy or choose another node")
		}
		r.Bind, r.BindRequired = cpuallocator.FullPCPUs, false
	}
	if m.topo.ThreadsPerCore() == 1 {
		// A core is a CPU: the two policies are the same, and always met.
		r.Bind, r.BindRequired = cpuallocator.FullPCPUs, false
		return nil
	}
	node, source := m.nodeBind()
	if source == "" {
		return nil
	}
	if w.bind != nil && node != r.Bind {
		return refuse(cpuallocator.InvalidRequest,
			"the pod asks for %s and %s demands %s; drop the pod's policy or choose another node", bindName(r.Bind),
			source, bindName(node))
	}
	r.Bind, r.BindRequired = node, true
	in.reasons = bindName(node) + " by " + source
	return nil
}

const InvalidRequest = cpuallocator.InvalidRequest

func (m *Machine) exclusiveOf(w *Wish, in *intent) *Refusal {
	a, r := &m.cfg.Allocation, in.request
	r.Exclusive, r.ExclusiveRequired = a.Exclusive, a.ExclusiveRequired
	if w.exclusive != nil {
		r.Exclusive = *w.exclusive
	}
	if m.cfg.arm() && r.Exclusive == cpuallocator.PCPULevel && in.exclusive() {
		if w.exclusive != nil {
			return refuse(cpuallocator.InvalidRequest,
				"the pod asks for PCPULevel, and nodes of architecture arm64 know NUMANodeLevel only; drop the pod's "+
					"policy or choose another node")
		}
		r.Exclusive, r.ExclusiveRequired = cpuallocator.ExclusiveNone, false
	}
	return nil
}

func (m *Machine) strategyOf(in *intent) {
	switch m.cfg.NodeLabels[LabelStrategy] {
	case "MostAllocated":
		in.request.Strategy = cpuallocator.MostAllocated
	case "LeastAllocated":
		in.request.Strategy = cpuallocator.LeastAllocated
	case "DistributeEvenly":
		in.request.Strategy = cpuallocator.DistributeEvenly
	default:
		in.request.Strategy = m.cfg.Allocation.Strategy
		if m.cfg.Kubelet.Options["distribute-cpus-across-numa"] == "true" {
			in.request.Strategy = cpuallocator.DistributeEvenly
		}
	}
}

func (m *Machine) smtOf(w *Wish, in *intent) {
	r := in.request
	r.SMT = m.cfg.Allocation.SMT
	if w.smt != nil {
		r.SMT = *w.smt
	}
	if r.SMT == cpuallocator.SMTIsolate || r.SMT == cpuallocator.SMTRoundUp {
		// Both take whole cores whatever the count, so a demand for whole cores is met.
		if r.Bind == cpuallocator.FullPCPUs {
			r.BindRequired = false
		}
	}
}
