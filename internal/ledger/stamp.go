package ledger

import (
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// Stamp counts the generations of what a node publishes. Pods of the shared pool come and go
// all the time, and a scheduler knows what they request: that alone is no new generation,
// and the ledger of before goes on being published.
type Stamp struct {
	machine    *topology.Topology
	last       *policy.Ledger
	generation uint64
}

// Of is the ledger to publish of a snapshot, with its generation.
func (s *Stamp) Of(now *policy.Snapshot) (*policy.Ledger, uint64) {
	if s.last == nil || s.machine != now.Topology || !s.last.SameHoldings(now.Ledger) {
		s.machine, s.last = now.Topology, now.Ledger
		s.generation = max(s.generation+1, now.Rev)
	}
	return s.last, s.generation
}
