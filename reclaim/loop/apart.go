package loop

import (
	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/reclaim"
)

// apart is the part of a node that no pod of best effort may use, and that is
// therefore no supply, whoever uses it or nobody.
type apart struct {
	cpus    cpuset.Set
	own     map[string]int // how many of them are a pod's own, by its UID
	nobodys int            // how many are nobody's
	system  bool           // pods of class SYSTEM run only there
}

func apartOf(s *policy.Snapshot) apart {
	a := apart{cpus: s.Topology.Online()}
	if !s.Overlap { // else best effort runs where others are, for want of any other CPU
		a.cpus = a.cpus.Minus(s.BEWhole)
	}
	a.own = make(map[string]int, len(s.Owners))
	nobodys := a.cpus
	for _, o := range s.Owners {
		own := a.cpus.And(o.CPUs)
		a.own[o.PodUID] = own.Count()
		nobodys = nobodys.Minus(own)
	}
	a.nobodys = nobodys.Count()
	home := s.System
	if home.IsEmpty() {
		home = s.Reserved
	}
	a.system = !home.IsEmpty() && home.Minus(a.cpus).IsEmpty()
	return a
}

// takes says whether a pod takes something of what best effort may use, and how much:
// what an owner requests and has apart is not subtracted from the supply twice.
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

// onShared is how much of a pod's use is on CPUs that best effort may use too: as much
// as does not fit on its own.
func (a *apart) onShared(uid string, use float64) float64 {
	return max(0, use-float64(a.own[uid]))
}
