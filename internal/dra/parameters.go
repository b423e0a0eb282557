package dra

import (
	"fmt"
	"regexp"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/strict"
	"github.com/quietcore/quietcore/policy"
)

// APIVersion and Kind head the opaque parameters of a DeviceClass or claim.
const (
	APIVersion = "quietcore.dev/v1alpha1"
	Kind       = "CPUClaimParameters"
)

// maxParameters is Kubernetes' own limit, maxContainers bounds the names in them.
const (
	maxParameters = 10 << 10
	maxContainers = 64
)

// Parameters are the opaque parameters. What they leave out is as the node's configuration says.
type Parameters struct {
	APIVersion      string                  `json:"apiVersion" strict:"required"`
	Kind            string                  `json:"kind" strict:"required"`
	BindPolicy      *config.BindPolicy      `json:"bindPolicy"`
	BindRequired    bool                    `json:"bindRequired"`
	ExclusivePolicy *config.ExclusivePolicy `json:"exclusivePolicy"`
	SMT             *config.SMT             `json:"smt"`
	// Containers are the names of the containers that get the CPUs; none: those that have the claim.
	Containers []string `json:"containers"`
}

// read reads parameters over those that were read before: a claim's go before its class's.
func (p *Parameters) read(text []byte) error {
	next := *p
	next.APIVersion, next.Kind, next.Containers = "", "", nil
	d := strict.NewDecoder()
	d.Max = maxParameters
	if err := d.Unmarshal(text, 1, &next); err != nil {
		return err
	}
	if next.APIVersion != APIVersion || next.Kind != Kind {
		return fmt.Errorf("apiVersion %.60q and kind %.60q: this driver reads %s, %s", next.APIVersion, next.Kind,
			APIVersion, Kind)
	}
	if next.BindRequired && next.BindPolicy == nil {
		return fmt.Errorf("bindRequired is true and bindPolicy is not set: say which policy is required")
	}
	if len(next.Containers) > maxContainers {
		return fmt.Errorf("containers: names %d containers; at most %d are read", len(next.Containers), maxContainers)
	}
	for _, name := range next.Containers {
		if !regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`).MatchString(name) {
			return fmt.Errorf("containers: %.70q is no name of a container", name)
		}
	}
	if next.Containers == nil {
		next.Containers = p.Containers
	}
	*p = next
	return nil
}

// ParseParameters reads the parameters of one configuration.
func ParseParameters(text []byte) (Parameters, error) {
	var p Parameters
	err := p.read(text)
	return p, err
}

// apply writes parameters into a request.
func (p *Parameters) apply(r *policy.ClaimRequest) {
	r.SMT = (*cpuallocator.SMT)(p.SMT)
	r.Bind, r.BindRequired = (*cpuallocator.BindPolicy)(p.BindPolicy), p.BindRequired
	r.Exclusive = (*cpuallocator.ExclusivePolicy)(p.ExclusivePolicy)
	r.Containers = p.Containers
}
