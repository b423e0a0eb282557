package node

import (
	"testing"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// CPUs that went offline leave a mask and stay with their owner.
func TestWhetherAMaskIsTheSavedOne(t *testing.T) {
	all, four, three, pool, none := cpuset.Range(0, 15), cpuset.Range(0, 3), cpuset.Range(0, 2), cpuset.Range(4, 15),
		cpuset.Set{}
	for _, c := range []struct {
		name               string
		saved, kernel, now cpuset.Set
		want               bool
	}{
		{"it is", four, four, all, true},
		{"one less", four, three, all, false},
		{"one less, which is offline", four, three, all.Minus(cpuset.Of(3)), true},
		{"another is offline", four, three, all.Minus(cpuset.Of(2)), false},
		{"all are offline, and it has the pool's", four, pool, pool, true},
		{"all are offline, and it has none", four, none, pool, false},
		{"it has none", four, none, all, false},
	} {
		r := &recovery{topo: onlyOnline(t, c.now)}
		if got := r.same(c.saved, c.kernel); got != c.want {
			t.Errorf("%s: %t, want %t", c.name, got, c.want)
		}
	}
}

// A pod that shares CPUs stays on the NUMA node that it was bound to: by the file, or by a mask on one node where the
// pool has more.
func TestWhichNodeASharedPodIsBoundTo(t *testing.T) {
	one := testGrid
	one.Sockets = 1
	both, first, second, none := cpuset.Range(0, 15), cpuset.Range(0, 7), cpuset.Range(8, 15), cpuset.Set{}
	for _, c := range []struct {
		name         string
		saved        bool
		grid         topology.Grid
		qos          policy.QoS
		kernel, pool cpuset.Set
		want         int // the node; -1: none
	}{
		{"the file has it", true, testGrid, policy.Burstable, first, both, 1},
		{"its mask has it", false, testGrid, policy.Burstable, first, both, 0},
		{"its mask has both", false, testGrid, policy.Burstable, both, both, -1},
		{"so has the pool", false, testGrid, policy.Burstable, second, second, -1},
		{"it has no mask", false, testGrid, policy.Burstable, none, both, -1},
		{"best effort is bound to none", false, testGrid, policy.BestEffort, first, both, -1},
		{"there is one node", false, one, policy.Burstable, first, first, -1},
	} {
		node := 1
		r := &recovery{topo: grid(t, c.grid), poolBefore: poolBefore{pool: c.pool}, saved: map[string]state.Pod{}}
		if c.saved {
			r.saved["u"] = state.Pod{UID: "u", BoundNode: &node}
		}
		got := -1
		if found := r.sharedPlace(&running{kernel: c.kernel, pod: policy.Pod{UID: "u", QoS: c.qos}}); found != nil {
			got = *found.BoundNode
		}
		if got != c.want {
			t.Errorf("%s: bound to node %d, want %d", c.name, got, c.want)
		}
	}
}

// A resize to fewer CPUs that no daemon saw is part of the answer if it is read in time. If it is read later, it is
// followed and corrects nothing: the pod may have been resized again meanwhile.
func TestAResizeToFewerThatNoDaemonSaw(t *testing.T) {
	had := cpuset.Range(0, 3)
	p := lsr("a", 4000)
	listed := Inventory{Pods: []policy.Pod{p}, Containers: []policy.Container{mainOf(p)}}
	seen := map[query]reading{queryOf(&p): {e: cgroup.Effective{OwnCPUs: had, QuotaMilli: 1000}}}
	none := func(string) bool { return false }
	for _, inTime := range []bool{true, false} {
		taken := newTaking(recovery{reader: seenReader(nil), topo: grid(t, testGrid),
			saved: map[string]state.Pod{p.UID: {UID: p.UID, CPUs: had}}}, listed, false, nil)
		read, to := map[query]reading(nil), 0
		if inTime {
			read, to = seen, 1
		}
		out := taken.answer(read, none)
		if got := out.event.Pods[0].Recovered; *got.CPUs != had || got.ResizedTo != to {
			t.Errorf("read in time %t: answered with %s, resized to %d", inTime, got.CPUs, got.ResizedTo)
		}
		c := taken.correct(seen, none)
		if len(c.corrected.Pods) > 0 || len(out.resized)+len(c.resized) != 1 {
			t.Errorf("read in time %t: corrected %+v, resized %+v and %+v", inTime, c.corrected.Pods, out.resized,
				c.resized)
		}
	}
}

// Without a file, an owner has what the runtime stores if its mask lacks CPUs that are offline, but not if it was
// resized to those of its mask: then its weight is lower, too.
func TestAnOwnerWhoseMaskIsAPartOfWhatIsStored(t *testing.T) {
	had, left := cpuset.Range(0, 5), cpuset.Range(0, 2)
	for weighs, want := range map[int64]cpuset.Set{0: had, 6000: had, 3000: left} {
		r := &recovery{topo: grid(t, testGrid), owners: left}
		p := &running{pod: lsr("a", 6000), kernel: left, weighs: weighs}
		p.containers = []policy.Container{mainOf(p.pod)}
		p.containers[0].CPUs = had.String()
		if got := r.placeOf(p); *got.CPUs != want {
			t.Errorf("a weight of %d: it has %s, want %s", weighs, got.CPUs, want)
		}
	}
}

// A container that grew is told nothing if the save is late, and its mask alone shows it.
func TestAContainerThatGrew(t *testing.T) {
	two, three, four := cpuset.Range(8, 9), cpuset.Range(8, 10), cpuset.Range(8, 11)
	for _, c := range []struct {
		name    string
		request int64
		mask    cpuset.Set
		claimed cpuset.Set
		other   cpuset.Set // another pod in the file
		theirs  cpuset.Set // the same pod's mask
		want    cpuset.Set
	}{
		{"its mask has as many as it requests", 4000, four, cpuset.Set{}, cpuset.Set{}, cpuset.Set{}, four},
		{"its mask has others", 4000, cpuset.Range(4, 7), cpuset.Set{}, cpuset.Set{}, cpuset.Set{}, two},
		{"its mask has fewer than it requests", 4000, three, cpuset.Set{}, cpuset.Set{}, cpuset.Set{}, two},
		{"a claim has some", 4000, four, cpuset.Of(11), cpuset.Set{}, cpuset.Set{}, two},
		{"another has some in the file", 4000, four, cpuset.Set{}, cpuset.Of(10), cpuset.Set{}, two},
		{"another has some in its mask", 4000, four, cpuset.Set{}, cpuset.Set{}, cpuset.Of(10), two},
	} {
		p := &running{pod: policy.Pod{UID: "u", Labels: map[string]string{policy.LabelClass: "LSR"},
			Annotations: map[string]string{policy.AnnContainers: "main"}}, mixed: true, kernel: c.mask,
			containers: []policy.Container{{Name: "main", CPUs: "8-9",
				Resources: policy.Resources{RequestMilli: c.request}}}}
		if milli(&c.mask) == c.request {
			p.claims = []policy.RecoveredContainer{{Container: "main",
				Recovered: policy.Recovered{CPUs: &c.mask, From: "kernel"}}}
		}
		other := &running{pod: policy.Pod{UID: "other", Labels: p.pod.Labels}, kernel: c.theirs}
		saved := state.Pod{UID: "u", CPUs: two, Containers: []policy.RecoveredContainer{{Container: "main",
			Recovered: policy.Recovered{CPUs: &two, Request: 2, From: "state file"}}}}
		r := &recovery{topo: grid(t, testGrid), found: []*running{p, other}, claimed: c.claimed,
			saved: map[string]state.Pod{"u": saved, "other": {UID: "other", CPUs: c.other}}}
		if got := ownedBy(r.placeOf(p)); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
