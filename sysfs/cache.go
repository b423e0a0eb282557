package sysfs

import (
	"fmt"
	"strconv"

	"github.com/quietcore/quietcore/cpuset"
)

// maxCaches bounds the directories cache/indexN of a CPU; real ones end at 4.
const maxCaches = 16

// cacheReader finds caches of one level. The CPUs of a machine mostly number their caches alike, so
// it tries the index of the last CPU first.
type cacheReader struct {
	r     *reader
	level int
	guess int
}

// members returns the CPUs that share this CPU's data or unified cache.
func (c *cacheReader) members(cpu int) (cpuset.Set, error) {
	if !c.r.dirs.Has(cpu) {
		return cpuset.Set{}, errMissing
	}
	index, err := c.find(cpu)
	if err != nil {
		return cpuset.Set{}, err
	}
	c.guess = index
	dir := cachePath(index)
	return c.r.cpuSet(cpu, []form{{dir + "shared_cpu_map", true}, {dir + "shared_cpu_list", false}})
}

func (c *cacheReader) find(cpu int) (int, error) {
	if ok, _ := c.is(cpu, c.guess); ok {
		return c.guess, nil
	}
	for index := range maxCaches {
		ok, there := c.is(cpu, index)
		if ok {
			return index, nil
		}
		if !there {
			if index == 0 {
				return 0, errMissing
			}
			break
		}
	}
	return 0, fmt.Errorf("no cache of level %d is listed", c.level)
}

func (c *cacheReader) is(cpu, index int) (ok, there bool) {
	level, err := c.r.cpuNumber(cpu, cachePath(index)+"level")
	if err != nil {
		return false, c.r.exists(cpuPath(cpu, cachePath(index)+"level"))
	}
	if level != c.level {
		return false, true
	}
	kind, err := c.r.text(cpuPath(cpu, cachePath(index)+"type"))
	return err == nil && kind != "Instruction", true
}

func cachePath(index int) string { return "cache/index" + strconv.Itoa(index) + "/" }

// readL2s finds L2 domains, where caches are not described by the kernel's clusters.
func (r *reader) readL2s() {
	caches := &cacheReader{r: r, level: 2, guess: 2}
	group, m, err := r.partition(caches.members)
	if err == nil && m.first != nil {
		if clusters, cm, cerr := r.partition(func(cpu int) (cpuset.Set, error) {
			return r.cpuSet(cpu, clusterForms())
		}); cerr == nil && cm.first == nil {
			r.warnMisses("cache/index*/level", &m, "an L2 counts as shared by the CPUs of a cluster")
			group, m = clusters, misses{}
		}
	}
	for i := range r.cpus {
		r.cpus[i].L2 = r.cpus[i].Core
	}
	const assumed = "a core counts as having an L2 of its own"
	if err != nil {
		r.warn(cpuDir+"/cpu*/cache/index*/shared_cpu_map", fmt.Errorf("L2: %w", err), assumed)
		return
	}
	r.warnMisses("cache/index*/level", &m, assumed)
	if core, found := r.splitsCore(func(i int) int { return group[i] }); found {
		r.warnf(cpuDir+"/cpu*/cache/index*/shared_cpu_map", "core %d has CPUs in several L2s; %s", core, assumed)
		return
	}
	type place struct{ l2, core int }
	for i, id := range dense(len(group), func(i int) place {
		if group[i] == unknown {
			return place{unknown, r.cpus[i].Core}
		}
		return place{group[i], 0}
	}) {
		r.cpus[i].L2 = id
	}
}

// readL3s finds L3 domains. CPUs without an L3 (in a virtual machine, old or low-power cores) form
// one domain for each die and node.
func (r *reader) readL3s() {
	const assumed = "the CPUs that share socket, die and NUMA node count as one L3"
	caches := &cacheReader{r: r, level: 3, guess: 3}
	group, m, err := r.partition(caches.members)
	if err == nil {
		if core, found := r.splitsCore(func(i int) int { return group[i] }); found {
			err = fmt.Errorf("core %d has CPUs in several", core)
		}
	}
	if err != nil {
		r.warn(cpuDir+"/cpu*/cache/index*/shared_cpu_map", fmt.Errorf("L3: %w", err), assumed)
		group = make([]int, len(r.cpus))
		for i := range group {
			group[i] = unknown
		}
	} else {
		r.warnMisses("cache/index*/level", &m, assumed)
	}
	if core, found := r.splitsCore(func(i int) int { return r.cpus[i].Die }); found {
		r.warnf(cpuDir+"/cpu*/topology/die_id", "core %d has CPUs on several dies; a socket counts as one die", core)
		for i := range r.cpus {
			r.cpus[i].Die = r.cpus[i].Socket
		}
	}
	type place struct{ l3, socket, die, node int }
	for i, id := range dense(len(group), func(i int) place {
		c := r.cpus[i]
		if group[i] == unknown {
			return place{unknown, c.Socket, c.Die, c.Node}
		}
		return place{l3: group[i]}
	}) {
		r.cpus[i].L3 = id
	}
}
