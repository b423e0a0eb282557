package plugin

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
)

// A pod with nothing but a claim: another driver has written its spec just before kubelet asks for the sandbox, so the
// daemon has to look when the container comes.
func TestAClaimOfAnotherDriver(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	var prepared atomic.Bool
	looks := func(o *Options) {
		o.Claims = func(ctx context.Context) {
			if prepared.Load() {
				e := policy.ForeignClaims{Devices: map[string]cpuset.Set{"dra.k8s.io/cpu=claim-a": cpuset.Range(2, 5)}}
				if err := n.plugin.Submit(ctx, e); err != nil {
					t.Error(err)
				}
			}
		}
	}
	n.up(looks)
	mustRun(t, n, bestEffort("low"), burstable("web"))
	n.want("web-main", "0-15")
	prepared.Store(true)
	ml := bestEffort("ml")
	ml.ctrs[0].claim = "dra.k8s.io/cpu=claim-a"
	mustRun(t, n, ml, lsr("db", 4000))
	check := func() {
		t.Helper()
		n.settle()
		n.want("ml-main", "2-5")
		db, err := cpuset.Parse(n.on("db-main"))
		if claimed := cpuset.Range(2, 5); err != nil || db.Count() != 4 || db.Intersects(&claimed) {
			t.Errorf("the owner has %s, %v", db, err)
		}
		n.want("web-main", cpuset.Range(0, 15).Minus(cpuset.Range(2, 5)).Minus(db).String())
		n.want("low-main", cpuset.Range(0, 15).Minus(cpuset.Range(2, 5)).String())
		for _, c := range n.plugin.Snapshot().Containers {
			if c.Pod == "ml" && c.Class != policy.LS {
				t.Errorf("the pod with the claim is %s", c.Class)
			}
		}
	}
	check()
	if got := n.containers["ml-main"].Linux.Resources.Cpu.Cpus; got != "" {
		t.Errorf("the reply set its cpuset to %s, which its driver sets", got)
	}
	n.kill()
	n.up(looks)
	check()
}
