package sysfs

import (
	"errors"
	"fmt"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/topology"
)

// unknown stands for a place that no file gives.
const unknown = -1

// readPlaces finds what every online CPU belongs to. Order matters: what is
// missing on a finer level is assumed from the coarser ones.
func (r *reader) readPlaces() {
	for cpu := range r.online.All() {
		r.cpus = append(r.cpus, topology.CPU{ID: cpu})
	}
	r.readNodes()
	r.readSockets()
	r.readDies()
	r.readCores()
	r.readL2s()
	r.readL3s()
}

// form is one way in which the kernel writes a set of CPUs; its names and
// formats changed over the years. Masks come first: older kernels cut a list
// off at the end of a page, which a mask never reaches.
type form struct {
	file string
	mask bool
}

func coreForms() []form {
	return []form{{"topology/core_cpus", true}, {"topology/thread_siblings", true}, {"topology/core_cpus_list", false},
		{"topology/thread_siblings_list", false}}
}

func packageForms() []form {
	return []form{{"topology/package_cpus", true}, {"topology/core_siblings", true},
		{"topology/package_cpus_list", false}, {"topology/core_siblings_list", false}}
}

func clusterForms() []form {
	return []form{{"topology/cluster_cpus", true}, {"topology/cluster_cpus_list", false}}
}

// cpuSet reads the first form that exists and is valid.
func (r *reader) cpuSet(cpu int, forms []form) (cpuset.Set, error) {
	if !r.dirs.Has(cpu) {
		return cpuset.Set{}, errMissing
	}
	return r.firstSet(cpuPath(cpu, ""), forms)
}

func (r *reader) firstSet(dir string, forms []form) (cpuset.Set, error) {
	problem := errMissing
	for _, f := range forms {
		read := r.list
		if f.mask {
			read = r.mask
		}
		s, err := read(dir + f.file)
		if err == nil {
			return s, nil
		}
		if !errors.Is(err, errMissing) {
			problem = err
		}
	}
	return cpuset.Set{}, problem
}

func (r *reader) cpuNumber(cpu int, file string) (int, error) {
	if !r.dirs.Has(cpu) {
		return 0, errMissing
	}
	return r.number(cpuPath(cpu, file))
}

// partition numbers groups of CPUs from 0 by their lowest CPU, from each CPU's list of its own
// group. A CPU whose file is missing belongs to a group that lists it, else it is unknown.
// Overlapping groups contradict each other.
func (r *reader) partition(members func(cpu int) (cpuset.Set, error)) (group []int, m misses, err error) {
	at := make(map[int]int, len(r.cpus)) // CPU -> group
	var groups []cpuset.Set
	var silent []int
	for _, c := range r.cpus {
		s, e := members(c.ID)
		if e != nil {
			silent = append(silent, c.ID)
			m.add(c.ID, e)
			continue
		}
		s = s.And(r.online)
		g, known := at[c.ID]
		switch {
		case !s.Has(c.ID):
			return nil, m, fmt.Errorf("CPU %d does not count itself among %s", c.ID, brief(s))
		case known && groups[g] != s:
			return nil, m, fmt.Errorf("CPU %d says %s, CPU %d says %s", groups[g].First(), brief(groups[g]), c.ID,
				brief(s))
		case known:
			continue
		}
		for cpu := range s.All() {
			if g, taken := at[cpu]; taken {
				return nil, m, fmt.Errorf("CPU %d says %s, CPU %d says %s", groups[g].First(), brief(groups[g]), c.ID,
					brief(s))
			}
			at[cpu] = len(groups)
		}
		groups = append(groups, s)
	}
	for _, cpu := range silent {
		if _, counted := at[cpu]; counted {
			m.cpus.Remove(cpu)
		}
	}
	if m.cpus.IsEmpty() {
		m.first = nil
	}
	group = make([]int, len(r.cpus))
	for i, c := range r.cpus {
		group[i] = unknown
		if g, ok := at[c.ID]; ok {
			group[i] = g
		}
	}
	return group, m, nil
}

// dense numbers equal keys equally, from 0 in order of first appearance.
func dense[K comparable](n int, key func(i int) K) []int {
	number := map[K]int{}
	out := make([]int, n)
	for i := range out {
		k := key(i)
		id, seen := number[k]
		if !seen {
			id = len(number)
			number[k] = id
		}
		out[i] = id
	}
	return out
}

// readSockets uses the kernel's package numbers; a CPU without one belongs to the socket that lists
// it.
func (r *reader) readSockets() {
	const file = "topology/physical_package_id"
	var m misses
	members := map[int]cpuset.Set{}
	for i := range r.cpus {
		c := &r.cpus[i]
		id, err := r.cpuNumber(c.ID, file)
		if err != nil {
			m.add(c.ID, err)
			c.Socket = unknown
			continue
		}
		c.Socket = id
		s := members[id]
		s.Add(c.ID)
		members[id] = s
	}
	if m.first == nil {
		r.checkSockets(members)
		return
	}
	assumed := "all CPUs count as one socket"
	if r.socketsByMembers(len(members) > 0) {
		assumed = "the socket is taken from package_cpus"
	} else {
		for i := range r.cpus {
			r.cpus[i].Socket = 0
		}
	}
	r.warnMisses(file, &m, assumed)
}

// checkSockets compares the numbers with the members that the first CPU of each socket lists.
func (r *reader) checkSockets(members map[int]cpuset.Set) {
	seen := map[int]bool{}
	for _, c := range r.cpus {
		if seen[c.Socket] {
			continue
		}
		seen[c.Socket] = true
		s, err := r.cpuSet(c.ID, packageForms())
		if counted := s.And(r.online); err == nil && counted != members[c.Socket] {
			r.warnf(cpuPath(c.ID, packageForms()[0].file),
				"counts CPUs %s, physical_package_id %d is that of CPUs %s; the number counts",
				brief(counted), c.Socket, brief(members[c.Socket]))
		}
	}
}

// socketsByMembers fills in sockets from the lists of members; numbered means that some CPUs have a
// number, which the other members of their socket then take over.
func (r *reader) socketsByMembers(numbered bool) bool {
	group, m, err := r.partition(func(cpu int) (cpuset.Set, error) { return r.cpuSet(cpu, packageForms()) })
	if err != nil || m.first != nil {
		return false
	}
	id := map[int]int{}
	for i, g := range group {
		if s := r.cpus[i].Socket; s != unknown {
			id[g] = s
		}
	}
	for i, g := range group {
		s, ok := id[g]
		if numbered && !ok {
			return false
		}
		if !numbered {
			s = g
		}
		r.cpus[i].Socket = s
	}
	return true
}

// readDies numbers dies machine-wide: the kernel's die_id counts within a socket.
func (r *reader) readDies() {
	const file = "topology/die_id"
	type place struct{ socket, die int }
	places := make([]place, len(r.cpus))
	var m misses
	for i, c := range r.cpus {
		die, err := r.cpuNumber(c.ID, file)
		if err != nil {
			m.add(c.ID, err)
			die = 0
		}
		places[i] = place{c.Socket, die}
	}
	if m.first != nil {
		for i := range places {
			places[i].die = 0
		}
	}
	// Since 5.18 the kernel shows dies on x86 alone; before, other architectures had -1.
	if shown := m.cpus != r.online; shown || !errors.Is(m.first, errMissing) && !errors.Is(m.first, errUnknown) {
		r.warnMisses(file, &m, "a socket counts as one die")
	}
	for i, id := range dense(len(places), func(i int) place { return places[i] }) {
		r.cpus[i].Die = id
	}
}

// readCores takes SMT siblings from the kernel's lists. Siblings with different
// core numbers (the paired cores of AMD family 15h) are cores of their own that
// share an L2.
func (r *reader) readCores() {
	file := coreForms()[0].file
	group, m, err := r.partition(func(cpu int) (cpuset.Set, error) { return r.cpuSet(cpu, coreForms()) })
	if err != nil {
		r.warn(cpuDir+"/cpu*/"+file, err, "every CPU counts as a core of its own")
		for i := range r.cpus {
			r.cpus[i].Core = i
		}
		return
	}
	r.warnMisses(file, &m, "cores are taken from core_id where it is there, else a CPU counts as a core of its own")
	size := map[int]int{}
	for _, g := range group {
		size[g]++
	}
	type place struct{ group, socket, die, node, core int }
	places := make([]place, len(r.cpus))
	noID := map[int]bool{} // groups with a CPU whose core_id is not known
	for i, c := range r.cpus {
		g := group[i]
		places[i] = place{group: g}
		if g != unknown && size[g] == 1 {
			continue
		}
		id, err := r.cpuNumber(c.ID, "topology/core_id")
		switch {
		case err == nil && g == unknown:
			places[i] = place{g, c.Socket, c.Die, c.Node, id}
		case err == nil:
			places[i].core = id
		case g == unknown:
			places[i].core = -2 - i // on its own
		default:
			noID[g] = true
		}
	}
	for i := range places {
		if g := places[i].group; g != unknown && noID[g] {
			places[i].core = 0
		}
	}
	for i, id := range dense(len(places), func(i int) place { return places[i] }) {
		r.cpus[i].Core = id
	}
}

// splitsCore finds a core whose CPUs differ in the given number.
func (r *reader) splitsCore(number func(i int) int) (core int, found bool) {
	first := map[int]int{}
	for i, c := range r.cpus {
		n, seen := first[c.Core]
		if seen && n != number(i) {
			return c.Core, true
		}
		first[c.Core] = number(i)
	}
	return 0, false
}
