package policy

import (
	"fmt"
	"slices"
	"strings"
)

// FoundPod is a pod whose cgroup was found although no event announced it. Only its place in
// kubelet's hierarchy is known.
type FoundPod struct {
	UID        string `json:"uid"`
	CgroupPath string `json:"cgroupPath"`
	QoS        QoS    `json:"qos"`
	// Containers are the paths of the cgroups in it.
	Containers []string `json:"containers,omitempty"`
	// Masked means that it is kept off owned CPUs.
	Masked bool `json:"masked,omitempty"`
}

// Unannounced lists all pods on the node, by UID, that were found and not announced.
type Unannounced struct {
	Pods []FoundPod `json:"pods"`
}

func (Unannounced) event() {}

// SetUnannounced is the desired state of a pod that was never announced: it runs in a pool, as a
// shared pod does. DropUnannounced means that it is no longer managed.
type SetUnannounced struct {
	Pod  FoundPod
	Need Need
}
type DropUnannounced struct{ UID string }

func (SetUnannounced) decision()  {}
func (DropUnannounced) decision() {}

// namedAtOnce bounds how many pods one notice names.
const namedAtOnce = 5

func (m *Machine) unannounced(e Unannounced) {
	now := make(map[string]*FoundPod, len(e.Pods))
	var fresh []string
	for _, p := range e.Pods {
		if m.pods[p.UID] != nil {
			continue
		}
		now[p.UID] = &p
		if m.found[p.UID] == nil {
			fresh = append(fresh, p.CgroupPath)
		}
	}
	for _, uid := range sortedKeys(m.found) {
		if now[uid] == nil {
			m.forgetFound(uid)
		}
	}
	for _, uid := range sortedKeys(now) {
		now[uid].Masked = m.found[uid] != nil && m.found[uid].Masked
		m.found[uid] = now[uid]
		m.decideFound(uid)
	}
	if len(fresh) > 0 {
		m.notice(nil, "PodUnannounced", "%s", m.aboutFound(fresh))
	}
	m.views.foundStale, m.news = true, true
}

// aboutFound is the notice about pods that were found, by path.
func (m *Machine) aboutFound(paths []string) string {
	slices.Sort(paths)
	all, more := count(len(paths), "pod"), ""
	if n := len(paths) - namedAtOnce; n > 0 {
		paths, more = paths[:namedAtOnce], fmt.Sprintf(" and %d more", n)
	}
	what := "it may run on CPUs that other pods own: recreate the pod, or configure unannounced: mask"
	if m.cfg.MaskUnannounced {
		what = "it is kept off the CPUs that other pods own"
	}
	return fmt.Sprintf("the runtime never announced %s found running here: cgroup %s%s; %s",
		all, strings.Join(paths, ", "), more, what)
}

// decideFound masks a found pod or leaves it alone. With kubelet's static policy, containers have
// masks of their own: if the pod were confined to the shared pool, they would have no CPU left.
func (m *Machine) decideFound(uid string) {
	p := m.found[uid]
	mask := m.cfg.MaskUnannounced && len(m.entriesOf(uid)) == 0
	switch {
	case mask:
		p.Masked = true
		need := Need{Pool: PoolShared.ID()}
		if p.QoS == BestEffort {
			need.Pool = PoolBE.ID()
		}
		m.decide(SetUnannounced{Pod: *p, Need: need})
	case p.Masked:
		p.Masked = false
		m.decide(DropUnannounced{UID: uid})
	}
}

// decideAllFound decides all found pods again.
func (m *Machine) decideAllFound() {
	for _, uid := range sortedKeys(m.found) {
		m.decideFound(uid)
		m.views.foundStale = true
	}
}

// forgetFound drops a found pod that ended, or that was announced in the meantime.
func (m *Machine) forgetFound(uid string) {
	p := m.found[uid]
	if p == nil {
		return
	}
	delete(m.found, uid)
	if p.Masked {
		m.decide(DropUnannounced{UID: uid})
	}
	m.views.foundStale, m.news = true, true
}

// foundPods lists the found pods by UID.
func (m *Machine) foundPods() []FoundPod {
	list := make([]FoundPod, 0, len(m.found))
	for _, uid := range sortedKeys(m.found) {
		list = append(list, *m.found[uid])
	}
	return list
}
