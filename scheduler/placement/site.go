package placement

import (
	"sync"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// site is what nodes with equal hardware and equal rules have in common.
type site struct {
	topology *topology.Topology
	rules    *policy.Config
	trials   sync.Pool // of *policy.Trial
	first    *policy.Trial
	narrow   bool       // kubelet gives pods CPUs that are not for them
	confines bool       // an LS pod that says nothing is bound to NUMA nodes
	usable   cpuset.Set // CPUs that are neither reserved nor off, isolated or SYSTEM's alone
}

type siteKey struct {
	topology *topology.Topology
	rules    *policy.Config
}

func newSite(t *topology.Topology, rules *policy.Config) (*site, error) {
	first, err := policy.NewTrial(t, *rules)
	if err != nil {
		return nil, err
	}
	s := &site{topology: t, rules: rules, first: first}
	s.trials.New = func() any { return first.Clone() }
	switch policy.LabelledAlignment(rules.NodeLabels) {
	case "Restricted", "SingleNUMANode":
		s.confines = true
	}
	s.usable = t.Online().Minus(t.Isolated()).Minus(rules.Reserved).Minus(rules.Kubelet.Reserved)
	if rules.System.Exclusive {
		s.usable = s.usable.Minus(rules.System.CPUs)
	}
	s.narrow = s.usable.Count() < t.Online().Minus(rules.Kubelet.Reserved).Count()
	return s, nil
}

func (s *site) trial() *policy.Trial     { return s.trials.Get().(*policy.Trial) }
func (s *site) giveBack(t *policy.Trial) { s.trials.Put(t) }
