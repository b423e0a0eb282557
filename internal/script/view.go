package script

import (
	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/render"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// View is the picture of a machine with these containers and pools. Every CPU has one colour: that
// of its owner, else of the smallest pool that contains it.
func View(title string, t *topology.Topology, states []State, pools Pools) render.View {
	v := render.View{Title: title, Topology: t, CPUs: map[int]render.CPUInfo{}}
	paint := func(list, pool, owner string) {
		cpus, err := cpuset.Parse(list)
		if err != nil {
			return // not a list: nothing to paint
		}
		for cpu := range cpus.All() {
			v.CPUs[cpu] = render.CPUInfo{Pool: pool, Owner: owner}
		}
	}
	paint(pools.BE, render.BE, "")
	paint(pools.Shared, render.Shared, "")
	paint(pools.Reserved, render.Reserved, "")
	paint(pools.Exclusive, render.Exclusive, "") // also those of pods whose containers have stopped
	for _, s := range states {
		switch {
		case s.Pool == policy.PoolSystem:
			paint(s.CPUs, render.System, s.key())
		case s.Pool == policy.PoolExclusive:
			paint(s.CPUs, poolColor(s), s.owner())
			paint(s.Withheld, render.Withheld, s.owner())
		}
	}
	return v
}

func poolColor(s State) string {
	switch {
	case s.ByKubelet:
		return render.Kubelet
	case s.Class == policy.LSE:
		return render.LSE
	case s.Class == policy.LSR:
		return render.LSR
	}
	return render.Exclusive
}

// owner is the pod: an allocation belongs to the pod, whichever container is listed.
func (s State) owner() string { return s.Namespace + "/" + s.Pod }
