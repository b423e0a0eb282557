package policy

import (
	"slices"
	"strings"

	"github.com/quietcore/quietcore/cpuallocator"
)

// Power is something that a pod may ask for at the expense of other pods. A request pays for the
// CPUs that it names, and for nothing else. docs/security/authority.md has the table.
type Power string

const (
	PowerExclusive      Power = "exclusive"      // CPUs of its own, covered by its request
	PowerWholeCores     Power = "wholeCores"     // idle siblings (isolate) and surplus (roundup)
	PowerNUMAExclusive  Power = "numaExclusive"  // other pods are refused on its NUMA nodes
	PowerUnmanaged      Power = "unmanaged"      // not managed, and never capped
	PowerWithoutRequest Power = "withoutRequest" // class LS, never capped, on a pod that requests nothing
	PowerCapExemption   Power = "capExemption"
	PowerIsolatedCPUs   Power = "isolatedCPUs" // CPUs that the operator isolated from the kernel's scheduler
	PowerSystem         Power = "system"       // class SYSTEM
)

// Powers lists all powers.
func Powers() []Power {
	return []Power{PowerExclusive, PowerWholeCores, PowerNUMAExclusive, PowerUnmanaged, PowerWithoutRequest,
		PowerCapExemption, PowerIsolatedCPUs, PowerSystem}
}

// Profile defines which powers a namespace has by default, when no list covers the power.
type Profile string

const (
	ProfileDefault Profile = "default" // what a request pays for
	ProfileOpen    Profile = "open"    // all but exemption from caps, isolated CPUs and the class SYSTEM
	ProfileStrict  Profile = "strict"  // none
)

// Profiles lists all profiles.
func Profiles() []Profile { return []Profile{ProfileDefault, ProfileOpen, ProfileStrict} }

func (p Profile) opens(w Power) bool {
	switch w {
	case PowerSystem, PowerCapExemption, PowerIsolatedCPUs:
		return false
	case PowerExclusive:
		return p != ProfileStrict
	}
	return p == ProfileOpen
}

// everyNamespace stands for every namespace in a list.
const everyNamespace = "*"

// Allows reports whether the pods of a namespace have a power. This is the only place that decides
// it. A list that is not empty is complete: no other namespace has the power.
func (c *Config) Allows(namespace string, w Power) bool {
	list := c.listed(w)
	if len(list) == 0 {
		return c.Authority.Profile.opens(w)
	}
	return slices.Contains(list, namespace) || slices.Contains(list, everyNamespace)
}

func (c *Config) listed(w Power) []string {
	if w == PowerSystem {
		return c.System.Namespaces
	}
	return c.Authority.Namespaces[w]
}

// powersOf lists the powers that a pod of a class asks for by its labels and annotations. What the
// operator's configuration grants to every pod is not among them.
func (m *Machine) powersOf(p *Pod, class Class) []Power {
	if p.Annotations[AnnManaged] == "false" {
		return []Power{PowerUnmanaged}
	}
	var list []Power
	owner := class == LSE || class == LSR
	if owner {
		list = append(list, PowerExclusive)
	}
	if owner && m.wantsMoreThanItRequests(p.Annotations[AnnSMT]) {
		list = append(list, PowerWholeCores)
	}
	if (owner || class == LS) && m.wantsNodesForItself(p, owner) {
		list = append(list, PowerNUMAExclusive)
	}
	if class == LS && p.QoS == BestEffort && len(p.Claims) == 0 {
		list = append(list, PowerWithoutRequest)
	}
	if p.Annotations[AnnCap] == "exempt" {
		list = append(list, PowerCapExemption)
	}
	if owner && p.Annotations[AnnIsolated] == isolatedOnly {
		list = append(list, PowerIsolatedCPUs)
	}
	if class == SYSTEM {
		list = append(list, PowerSystem)
	}
	return list
}

func (m *Machine) wantsMoreThanItRequests(smt string) bool {
	configured := m.cfg.Allocation.SMT
	return m.topo.ThreadsPerCore() > 1 && (smt == "isolate" && configured != cpuallocator.SMTIsolate ||
		smt == "roundup" && configured != cpuallocator.SMTRoundUp)
}

// wantsNodesForItself reports whether other pods may be refused to keep them off the pod's NUMA
// nodes.
func (m *Machine) wantsNodesForItself(p *Pod, owner bool) bool {
	var numa numaSpec
	_ = decode(p, AnnNUMASpec, &numa) // an unreadable annotation is refused elsewhere
	var spec resourceSpec
	_ = decode(p, AnnSpec, &spec)
	a := &m.cfg.Allocation
	return numa.Exclusive == "Required" || owner && spec.Exclusive == "NUMANodeLevel" && a.ExclusiveRequired &&
		a.Exclusive != cpuallocator.NUMANodeLevel
}

// authorise refuses a pod that asks for a power that its namespace does not have. The exemption
// from caps is the exception: it is not granted, and the pod runs without it.
func (m *Machine) authorise(p *Pod, in *intent) *Refusal {
	in.powers = m.powersOf(p, in.class)
	for _, w := range in.powers {
		if w != PowerCapExemption && !m.cfg.Allows(p.Namespace, w) {
			return m.unauthorised(p.Namespace, w)
		}
	}
	return nil
}

func (m *Machine) unauthorised(namespace string, w Power) *Refusal {
	what, key := w.does(), "authority."+string(w)+".namespaces"
	if w == PowerSystem {
		key = "system.namespaces"
	}
	allows := "allows none"
	if list := m.cfg.listed(w); len(list) > 0 {
		allows = "allows " + strings.Join(list, ", ")
	}
	return refuse(Unauthorized, "namespace %s may not %s; the configuration's %s %s", literal(namespace), what, key,
		allows)
}

// does describes the use of a power, to follow "may not" in a message.
func (w Power) does() string {
	switch w {
	case PowerExclusive:
		return "claim exclusive CPUs"
	case PowerWholeCores:
		return "keep siblings idle or have surplus CPUs beyond its requests (" + AnnSMT + ")"
	case PowerNUMAExclusive:
		return "keep other pods off its NUMA nodes (Required)"
	case PowerUnmanaged:
		return "leave pods unmanaged (" + AnnManaged + ": false)"
	case PowerWithoutRequest:
		return "use class LS for BestEffort pods, which request nothing"
	case PowerCapExemption:
		return "be exempt from caps (" + AnnCap + ")"
	case PowerIsolatedCPUs:
		return "own CPUs that the kernel isolates (" + AnnIsolated + ")"
	}
	return "use class SYSTEM"
}

// denied returns why a pod is managed although it asks to be unmanaged; empty: it does not ask.
func (m *Machine) denied(p *pod) string {
	if p.in.unmanaged || !slices.Contains(p.in.powers, PowerUnmanaged) {
		return ""
	}
	return m.unauthorised(p.ref.Namespace, PowerUnmanaged).Error()
}

// kept lists the powers that a running pod keeps although its namespace no longer has them: it
// keeps them until it ends.
func (m *Machine) kept(p *pod) []Power {
	if p.degraded != "" || p.unread {
		return nil
	}
	var list []Power
	for _, w := range p.in.powers {
		if !m.cfg.Allows(p.ref.Namespace, w) && (w != PowerCapExemption || p.in.exempt) {
			list = append(list, w)
		}
	}
	return list
}

// PowersView is a pod with the powers that it asks for.
type PowersView struct {
	Namespace string  `json:"namespace"`
	Pod       string  `json:"pod"`
	Powers    []Power `json:"powers"`
	// Kept are those that it has because it ran before.
	Kept []Power `json:"kept,omitempty"`
}

// powerViews lists the pods that ask for powers, by namespace and name.
func (m *Machine) powerViews() []PowersView {
	var list []PowersView
	for _, p := range m.pods {
		if len(p.in.powers) > 0 {
			list = append(list, PowersView{Namespace: p.ref.Namespace, Pod: p.ref.Name, Powers: p.in.powers,
				Kept: m.kept(p)})
		}
	}
	slices.SortFunc(list, func(a, b PowersView) int {
		if d := strings.Compare(a.Namespace, b.Namespace); d != 0 {
			return d
		}
		return strings.Compare(a.Pod, b.Pod)
	})
	return list
}
