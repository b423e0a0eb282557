package policy

import (
	"encoding/json"
	"strings"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
)

// The labels and annotations of pods and nodes. All but the quietcore.dev ones are
// Koordinator's.
const (
	LabelClass       = "koordinator.sh/qosClass"
	AnnSpec          = "scheduling.koordinator.sh/resource-spec"
	AnnStatus        = "scheduling.koordinator.sh/resource-status"
	AnnNUMASpec      = "scheduling.koordinator.sh/numa-topology-spec"
	AnnSMT           = "quietcore.dev/smt"
	AnnManaged       = "quietcore.dev/managed"
	AnnCap           = "quietcore.dev/cap"
	AnnHeal          = "quietcore.dev/heal"
	healOff          = "off"
	LabelBind        = "node.koordinator.sh/cpu-bind-policy"
	LabelStrategy    = "node.koordinator.sh/numa-allocate-strategy"
	LabelAlignment   = "node.koordinator.sh/numa-topology-alignment-policy"
	LabelAlignment2  = "node.koordinator.sh/numa-topology-policy"
	maxAnnotation    = 4 << 10
	maxQuotedLiteral = 40
)

// PodKeys are the labels and annotations that policy reads; a shell need keep no others.
var podKeys = []string{LabelClass, AnnSpec, AnnStatus, AnnNUMASpec, AnnSMT, AnnManaged, AnnCap, AnnHeal}

// Relevant returns the part of a pod's labels or annotations that decisions
// depend on, so that a tenant's other text is never held. A value that is too
// large is cut to just over what is allowed: it stays refused. Config.JobLabel is
// relevant, too; only the caller knows it.
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

// intent is what a pod asks for after every level of precedence.
type intent struct {
	class     Class
	unmanaged bool
	burst     bool // ConstrainedBurst
	bindNode  bool // an LS pod that alignment binds to a NUMA node
	// request is two kilobytes: pods that ask for the same share it, so it is never changed.
	request *cpuallocator.Request
	// scheduled is what a trusted scheduler chose; nil: nothing.
	scheduled *scheduled
	// ignored is a resource-status that is not trusted.
	ignored bool
	apart   apart // singleNUMANodeExclusive
	// exempt says that no cap may quiet the pod, notExempt that it asked for that and may not.
	exempt, notExempt bool
	// capped says that the pod may be capped although it is not best effort.
	capped  bool
	powers  []Power // that it asks for, allowed or not
	reasons string  // which policy of the node decided, for people
}

func (i *intent) exclusive() bool { return !i.unmanaged && (i.class == LSE || i.class == LSR) }

type resourceSpec struct {
	Required  string `json:"requiredCPUBindPolicy"`
	Preferred string `json:"preferredCPUBindPolicy"`
	Exclusive string `json:"preferredCPUExclusivePolicy"`
}

// literal makes tenant text safe and short enough for a message.
func literal(s string) string {
	if len(s) > maxQuotedLiteral {
		s = s[:maxQuotedLiteral] + "…"
	}
	b, _ := json.Marshal(s)
	return string(b)
}

func (m *Machine) classOf(p *Pod) (Class, *Refusal) {
	switch c := Class(p.Labels[LabelClass]); c {
	case "":
		if p.QoS == BestEffort {
			return BE, nil
		}
		return LS, nil
	case LSE, LSR, LS, BE, SYSTEM:
		return c, nil
	default:
		return "", refuse(InvalidQoS, "label %s is %s; it must be LSE, LSR, LS, BE or SYSTEM", LabelClass,
			literal(string(c)))
	}
}

// intentOf reads everything that a pod and its node say. It decides nothing
// that depends on which CPUs are free.
func (m *Machine) intentOf(p *Pod) (intent, *Refusal) {
	in := intent{request: &cpuallocator.Request{}}
	err := m.readIntent(p, &in)
	in.request = m.shared(in.request)
	return in, err
}

// shared is an equal request that another pod has, if it is one of the last that were new.
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
	class, err := m.classOf(p)
	if err != nil {
		return err
	}
	in.class, in.unmanaged = class, p.Annotations[AnnManaged] == "false"
	if v := p.Annotations[AnnManaged]; v != "" && v != "true" && !in.unmanaged {
		return refuse(InvalidAnnotation, "annotation %s is %s; it must be true or false", AnnManaged, literal(v))
	}
	if in.unmanaged {
		if in.class != BE {
			in.class = LS
		}
		return m.authorise(p, in)
	}
	var spec resourceSpec
	first := decode(p, AnnSpec, &spec)
	// Every part is read even after a violation: a pod that runs already keeps
	// its place whatever its node says by now, and the rest of what it asked for.
	for _, part := range []func() *Refusal{
		func() *Refusal { return m.authorise(p, in) },
		func() *Refusal { return m.capOf(p, in) },
		func() *Refusal { return healOf(p) },
		func() *Refusal { return m.bindOf(spec, in) },
		func() *Refusal { return m.exclusiveOf(spec, in) },
		func() *Refusal { m.strategyOf(in); return m.alignmentOf(p, in) },
		func() *Refusal { return m.smtOf(p, in) },
		func() *Refusal { return m.statusOf(p, in) },
		func() *Refusal { in.request.Nodes = in.nodes(); return nil },
	} {
		if err := part(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// decode reads an annotation into a value; one that is not there changes nothing.
func decode(p *Pod, key string, into any) *Refusal {
	text := p.Annotations[key]
	if text == "" {
		return nil
	}
	if len(text) > maxAnnotation {
		return refuse(InvalidAnnotation, "annotation %s is larger than the %d bytes allowed", key, maxAnnotation)
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		return refuse(InvalidAnnotation, "annotation %s is not the JSON object expected: %s", key, literal(text))
	}
	return nil
}

// capOf reads whether the pod is to be exempt from caps. One that may not be gets a notice,
// and runs.
func (m *Machine) capOf(p *Pod, in *intent) *Refusal {
	switch v := p.Annotations[AnnCap]; v {
	case "":
	case "allow":
		in.capped = true
	case "exempt":
		in.exempt = m.cfg.Allows(p.Namespace, PowerCapExemption)
		in.notExempt = !in.exempt
	default:
		return refuse(InvalidAnnotation, "annotation %s is %s; it must be exempt or allow", AnnCap, literal(v))
	}
	return nil
}

// healOf checks whether a pod says in a word that is known that it is to stay without CPUs
// that it lost or was not given.
func healOf(p *Pod) *Refusal {
	switch v := p.Annotations[AnnHeal]; v {
	case "", "auto", healOff:
		return nil
	default:
		return refuse(InvalidAnnotation, "annotation %s is %s; it must be auto or off", AnnHeal, literal(v))
	}
}

// nodes are the NUMA nodes that a trusted scheduler holds an owner to.
func (i *intent) nodes() cpuset.Set {
	if i.scheduled == nil || !i.exclusive() {
		return cpuset.Set{}
	}
	return i.scheduled.nodes
}

// nodeBind is the bind policy that the node demands, from its label, else from
// kubelet's options.
func (m *Machine) nodeBind() (bind cpuallocator.BindPolicy, source string) {
	switch m.cfg.NodeLabels[LabelBind] {
	case "FullPCPUsOnly", "PCPUOnly":
		return cpuallocator.FullPCPUs, "node label " + LabelBind
	case "SpreadByPCPUs":
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

func (m *Machine) bindOf(spec resourceSpec, in *intent) *Refusal {
	own, key, required := spec.Preferred, "preferredCPUBindPolicy", false
	if spec.Required != "" && spec.Required != "Default" {
		own, key, required = spec.Required, "requiredCPUBindPolicy", true
	}
	r := in.request
	named := true
	switch own {
	case "", "Default":
		named = false
		r.Bind, r.BindRequired = m.cfg.Allocation.Bind, m.cfg.Allocation.BindRequired
		if m.cfg.Kubelet.Options["distribute-cpus-across-cores"] == "true" {
			r.Bind, r.BindRequired = cpuallocator.SpreadByPCPUs, false // best effort with kubelet too
		}
	case "FullPCPUs":
		r.Bind, r.BindRequired = cpuallocator.FullPCPUs, required
	case "SpreadByPCPUs":
		r.Bind, r.BindRequired = cpuallocator.SpreadByPCPUs, required
	case "ConstrainedBurst":
		if in.class != LS {
			return refuse(InvalidRequest, "%s ConstrainedBurst is for LS pods, this pod is %s", key, in.class)
		}
		in.burst = true
		return nil
	default:
		return refuse(InvalidAnnotation,
			"annotation %s: %s is %s; it must be Default, FullPCPUs, SpreadByPCPUs or ConstrainedBurst", AnnSpec, key,
			literal(own))
	}
	if !in.exclusive() {
		return nil
	}
	if m.topo.ThreadsPerCore() == 1 {
		// A core is a CPU: the two policies are one, and always met.
		r.Bind, r.BindRequired = cpuallocator.FullPCPUs, false
		return nil
	}
	node, source := m.nodeBind()
	if source == "" {
		return nil
	}
	if named && node != r.Bind {
		return refuse(cpuallocator.InvalidRequest,
			"the pod asks for %s and %s demands %s; drop the pod's policy or choose another node", bindName(r.Bind),
			source, bindName(node))
	}
	r.Bind, r.BindRequired = node, true
	in.reasons = bindName(node) + " by " + source
	return nil
}

const InvalidRequest = cpuallocator.InvalidRequest

func (m *Machine) exclusiveOf(spec resourceSpec, in *intent) *Refusal {
	r := in.request
	r.ExclusiveRequired = m.cfg.Allocation.ExclusiveRequired
	switch spec.Exclusive {
	case "", "Default":
		r.Exclusive = m.cfg.Allocation.Exclusive
	case "None":
		r.Exclusive = cpuallocator.ExclusiveNone
	case "PCPULevel":
		r.Exclusive = cpuallocator.PCPULevel
	case "NUMANodeLevel":
		r.Exclusive = cpuallocator.NUMANodeLevel
	default:
		return refuse(InvalidAnnotation,
			"annotation %s: preferredCPUExclusivePolicy is %s; it must be Default, None, PCPULevel or NUMANodeLevel",
			AnnSpec, literal(spec.Exclusive))
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

func (m *Machine) smtOf(p *Pod, in *intent) *Refusal {
	r := in.request
	switch v := p.Annotations[AnnSMT]; v {
	case "":
		r.SMT = m.cfg.Allocation.SMT
	case "none":
		r.SMT = cpuallocator.SMTNone
	case "isolate":
		r.SMT = cpuallocator.SMTIsolate
	case "align":
		r.SMT = cpuallocator.SMTAlign
	case "roundup":
		r.SMT = cpuallocator.SMTRoundUp
	default:
		return refuse(InvalidAnnotation, "annotation %s is %s; it must be none, isolate, align or roundup", AnnSMT,
			literal(v))
	}
	if r.SMT == cpuallocator.SMTIsolate || r.SMT == cpuallocator.SMTRoundUp {
		// Both take whole cores whatever the count, so a demand for whole cores is met.
		if r.Bind == cpuallocator.FullPCPUs {
			r.BindRequired = false
		}
	}
	return nil
}
