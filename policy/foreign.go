package policy

import (
	"fmt"
	"maps"
	"slices"

	"github.com/quietcore/quietcore/cpuset"
)

// ForeignClaims replaces what CDI specs say about the CPUs that DRA drivers other than ours gave. A claim counts from
// its spec on, before any container has it, and as long as a pod is known to have it, also without its spec.
type ForeignClaims struct {
	// Devices are the CPUs of each claim, by the qualified name of its CDI device.
	Devices map[string]cpuset.Set `json:"devices"`
}

func (ForeignClaims) event() {}

// foreignClaim are the CPUs of a device; listed means that a spec still has it.
type foreignClaim struct {
	cpus   cpuset.Set
	listed bool
}

// foreignCPUs are the CPUs of other drivers' claims that nobody owns here: an owner that was first keeps its CPUs.
func (m *Machine) foreignCPUs(kubelet *cpuset.Set) cpuset.Set {
	if len(m.foreign) == 0 {
		return cpuset.Set{}
	}
	s := m.foreignClaimed()
	s.RemoveSet(kubelet)
	s.RemoveSet(&m.owned.cpus)
	s.RemoveSet(&m.owned.withheld)
	return s
}

// foreignClaimed are the CPUs of other drivers' claims, whoever has them.
func (m *Machine) foreignClaimed() (s cpuset.Set) {
	for _, c := range m.foreign {
		s.AddSet(&c.cpus)
	}
	return s
}

// foreignClaims takes over a new list of claims.
func (m *Machine) foreignClaims(e ForeignClaims) {
	next := make(map[string]foreignClaim, len(e.Devices))
	for device, cpus := range e.Devices {
		if !isOwnDevice(device) {
			next[device] = foreignClaim{cpus: cpus, listed: true}
		}
	}
	for device := range m.claimedDevices() {
		if _, listed := next[device]; listed {
			continue
		}
		if was, ok := m.foreign[device]; ok {
			next[device] = foreignClaim{cpus: was.cpus}
		}
	}
	was := m.foreign
	if maps.Equal(was, next) {
		return
	}
	m.foreign = next
	m.recompute()
	m.moveClaims() // claims may have exchanged CPUs
	for _, device := range sortedKeys(next) {
		if c := next[device]; was[device].cpus != c.cpus {
			m.reportTaken(device, c.cpus)
		}
	}
}

// reportTaken says which CPUs of a claim are owned here: the other driver cannot know.
func (m *Machine) reportTaken(device string, cpus cpuset.Set) {
	taken := m.owned.cpus.Or(m.owned.withheld).Or(m.pools.Kubelet).And(cpus)
	if !taken.IsEmpty() {
		m.notice(nil, "ForeignClaimOverlaps",
			"another DRA driver gave CPUs %s to claim %s, of which %s are owned by pods here; their owners keep them, "+
				"and the claim has the rest: reserve in each of the two the CPUs of the other (here reserved.cpus)",
			cpus, literal(device), taken)
	}
}

// claimedDevices are the devices of claims that pods are known to have.
func (m *Machine) claimedDevices() map[string]bool {
	all := map[string]bool{}
	for _, p := range m.pods {
		for _, devices := range p.claims {
			for _, d := range devices {
				all[d] = true
			}
		}
	}
	return all
}

// forgetClaims forgets claims that no spec lists and no pod has any more; false: there are none.
func (m *Machine) forgetClaims() bool {
	var held map[string]bool
	forgot := false
	for device, c := range m.foreign {
		if c.listed {
			continue
		}
		if held == nil {
			held = m.claimedDevices()
		}
		if !held[device] {
			delete(m.foreign, device)
			forgot = true
		}
	}
	return forgot
}

// claimDevices records that a container, or the pod with name "", has claims of CPUs; false: it was known.
func (p *pod) claimDevices(name string, devices []string) bool {
	if len(devices) == 0 || slices.Equal(p.claims[name], devices) {
		return false // a pod's claims do not change: a runtime that names none does not know
	}
	if p.claims == nil {
		p.claims = map[string][]string{}
	}
	p.claims[name] = devices
	return true
}

// takeClaims takes over the claims of a container that starts, or those that are reserved for a pod (name ""). QoS
// leaves claims out, so from now on Kubernetes' class says nothing about the pod.
func (m *Machine) takeClaims(p *pod, name string, devices []string) {
	if !p.claimDevices(name, devices) {
		return
	}
	if p.in.class == BE && p.production() {
		p.in.class = LS
	}
	m.keepCaps(p)
	if m.forgetClaims() { // of an earlier container of that name
		m.recompute()
	}
	m.explain(p)
	m.podChanged(p)
}

// claimNeed are the CPUs of a container's claims, as far as they are not owned by others here. What a pod owns by
// annotation or by kubelet's static policy comes first.
func (m *Machine) claimNeed(p *pod, name string) (cpuset.Set, bool) {
	if !p.followsClaims() {
		return cpuset.Set{}, false
	}
	own := m.foreignOf(p.claims[name])
	for _, h := range m.ofClaim(p, name) {
		if h.grant != nil {
			own.AddSet(&h.grant.cpus)
		}
	}
	own = own.And(m.topo.Online())
	return own, !own.IsEmpty()
}

// foreignOf are the CPUs that other drivers gave to devices.
func (m *Machine) foreignOf(devices []string) cpuset.Set {
	var all cpuset.Set
	for _, device := range devices {
		given := m.foreign[device].cpus
		all.AddSet(&given)
	}
	return all.And(m.pools.Foreign)
}

// production reports whether a pod is not best effort although it requests nothing: it has claimed CPUs, and does not
// ask for class BE by its label.
func (p *pod) production() bool { return len(p.claims) > 0 && p.labels[LabelClass] != string(BE) }

// followsClaims reports whether containers of a pod run on the CPUs of claims.
func (p *pod) followsClaims() bool { return len(p.claims) > 0 && !p.kubelet && !p.owns() }

// byOthers reports whether a container of a pod has a claim of another driver.
func (p *pod) byOthers() bool {
	for _, devices := range p.claims {
		if slices.ContainsFunc(devices, func(d string) bool { return !isOwnDevice(d) }) {
			return true
		}
	}
	return false
}

// whyClaims is why a container with claims runs where it does; empty: claims do not decide.
func (m *Machine) whyClaims(p *pod, name string) string {
	if !p.followsClaims() {
		return ""
	}
	list := m.ofClaim(p, name)
	own, some := m.claimNeed(p, name)
	switch theirs := m.foreignOf(p.claims[name]); {
	case some && theirs.IsEmpty():
		return fmt.Sprintf("%s: %s; no other pod runs on them", p.in.class, claimText(list))
	case some && len(list) == 0:
		return fmt.Sprintf("%s: another DRA driver gave it CPUs %s by a claim; no other pod runs on them", p.in.class,
			own)
	case some:
		return fmt.Sprintf("%s: %s, and another DRA driver gave it CPUs %s by a claim; no other pod runs on them",
			p.in.class, claimText(list), theirs)
	case len(list) > 0:
		return fmt.Sprintf("%s: it has a CPU claim, and no CPU of it is left; it runs in its pool", p.in.class)
	case len(p.claims[name]) > 0:
		return fmt.Sprintf("%s: it has a CPU claim of another DRA driver, and no CPUs of it are known that are "+
			"not owned by others here; it runs in its pool", p.in.class)
	}
	return ""
}

// claimedCPUs are the CPUs of all claims of a pod.
func (m *Machine) claimedCPUs(p *pod) cpuset.Set {
	if !p.followsClaims() {
		return cpuset.Set{}
	}
	var all cpuset.Set
	for _, devices := range p.claims {
		theirs := m.foreignOf(devices)
		all.AddSet(&theirs)
		for _, device := range devices {
			if h := m.claimants[device]; h != nil && h.grant != nil {
				all.AddSet(&h.grant.cpus)
			}
		}
	}
	return all.And(m.topo.Online())
}

// moveClaims decides pods with claims again, whose CPUs have changed.
func (m *Machine) moveClaims() {
	for _, p := range ordered(m.pods) {
		if len(p.claims) > 0 {
			m.explain(p)
			m.podChanged(p)
		}
	}
}

// foreignRecords brings an empty machine to the current claims: before the pods come, and after.
func (m *Machine) foreignRecords() (before, after []Event) {
	if len(m.foreign) == 0 {
		return nil, nil
	}
	all, listed := map[string]cpuset.Set{}, map[string]cpuset.Set{}
	for device, c := range m.foreign {
		if all[device] = c.cpus; c.listed {
			listed[device] = c.cpus
		}
	}
	before = []Event{ForeignClaims{Devices: all}}
	if len(listed) < len(all) {
		after = []Event{ForeignClaims{Devices: listed}}
	}
	return before, after
}
