package plugin

import (
	"fmt"
	"slices"
	"testing"

	"github.com/containerd/nri/pkg/api"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// A pod that a trusted scheduler binds to several NUMA nodes runs in the shared
// pool of those: under an owner that comes and goes, and after a restart.
func TestAPodBoundToSeveralNUMANodesFollowsTheirPool(t *testing.T) {
	n := newNode(t, grid(t, topology.Grid{Sockets: 2, NodesPerSocket: 2, CoresPerL3: 2, ThreadsPerCore: 2}))
	trust := func(o *Options) { o.Config.Authority.TrustStatus = true }
	n.up(trust)
	bound := func(name string, nodes ...int) spec {
		list := ""
		for i, id := range nodes {
			if i > 0 {
				list += ","
			}
			list += fmt.Sprintf(`{"socket":%d,"node":%d}`, id/2, id)
		}
		s := burstable(name)
		s.annot = map[string]string{policy.AnnStatus: `{"cpuSharedPools":[` + list + `]}`}
		return s
	}
	mustRun(t, n, bound("near", 0, 1), bound("apart", 1, 2), burstable("web"))
	n.want("near-main", "0-7")
	n.want("apart-main", "4-11")
	db := spec{name: "db", class: policy.LSE, qos: policy.Guaranteed, ctrs: main1(4000)}
	mustRun(t, n, db)
	n.want("near-main", "4-7")
	n.want("web-main", "4-15")
	n.checkOwners()
	n.kill()
	n.up(trust)
	n.want("near-main", "4-7")
	n.want("apart-main", "4-11")
	n.remove(db)
	n.want("near-main", "0-7")
	n.want("apart-main", "4-11")
}

// On a machine of one NUMA node a bound pod has its mask as others have.
func TestAPodBoundToTheOnlyNUMANodeIsMasked(t *testing.T) {
	n := newNode(t, grid(t, topology.Grid{Sockets: 1, NodesPerSocket: 1, CoresPerL3: 4, ThreadsPerCore: 2}))
	n.up()
	burst := spec{name: "burst", class: policy.LS, qos: policy.Guaranteed, ctrs: main1(1500),
		annot: map[string]string{policy.AnnSpec: `{"preferredCPUBindPolicy":"ConstrainedBurst"}`}}
	mustRun(t, n, burst)
	n.want("burst-main", "0-7")
	mustRun(t, n, spec{name: "db", class: policy.LSE, qos: policy.Guaranteed, ctrs: main1(4000)})
	n.want("burst-main", "4-7")
	n.checkOwners()
}

// The tree has a part of a pool as long as a pod runs in it, and after a rebuild those of
// the new machine.
func TestTheTreeHasThePartsOfPoolsThatAreInUse(t *testing.T) {
	o := Options{Topology: grid(t, topology.Grid{Sockets: 1, NodesPerSocket: 4, CoresPerL3: 1, ThreadsPerCore: 2})}
	o.Config.Authority.TrustStatus = true
	o.fill()
	l, err := newLoop(&o)
	if err != nil {
		t.Fatal(err)
	}
	e := newEnforcer(&o, l.machine)
	step := func(event policy.Event) {
		t.Helper()
		decisions, err := l.machine.Step(o.Clock.Now(), event)
		if err != nil {
			t.Fatal(err)
		}
		e.absorb(batch{decisions: decisions})
	}
	pools := func(want ...string) {
		t.Helper()
		if got := e.tree.Pools(); !slices.Equal(got, want) {
			t.Errorf("the tree has pools %v, want %v", got, want)
		}
	}
	pools("be", "shared")
	for name, pools := range map[string]string{"stays": `{"node":0},{"node":3}`, "passes": `{"node":1},{"node":2}`} {
		step(policy.PodRun{Pod: policy.Pod{UID: name, Sandbox: name, Name: name, QoS: policy.Burstable,
			CgroupParent: "/kubepods/burstable/pod" + name, Resources: &policy.Resources{RequestMilli: 100},
			Annotations: map[string]string{policy.AnnStatus: `{"cpuSharedPools":[` + pools + `]}`}}})
	}
	pools("be", "shared", "shared@0,3", "shared@1-2")
	step(policy.PodRemoved{Sandbox: "passes"})
	pools("be", "shared", "shared@0,3")
	fresh, err := policy.New(o.Topology, o.Config)
	if err != nil {
		t.Fatal(err)
	}
	var decisions []policy.Decision
	for _, d := range fresh.UsedPools() {
		decisions = append(decisions, d)
	}
	e.absorb(batch{decisions: decisions, anew: true})
	pools("be", "shared")
}

// The environment variable is an owner's alone, is there from its creation, and
// goes before one that the tenant set. An update cannot change it.
func TestTheEnvironmentTellsAnOwnerItsCPUs(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	n.up(func(o *Options) { o.CPUsEnv = "QUIETCORE_CPUS" })
	envOf := func(s spec) []*api.KeyValue {
		t.Helper()
		sandbox := s.sandbox("sb-" + s.name)
		n.kernel.Mkdir(s.parent(), 0)
		if err := n.nri.RunPodSandbox(short(t), &api.RunPodSandboxRequest{Pod: sandbox}); err != nil {
			t.Fatal(err)
		}
		c := s.container(sandbox.Id, s.name+"-main", s.ctrs[0])
		c.Env = []string{"PATH=/bin", "QUIETCORE_CPUS=0-511"}
		r, err := n.create(sandbox, c)
		if err != nil {
			t.Fatal(err)
		}
		if err := n.launch(sandbox, c); err != nil {
			t.Fatal(err)
		}
		n.pods[sandbox.Id] = sandbox
		return r.GetAdjust().GetEnv()
	}
	got := envOf(lsr("db", 2000))
	if len(got) != 1 || got[0].Key != "QUIETCORE_CPUS" || got[0].Value != "0-1" {
		t.Errorf("the owner of 0-1 is told %v", got)
	}
	if got := envOf(burstable("web")); len(got) != 0 {
		t.Errorf("a shared container is told %v", got)
	}
	if err := n.update("db-main", cpuOf(4000, 4000, "")); err != nil {
		t.Fatal(err)
	}
	n.want("db-main", "0-3")
}

func TestAnOwnersEnvironmentIsOfCreationOnly(t *testing.T) {
	own := cpuset.Of(2, 3)
	v := values{cpus: "2-3", env: envOf("CPUS", &policy.SetContainer{Need: policy.Need{Own: &own}})}
	if env := v.adjustment(true).GetEnv(); len(env) != 1 || env[0].Key != "CPUS" || env[0].Value != "2-3" {
		t.Errorf("the reply to a creation has %v", env)
	}
	if u := (values{env: v.env}).update("id"); u != nil {
		t.Errorf("an update became %v", u)
	}
	for _, c := range []struct {
		name string
		need policy.Need
	}{{"", policy.Need{Own: &own}}, {"CPUS", policy.Need{Pool: policy.PoolShared.ID()}}} {
		if v := envOf(c.name, &policy.SetContainer{Need: c.need}); v != (variable{}) {
			t.Errorf("%q and %+v became %v", c.name, c.need, v)
		}
	}
}
