package plugin

import (
	"fmt"
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

// Sets of NUMA nodes that nobody is bound to any more are forgotten, however
// many a daemon sees in its life.
func TestPoolsOfSeveralNUMANodesDoNotPileUp(t *testing.T) {
	topo := grid(t, topology.Grid{Sockets: 1, NodesPerSocket: 8, CoresPerL3: 1, ThreadsPerCore: 2})
	m, err := policy.New(topo, policy.Config{})
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Topology: topo}
	o.fill()
	e := newEnforcer(&o, newBook(), m.Snapshot())
	stays := cpuset.Of(0, 7)
	held := &subjectState{}
	e.pods["stays"] = held
	e.bound(held, policy.Need{Pool: policy.PoolShared, Nodes: &stays})
	for mask := 1; mask < 1<<8; mask++ {
		var nodes cpuset.Set
		for id := range 8 {
			if mask>>id&1 != 0 {
				nodes.Add(id)
			}
		}
		e.pods["passes"] = &subjectState{}
		e.bound(e.pods["passes"], policy.Need{Pool: policy.PoolShared, Nodes: &nodes})
	}
	if len(e.several) > maxSeveral || e.several["shared@0,7"] == nil {
		t.Errorf("%d sets of NUMA nodes are kept, that of a pod that runs: %v", len(e.several),
			e.several["shared@0,7"] != nil)
	}
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
	}{{"", policy.Need{Own: &own}}, {"CPUS", policy.Need{Pool: policy.PoolShared}}} {
		if v := envOf(c.name, &policy.SetContainer{Need: c.need}); v != (variable{}) {
			t.Errorf("%q and %+v became %v", c.name, c.need, v)
		}
	}
}
