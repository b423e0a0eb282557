package policy

import (
	"encoding/json"
	"fmt"

	"github.com/quietcore/quietcore/cpuallocator"
)

// Wish is what a pod asks for by its labels and annotations, regardless of the node. The daemon and
// the scheduler read it with the same function, so that they refuse the same pods with the same
// messages.
type Wish struct {
	Class     Class
	Unmanaged bool

	unread        bool // only Class and Unmanaged are valid
	burst         bool // ConstrainedBurst
	badBind       bool // its bind policy was refused
	bind          *cpuallocator.BindPolicy
	bindRequired  bool
	exclusive     *cpuallocator.ExclusivePolicy
	smt           *cpuallocator.SMT
	alignment     cpuallocator.Alignment
	aligned       bool // it names an alignment, possibly None
	numaExclusive NUMAExclusive
	cap           string
	isolated      bool     // its CPUs must be ones that the kernel isolates
	named         []string // containers that are to own CPUs; nil: the pod owns as a whole
}

// Owns reports whether the pod asks for CPUs of its own.
func (w *Wish) Owns() bool { return !w.Unmanaged && (w.Class == LSE || w.Class == LSR) }

// Binds reports whether the pod asks to share the pool of only some NUMA nodes. A pod that does not
// ask may still be bound if its node demands it.
func (w *Wish) Binds() bool {
	return !w.Unmanaged && w.Class == LS && (w.burst || binds(w.alignment) || w.numaExclusive != numaShared)
}

// AllowsCaps reports whether the pod lets itself be capped although it is not best effort.
func (w *Wish) AllowsCaps() bool { return w.cap == capAllow }

// Unused lists, a sentence each, the annotations that do not apply to the pod's class.
func (w *Wish) Unused() []string {
	if w.unread || w.Unmanaged || w.Owns() {
		return nil
	}
	var all []string
	unused := func(key, only string) {
		all = append(all, fmt.Sprintf("annotation %s is ignored: the pod is %s, and %s", key, w.Class, only))
	}
	if w.bind != nil || w.exclusive != nil {
		unused(AnnSpec, "only LSE and LSR pods own CPUs, to which bind and exclusive policies apply")
	}
	if w.smt != nil {
		unused(AnnSMT, "only LSE and LSR pods own CPUs, whose siblings it is about")
	}
	if w.isolated {
		unused(AnnIsolated, "only LSE and LSR pods own CPUs, which may be isolated ones")
	}
	if w.Class != LS && (binds(w.alignment) || w.numaExclusive != numaShared) {
		unused(AnnNUMASpec, "only LSE, LSR and LS pods are bound to NUMA nodes")
	}
	return all
}

// resourceSpec is the annotation resource-spec.
type resourceSpec struct {
	Required  string `json:"requiredCPUBindPolicy"`
	Preferred string `json:"preferredCPUBindPolicy"`
	Exclusive string `json:"preferredCPUExclusivePolicy"`
}

// ReadWish reads everything that a pod asks for. If the pod is refused, the wish still holds all
// parts that could be read: a pod that runs already keeps them.
func ReadWish(p *Pod) (Wish, *Refusal) {
	var w Wish
	class, err := classOf(p)
	if err != nil {
		w.unread = true
		return w, err
	}
	managed := p.Annotations[AnnManaged]
	w.Class, w.Unmanaged = class, managed == "false"
	if managed != "" && managed != "true" && !w.Unmanaged {
		w.unread = true
		return w, refuse(InvalidAnnotation, "annotation %s is %s; it must be true or false", AnnManaged,
			literal(managed))
	}
	if w.Unmanaged {
		if class != BE {
			w.Class = LS
		}
		return w, nil
	}
	var spec resourceSpec
	first := decode(p, AnnSpec, &spec)
	for _, part := range []func() *Refusal{
		func() *Refusal { w.cap = p.Annotations[AnnCap]; return capWord(w.cap) },
		func() *Refusal { return healOf(p) },
		func() *Refusal { return w.readBind(&spec) },
		func() *Refusal { return w.readExclusive(&spec) },
		func() *Refusal { return w.readAlignment(p) },
		func() *Refusal { return w.readSMT(p.Annotations[AnnSMT]) },
		func() *Refusal { return w.readIsolated(p.Annotations[AnnIsolated]) },
		func() *Refusal { return w.readNamed(p.Annotations[AnnContainers]) },
	} {
		if err := part(); err != nil && first == nil {
			first = err
		}
	}
	return w, first
}

func classOf(p *Pod) (Class, *Refusal) {
	switch c := Class(p.Labels[LabelClass]); c {
	case "":
		if p.QoS == BestEffort && len(p.Claims) == 0 {
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

// decode reads an annotation into a value; a missing one changes nothing.
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

// capWord checks the value of the annotation about caps.
func capWord(v string) *Refusal {
	switch v {
	case "", capExempt, capAllow:
		return nil
	default:
		return refuse(InvalidAnnotation, "annotation %s is %s; it must be exempt or allow", AnnCap, literal(v))
	}
}

// healOf checks the value of the annotation that decides whether the pod gets CPUs later that it
// lost or was refused.
func healOf(p *Pod) *Refusal {
	switch v := p.Annotations[AnnHeal]; v {
	case "", "auto", healOff:
		return nil
	default:
		return refuse(InvalidAnnotation, "annotation %s is %s; it must be auto or off", AnnHeal, literal(v))
	}
}

func (w *Wish) readBind(spec *resourceSpec) *Refusal {
	own, key := spec.Preferred, "preferredCPUBindPolicy"
	if spec.Required != "" && spec.Required != "Default" {
		own, key, w.bindRequired = spec.Required, "requiredCPUBindPolicy", true
	}
	policy := cpuallocator.FullPCPUs
	switch own {
	case "", "Default":
		return nil
	case "FullPCPUs":
	case "SpreadByPCPUs":
		policy = cpuallocator.SpreadByPCPUs
	case "ConstrainedBurst":
		if w.Class != LS {
			w.badBind = true
			return refuse(InvalidRequest, "%s ConstrainedBurst is for LS pods, this pod is %s", key, w.Class)
		}
		w.burst = true
		return nil
	default:
		w.badBind = true
		return refuse(InvalidAnnotation,
			"annotation %s: %s is %s; it must be Default, FullPCPUs, SpreadByPCPUs or ConstrainedBurst", AnnSpec, key,
			literal(own))
	}
	w.bind = &policy
	return nil
}

func (w *Wish) readExclusive(spec *resourceSpec) *Refusal {
	policy := cpuallocator.ExclusiveNone
	switch spec.Exclusive {
	case "", "Default":
		return nil
	case "None":
	case "PCPULevel":
		policy = cpuallocator.PCPULevel
	case "NUMANodeLevel":
		policy = cpuallocator.NUMANodeLevel
	default:
		return refuse(InvalidAnnotation,
			"annotation %s: preferredCPUExclusivePolicy is %s; it must be Default, None, PCPULevel or NUMANodeLevel",
			AnnSpec, literal(spec.Exclusive))
	}
	w.exclusive = &policy
	return nil
}

func (w *Wish) readAlignment(p *Pod) *Refusal {
	var spec numaSpec
	err := decode(p, AnnNUMASpec, &spec)
	w.alignment, w.aligned = alignmentNamed(spec.Policy)
	if err == nil && !w.aligned && spec.Policy != "" {
		err = refuse(InvalidAnnotation,
			"annotation %s: numaTopologyPolicy is %s; it must be None, BestEffort, Restricted or SingleNUMANode",
			AnnNUMASpec, literal(spec.Policy))
	}
	switch spec.Exclusive {
	case "Preferred":
		w.numaExclusive = NUMAExclusivePreferred
	case "Required":
		w.numaExclusive = NUMAExclusiveRequired
	case "":
	default:
		if err == nil {
			err = refuse(InvalidAnnotation,
				"annotation %s: singleNUMANodeExclusive is %s; it must be Preferred or Required", AnnNUMASpec,
				literal(spec.Exclusive))
		}
	}
	return err
}

func (w *Wish) readSMT(v string) *Refusal {
	var smt cpuallocator.SMT
	switch v {
	case "":
		return nil
	case "none":
		smt = cpuallocator.SMTNone
	case "isolate":
		smt = cpuallocator.SMTIsolate
	case "align":
		smt = cpuallocator.SMTAlign
	case "roundup":
		smt = cpuallocator.SMTRoundUp
	default:
		return refuse(InvalidAnnotation, "annotation %s is %s; it must be none, isolate, align or roundup", AnnSMT,
			literal(v))
	}
	w.smt = &smt
	return nil
}

// readIsolated reads whether the pod wants only CPUs that the kernel isolates.
func (w *Wish) readIsolated(v string) *Refusal {
	if v != "" && v != isolatedOnly {
		return refuse(InvalidAnnotation, "annotation %s is %s; it must be %s", AnnIsolated, literal(v), isolatedOnly)
	}
	w.isolated = v == isolatedOnly
	return nil
}
