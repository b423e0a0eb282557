package script

import (
	"strings"

	"github.com/quietcore/quietcore/policy"
)

// Move is one move that compaction would make, with its reason.
type Move struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	From      string `json:"from"`
	To        string `json:"to"`
	Why       string `json:"why"`
}

// Plan lists the moves that compaction makes from now on if nothing else happens. It executes them,
// so it changes the node.
func (p *Player) Plan() ([]Move, error) {
	cfg := p.config.Policy()
	cfg.NodeLabels = p.labels
	cfg.Allocation.Compact = policy.CompactAlways
	moves := []Move{}
	if _, err := p.feed(policy.Reconfigured{Config: cfg}); err != nil {
		return nil, err
	}
	const most = 10_000 // no machine has this many owners
	for range most {
		rev, before := p.machine.Rev(), p.machine.Snapshot()
		p.now = p.now.Add(policy.CompactEvery)
		notices, err := p.feed(policy.Tick{})
		if err != nil {
			return nil, err
		}
		if p.machine.Rev() == rev {
			break
		}
		for _, n := range notices {
			if strings.HasPrefix(n, policy.ReasonMoved+": ") {
				moves = append(moves, moved(before, p.machine.Snapshot(), n[strings.LastIndex(n, ": ")+2:]))
			}
		}
	}
	return moves, nil
}

// moved is the owner whose CPUs differ between two snapshots.
func moved(before, after *policy.Snapshot, why string) Move {
	was := map[string]string{}
	for _, o := range before.Owners {
		was[o.PodUID] = o.CPUs.String()
	}
	for _, o := range after.Owners {
		if from, ok := was[o.PodUID]; ok && from != o.CPUs.String() {
			return Move{Namespace: o.Namespace, Pod: o.Pod, From: from, To: o.CPUs.String(), Why: why}
		}
	}
	return Move{Why: why}
}
