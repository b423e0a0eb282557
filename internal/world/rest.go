package world

import "slices"

// Rest of a long run, with the node empty: by then everything is as it was at the beginning, unless something leaks.
type Rest struct {
	Pods  int // that there have been
	Saved int // bytes of the state file
}

// playLong plays until Config.Rest has seen enough. It keeps no trace, and the log since the last rest alone.
func (w *World) playLong() {
	faults, gates := w.cfg.Faults, w.cfg.Gates
	for w.violation == nil {
		for range w.cfg.Every {
			if !w.do(w.choose()) {
				panic("a choice that cannot be made")
			}
			if w.violation != nil {
				return
			}
		}
		w.empty()
		if w.violation != nil || !w.cfg.Rest(Rest{Pods: w.node.named, Saved: len(w.disk.text)}) {
			return
		}
		w.log = nil
		w.kernel.Writes() // which it would keep
		w.cfg.Faults, w.cfg.Gates = faults, gates
		if w.cfg.Swarm {
			w.swarm()
		}
	}
}

// empty ends all pods, and waits until the daemon has nothing left to do.
func (w *World) empty() {
	n := &w.node
	if !w.offline.IsEmpty() {
		w.do(Choice{Do: "online"})
	}
	const most = 10 // pods in the middle of a refusal come back as often as kubelet tries
	for range most {
		w.settle()
		if w.violation != nil || len(n.pods) == 0 && len(n.claims) == 0 {
			return
		}
		for _, p := range slices.Clone(n.pods) {
			w.do(Choice{Do: "end", What: p.Name})
			w.drain()
		}
	}
	w.violate(PropSettle, "%d pods and %d claims do not end", len(n.pods), len(n.claims))
}
