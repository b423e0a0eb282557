package state

import (
	"testing"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
)

// withClaims is a snapshot with a claim of our own DRA driver.
func withClaims() Snapshot {
	s := example()
	cpus := cpuset.Of(8, 9)
	s.Claims = []policy.RecoveredClaim{{
		ClaimPrepared: policy.ClaimPrepared{UID: "c1", Namespace: "default", Name: "cpus", Pods: []string{"uid-a"},
			Requests: []policy.ClaimRequest{{Device: "numa-1", Within: cpuset.Range(8, 15), CPUs: 2}}},
		Since: noon, Given: []policy.Recovered{{CPUs: &cpus, From: "state file"}},
	}}
	return s
}

// What the policy says of claims is what it gets back.
func TestClaimsAreKept(t *testing.T) {
	s := withClaims()
	if got := Of(policy.Synchronized{Claims: s.Claims}, 1); len(got.Claims) != 1 || got.Claims[0].UID != "c1" {
		t.Errorf("kept: %+v", got.Claims)
	}
}
