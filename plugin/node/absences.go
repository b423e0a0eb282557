package node

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/policy"
)

// absences decides which pods and containers have ended without an event.
// It takes two successful listings of the parent cgroup without the pod's or container's
// cgroup, and no event of the runtime that names the pod in between. If too much is missing
// at once, the reader is blind and nothing ends. It does no I/O: listings are arguments.
type absences struct {
	// rounds and looks count consecutive misses: of regular rounds, and of looks at pods
	// that are terminating.
	rounds, looks misses
	// seen counts, by path, the consecutive rounds that found the cgroup of a pod that no event
	// has named.
	seen misses
	// blind is why listings are not trusted; empty: they are.
	blind string
}

// misses counts how often in a row a cgroup was missing, by UID or ID.
type misses map[string]int

// enoughMisses is how many misses mean an end. One does not: a pod or container that is being
// created has no cgroup for a moment.
const enoughMisses = 2

// member is a pod or container that should have a cgroup.
type member struct {
	id, name, path string
	uid            string // of its pod
	container      bool
	owner          bool
	ending         bool // the runtime has announced that it stops, so its cgroup may be missing
}

// children are the child cgroups of one cgroup.
type children struct {
	names []string // sorted
	err   error
}

// listings are the children that one look at the tree found, by the path that was listed.
type listings map[string]children

// finding is what listings say about one member.
type finding int

const (
	unknown finding = iota
	present
	missing
)

func (s listings) of(m *member) finding {
	above, looked := s[parentOf(m.path)]
	if m.path == "" || !looked || above.err != nil {
		return unknown
	}
	if _, there := slices.BinarySearch(above.names, path.Base(m.path)); there {
		return present
	}
	return missing
}

// parentOf is the cgroup to list for a path, as listings spell it.
func parentOf(p string) string {
	if above := cgroup.Parent(p); above != "" {
		return above
	}
	return "/"
}

// look takes the listings of one look and returns the members that have ended. only limits the look
// to pods, by UID; nil: it is a regular round over everything. named are the pods, by UID, that
// the runtime has named since the last look.
func (p *absences) look(all []member, seen listings, only, named map[string]bool) []member {
	p.blind = blindness(all, seen)
	if p.blind != "" {
		p.rounds, p.looks, p.seen = nil, nil, nil
		return nil
	}
	before := p.rounds
	if only != nil {
		before = p.looks
	}
	now := misses{}
	var ended []member
	for i := range all {
		m := &all[i]
		if only != nil && (m.container || !only[m.uid]) || seen.of(m) != missing {
			continue
		}
		if now[m.id] = 1; !named[m.uid] {
			now[m.id] += before[m.id]
		}
		if now[m.id] >= enoughMisses {
			ended = append(ended, *m)
		}
	}
	if only != nil {
		p.looks = now
	} else {
		p.rounds = now
	}
	return ended
}

// tally counts pods that are not ending, and how many of them are missing.
type tally struct{ total, missing int }

func (t *tally) add(f finding) {
	t.total++
	if f == missing {
		t.missing++
	}
}

// all reports whether there are at least two and all of them are missing.
func (t tally) all() bool { return t.total > 1 && t.missing == t.total }

// blindness says why listings are not trusted: a slice of kubelet's with pods in it cannot be
// listed, or more is missing than can end at once.
func blindness(all []member, seen listings) string {
	var pods, owners tally
	slices := map[string]*tally{}
	for i := range all {
		m := &all[i]
		if m.container || m.ending || m.path == "" {
			continue
		}
		found, above := seen.of(m), parentOf(m.path)
		if err := seen[above].err; err != nil && cgroup.Classify(above) != cgroup.OutsideKubepods {
			return fmt.Sprintf("cgroup %s, in which pods run, cannot be listed: %v", above, err)
		}
		pods.add(found)
		if m.owner {
			owners.add(found)
		}
		if slices[above] == nil {
			slices[above] = &tally{}
		}
		slices[above].add(found)
	}
	if pods.all() {
		return fmt.Sprintf("the cgroups of all %d pods are missing at once", pods.total)
	}
	if owners.missing > 1 && 2*owners.missing > owners.total {
		return fmt.Sprintf("the cgroups of %d of %d pods with CPUs of their own are missing at once", owners.missing,
			owners.total)
	}
	for above, t := range slices {
		if t.all() {
			return fmt.Sprintf("the cgroups of all %d pods in %s are missing at once", t.total, above)
		}
	}
	return ""
}

// toList are the parents of pods, which have to be listed for a look.
func toList(all []member) []string {
	var paths []string
	for i := range all {
		if m := &all[i]; !m.container && m.path != "" {
			if above := parentOf(m.path); !slices.Contains(paths, above) {
				paths = append(paths, above)
			}
		}
	}
	return paths
}

// cleanOf is a cgroup's path as listings spell it; empty where it is none.
func cleanOf(p string) string { return strings.Trim(p, "/") }

// unknownPods are the cgroups of pods in listings that belong to no member and that the runtime
// has not named since the last look. A pod that is being created or removed can be among them.
func unknownPods(all []member, seen listings, named map[string]bool) []policy.FoundPod {
	paths, uids := make(map[string]bool, len(all)), make(map[string]bool, len(all))
	for i := range all {
		if m := &all[i]; !m.container {
			paths[m.path], uids[m.uid] = true, true
		}
	}
	var found []policy.FoundPod
	for above, c := range seen {
		qos, kubelets := qosIn(above)
		if !kubelets {
			continue
		}
		for _, name := range c.names {
			path := above + "/" + name
			if uid, isPod := cgroup.PodUID(name); isPod && !paths[path] && !uids[uid] && !named[uid] {
				found = append(found, policy.FoundPod{UID: uid, CgroupPath: path, QoS: qos})
			}
		}
	}
	slices.SortFunc(found, func(a, b policy.FoundPod) int { return cmp.Compare(a.CgroupPath, b.CgroupPath) })
	return found[:min(len(found), maxFound)]
}

// maxFound bounds how many unannounced pods are tracked.
const maxFound = 256

// qosIn is the QoS class of the pods whose cgroups are in a slice of kubelet's.
func qosIn(slice string) (policy.QoS, bool) {
	switch cgroup.Classify(slice) {
	case cgroup.Guaranteed:
		return policy.Guaranteed, true
	case cgroup.Burstable:
		return policy.Burstable, true
	case cgroup.BestEffort:
		return policy.BestEffort, true
	}
	return "", false
}

// unannounced returns the unknown pods that run and were found in the previous round too, with
// their child cgroups. Kubelet creates a pod's cgroup long before its sandbox if it waits for
// volumes: a pod without child cgroups does not run.
func (p *absences) unannounced(unknown []policy.FoundPod, seen listings) []policy.FoundPod {
	now := misses{}
	var found []policy.FoundPod
	for _, s := range unknown {
		inside := seen[s.CgroupPath]
		if p.blind != "" || inside.err != nil || len(inside.names) == 0 {
			continue
		}
		if now[s.CgroupPath] = p.seen[s.CgroupPath] + 1; now[s.CgroupPath] < enoughMisses {
			continue
		}
		for _, name := range inside.names {
			s.Containers = append(s.Containers, s.CgroupPath+"/"+name)
		}
		found = append(found, s)
	}
	p.seen = now
	return found
}

// kubeletSlices are the slices in which kubelet keeps pods: the usual ones, and those of the
// known pods.
func kubeletSlices(all []member) []string {
	tops := []string{"kubepods", "kubepods.slice"}
	for _, above := range toList(all) {
		if top := cgroup.Top(above); top != "" && !slices.Contains(tops, top) {
			tops = append(tops, top)
		}
	}
	var paths []string
	for _, top := range tops {
		burstable, bestEffort := cgroup.QoSSlices(top)
		paths = append(paths, top, burstable, bestEffort)
	}
	return paths
}
