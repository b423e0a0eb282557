package ledger

import (
	"encoding/json"
	"fmt"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/policy"
)

const version = 1

// maxRules bounds the text of rules: namespaces are listed in it.
const maxRules = 64 << 10

// rulesDoc is the part of a configuration that a new pod is judged by, in the words of the
// configuration file.
type rulesDoc struct {
	Version        int                       `json:"v"`
	Trusted        bool                      `json:"trusted"` // resource-status is
	Degrade        bool                      `json:"degrade,omitempty"`
	Reserved       cpuset.Packed             `json:"reserved,omitempty"`
	ReservedStrict bool                      `json:"reservedStrict,omitempty"`
	SharedFloor    int                       `json:"sharedFloor,omitempty"` // 0: one physical core
	Allocation     allocationDoc             `json:"allocation"`
	System         cpuset.Packed             `json:"system,omitempty"`
	SystemAlone    bool                      `json:"systemExclusive,omitempty"`
	SystemOf       []string                  `json:"systemNamespaces,omitempty"`
	Profile        policy.Profile            `json:"profile,omitempty"`
	Powers         map[policy.Power][]string `json:"powers,omitempty"`
	MaxCPUs        map[string]int            `json:"maxCPUs,omitempty"`
	Labels         map[string]string         `json:"labels,omitempty"`
	Kubelet        policy.Kubelet            `json:"kubelet"`
}

type allocationDoc struct {
	Bind              config.BindPolicy      `json:"bind"`
	BindRequired      bool                   `json:"bindRequired,omitempty"`
	Exclusive         config.ExclusivePolicy `json:"exclusive"`
	ExclusiveRequired bool                   `json:"exclusiveRequired,omitempty"`
	Strategy          config.NUMAStrategy    `json:"strategy"`
	Alignment         config.Alignment       `json:"alignment"`
	SMT               config.SMT             `json:"smt"`
	SMTRequired       bool                   `json:"smtRequired,omitempty"`
}

// nodeLabels are those that decide about pods.
func nodeLabels() []string {
	return []string{policy.LabelBind, policy.LabelStrategy, policy.LabelAlignment, policy.LabelAlignment2,
		policy.LabelArch}
}

// maxLabel is Kubernetes' own bound of a label's value.
const maxLabel = 63

func encodeRules(c *policy.Config) (string, error) {
	a := &c.Allocation
	d := rulesDoc{
		Version: version, Trusted: c.Authority.TrustStatus, Degrade: c.Degrade, Reserved: c.Reserved.Pack(),
		ReservedStrict: c.ReservedStrict, SharedFloor: c.SharedFloor, System: c.System.CPUs.Pack(),
		SystemAlone: c.System.Exclusive, SystemOf: c.System.Namespaces, Profile: c.Authority.Profile,
		MaxCPUs: c.Authority.MaxCPUs, Kubelet: c.Kubelet, Labels: map[string]string{},
		Powers: map[policy.Power][]string{},
		Allocation: allocationDoc{
			Bind: config.BindPolicy(a.Bind), BindRequired: a.BindRequired,
			Exclusive: config.ExclusivePolicy(a.Exclusive), ExclusiveRequired: a.ExclusiveRequired,
			Strategy: config.NUMAStrategy(a.Strategy), Alignment: config.Alignment(a.Alignment),
			SMT: config.SMT(a.SMT), SMTRequired: a.SMTRequired,
		},
	}
	for power, namespaces := range c.Authority.Namespaces {
		if len(namespaces) > 0 {
			d.Powers[power] = namespaces
		}
	}
	for _, key := range nodeLabels() {
		if v := c.NodeLabels[key]; v != "" && len(v) <= maxLabel {
			d.Labels[key] = v
		}
	}
	text, err := json.Marshal(&d)
	if err != nil {
		return "", fmt.Errorf("rules: %w", err)
	}
	return string(text), nil
}

func decodeRules(text string) (*policy.Config, error) {
	if len(text) > maxRules {
		return nil, fmt.Errorf("rules: %d bytes, at most %d are read", len(text), maxRules)
	}
	var d rulesDoc
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	if d.Version != version {
		return nil, fmt.Errorf("rules: %w", newer(fmt.Sprint(d.Version)))
	}
	if d.SharedFloor < 0 {
		return nil, fmt.Errorf("rules: sharedFloor is %d", d.SharedFloor)
	}
	return &policy.Config{
		Degrade: d.Degrade, Reserved: d.Reserved.Set(), ReservedStrict: d.ReservedStrict, SharedFloor: d.SharedFloor,
		Allocation: policy.Allocation{
			Bind: cpuallocator.BindPolicy(d.Allocation.Bind), BindRequired: d.Allocation.BindRequired,
			Exclusive:         cpuallocator.ExclusivePolicy(d.Allocation.Exclusive),
			ExclusiveRequired: d.Allocation.ExclusiveRequired,
			Strategy:          cpuallocator.NUMAStrategy(d.Allocation.Strategy),
			Alignment:         cpuallocator.Alignment(d.Allocation.Alignment),
			SMT:               cpuallocator.SMT(d.Allocation.SMT), SMTRequired: d.Allocation.SMTRequired,
		},
		System: policy.System{CPUs: d.System.Set(), Exclusive: d.SystemAlone, Namespaces: d.SystemOf},
		Authority: policy.Authority{Profile: d.Profile, Namespaces: d.Powers, MaxCPUs: d.MaxCPUs,
			TrustStatus: d.Trusted},
		NodeLabels: d.Labels, Kubelet: d.Kubelet,
	}, nil
}
