package node

import (
	"fmt"
	"maps"
	"slices"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
)

// noteClaims records decisions about claims of our own driver.
func noteClaims(claims map[string][]cpuset.Set, decisions []policy.Decision) {
	for _, d := range decisions {
		switch d := d.(type) {
		case policy.ClaimGiven:
			claims[d.UID] = d.CPUs
		case policy.DropClaim:
			delete(claims, d.UID)
		}
	}
}

// putBackClaims makes the claims of a checkpoint those that were decided, on the CPUs of the decision: an event by
// which a claim came or went may be left out. What else is known of a claim that is missing the broken machine has.
func (a *anchor) putBackClaims(s *policy.Synchronized, broken *policy.Synchronized) {
	s.Claims = slices.DeleteFunc(slices.Clone(s.Claims), func(c policy.RecoveredClaim) bool {
		_, decided := a.claims[c.UID]
		return !decided
	})
	for _, c := range broken.Claims {
		if _, decided := a.claims[c.UID]; decided && !slices.ContainsFunc(s.Claims, func(o policy.RecoveredClaim) bool {
			return o.UID == c.UID
		}) {
			s.Claims = append(s.Claims, c)
		}
	}
	online := a.topo.Online()
	for i := range s.Claims {
		c := &s.Claims[i]
		c.Given = slices.Clone(c.Given)
		c.Named = c.Named || slices.ContainsFunc(broken.Claims, func(o policy.RecoveredClaim) bool {
			return o.UID == c.UID && o.Named
		})
		for j, was := range a.claims[c.UID] {
			if j < len(c.Given) && !was.IsEmpty() && (c.Given[j].CPUs == nil || !keeps(&was, c.Given[j].CPUs, online)) {
				c.Given[j] = policy.Recovered{From: "kernel", CPUs: &was}
			}
		}
	}
}

// compareClaims requires every claim to have its CPUs.
func (a *anchor) compareClaims(decisions []policy.Decision) error {
	now, online := map[string][]cpuset.Set{}, a.topo.Online()
	noteClaims(now, decisions)
	for _, uid := range slices.Sorted(maps.Keys(a.claims)) {
		was, is := a.claims[uid], now[uid]
		if len(was) != len(is) {
			return fmt.Errorf("%w: claim %s is missing", errLost, uid)
		}
		for i := range was {
			if !keeps(&was[i], &is[i], online) {
				return fmt.Errorf("%w: claim %s had CPUs %s and would have %s", errLost, uid, was[i], is[i])
			}
		}
	}
	return nil
}
