package loop

import (
	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/reclaim"
)

// apart are the CPUs that best effort may not use, whether or not they are in use: they
// are not part of the supply.
type apart struct {
	cpus    cpuset.Set
	own     map[string]int // number of them that a pod owns, by its UID
	unowned int            // number of them without an owner
	system  bool           // pods of class SYSTEM run only on them
}

func apartOf(s *policy.Snapshot) apart {
	a := apart{cpus: s.Topology.Online()}
	if !s.Overlap { // with Overlap best effort shares CPUs with owners
		a.cpus = a.cpus.Minus(s.BEWhole)
	}
	a.own = make(map[string]int, len(s.Owners))
	unowned := a.cpus
	for _, o := range s.Owners {
		own := a.cpus.And(o.CPUs)
		a.own[o.PodUID] += own.Count()
		unowned = unowned.Minus(own)
	}
	a.unowned = unowned.Count()
	home := s.System
	if home.IsEmpty() {
		home = s.Reserved
	}
	a.system = !home.IsEmpty() && home.Minus(a.cpus).IsEmpty()
	return a
}

// takes says whether a pod takes from the CPUs that best effort may use, and reduces
// its request to that part. What an owner has apart is not subtracted from the supply
// twice.
func (a *apart) takes(p *policy.PodView, one *reclaim.Pod) bool {
	if one.Batch {
		return true
	}
	if p.Class == policy.SYSTEM && p.Managed && a.system {
		return false
	}
	own := a.own[p.UID]
	if own == 0 {
		return true
	}
	one.Request -= float64(own)
	return one.Request > 0
}

// onSharedCPUs is the part of a pod's use on CPUs that best effort may use: what
// exceeds the CPUs of its own.
func (a *apart) onSharedCPUs(uid string, use float64) float64 {
	return max(0, use-float64(a.own[uid]))
}
