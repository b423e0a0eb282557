package node

import (
	"slices"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/cgroup/cgrouptest"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

func TestDistrustOfMasksThatAreNobodysOwn(t *testing.T) {
	pod := func(name string, kernel cpuset.Set) *running {
		return &running{pod: policy.Pod{UID: name, QoS: policy.Guaranteed,
			Labels: map[string]string{policy.LabelClass: "LSR"}}, kernel: kernel}
	}
	r := &recovery{topo: grid(t, testGrid), saved: map[string]state.Pod{}, observed: map[string]*cgroup.Effective{}}
	own, twice := pod("own", cpuset.Range(0, 3)), cpuset.Range(4, 15)
	a, b := pod("a", twice), pod("b", twice)
	r.distrust([]*running{own, a, b})
	if own.kernel.IsEmpty() || !a.kernel.IsEmpty() || !b.kernel.IsEmpty() {
		t.Errorf("kept own %s, a %s, b %s; want the first alone", own.kernel, a.kernel, b.kernel)
	}
	saved := pod("saved", twice)
	r.saved["saved"] = state.Pod{UID: "saved", CPUs: twice}
	r.distrust([]*running{saved, pod("c", twice)})
	if saved.kernel.IsEmpty() {
		t.Error("what the state file confirms was distrusted")
	}
}

// Which of several masks that overlap is an owner's own.
func TestWhoseMaskItIs(t *testing.T) {
	type owner struct {
		name   string
		asks   int64 // in milli-CPUs
		kernel cpuset.Set
		stored string // by the runtime, of its container
		saved  cpuset.Set
	}
	two, passes := cpuset.Range(8, 9), cpuset.Range(0, 5).Or(cpuset.Range(8, 15))
	for _, c := range []struct {
		name   string
		owners []owner
		slice  cpuset.Set // of burstable pods
		want   []string   // the pods that keep their masks
	}{
		{"one passes through the other's CPUs", []owner{{name: "a", asks: 2000, kernel: two},
			{name: "b", asks: 2000, kernel: passes}}, cpuset.Set{}, []string{"a"}},
		{"each has as many as it asks for", []owner{{name: "a", asks: 2000, kernel: two},
			{name: "b", asks: 3000, kernel: cpuset.Range(9, 11)}}, cpuset.Set{}, nil},
		{"a third does", []owner{{name: "a", asks: 2000, kernel: two}, {name: "b", asks: 2000, kernel: passes},
			{name: "c", asks: 2000, kernel: cpuset.Range(6, 7)}}, cpuset.Set{}, []string{"a", "c"}},
		{"resized, and the runtime stores it", []owner{{name: "a", asks: 1000, kernel: two, stored: "8-9"},
			{name: "b", asks: 2000, kernel: passes}}, cpuset.Set{}, []string{"a"}},
		{"resized, and the slice reaches into it", []owner{{name: "a", asks: 1000, kernel: two, stored: "8-9"}},
			cpuset.Range(8, 15), []string{"a"}},
		{"resized, and nothing confirms it", []owner{{name: "a", asks: 1000, kernel: two, stored: "8"}},
			cpuset.Range(8, 15), nil},
		{"the pool's, although it asks for as many", []owner{{name: "a", asks: 8000, kernel: cpuset.Range(8, 15)}},
			cpuset.Range(8, 15), nil},
		{"the state file confirms the other", []owner{{name: "a", asks: 1000, kernel: two, saved: two},
			{name: "b", asks: 2000, kernel: cpuset.Range(9, 10)}}, cpuset.Set{}, []string{"a"}},
		{"the other is saved and passes through", []owner{{name: "a", asks: 2000, kernel: two},
			{name: "b", asks: 2000, kernel: passes, saved: cpuset.Range(6, 7)}}, cpuset.Set{}, []string{"a", "b"}},
	} {
		kernel := cgrouptest.New(cpuset.Range(0, 15))
		kernel.Mkdir("kubepods/burstable/podweb", 0)
		kernel.Tamper("kubepods/burstable", c.slice.String())
		r := &recovery{topo: grid(t, testGrid), saved: map[string]state.Pod{}, reader: kernel,
			observed: map[string]*cgroup.Effective{}}
		found := []*running{{pod: policy.Pod{UID: "web", QoS: policy.Burstable,
			CgroupParent: "/kubepods/burstable/podweb"}}}
		for _, o := range c.owners {
			p := &running{pod: policy.Pod{UID: o.name, QoS: policy.Guaranteed,
				Labels:    map[string]string{policy.LabelClass: "LSR"},
				Resources: &policy.Resources{RequestMilli: o.asks, LimitMilli: o.asks}}, kernel: o.kernel}
			old := *p // a sandbox that is over
			if p.containers = []policy.Container{{CPUs: o.stored}}; !o.saved.IsEmpty() {
				r.saved[o.name] = state.Pod{UID: o.name, CPUs: o.saved}
			}
			found = append(found, p, &old)
		}
		r.distrust(found)
		var kept []string
		for _, p := range found[1:] {
			if !p.kernel.IsEmpty() && !slices.Contains(kept, p.pod.UID) {
				kept = append(kept, p.pod.UID)
			}
		}
		if !slices.Equal(kept, c.want) {
			t.Errorf("%s: their masks keep %v, want %v", c.name, kept, c.want)
		}
	}
}

// The slice of a burstable owner holds its pool besides what the owner has, so a mask that holds
// the whole slice is one on the way, unless something confirms it.
func TestAMaskAsWideAsItsSliceIsNoOwners(t *testing.T) {
	for _, c := range []struct {
		name, slice   string
		kernel, saved cpuset.Set
		stored        string
		keeps         bool
	}{
		{"the slice's mask", "4-15", cpuset.Range(4, 15), cpuset.Set{}, "", false},
		{"the slice's, and another was saved", "4-15", cpuset.Range(4, 15), cpuset.Range(0, 1), "", false},
		{"the slice's, and it was saved", "4-15", cpuset.Range(4, 15), cpuset.Range(4, 15), "", true},
		{"the slice's, and the runtime stores it", "4-15", cpuset.Range(4, 15), cpuset.Set{}, "4-15", true},
		{"a part of the slice's", "4-15", cpuset.Range(4, 5), cpuset.Set{}, "", true},
		{"any, and the slice has no mask", "", cpuset.Range(0, 5), cpuset.Set{}, "", true},
	} {
		kernel := cgrouptest.New(cpuset.Range(0, 15))
		kernel.Mkdir("kubepods/burstable/podu", 0)
		kernel.Tamper("kubepods/burstable", c.slice)
		r := &recovery{topo: grid(t, testGrid), saved: map[string]state.Pod{}, reader: kernel,
			observed: map[string]*cgroup.Effective{}}
		p := &running{pod: policy.Pod{UID: "u", QoS: policy.Burstable, CgroupParent: "/kubepods/burstable/podu",
			Labels: map[string]string{policy.LabelClass: "LSR"}}, kernel: c.kernel,
			containers: []policy.Container{{CPUs: c.stored}}}
		if !c.saved.IsEmpty() {
			r.saved["u"] = state.Pod{UID: "u", CPUs: c.saved}
		}
		if r.distrust([]*running{p}); p.kernel.IsEmpty() == c.keeps {
			t.Errorf("%s: the mask %s is kept: %t, want %t", c.name, c.kernel, !c.keeps, c.keeps)
		}
	}
}

// Whom to believe where the kernel's mask is not what was saved.
func TestWhatWasSavedOrTheKernel(t *testing.T) {
	all := cpuset.Range(0, 15)
	four, three, pool := cpuset.Range(0, 3), cpuset.Range(0, 2), cpuset.Range(4, 15)
	for _, c := range []struct {
		name               string
		saved, kernel, now cpuset.Set
		asks               int64
		from               string
	}{
		{"the same", four, four, all, 4000, "state file"},
		{"one is off", four, three, all.Minus(cpuset.Of(3)), 4000, "state file"},
		{"one was off and is back", four, three, all, 4000, "state file"},
		{"all are off, it runs in a pool", four, pool, pool, 4000, "state file"},
		{"all were off, it ran in a pool", four, pool, all, 4000, "state file"},
		{"shrunk, and not saved", four, three, all, 3000, "kernel"},
		{"shrunk, and not written", three, four, all, 3000, "state file"},
		{"grown, and not written", four, three, all, 4000, "state file"},
		{"as many as it asks for, and others in the kernel", four, cpuset.Range(8, 11), all, 4000, "state file"},
		{"nobody knows what it asks for", four, three, all, 0, "state file"},
		{"the kernel has no mask", four, cpuset.Set{}, all, 0, "state file"},
	} {
		p := &running{pod: policy.Pod{UID: "u", Labels: map[string]string{policy.LabelClass: "LSE"}}, kernel: c.kernel,
			asks: c.asks}
		r := &recovery{topo: onlyOnline(t, c.now), saved: map[string]state.Pod{"u": {UID: "u", CPUs: c.saved}}}
		if got := r.placeOf(p); got == nil || got.From != c.from {
			t.Errorf("%s: %+v, want what the %s says", c.name, got, c.from)
		}
	}
}

// A file that is behind because of a failing disk yields to what the runtime stores since.
func TestAFileThatIsBehind(t *testing.T) {
	two, three, four, none := cpuset.Range(8, 9), cpuset.Range(8, 10), cpuset.Range(8, 11), cpuset.Set{}
	for _, c := range []struct {
		name          string
		saved, kernel cpuset.Set
		stored        string
		asks          int64
		all           bool // asks is from the pod's quota
		weighs        int64
		want          cpuset.Set
	}{
		{"grown, and written", two, four, "8-11", 4000, false, 0, four},
		{"grown, and not written", two, two, "8-11", 4000, false, 0, four},
		{"grown, and the kernel has no mask", two, none, "8-11", 4000, false, 0, four},
		{"grown, and saved, and the runtime does not know", four, four, "8-9", 2000, false, 0, four},
		{"shrunk, and written", four, two, "8-9", 2000, false, 0, two},
		{"shrunk, and saved, and another has the rest", cpuset.Of(1), none, "0-3", 4000, false, 0, cpuset.Of(1)},
		{"as many, and others", two, four, "10-11", 2000, false, 0, two},
		{"shrunk, and neither saved nor written", four, four, "10-11", 2000, true, 0, cpuset.Range(10, 11)},
		{"shrunk, and a container of two runs", four, four, "10-11", 2000, false, 0, four},
		{"shrunk, and again, and the runtime does not know", four, four, "9-11", 2000, true, 0, four},
		{"shrunk, and nothing is saved", none, four, "10-11", 2000, true, 0, cpuset.Range(10, 11)},
		{"a container of two runs, and nothing is saved", none, four, "10-11", 2000, false, 0, four},
		{"shrunk, and again without a daemon", four, two, "", 1000, true, 1000, two},
		{"the same, and the first is saved, not written", two, four, "8-11", 1000, true, 1000, two},
		{"shrunk, as its weight shows, and its container does not run", four, two, "", 1000, false, 2000, two},
		{"a CPU was off and is back, and a container of two runs", four, three, "8-11", 1000, false, 4000, four},
		{"grown, and a container of two runs", two, four, "8-11", 1000, false, 4000, four},
		{"on its way, and a container of two requests as many", four, three, "", 3000, false, 4000, four},
		{"the same, and its weight shows no more", four, three, "", 3000, false, 3000, three},
		{"its container restarted with more, and its weight is late", two, three, "8-9", 3000, false, 2000, three},
		{"shrunk, and its weight shows it, and a container of two runs", two, four, "8-9", 1000, false, 2000, two},
		{"grown, not written, and the container that was told has ended", four, three, "8-10", 3000, false, 4000, four},
	} {
		p := &running{pod: policy.Pod{UID: "u", Labels: map[string]string{policy.LabelClass: "LSE"}}, kernel: c.kernel,
			asks: c.asks, all: c.all, weighs: c.weighs, containers: []policy.Container{{CPUs: c.stored}}}
		r := &recovery{topo: grid(t, testGrid), saved: map[string]state.Pod{}, owners: cpuset.Range(2, 3)}
		if !c.saved.IsEmpty() {
			r.saved["u"] = state.Pod{UID: "u", CPUs: c.saved}
		}
		if got := r.placeOf(p); got == nil || got.CPUs == nil || *got.CPUs != c.want {
			t.Errorf("%s: %+v, want %s", c.name, got, c.want)
		}
	}
}

// A pod that the file has in the pool has CPUs of its own where it was given some since.
func TestAnOwnerThatWaitedAndWasGivenCPUs(t *testing.T) {
	four, two, none := cpuset.Range(8, 11), cpuset.Range(8, 9), cpuset.Set{}
	pools, part := cpuset.Range(2, 7), cpuset.Range(6, 7)
	for _, c := range []struct {
		name   string
		stored string
		kernel cpuset.Set
		asks   int64
		others cpuset.Set // what another owner was found with
		want   cpuset.Set // empty: it is in the pool
		blind  bool       // the pool's mask cannot be read
		weighs int64      // the request that the pod's weight shows
		first  int64      // the request at its creation
		lost   bool       // it had others before it waited
	}{
		{"written", "8-11", four, 4000, none, four, false, 0, 0, false},
		{"written, and another has some", "8-11", four, 4000, cpuset.Of(8), none, false, 0, 0, false},
		{"on the way", "8-11", two, 4000, none, four, false, 0, 0, false},
		{"on the way, another has more", "8-11", two, 4000, cpuset.Range(10, 11), none, false, 0, 0, false},
		{"on the way, it asks for another number", "8-11", two, 2000, none, none, false, 0, 0, false},
		{"all CPUs, kubelet has set some", "0-15", pools, 4000, none, none, false, 0, 0, false},
		{"the pool's mask", "8-11", pools, 4000, none, four, false, 0, 0, false},
		{"the pool's mask, it asks for another number", "8-11", pools, 6000, none, four, false, 0, 0, false},
		{"the pool's mask, and another has some", "8-11", pools, 4000, cpuset.Of(9), none, false, 0, 0, false},
		{"told since, its mask is still the pool's", "6-9", part, 4000, none, cpuset.Range(6, 9), false, 0, 0, false},
		{"a part of it, and the pool's is not seen", "8-11", two, 4000, none, four, true, 0, 0, false},
		{"another, and the pool's is not seen", "8-11", pools, 4000, none, four, true, 0, 0, false},
		{"nothing is seen, and a container of it runs", "8-11", none, 1000, none, four, true, 0, 4000, false},
		{"the same, and its weight shows as many", "8-11", none, 1000, none, four, true, 4000, 2000, false},
		{"the same, and it was created smaller", "8-11", none, 1000, none, none, true, 0, 2000, false},
		{"as many as its weight shows", "", four, 0, none, four, false, 4000, 0, false},
		{"the same, and the slice has them too", "", part, 0, none, part, false, 2000, 0, false},
		{"the same, and the runtime stores others", "8-11", part, 0, none, part, false, 2000, 0, false},
		{"as many as at its creation", "", four, 0, none, four, false, 0, 4000, false},
		{"all of the slice's", "", pools, 0, none, none, false, 6000, 0, false},
		{"another number than its weight shows", "", four, 0, none, none, false, 2000, 0, false},
		{"as many, and the pool's is not seen", "", four, 0, none, none, true, 4000, 0, false},
		{"it had others, and these are written", "8-11", four, 4000, none, four, true, 0, 0, true},
		{"it had others, and these are on the way", "8-11", two, 4000, none, four, false, 0, 0, true},
		{"it had these, and has the pool's mask", "8-11", pools, 4000, none, none, false, 0, 0, true},
	} {
		p := &running{pod: policy.Pod{UID: "u", QoS: policy.Guaranteed,
			Labels: map[string]string{policy.LabelClass: "LSE"}}, kernel: c.kernel, asks: c.asks, weighs: c.weighs,
			containers: []policy.Container{{CPUs: c.stored}}}
		if c.first > 0 {
			p.pod.Resources = &policy.Resources{RequestMilli: c.first, LimitMilli: c.first}
		}
		saved := state.Pod{UID: "u", Degraded: "full", Demoted: c.lost}
		r := &recovery{topo: grid(t, testGrid), saved: map[string]state.Pod{"u": saved},
			found: []*running{p, {owned: c.others}}, owners: c.others.Or(c.kernel)}
		if !c.blind {
			r.slice = cpuset.Range(2, 7)
		}
		var own cpuset.Set
		if got := r.placeOf(p); got != nil {
			own = ownedBy(got)
		}
		if own != c.want {
			t.Errorf("%s: it owns %q, want %q", c.name, own, c.want)
		}
	}
}

// A container that the file has in the pool owns CPUs where it was given some since, which a lifted limit or its
// mask confirms. Of one that lost its CPUs the runtime still stores both.
func TestAContainerThatWaitedAndWasGivenCPUs(t *testing.T) {
	for _, c := range []struct {
		name    string
		quota   int64
		mask    cpuset.Set
		demoted bool
		want    bool
	}{
		{"its limit is lifted", -1, cpuset.Set{}, false, true},
		{"it has its limit", 200000, cpuset.Set{}, false, false},
		{"it has its limit, and the mask", 200000, cpuset.Range(8, 9), false, true},
		{"its limit was lifted, and it lost its CPUs", -1, cpuset.Set{}, true, false},
		{"it lost its CPUs and has the mask again", -1, cpuset.Range(8, 9), true, true},
	} {
		pod := policy.Pod{UID: "u", Sandbox: "s", QoS: policy.Burstable, CgroupParent: "kubepods/burstable/podu",
			Labels:      map[string]string{policy.LabelClass: "LSR"},
			Annotations: map[string]string{policy.AnnContainers: "main"}}
		ctr := policy.Container{ID: "c", Name: "main", Sandbox: "s",
			CgroupPath: "kubepods/burstable/podu/c", CPUs: "8-9",
			Resources: policy.Resources{RequestMilli: 2000, LimitMilli: 2000},
			Asked:     policy.Asked{Quota: policy.Quota{Micros: c.quota, Period: 100000}}}
		seen := seenReader{{ctr.CgroupPath, ReadCPUs}: {e: cgroup.Effective{OwnCPUs: c.mask}}}
		saved := state.Of(policy.Synchronized{Pods: []policy.Pod{{UID: "u", Recovered: &policy.Recovered{
			Owners: []policy.RecoveredContainer{{Container: "main", Recovered: policy.Recovered{Degraded: "full",
				Demoted: c.demoted}}}}}}}, 1)
		found, _ := Recover(Recovery{Reader: seen, Topology: grid(t, testGrid), Saved: saved},
			Inventory{Pods: []policy.Pod{pod}, Containers: []policy.Container{ctr}})
		own := found.Pods[0].Recovered != nil && ownedBy(found.Pods[0].Recovered) == cpuset.Range(8, 9)
		if own != c.want {
			t.Errorf("%s: owns its CPUs: %t, want %t: %+v", c.name, own, c.want, found.Pods[0].Recovered)
		}
	}
}

// An owner was moved to as many other CPUs, of which the file does not know.
func TestAnOwnerThatWasMoved(t *testing.T) {
	none, all := cpuset.Set{}, cpuset.Range(0, 15)
	old, moved, pool := cpuset.Range(8, 9), cpuset.Range(10, 11), cpuset.Range(12, 15)
	for _, c := range []struct {
		name                 string
		kernel               cpuset.Set
		stored               string
		now                  cpuset.Set // the CPUs that are online
		slice, newer, others cpuset.Set
		want                 cpuset.Set
	}{
		{"store and mask show it", moved, "10-11", all, none, none, none, moved},
		{"the same, and the file has them as another's", cpuset.Range(4, 5), "4-5", all, none, none, none, old},
		{"the same, and a claim has them", cpuset.Range(6, 7), "6-7", all, none, none, none, old},
		{"the mask, and a claim has it", cpuset.Range(6, 7), "", all, pool, none, none, old},
		{"they show another number", cpuset.Range(10, 12), "10-12", all, none, none, none, old},
		{"the store, and a CPU was off", cpuset.Of(9), "9-10", all.Minus(cpuset.Of(8)), none, none, none,
			cpuset.Range(9, 10)},
		{"the store, and no CPU is off", cpuset.Of(9), "9-10", all, none, none, none, old},
		{"the store, and another has it", cpuset.Of(9), "9-10", all.Minus(cpuset.Of(8)), none, none, moved, old},
		{"the mask", moved, "", all, pool, none, none, moved},
		{"the mask, and the store does not", moved, "8-9", all, pool, none, none, old},
		{"the mask, which is the pool's", moved, "", all, pool.Or(moved), none, none, old},
		{"the mask, and the pool's is not seen", moved, "", all, none, none, none, old},
		{"the mask, and a later pod has some", moved, "", all, pool, cpuset.Of(11), none, old},
		{"the mask, and another has some", moved, "", all, pool, none, cpuset.Of(11), old},
		{"a later pod has the old ones", moved, "", all, none, old, none, moved},
		{"a later pod has them, and the mask is on its way", pool, "", all, none, old, none, old},
	} {
		p := &running{pod: policy.Pod{UID: "u", Labels: map[string]string{policy.LabelClass: "LSE"}}, kernel: c.kernel,
			asks: 2000, containers: []policy.Container{{CPUs: c.stored}}}
		r := &recovery{topo: onlyOnline(t, c.now), poolBefore: poolBefore{pool: c.slice, slice: c.slice},
			newer: c.newer, owners: c.others,
			found: []*running{p, {owned: c.others}, {pod: policy.Pod{UID: "waits"}}}, claimed: cpuset.Range(6, 7),
			saved: map[string]state.Pod{"u": {UID: "u", CPUs: old}, "waits": {UID: "waits", CPUs: cpuset.Range(4, 5)}}}
		if got := r.placeOf(p); got == nil || got.CPUs == nil || *got.CPUs != c.want {
			t.Errorf("%s: %+v, want %s", c.name, got, c.want)
		}
	}
}

// What other pods show of a pod's place in the file, and of its mask.
func TestOthersOnAnOwnersCPUs(t *testing.T) {
	saved, none, six := cpuset.Range(6, 7).Or(cpuset.Of(9)), cpuset.Set{}, cpuset.Range(0, 5)
	one, theirs, pool := cpuset.Of(0), cpuset.Range(2, 5), cpuset.Range(12, 15)
	for _, c := range []struct {
		name          string
		saved, kernel cpuset.Set
		asks          int64
		newer         cpuset.Set // of pods that the file does not name
		other, mask   cpuset.Set // another pod in the file
		want          cpuset.Set
	}{
		{"a later pod has some that its mask has left", saved, cpuset.Of(9), 3000, cpuset.Range(6, 7), none, none,
			cpuset.Of(9)},
		{"a later pod's mask is on the way through some", saved, saved, 3000, cpuset.Range(0, 7), none, none, saved},
		{"its mask has as many as it requests", one, six, 6000, none, none, none, six},
		{"the same, and the file has some as another's", one, six, 6000, none, theirs, theirs, one},
		{"the same, and the other has no mask", one, six, 6000, none, theirs, none, one},
		{"the same, and the other still has the pool's mask", one, six, 6000, none, theirs, pool, one},
		{"the same, and the other has left them", one, six, 6000, none, theirs, cpuset.Range(8, 11), six},
	} {
		p := &running{pod: policy.Pod{UID: "u", Labels: map[string]string{policy.LabelClass: "LSE"}}, kernel: c.kernel,
			asks: c.asks, all: true}
		other := &running{pod: policy.Pod{UID: "other"}, kernel: c.mask}
		r := &recovery{topo: grid(t, testGrid), newer: c.newer, poolBefore: poolBefore{pool: pool},
			found: []*running{p, other},
			saved: map[string]state.Pod{"u": {UID: "u", CPUs: c.saved}, "other": {UID: "other", CPUs: c.other}}}
		if got := r.placeOf(p); got == nil || got.CPUs == nil || *got.CPUs != c.want {
			t.Errorf("%s: %+v, want %s", c.name, got, c.want)
		}
	}
}

// A pod's place in the file is not its own any more where the mask of a pod that came later has it, and that pod was
// told it or requests as many CPUs. Where it is instead, only its mask says.
func TestAPlaceThatALaterOwnerWasTold(t *testing.T) {
	place, none := cpuset.Range(2, 3), cpuset.Set{}
	for _, c := range []struct {
		name          string
		kernel, later cpuset.Set
		stored        string // for the later pod's container
		weighs        int64  // the later pod, in milli-CPUs
		class         string
		named         bool       // in the file
		want          cpuset.Set // empty: nothing is known
	}{
		{"told and written", none, cpuset.Range(0, 3), "0-3", 0, "LSE", false, none},
		{"it still has it", place, cpuset.Range(0, 3), "0-3", 0, "LSE", false, place},
		{"written", none, cpuset.Range(0, 3), "", 0, "LSE", false, place},
		{"written, as many as it requests", none, cpuset.Range(0, 3), "", 4000, "LSE", false, none},
		{"the same, and it still has it", place, cpuset.Range(0, 3), "", 4000, "LSE", false, place},
		{"written, more than it requests", none, cpuset.Range(0, 3), "", 2000, "LSE", false, place},
		{"told others", none, cpuset.Range(0, 3), "0-5", 0, "LSE", false, place},
		{"told some of it", none, cpuset.Of(3), "3", 0, "LSE", false, cpuset.Of(2)},
		{"of a pool", none, cpuset.Range(0, 3), "0-3", 0, "LS", false, place},
		{"told to one that the file has", none, cpuset.Range(0, 3), "0-3", 0, "LSE", true, place},
	} {
		p := &running{pod: policy.Pod{UID: "u", Labels: map[string]string{policy.LabelClass: "LSE"}}, kernel: c.kernel}
		later := &running{pod: policy.Pod{UID: "later", Labels: map[string]string{policy.LabelClass: c.class}},
			kernel: c.later, weighs: c.weighs, containers: []policy.Container{{CPUs: c.stored}}}
		r := &recovery{topo: grid(t, testGrid), found: []*running{p, later},
			saved: map[string]state.Pod{"u": {UID: "u", CPUs: place}}}
		if c.named {
			r.saved["later"] = state.Pod{UID: "later"}
		}
		r.distrust(r.found)
		var got cpuset.Set
		if found := r.placeOf(p); found != nil {
			got = *found.CPUs
		}
		if got != c.want {
			t.Errorf("%s: it has %q, want %q", c.name, got, c.want)
		}
	}
}

// What the runtime stores of containers that came one after another.
func TestWhatIsStoredOfSeveralContainers(t *testing.T) {
	four, none := cpuset.Range(8, 11), cpuset.Set{}
	r := &recovery{saved: map[string]state.Pod{"waited": {Degraded: "full"},
		"lost": {Degraded: "full", Demoted: true}}}
	for _, c := range []struct {
		stored []string // from the first to the last
		want   cpuset.Set
		waited cpuset.Set // the same of a pod that the file has waiting for its first CPUs
	}{
		{[]string{"8-11"}, four, four}, {[]string{"8-11", "8-11"}, four, four}, {[]string{""}, none, none},
		{[]string{"8-11", "8-9"}, none, none}, {[]string{"", "8-11"}, four, four}, {[]string{"8-11", ""}, none, four},
		{[]string{"8-11", "", "8-11"}, none, four}, {[]string{"8-11", "?"}, none, none},
	} {
		var all []policy.Container
		for i, cpus := range c.stored {
			all = append(all, policy.Container{CPUs: cpus, CreatedAt: time.Unix(int64(i), 0)})
		}
		for range 2 { // whatever the order in which they are listed
			for uid, want := range map[string]cpuset.Set{"waited": c.waited, "lost": c.want, "new": c.want} {
				if got := r.storedBy(&running{pod: policy.Pod{UID: uid}, containers: all}); got != want {
					t.Errorf("%q of the pod %s: %q, want %q", c.stored, uid, got, want)
				}
			}
			slices.Reverse(all)
		}
	}
	if got := storedBy([]policy.Container{{CPUs: "8-11"}, {}}); !got.IsEmpty() {
		t.Errorf("which came first is not known: %s, want nothing", got)
	}
}

// What the runtime stores of a pod of two containers, of which a resize tells only one.
func TestWhatIsStoredAfterAResize(t *testing.T) {
	four, five, none := cpuset.Range(8, 11), cpuset.Range(8, 12), cpuset.Set{}
	for _, c := range []struct {
		name                string
		first, second       string // what is stored for each
		asks                int64
		all                 bool // asks is from the pod's quota
		saved, kernel, want cpuset.Set
	}{
		{"grown, and both are told", "8-12", "8-12", 5000, false, four, four, five},
		{"grown, and the first is told", "8-12", "8-11", 5000, false, four, four, five},
		{"grown, and one is created later", "8-11", "8-12", 5000, false, four, four, five},
		{"shrunk, and the second is told", "8-12", "8-11", 4000, false, five, five, four},
		{"neither is as large", "8-12", "8-11", 3000, false, five, five, none},
		{"nobody knows what it requests", "8-12", "8-11", 0, false, five, five, none},
		{"one is from before a move", "4-8", "8-11", 4000, false, five, five, none},
		{"one cannot be read", "?", "8-11", 4000, false, five, five, none},
		{"grown, and the second was created without a daemon", "8-12", "", 5000, true, four, four, five},
		{"the same, and the pod's quota is not known", "8-12", "", 5000, false, four, four, none},
		{"the same, and the file has it", "8-12", "", 5000, true, five, five, none},
		{"the same, and its mask is another", "8-12", "", 5000, true, four, cpuset.Range(0, 3), none},
	} {
		r := &recovery{saved: map[string]state.Pod{"u": {UID: "u", CPUs: c.saved}}}
		p := &running{pod: policy.Pod{UID: "u"}, kernel: c.kernel, asks: c.asks, all: c.all,
			containers: []policy.Container{{CPUs: c.first}, {CPUs: c.second, CreatedAt: time.Unix(1, 0)}}}
		if got := r.storedBy(p); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// Whom to believe where nothing was saved: the kernel's mask or what the runtime stores.
func TestTheRuntimeOrTheKernel(t *testing.T) {
	all := cpuset.Range(0, 15)
	two, four, none := cpuset.Range(8, 9), cpuset.Range(8, 11), cpuset.Set{}
	for _, c := range []struct {
		name        string
		stored      string
		kernel, now cpuset.Set
		asks        int64
		want        cpuset.Set
		weighs      int64
	}{
		{"the same", "8-9", two, all, 2000, two, 0},
		{"one is off, and its mask was written without it", "8-9", cpuset.Of(9), all.Minus(cpuset.Of(8)), 2000, two, 0},
		{"all are off, it runs in a pool", "8-9", cpuset.Range(0, 3), cpuset.Range(0, 3), 2000, two, 0},
		{"on its way, in the slice as it was", "8-9", cpuset.Range(0, 7), all, 2000, two, 0},
		{"on its way, and the slice has some of its CPUs", "8-9", cpuset.Range(0, 8), all, 2000, two, 0},
		{"on its way, in a slice that is as large", "8-9", cpuset.Range(14, 15), all, 2000, two, 0},
		{"moved, and the runtime stores too few", "8-9", cpuset.Range(0, 3), all, 4000, cpuset.Range(0, 3), 0},
		{"grown, and the runtime does not know", "8-9", four, all, 2000, four, 0},
		{"shrunk, and the runtime does not know", "8-11", two, all, 2000, two, 0},
		{"the same, and another has the rest", "0-3", cpuset.Range(0, 1), all, 4000, cpuset.Range(0, 1), 0},
		{"some were off, and are back", "8-11", two, all, 4000, four, 0},
		{"grown, and a container of two runs", "8-11", two, all, 1000, four, 4000},
		{"grown, which nothing shows", "8-11", two, all, 1000, two, 0},
		{"the runtime stores nothing", "", two, all, 2000, two, 0},
		{"the kernel has no mask", "8-9", none, all, 2000, two, 0},
	} {
		p := &running{pod: policy.Pod{UID: "u", Labels: map[string]string{policy.LabelClass: "LSE"}}, kernel: c.kernel,
			asks: c.asks, weighs: c.weighs, containers: []policy.Container{{CPUs: c.stored}}}
		r := &recovery{topo: onlyOnline(t, c.now), saved: map[string]state.Pod{}, owners: cpuset.Range(2, 3)}
		if got := r.placeOf(p); got == nil || got.CPUs == nil || *got.CPUs != c.want {
			t.Errorf("%s: %+v, want %s", c.name, got, c.want)
		}
	}
}

func onlyOnline(t testing.TB, online cpuset.Set) *topology.Topology {
	t.Helper()
	whole := grid(t, testGrid)
	cpus := slices.DeleteFunc(slices.Clone(whole.CPUs()), func(c topology.CPU) bool { return !online.Has(c.ID) })
	all := whole.Known()
	memory := map[int]uint64{}
	for _, n := range whole.Nodes() {
		memory[n.ID] = n.MemoryBytes
	}
	topo, err := topology.New(cpus, topology.Options{Offline: all.Minus(online), Memory: memory})
	if err != nil {
		t.Fatal(err)
	}
	return topo
}

// A cap that the runtime stores is distinguished from a limit of kubelet's, even if no state file has
// the limit before it.
func TestACapIsKnownByWhatKubeletNeverAsksFor(t *testing.T) {
	be := map[string]string{policy.LabelClass: string(policy.BE)}
	pod := func(qos policy.QoS, labels map[string]string, limit int64) *running {
		return &running{pod: policy.Pod{UID: "a", QoS: qos, Labels: labels,
			Resources: &policy.Resources{RequestMilli: 1000, LimitMilli: limit}}}
	}
	for _, c := range []struct {
		name            string
		pod             *running
		request, stored int64
		want            int64
		ours            bool
	}{
		{"BestEffort has no limit", pod(policy.BestEffort, nil, policy.NoLimit), 0, 100, policy.NoLimit, true},
		{"below its request", pod(policy.Burstable, be, 2000), 1000, 100, 2000, true},
		{"below its request, in a pod without a limit", pod(policy.Burstable, be, policy.NoLimit), 1000, 100,
			policy.NoLimit, true},
		{"no less than its request", pod(policy.Burstable, be, 2000), 1000, 1000, 1000, false},
		{"of a class that is not capped", pod(policy.Burstable, nil, 2000), 1000, 100, 100, false},
	} {
		r := &recovery{topo: grid(t, testGrid)}
		got := r.container(c.pod, policy.Container{ID: "a-1", Name: "main",
			Resources: policy.Resources{RequestMilli: c.request, LimitMilli: c.stored},
			Asked:     policy.Asked{Quota: policy.QuotaOf(c.stored)}})
		if got.Resources.LimitMilli != c.want || got.Asked.OurQuota != c.ours || got.Asked.Quota.Milli() != c.want {
			t.Errorf("%s: limit %d, quota %v, ours %t; want %d, %t", c.name, got.Resources.LimitMilli, got.Asked.Quota,
				got.Asked.OurQuota, c.want, c.ours)
		}
	}
}

// What was limited by whom, where a cap or a lifted limit and a resize may both have come
// since the file was written.
func TestALimitIsOursOrKubelets(t *testing.T) {
	capped := policy.Pod{UID: "a", QoS: policy.Burstable, CgroupParent: "pod",
		Labels: map[string]string{policy.LabelClass: string(policy.BE)}}
	owner := policy.Pod{UID: "a", Labels: map[string]string{policy.LabelClass: string(policy.LSE)}}
	for _, c := range []struct {
		name           string
		pod            policy.Pod
		cap            int64 // 0: none is saved
		was            int64
		stored, kernel int64 // 0: it cannot be read
		want           int64
		ours           bool
		asked          int64 // when the cap was saved; 0: not known
	}{
		{"a cap is in the kernel", capped, 100, 2000, 2000, 100, 2000, true, 0},
		{"a cap is in the runtime's store", capped, 100, 2000, 100, 100, 2000, true, 0},
		{"another cap is", capped, 100, 2000, 1200, 100, 2000, true, 0},
		{"both have a limit since that kubelet asked for", capped, 100, 2000, 1200, 1200, 1200, false, 0},
		{"both have another cap", capped, 100, 2000, 200, 200, 2000, true, 0},
		{"a limit that no cap is", capped, 100, 2000, 3000, 0, 3000, false, 0},
		{"resized, and the cgroup cannot be read", capped, 100, 2000, 1200, 0, 1200, false, 2000},
		{"resized, and the runtime stores the cap", capped, 100, 2000, 100, 0, 2000, true, 2000},
		{"not resized, and the cgroup cannot be read", capped, 100, 2000, 1200, 0, 2000, true, 1000},
		{"resized, and no cap is saved", capped, 0, 0, 2000, 1200, 2000, false, 0},
		{"lifted in the kernel", owner, 0, 0, 1000, policy.NoLimit, 1000, true, 0},
		{"lifted everywhere", owner, 0, 0, policy.NoLimit, policy.NoLimit, 1000, true, 0},
		{"as kubelet asked", owner, 0, 0, 1000, 1000, 1000, false, 0},
	} {
		kernel := cgrouptest.New(cpuset.Range(0, 15))
		if c.kernel != 0 {
			kernel.Mkdir("pod/ctr", 1)
			q := cgroup.Quota(policy.QuotaOf(c.kernel))
			if err := kernel.Apply(t.Context(), "pod/ctr", cgroup.Values{Quota: &q}); err != nil {
				t.Fatal(err)
			}
		}
		r := &recovery{topo: grid(t, testGrid), reader: kernel, observed: map[string]*cgroup.Effective{},
			now: time.Unix(0, 0)}
		if c.cap > 0 {
			r.caps = []state.Cap{{PodUID: "a", Container: "main", CapMilli: c.cap, Until: time.Unix(60, 0),
				PreviousQuotaMilli: &c.was, RequestMilli: c.asked}}
		}
		got := r.container(&running{pod: c.pod}, policy.Container{ID: "a-1", Name: "main", CgroupPath: "pod/ctr",
			Resources: policy.Resources{RequestMilli: 1000, LimitMilli: c.stored},
			Asked:     policy.Asked{Quota: policy.QuotaOf(c.stored)}})
		if got.Resources.LimitMilli != c.want || got.Asked.OurQuota != c.ours || got.Asked.Quota.Milli() != c.want {
			t.Errorf("%s: limit %d, quota %v, ours %t; want %d, %t", c.name, got.Resources.LimitMilli, got.Asked.Quota,
				got.Asked.OurQuota, c.want, c.ours)
		}
		if !c.ours && c.cap > 0 && *r.caps[0].PreviousQuotaMilli != c.want {
			t.Errorf("%s: the cap is followed by %d", c.name, *r.caps[0].PreviousQuotaMilli)
		}
	}
}
