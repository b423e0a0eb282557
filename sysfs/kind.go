package sysfs

import (
	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/topology"
)

// readKinds distinguishes performance from efficiency cores by the first available source: the PMUs
// of an Intel hybrid machine, the scheduler's capacities, or base frequency together with the
// sharing of the L2s. Maximum frequencies are not used: favoured cores of one kind differ in them.
func (r *reader) readKinds() {
	efficient, ok := r.kindsByPMU()
	if !ok {
		efficient, ok = r.kindsByCapacity()
	}
	if !ok {
		efficient = r.kindsByClock()
	}
	// A machine whose cores are all of one kind is not hybrid, whatever its name.
	if r.online.SubsetOf(&efficient) {
		return
	}
	for i := range r.cpus {
		if efficient.Has(r.cpus[i].ID) {
			r.cpus[i].Kind = topology.Efficiency
		}
	}
}

// kindsByPMU: devices/cpu_core/cpus "0-11", devices/cpu_atom/cpus "12-19".
func (r *reader) kindsByPMU() (efficient cpuset.Set, ok bool) {
	const coreFile, atomFile = "devices/cpu_core/cpus", "devices/cpu_atom/cpus"
	if !r.exists(coreFile) && !r.exists(atomFile) {
		return efficient, false
	}
	core, err := r.list(coreFile)
	if err != nil {
		r.warn(coreFile, err, "kinds of cores are looked for elsewhere")
		return efficient, false
	}
	atom, err := r.list(atomFile)
	if err != nil {
		r.warn(atomFile, err, "kinds of cores are looked for elsewhere")
		return efficient, false
	}
	if core.Intersects(&atom) {
		r.warnf(atomFile, "names CPUs %s, which %s names as well; kinds of cores are looked for elsewhere",
			brief(core.And(atom)), coreFile)
		return efficient, false
	}
	return atom, true
}

// kindsByCapacity takes cores below three quarters of the largest capacity as
// efficiency cores; faster bins of one design stay above that.
func (r *reader) kindsByCapacity() (efficient cpuset.Set, ok bool) {
	capacity := make([]int, len(r.cpus))
	largest := 0
	for i, c := range r.cpus {
		n, err := r.cpuNumber(c.ID, "cpu_capacity")
		if err != nil {
			return efficient, false
		}
		capacity[i] = n
		largest = max(largest, n)
	}
	for i, c := range r.cpus {
		if capacity[i] < largest/4*3 {
			efficient.Add(c.ID)
		}
	}
	return efficient, true
}

// kindsByClock takes as efficiency cores those with a lower base frequency
// whose L2 is shared by several cores, on a machine whose fastest cores have
// one each. Base frequency alone is not enough: speed-select servers differ in it.
func (r *reader) kindsByClock() (efficient cpuset.Set) {
	base := make([]int, len(r.cpus))
	fastest := 0
	for i, c := range r.cpus {
		n, err := r.cpuNumber(c.ID, "cpufreq/base_frequency")
		if err != nil {
			return efficient
		}
		base[i] = n
		fastest = max(fastest, n)
	}
	shared := r.sharedL2s()
	for i, c := range r.cpus {
		switch {
		case base[i] == fastest && shared[c.L2]:
			return cpuset.Set{}
		case base[i] < fastest && shared[c.L2]:
			efficient.Add(c.ID)
		}
	}
	return efficient
}

// sharedL2s lists the L2s that several cores share.
func (r *reader) sharedL2s() map[int]bool {
	core := map[int]int{}
	shared := map[int]bool{}
	for _, c := range r.cpus {
		if first, seen := core[c.L2]; seen && first != c.Core {
			shared[c.L2] = true
		}
		core[c.L2] = c.Core
	}
	return shared
}
