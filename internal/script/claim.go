package script

import (
	"fmt"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/policy"
)

// Prepare prepares a claim of Quietcore's own DRA driver, as kubelet does before a pod with it starts.
type Prepare struct {
	Claim     string    `json:"claim"`
	Namespace string    `json:"namespace"`
	Pods      []string  `json:"pods,omitempty"` // of its namespace, for which it is reserved
	Devices   []Devices `json:"devices"`
}

// Devices is a request of a claim.
type Devices struct {
	Device     string             `json:"device,omitempty"`
	Within     string             `json:"within"` // the device's CPUs
	CPUs       int                `json:"cpus"`
	Containers []string           `json:"containers,omitempty"` // that get these CPUs; none: all of the pods
	SMT        *config.SMT        `json:"smt,omitempty"`
	BindPolicy *config.BindPolicy `json:"bindPolicy,omitempty"`
}

// Unprepare gives back what a claim has.
type Unprepare struct {
	Claim     string `json:"claim"`
	Namespace string `json:"namespace"`
}

// claimUID is the UID of a claim.
func claimUID(namespace, name string) string { return UIDOf(namespace, "claim/"+name) }

func (c *Prepare) complete() error {
	if c.Claim == "" {
		return fmt.Errorf("prepare: claim has no name")
	}
	for i := range c.Devices {
		if c.Devices[i].Device == "" {
			c.Devices[i].Device = fmt.Sprintf("device-%d", i)
		}
	}
	return nil
}

// event is the policy's event. uids are those of pods that have another than UIDOf, by namespace/pod.
func (c *Prepare) event(uids map[string]string) (policy.ClaimPrepared, error) {
	e := policy.ClaimPrepared{UID: claimUID(c.Namespace, c.Claim), Namespace: c.Namespace, Name: c.Claim}
	for _, pod := range c.Pods {
		uid := uids[c.Namespace+"/"+pod]
		if uid == "" {
			uid = UIDOf(c.Namespace, pod)
		}
		e.Pods = append(e.Pods, uid)
	}
	for _, d := range c.Devices {
		within, err := cpuset.Parse(d.Within)
		if err != nil {
			return e, err
		}
		e.Requests = append(e.Requests, policy.ClaimRequest{Device: d.Device, Within: within, CPUs: d.CPUs,
			Containers: d.Containers, SMT: (*cpuallocator.SMT)(d.SMT), Bind: (*cpuallocator.BindPolicy)(d.BindPolicy)})
	}
	return e, nil
}

// uids are the UIDs of the pods on the node.
func (p *Player) uids() map[string]string {
	uids := make(map[string]string, len(p.pods))
	for key, pod := range p.pods {
		uids[key] = pod.spec.UID
	}
	return uids
}

func (p *Player) prepare(c *Prepare) ([]string, error) {
	e, err := c.event(p.uids())
	if err != nil {
		return nil, err
	}
	return p.feed(e)
}
