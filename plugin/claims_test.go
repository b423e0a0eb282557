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

// A reboot between Prepare and Unprepare: no container is left, and the state file is of another boot. kubelet prepares
// the claim of a pod that it starts anew, and unprepares that of a pod that was deleted meanwhile.
func TestClaimsOverAReboot(t *testing.T) {
	w := newWorld(t)
	w.begin(newDoom("", 0))
	prepare := func(name string) string {
		t.Helper()
		cpus, err := w.plugin.Prepare(t.Context(), policy.ClaimPrepared{UID: name, Namespace: "default", Name: name,
			Pods:     []string{"uid-" + name},
			Requests: []policy.ClaimRequest{{Device: "numa-0", Within: cpuset.Range(0, 7), CPUs: 4}}})
		if err != nil || len(cpus) != 1 || cpus[0].Count() != 4 {
			t.Fatalf("claim %s is given %v, %v", name, cpus, err)
		}
		return cpus[0].String()
	}
	pod := func(name string) spec {
		s := bestEffort(name)
		s.ctrs[0].claim = policy.ClaimDevice(name, 0)
		return s
	}
	for _, name := range []string{"goes", "stays"} {
		cpus := prepare(name)
		doRun(pod(name)).do(w)
		w.rest()
		w.want(name+"-main", cpus)
	}
	w.kill()
	for _, name := range []string{"goes", "stays"} {
		w.remove(pod(name))
	}
	file := w.stateFile(newDoom("", 0))
	saved := file.Load().Snapshot
	if len(saved.Claims) != 2 {
		t.Fatalf("saved are %+v", saved.Claims)
	}
	file.BootID = "before"
	must(t, file.Save(saved))

	w.begin(newDoom("", 0))
	doRun(burstable("web")).do(w) // nobody's claim keeps it off
	w.rest()
	w.want("web-main", "0-15")
	must(t, w.plugin.Unprepare(t.Context(), policy.ClaimUnprepared{UID: "goes"}))
	cpus := prepare("stays")
	doRun(pod("stays")).do(w)
	w.rest()
	w.want("stays-main", cpus)
	given, err := cpuset.Parse(cpus)
	must(t, err)
	w.want("web-main", cpuset.Range(0, 15).Minus(given).String())
	if c := w.plugin.Snapshot().Claims; len(c) != 1 || c[0].UID != "stays" {
		t.Errorf("claims %+v have CPUs", c)
	}
	w.sound()
	must(t, w.plugin.Unprepare(t.Context(), policy.ClaimUnprepared{UID: "stays"}))
}
