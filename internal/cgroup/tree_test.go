package cgroup_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/cgroup/cgrouptest"
)

const (
	burstable  = "kubepods/burstable"
	besteffort = "kubepods/besteffort"
)

// node is a tree and the kernel that it drives.
type node struct {
	t    testing.TB
	tree *cgroup.Tree
	kern *cgrouptest.Kernel
}

func set(t testing.TB, list string) cpuset.Set {
	t.Helper()
	s, err := cpuset.Parse(list)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newNode(t testing.TB, online string) *node {
	n := &node{t: t, tree: cgroup.NewTree(set(t, online), cgroup.Options{}), kern: cgrouptest.New(set(t, online))}
	n.kern.Mkdir(burstable, 0)
	n.kern.Mkdir(besteffort, 0)
	n.pool("shared", online)
	n.pool("be", online)
	n.must(n.tree.PutSlice(cgroup.Slice{Path: burstable, Need: cgroup.InPool("shared")}))
	n.must(n.tree.PutSlice(cgroup.Slice{Path: besteffort, Need: cgroup.InPool("be")}))
	return n
}

func (n *node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) pool(name, cpus string) { n.t.Helper(); n.must(n.tree.SetPool(name, set(n.t, cpus))) }

// pod puts a pod with one container main.
func (n *node) pod(parent, name string, need cgroup.Need) {
	n.t.Helper()
	n.must(n.tree.PutPod(cgroup.Pod{ID: name, Path: parent + "/" + name, Need: need}))
	n.container(parent, name, "main", cgroup.Need{}, "")
}

func (n *node) container(parent, pod, name string, need cgroup.Need, own string) {
	n.t.Helper()
	path := parent + "/" + pod + "/" + name
	n.kern.Mkdir(path, 1)
	if own != "" {
		n.kern.Tamper(path, own)
	}
	n.must(n.tree.PutContainer(cgroup.Container{ID: pod + "/" + name, Pod: pod, Path: path, Need: need,
		OwnCPUs: set(n.t, own)}))
}

func (n *node) remove(parent, pod string) { n.kern.Rmdir(parent + "/" + pod); n.tree.Remove(pod) }

func (n *node) on(cpus string) cgroup.Need { return cgroup.On(set(n.t, cpus)) }

// apply executes the plan and returns it as text, one write a line.
func (n *node) apply() string {
	n.t.Helper()
	plan := n.tree.Plan()
	n.must(n.tree.Execute(plan, func(w cgroup.Write) error {
		return n.kern.Apply(context.Background(), w.Path, w.Values())
	}))
	var lines []string
	for _, w := range plan {
		lines = append(lines, fmt.Sprintf("%s %s %s", w.Phase, strings.TrimPrefix(w.Path, "kubepods/"), w.CPUs))
	}
	if again := n.tree.Plan(); len(again) > 0 {
		n.t.Fatalf("after applying %q a second plan still writes %v", lines, again)
	}
	for _, d := range n.tree.Check(n.kern.Effective) {
		n.t.Errorf("after applying %q: %s", lines, d)
	}
	return strings.Join(lines, "\n")
}

func (n *node) want(what, writes string) {
	n.t.Helper()
	lines := strings.Fields(strings.ReplaceAll(writes, "\n", " "))
	if got := strings.Fields(strings.ReplaceAll(what, "\n", " ")); !slices.Equal(got, lines) {
		n.t.Errorf("writes:\n%s\nwant:\n%s", what, writes)
	}
}

func TestMasksOfOneNode(t *testing.T) {
	n := newNode(t, "0-15")
	n.want(n.apply(), "")

	t.Log("pods of both slices cost nothing while the pools are everything")
	n.pod(burstable, "web", cgroup.InPool("shared"))
	n.pod(besteffort, "batch", cgroup.InPool("be"))
	n.want(n.apply(), "")

	t.Log("an LSR pod: one write for the slice, one for itself")
	n.pool("shared", "0-3,6-15")
	n.pod("kubepods", "lsr", n.on("4-5"))
	n.want(n.apply(), "shrink lsr 4-5  shrink burstable 0-3,6-15")

	t.Log("an LSE pod: best effort leaves too")
	n.pool("shared", "0-3,8-15")
	n.pool("be", "0-5,8-15")
	n.pod("kubepods", "lse", n.on("6-7"))
	n.want(n.apply(), "shrink lse 6-7  shrink burstable 0-3,8-15  shrink besteffort 0-5,8-15")

	t.Log("a Guaranteed pod of the shared pool is written on its own, and follows the pool")
	n.pod("kubepods", "frac", cgroup.InPool("shared"))
	n.want(n.apply(), "shrink frac 0-3,8-15")
	n.remove("kubepods", "lse")
	n.pool("shared", "0-3,6-15")
	n.pool("be", "0-15")
	n.want(n.apply(), "grow besteffort inherit  grow burstable 0-3,6-15  grow frac 0-3,6-15")

	t.Log("a burstable LSR pod: masks for its neighbours first, then for itself")
	n.pool("shared", "0-3,8-15")
	n.pod(burstable, "odd", n.on("6-7"))
	n.want(n.apply(), "shrink frac 0-3,8-15  shrink burstable/web 0-3,8-15  shrink burstable/odd 6-7")

	t.Log("a newcomer in the mixed slice gets its own mask")
	n.pod(burstable, "web2", cgroup.InPool("shared"))
	n.want(n.apply(), "shrink burstable/web2 0-3,8-15")

	t.Log("when the odd one has gone the slice carries the mask alone again")
	n.remove(burstable, "odd")
	n.pool("shared", "0-3,6-15")
	n.want(n.apply(), "grow burstable/web inherit  grow burstable/web2 inherit  grow frac 0-3,6-15")

	t.Log("the LSR pod is resized, moved in part and moved altogether")
	n.pool("shared", "0-3,7-15")
	n.must(n.tree.PutPod(cgroup.Pod{ID: "lsr", Path: "kubepods/lsr", Need: n.on("4-6")}))
	n.want(n.apply(), "shrink frac 0-3,7-15  shrink burstable 0-3,7-15  grow lsr 4-6")
	n.must(n.tree.PutPod(cgroup.Pod{ID: "lsr", Path: "kubepods/lsr", Need: n.on("5-8")}))
	n.pool("shared", "0-4,9-15")
	n.want(n.apply(), `shrink lsr 5-6  shrink frac 0-3,9-15  shrink burstable 0-3,9-15
		grow burstable 0-4,9-15  grow frac 0-4,9-15  grow lsr 5-8`)
	n.must(n.tree.PutPod(cgroup.Pod{ID: "lsr", Path: "kubepods/lsr", Need: n.on("12-15")}))
	n.pool("shared", "0-11")
	n.want(n.apply(), `shrink frac 0-4,9-11  shrink burstable 0-4,9-11  shrink lsr 12-15
		grow burstable 0-11  grow frac 0-11`)
}

func TestContainersThatDiffer(t *testing.T) {
	n := newNode(t, "0-7")
	n.pool("shared", "0-3,6-7")

	t.Log("the create reply wrote the pod's CPUs: nothing to add below the pod")
	n.pod("kubepods", "lsr", n.on("4-5"))
	n.container("kubepods", "lsr", "second", cgroup.Need{}, "4-5")
	n.want(n.apply(), "shrink lsr 4-5 shrink burstable 0-3,6-7")

	t.Log("grown, the second container's stored set is too narrow; shrunk, it is not")
	n.pool("shared", "0-3,7")
	n.must(n.tree.PutPod(cgroup.Pod{ID: "lsr", Path: "kubepods/lsr", Need: n.on("4-6")}))
	n.want(n.apply(), "shrink burstable 0-3,7 grow lsr 4-6 grow lsr/second 4-6")
	n.must(n.tree.PutPod(cgroup.Pod{ID: "lsr", Path: "kubepods/lsr", Need: n.on("6")}))
	n.want(n.apply(), "shrink lsr 6")

	t.Log("kubelet's set on a shared container is widened once, for good")
	n.pod(burstable, "web", cgroup.InPool("shared"))
	n.container(burstable, "web", "pinned", cgroup.Need{}, "0-1")
	n.want(n.apply(), "grow burstable/web/pinned inherit")
	n.pool("shared", "0-2")
	n.want(n.apply(), "shrink burstable 0-2")

	t.Log("a container that differs from its pod mixes the pod and its slice")
	n.container(burstable, "web", "odd", n.on("4-5"), "")
	n.want(n.apply(), `shrink burstable/web/pinned 0-2  shrink burstable/web/main 0-2
		shrink burstable 0-2,4-5  shrink burstable/web/odd 4-5  shrink burstable/web 0-2,4-5`)
}
