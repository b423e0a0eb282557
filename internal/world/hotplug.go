package world

import (
	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/policy"
)

func cgroupQuota(milli int64) cgroup.Values {
	q := cgroup.Quota{Micros: -1, Period: 100000}
	if milli > 0 {
		q.Micros = milli * 100
	}
	return cgroup.Values{Quota: &q}
}

// hotplug takes CPUs offline or online, and notifies the daemon.
func (w *World) hotplug(c Choice) bool {
	off := cpuset.Set{}
	if c.Do == "offline" {
		var err error
		if off, err = cpuset.Parse(c.What); err != nil || off.IsEmpty() {
			return false
		}
	}
	all := w.topo.Online().Or(w.topo.Offline())
	topo, err := w.topo.WithOnline(all.Minus(off))
	if err != nil {
		return false
	}
	granted := map[string]cpuset.Set{}
	if w.alive {
		granted = w.shell.View().Grants()
	}
	for _, p := range w.owners() { // this daemon or the next one gives the pod other CPUs
		set := p.grant.Or(granted[p.UID()])
		p.excused = p.excused || set.Intersects(&off)
	}
	w.topo, w.offline = topo, off
	w.kernel.SetOnline(topo.Online())
	w.announceCPUs()
	return true
}

// announceCPUs is the watcher of /sys: it notifies the daemon if it has other CPUs as online.
func (w *World) announceCPUs() {
	if w.alive && w.shell.View().Online != w.topo.Online() {
		w.call(&Request{Kind: Happened, Event: policy.Hardware{Topology: w.topo}})
	}
}
