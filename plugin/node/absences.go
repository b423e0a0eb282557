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

// absences decides which pods and containers have ended although no event said so.
// An end needs agreement: the cgroup is missing in two successful listings of its
// parent, and the runtime has not named the pod since. Where much is missing at
// once, the reader is blind and nothing ends. It does no I/O: a listing is given.
type absences struct {
	// rounds and looks count in how many looks in a row a cgroup was missing, by UID or ID:
	// for the regular rounds, and for the looks at pods that are ending.
	rounds, looks misses
	// seen counts in how many rounds in a row a pod was there that no event named, by path.
	seen misses
	// blind says why the listings are not believed; empty: they are.
	blind string
}

// misses counts how often in a row a cgroup was missing, by UID or ID.
type misses map[string]int

// enoughMisses is how often: what is being created has no cgroup for a moment.
const enoughMisses = 2

// member is a pod or container that should have a cgroup.
type member struct {
	id, name, path string
	uid            string // of its pod
	container      bool
	owner          bool
	ending         bool // the runtime has announced that it stops, so that it may be missing
}

// children is what one cgroup was found to hold.
type children struct {
	names []string // sorted
	err   error
}

// sighting is what one look at the tree found, by the path that was listed.
type sighting map[string]children

// finding is what a sighting says of one member.
type finding int

const (
	unknown finding = iota
	present
	missing
)

func (s sighting) of(m *member) finding {
	above, looked := s[parentOf(m.path)]
	if m.path == "" || !looked || above.err != nil {
		return unknown
	}
	if _, there := slices.BinarySearch(above.names, path.Base(m.path)); there {
		return present
	}
	return missing
}

// parentOf is the cgroup to list for a path, as sightings spell it.
func parentOf(p string) string {
	if above := cgroup.Parent(p); above != "" {
		return above
	}
	return "/"
}

// look takes in one sighting and returns those that have ended. only limits it to
// pods, by UID; nil is a regular round over everything. named are the pods that the
// runtime named since the last look, by UID.
func (p *absences) look(all []member, seen sighting, only, named map[string]bool) []member {
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

// all says that at least two are missing and nothing is left.
func (t tally) all() bool { return t.total > 1 && t.missing == t.total }

// blindness says why a sighting is not believed: a slice of kubelet's in which pods
// run cannot be listed, or what is missing at once is more than ends at once.
func blindness(all []member, seen sighting) string {
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

// toList are the parents to list for a look, apart from those of containers.
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

// cleanOf is a cgroup's path as sightings spell it; empty where it is none.
func cleanOf(p string) string { return strings.Trim(p, "/") }

// suspects are the cgroups of pods in a sighting that belong to no member and that
// the runtime did not name since the last look. A pod that is being created, or
// whose end is not finished, is among them.
func suspects(all []member, seen sighting, named map[string]bool) []policy.FoundPod {
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

// maxFound bounds how many such pods are looked after.
const maxFound = 256

// qosIn is what kubelet takes the pods for whose cgroups lie in a slice.
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

// unannounced returns the suspects that run and were there in the round before, with
// the cgroups in them as seen has them. Kubelet makes a pod's cgroup long before
// its sandbox where it waits for volumes: one with nothing in it does not run.
func (p *absences) unannounced(suspects []policy.FoundPod, seen sighting) []policy.FoundPod {
	now := misses{}
	var found []policy.FoundPod
	for _, s := range suspects {
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

// kubeletSlices are the slices in which kubelet keeps pods, as usual and where the
// pods that are known have theirs.
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
