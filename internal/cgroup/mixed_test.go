package cgroup_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
)

// on reads where a cgroup's tasks may run.
func (n *node) runsOn(path, cpus string) {
	n.t.Helper()
	e, err := n.kern.CPUs(path)
	if err != nil || e.CPUs.String() != cpus {
		n.t.Errorf("%s runs on %q (%v), want %s", path, e.CPUs, err, cpus)
	}
}

// A container whose cgroup lies straight in a slice, or in another pod's, gets
// its CPUs although the masks on the way belong to others.
func TestContainerOutsideItsPod(t *testing.T) {
	n := newNode(t, "0-15")
	n.pool("shared", "0-9")
	n.pod(burstable, "web", cgroup.InPool("shared"))
	n.pod("kubepods", "db", n.on("10-13"))
	inSlice, inPod := burstable+"/db-slice", burstable+"/web/db-pod"
	for _, path := range []string{inSlice, inPod} {
		n.kern.Mkdir(path, 1)
		n.must(n.tree.PutContainer(cgroup.Container{ID: path, Pod: "db", Path: path}))
	}
	n.apply()
	n.runsOn(inSlice, "10-13")
	n.runsOn(inPod, "10-13")
	n.runsOn(burstable+"/web/main", "0-9")

	t.Log("they follow their pod, and end with it")
	n.must(n.tree.PutPod(cgroup.Pod{ID: "db", Path: "kubepods/db", Need: n.on("12-15")}))
	n.apply()
	n.runsOn(inSlice, "12-15")
	n.runsOn(inPod, "12-15")
	n.remove("kubepods", "db")
	n.kern.Rmdir(inSlice)
	n.kern.Rmdir(inPod)
	n.apply()
	if got := n.tree.Len(); got != 4 {
		t.Errorf("%d cgroups are left in the tree, want the slices, web and its container", got)
	}
	n.runsOn(burstable+"/web/main", "0-9")
}

// The slice may become known after what lies in it, and go before it.
func TestSliceAroundContainers(t *testing.T) {
	n := newNode(t, "0-7")
	n.pool("shared", "0-3")
	const slice = "late.slice/late-burstable.slice"
	n.kern.Mkdir(slice+"/x/c", 1)
	n.must(n.tree.PutPod(cgroup.Pod{ID: "p", Path: slice + "/x/pod", Need: n.on("4-5")}))
	n.kern.Mkdir(slice+"/x/pod/main", 1)
	n.must(n.tree.PutContainer(cgroup.Container{ID: "c", Pod: "p", Path: slice + "/x/c", Need: n.on("6-7")}))
	n.must(n.tree.PutSlice(cgroup.Slice{Path: slice, Need: cgroup.InPool("shared")}))
	n.apply()
	n.runsOn(slice, "0-7")
	n.runsOn(slice+"/x/c", "6-7")
	n.runsOn(slice+"/x/pod/main", "4-5")
	n.tree.Remove(slice)
	n.pool("shared", "0-1")
	n.apply()
	n.runsOn(slice+"/x/pod/main", "4-5")
	n.tree.Remove("p")
	if got := n.tree.Len(); got != 2 {
		t.Errorf("%d cgroups are left in the tree, want the two slices of the node", got)
	}
}

func TestContainerAboveItsPodIsRefused(t *testing.T) {
	n := newNode(t, "0-7")
	n.must(n.tree.PutPod(cgroup.Pod{ID: "p", Path: "kubepods/c/p", Need: n.on("4-5")}))
	err := n.tree.PutContainer(cgroup.Container{ID: "c", Pod: "p", Path: "kubepods/c"})
	if err == nil || !strings.Contains(err.Error(), "above its pod") {
		t.Errorf("PutContainer: %v", err)
	}
}

// A cgroup that comes back under the same path comes without its mask.
func TestReturnedCgroupIsWrittenAgain(t *testing.T) {
	n := newNode(t, "0-7")
	n.pool("shared", "0-5")
	n.pod("kubepods", "lsr", n.on("6-7"))
	n.apply()
	n.kern.Rmdir("kubepods/lsr")
	n.must(n.tree.PutPod(cgroup.Pod{ID: "lsr", Path: "kubepods/lsr", Need: n.on("4-7")}))
	n.pool("shared", "0-3")
	n.must(n.tree.Execute(n.tree.Plan(), n.write)) // notices that it is gone
	n.must(n.tree.PutPod(cgroup.Pod{ID: "lsr", Path: "kubepods/lsr", Need: n.on("6-7")}))
	n.container("kubepods", "lsr", "main", cgroup.Need{}, "")
	n.want(n.apply(), "shrink lsr 6-7")
	n.runsOn("kubepods/lsr/main", "6-7")
}

// An earlier daemon's mask on a pod whose members together need every CPU.
func TestLeftoverMaskOfAMixedPod(t *testing.T) {
	n := newNode(t, "0-7")
	n.pool("shared", "0-3")
	n.kern.Mkdir("kubepods/mixed/side", 1)
	n.kern.Tamper("kubepods/mixed", "0,4-7")
	n.pod("kubepods", "mixed", n.on("4-7"))
	n.container("kubepods", "mixed", "side", cgroup.InPool("shared"), "")
	e, _ := n.kern.CPUs("kubepods/mixed")
	n.tree.Observe("kubepods/mixed", e)
	n.apply()
	n.runsOn("kubepods/mixed/side", "0-3")
	n.runsOn("kubepods/mixed/main", "4-7")
}

// A container beside an owner whose CPUs all went offline has those of its pod, the owner's among them. No mask keeps
// it there on its way to others, nor does its pod's lose the CPUs that may come back: whenever they do, it leaves the
// owner's.
func TestNoMaskKeepsAContainerOnItsNeighboursCPUs(t *testing.T) {
	n := newNode(t, "0-7")
	n.pool("shared", "2-3")
	n.pod("kubepods", "db", n.on("6-7"))
	n.must(n.tree.PutPod(cgroup.Pod{ID: "mixed", Path: "kubepods/mixed", Need: cgroup.InPool("shared")}))
	n.container("kubepods", "mixed", "main", n.on("4-5"), "")
	n.container("kubepods", "mixed", "side", cgroup.InPool("shared"), "")
	n.apply()
	for _, known := range []bool{true, false} {
		n.kern.SetOnline(set(t, "0-1,4-7"))
		if known {
			n.tree.SetOnline(set(t, "0-1,4-7"))
		}
		n.tree.LookAbove(n.kern.CPUs) // offline CPUs that nobody reported look like a limit
		n.pool("shared", "0-1")
		n.runsOn("kubepods/mixed/side", "4-5")
		back := 0
		n.must(n.tree.Execute(n.tree.Plan(), func(w cgroup.Write) error {
			n.must(n.write(w))
			n.kern.SetOnline(set(t, "0-7"))
			if e, err := n.kern.CPUs("kubepods/mixed/side"); err != nil || e.CPUs.Intersects(ptr(set(t, "4-7"))) {
				t.Errorf("known %t: CPUs 2-3 are back after %v: side may run on %s, %v", known, w, e.CPUs, err)
			}
			n.kern.SetOnline(set(t, "0-1,4-7"))
			back++
			return nil
		}))
		if n.runsOn("kubepods/mixed/side", "0-1"); back < 3 {
			t.Errorf("known %t: %d writes, want the pod's, the container's and again the pod's", known, back)
		}
		n.kern.SetOnline(set(t, "0-7"))
		n.tree.SetOnline(set(t, "0-7"))
		n.tree.LookAbove(n.kern.CPUs)
		n.pool("shared", "2-3")
		n.apply()
	}
}

// Two pods without online CPUs that move to CPUs that their slice does not have: neither gains the other's, and no mask
// keeps one on CPUs of the slice that have an owner.
func TestNoMaskKeepsMovingPodsOnAnOwnersCPUs(t *testing.T) {
	n := newNode(t, "0-15")
	n.pool("shared", "0-3")
	for _, p := range [][2]string{{"a", "4-5"}, {"b", "6-7"}, {"owner", "8-9"}} {
		n.pod(burstable, p[0], n.on(p[1]))
	}
	n.pod(burstable, "web", cgroup.InPool("shared"))
	n.apply()
	online := set(t, "0-3,8-15")
	n.kern.SetOnline(online)
	n.tree.SetOnline(online)
	n.runsOn(burstable+"/a", "0-3,8-9")
	for _, p := range [][2]string{{"a", "10-11"}, {"b", "12-13"}} {
		n.must(n.tree.PutPod(cgroup.Pod{ID: p[0], Path: burstable + "/" + p[0], Need: n.on(p[1])}))
	}
	n.must(n.tree.Execute(n.tree.Plan(), func(w cgroup.Write) error {
		n.must(n.write(w))
		n.kern.SetOnline(set(t, "0-15"))
		for _, p := range [][2]string{{"a", "8-9,12-13"}, {"b", "8-11"}} {
			e, err := n.kern.CPUs(burstable + "/" + p[0])
			if err != nil || e.CPUs.Intersects(ptr(set(t, p[1]))) {
				t.Errorf("all CPUs are back after %v: %s may run on %s, %v", w, p[0], e.CPUs, err)
			}
		}
		n.kern.SetOnline(online)
		return nil
	}))
	n.runsOn(burstable+"/a", "10-11")
	n.runsOn(burstable+"/b", "12-13")
}

func ptr(s cpuset.Set) *cpuset.Set { return &s }

// limit is what an administrator leaves to kubepods.
func (n *node) limit(cpus string) {
	n.kern.Tamper("kubepods", cpus)
	n.tree.LookAbove(n.kern.CPUs)
}

func TestLimitFromOutside(t *testing.T) {
	n := newNode(t, "0-15")
	n.pool("shared", "0-3,6-11")
	n.pod("kubepods", "in", n.on("4-5"))
	n.pod("kubepods", "out", n.on("12-15"))
	n.pod(burstable, "web", cgroup.InPool("shared"))
	n.apply()
	n.limit("0-7")
	// The one that has nothing left joins those of a pool, on CPUs without an owner.
	if plan := n.tree.Plan(); len(plan) != 1 || plan[0].Path != "kubepods/out" || plan[0].CPUs.String() != "0-3,6-7" {
		t.Errorf("plan %v", plan)
	}
	n.must(n.tree.Execute(n.tree.Plan(), n.write))
	n.runsOn("kubepods/in/main", "4-5")
	n.runsOn("kubepods/out/main", "0-3,6-7")
	n.runsOn(burstable+"/web/main", "0-3,6-7")
	for range 3 { // an audit finds it every time, and nothing is written
		var found []string
		for _, d := range n.tree.Check(n.kern.CPUs) {
			if !d.Outside() || d.Above != "kubepods" || d.Allows.String() != "0-7" ||
				!strings.Contains(d.String(), "cgroup kubepods above it, which is not ours, allows only 0-7") {
				t.Errorf("%s", d)
			}
			found = append(found, fmt.Sprint(d.Path, " ", d.Inherited, " ", d.Trespass))
		}
		want := "[kubepods/besteffort false  kubepods/burstable false  kubepods/burstable/web true  " +
			"kubepods/burstable/web/main true  kubepods/out false  kubepods/out/main true ]"
		if got := fmt.Sprint(found); got != want {
			t.Errorf("found\n%s, want\n%s", got, want)
		}
		if plan := n.tree.Plan(); len(plan) > 0 {
			t.Errorf("still writes %v", plan)
		}
	}
	t.Log("an owner comes onto CPUs that the displaced one is on: it leaves first")
	n.pool("shared", "0-1,6-11")
	n.pod("kubepods", "new", n.on("2-3"))
	n.must(n.tree.Execute(n.tree.Plan(), n.write))
	n.runsOn("kubepods/out/main", "0-1,6-7")
	n.runsOn("kubepods/new/main", "2-3")

	t.Log("all that is allowed has an owner: loud, with names")
	n.limit("4-5")
	n.must(n.tree.Execute(n.tree.Plan(), n.write))
	d, ok := n.tree.CheckOne("out", n.kern.CPUs)
	if !ok || !d.Outside() || d.Trespass.String() != "4-5" ||
		!strings.Contains(d.String(), "it runs on CPUs 4-5, which belong to others; widen that cgroup") {
		t.Errorf("%v %s", ok, d)
	}
	if plan := n.tree.Plan(); len(plan) > 0 {
		t.Errorf("still writes %v", plan)
	}
	t.Log("lifted, everything is as it was")
	n.limit("")
	n.apply()
	n.runsOn("kubepods/out/main", "12-15")
	n.runsOn(burstable+"/web/main", "0-1,6-11")
}

// Without LookAbove the first difference makes Check look.
func TestCheckFindsTheLimit(t *testing.T) {
	n := newNode(t, "0-15")
	n.pool("shared", "0-11")
	n.pod("kubepods", "db", n.on("12-15"))
	n.apply()
	n.kern.Tamper("kubepods", "0-13")
	d, ok := n.tree.CheckOne("db", n.kern.CPUs)
	if !ok || !d.Outside() || d.Above != "kubepods" || d.Got.String() != "12-13" {
		t.Errorf("%v %s", ok, d)
	}
	n.kern.Tamper("kubepods", "")
	if d, ok := n.tree.CheckOne("db", n.kern.CPUs); ok {
		t.Errorf("lifted: %s", d)
	}
}

// A node in a container: the limit is on the root that it sees.
func TestLimitOfTheRoot(t *testing.T) {
	n := newNode(t, "0-15")
	n.pool("shared", "0-11")
	n.pod("kubepods", "db", n.on("12-15"))
	n.kern.SetOnline(set(t, "0-7"))
	n.tree.LookAbove(n.kern.CPUs)
	n.must(n.tree.Execute(n.tree.Plan(), n.write))
	n.runsOn("kubepods/db/main", "0-7")
	d, ok := n.tree.CheckOne("db", n.kern.CPUs)
	if !ok || d.Above != "/" || d.Allows.String() != "0-7" {
		t.Errorf("%v %s", ok, d)
	}
}

// v1 refuses a set that is not in the parent's: it is reduced to the allowed part.
func TestLimitOnV1(t *testing.T) {
	n := newNode(t, "0-15")
	n.tree = cgroup.NewTree(set(t, "0-15"), cgroup.Options{Flat: true})
	n.kern.V1 = true
	for _, path := range []string{burstable, besteffort, "kubepods"} {
		n.kern.Tamper(path, "0-7")
	}
	n.pool("shared", "0-3,8-13")
	n.must(n.tree.PutSlice(cgroup.Slice{Path: burstable, Need: cgroup.InPool("shared")}))
	n.pod("kubepods", "part", n.on("6-9"))
	n.pod("kubepods", "none", n.on("14-15"))
	n.pod(burstable, "web", cgroup.InPool("shared"))
	n.tree.LookAbove(n.kern.CPUs)
	n.must(n.tree.Execute(n.tree.Plan(), n.write))
	n.runsOn("kubepods/part/main", "6-7")
	n.runsOn("kubepods/none/main", "0-3")
	n.runsOn(burstable+"/web/main", "0-3")
	if plan := n.tree.Plan(); len(plan) > 0 {
		t.Errorf("still writes %v", plan)
	}
	d, ok := n.tree.CheckOne("part", n.kern.CPUs)
	if !ok || !d.Outside() || d.Above != "kubepods" {
		t.Errorf("%v %s", ok, d)
	}
}

// The controller comes and goes with the cgroups that need it; without it a cgroup runs
// where the one above does, and that is no drift where that is right.
func TestWithoutTheController(t *testing.T) {
	n := newNode(t, "0-7")
	n.pool("shared", "0-3")
	n.pod("kubepods", "lsr", n.on("4-7"))
	n.pod(burstable, "web", cgroup.InPool("shared"))
	n.kern.DisableCpuset(burstable + "/web")
	n.apply()
	n.runsOn(burstable+"/web/main", "0-3")
	if e, err := n.kern.CPUs(burstable + "/web/main"); err != nil || !e.OwnCPUs.IsEmpty() {
		t.Errorf("%+v, %v", e, err)
	}
	t.Log("taken from a cgroup that needs it: a difference, and a clear error")
	n.kern.DisableCpuset("kubepods/lsr")
	if d, ok := n.tree.CheckOne("lsr", n.kern.CPUs); !ok || d.Got.String() != "0-7" || !d.Own.IsEmpty() {
		t.Errorf("%v %s", ok, d)
	}
	err := n.tree.Execute(n.tree.Plan(), n.write)
	if err == nil || !strings.Contains(err.Error(), `controller "cpuset" is not enabled`) {
		t.Errorf("Execute: %v", err)
	}
	n.kern.EnableCpuset("kubepods/lsr")
	n.want(n.apply(), "shrink lsr 4-7")
}

// Nothing is written when nothing differs, however often it is looked at.
func TestCleanAuditWritesNothing(t *testing.T) {
	n := newNode(t, "0-255")
	n.pool("shared", "0-199")
	for i := range 300 {
		n.pod(burstable, fmt.Sprint("web", i), cgroup.InPool("shared"))
		n.pod(besteffort, fmt.Sprint("batch", i), cgroup.InPool("be"))
		n.pod("kubepods", fmt.Sprint("frac", i), cgroup.InPool("shared"))
	}
	for i := range 28 {
		n.pod("kubepods", fmt.Sprint("lsr", i), cgroup.On(cpuset.Range(200+2*i, 201+2*i)))
	}
	for i := range 72 {
		n.container(burstable, fmt.Sprint("web", i), "second", cgroup.Need{}, "0-255")
	}
	calls := 0
	apply := func(w cgroup.Write) error { calls++; return n.kern.Apply(context.Background(), w.Path, w.Values()) }
	n.must(n.tree.Execute(n.tree.Plan(), apply))
	if calls == 0 {
		t.Fatal("the first plan wrote nothing: the test would prove nothing")
	}
	n.kern.Writes()
	calls = 0
	for range 3 {
		for _, d := range n.tree.Check(n.kern.CPUs) {
			t.Error(d)
		}
		n.tree.LookAbove(n.kern.CPUs)
		plan := n.tree.Plan()
		n.must(n.tree.Execute(plan, apply))
		if writes := n.kern.Writes(); len(plan) > 0 || calls > 0 || len(writes) > 0 {
			t.Errorf("plan %v, %d calls, writes %v", plan, calls, writes)
		}
	}
}
