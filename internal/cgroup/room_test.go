package cgroup_test

import (
	"testing"

	"github.com/quietcore/quietcore/internal/cgroup"
)

// A pod keeps the CPUs of a container that owns some while that container does not run, and
// its other containers are off them all the time.
func TestRoomForAContainer(t *testing.T) {
	n := newNode(t, "0-15")
	n.pool("shared", "0-7")
	n.pod(burstable, "app", cgroup.InPool("shared"))
	n.must(n.tree.PutRoom("app/room/main", "app", set(t, "8-9")))
	n.apply()
	n.runsOn(burstable+"/app", "0-9")
	n.runsOn(burstable+"/app/main", "0-7")
	if got := n.tree.MayGive(burstable+"/app", set(t, "8-9")); got.String() != "8-9" {
		t.Errorf("a container on 8-9 would be given %s", got)
	}
	if got := n.tree.MayGive(burstable+"/app", set(t, "12-13")); got.String() != "0-9" {
		t.Errorf("a container on 12-13, which its pod has not, would be given %s", got)
	}
	t.Log("it may become another, and end")
	n.must(n.tree.PutRoom("app/room/main", "app", set(t, "10-11")))
	n.apply()
	n.runsOn(burstable+"/app", "0-7,10-11")
	n.runsOn(burstable+"/app/main", "0-7")
	n.tree.Remove("app/room/main")
	n.apply()
	n.runsOn(burstable+"/app", "0-7")
	if err := n.tree.PutRoom("r", "nowhere", set(t, "8-9")); err == nil {
		t.Error("a room in a pod that is not known is taken")
	}
}
