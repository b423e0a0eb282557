package cgroup_test

import (
	"errors"
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
	if got := n.tree.MayGive(burstable+"/other", set(t, "6-7")); got.String() != "0-9" {
		t.Errorf("a container on 6-7 of a pod whose mask is not known would be given %s", got)
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

// Nothing runs in a room, so that a write of its pod that may come late holds up no other.
func TestARoomGainsNothing(t *testing.T) {
	n := newNode(t, "0-15")
	n.pool("shared", "0-7")
	n.pod(burstable, "app", cgroup.InPool("shared"))
	n.must(n.tree.PutRoom("app/room/main", "app", set(t, "8-9")))
	n.apply()
	n.must(n.tree.PutRoom("app/room/main", "app", set(t, "12-13")))
	late := n.tree.Execute(n.tree.Plan(), func(w cgroup.Write) error {
		if w.Path == burstable+"/app" {
			return cgroup.ErrInFlight
		}
		return n.write(w)
	})
	if !errors.Is(late, cgroup.ErrInFlight) {
		t.Fatalf("the pod's mask is written without an answer: %v", late)
	}
	n.pool("shared", "0-7,10-11")
	n.must(n.tree.Execute(n.tree.Plan(), n.write))
	n.runsOn(burstable+"/app", "0-7,10-13")
	n.runsOn(burstable+"/app/main", "0-7,10-11")
}
