package policy

import (
	"fmt"
	"slices"
	"strings"
)

// FoundPod is a pod whose cgroup was found although no event named it. Nothing is
// known of it but its place in kubelet's hierarchy.
type FoundPod struct {
	UID        string `json:"uid"`
	CgroupPath string `json:"cgroupPath"`
	QoS        QoS    `json:"qos"`
	// Containers are the paths of the cgroups in it.
	Containers []string `json:"containers,omitempty"`
	// Masked says that it is kept off the CPUs that others own.
	Masked bool `json:"masked,omitempty"`
}

// Unannounced is every pod on the node, by UID, that was found and not announced.
type Unannounced struct {
	Pods []FoundPod `json:"pods"`
}

func (Unannounced) event() {}

// SetUnannounced is the desired state of a pod that was never announced: it runs in
// a pool, as a shared pod does. DropUnannounced says that it is left alone from now on.
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

// aboutFound is the sentence about pods that were found, by path.
func (m *Machine) aboutFound(paths []string) string {
	slices.Sort(paths)
	all, more := count(len(paths), "pod"), ""
	if n := len(paths) - namedAtOnce; n > 0 {
		paths, more = paths[:namedAtOnce], fmt.Sprintf(" and %d more", n)
	}
	what := "it may run on CPUs that others own: recreate the pod, or configure unannounced: mask"
	if m.cfg.MaskUnannounced {
		what = "it is kept off the CPUs that others own"
	}
	return fmt.Sprintf("the runtime never announced %s found running here: cgroup %s%s; %s",
		all, strings.Join(paths, ", "), more, what)
}

// decideFound masks a pod or leaves it alone. Kubelet's static policy gives containers
// masks of their own: with the shared pool around them they would have no CPU left.
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

// decideAllFound follows a change of what decides about them.
func (m *Machine) decideAllFound() {
	for _, uid := range sortedKeys(m.found) {
		m.decideFound(uid)
		m.views.foundStale = true
	}
}

// forgetFound is for a pod that ended, or that is announced after all.
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

// foundPods lists them by UID.
func (m *Machine) foundPods() []FoundPod {
	list := make([]FoundPod, 0, len(m.found))
	for _, uid := range sortedKeys(m.found) {
		list = append(list, *m.found[uid])
	}
	return list
}
