package cgroup_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
)

// A container all of whose CPUs are offline runs on its pod's, where another container owns some, and a pod on its
// slice's. Whichever write of their move to other CPUs, beside that of an owner, takes effect only when their own are
// back, none takes them from these onto an owner's.
func TestAWriteLandsWhenCPUsAreBack(t *testing.T) {
	const mix = burstable + "/mix"
	begin := func() (*node, []cgroup.Write) {
		n := newNode(t, "0-15")
		n.pool("shared", "6-7")
		n.must(n.tree.PutPod(cgroup.Pod{ID: "mix", Path: mix, Need: cgroup.InPool("shared")}))
		n.container(burstable, "mix", "main", n.on("12-14"), "")
		n.container(burstable, "mix", "side", cgroup.InPool("shared"), "")
		n.pod(burstable, "web", cgroup.InPool("shared"))
		n.pod(burstable, "far", n.on("10-11"))
		n.pod("kubepods", "db", n.on("0-5,15"))
		n.apply()
		n.runsOn(mix+"/side", "6-7")
		n.online("0-5,8-15")
		n.runsOn(mix+"/side", "12-14")
		n.pool("shared", "8")
		n.must(n.tree.PutPod(cgroup.Pod{ID: "far", Path: burstable + "/far", Need: n.on("9")}))
		return n, n.tree.Plan()
	}
	_, plan := begin()
	for i, late := range plan {
		n, plan := begin()
		n.must(n.tree.Execute(plan[:i], n.write))
		n.kern.SetOnline(set(t, "0-15"))
		before := n.kern.Tasks()
		n.must(n.write(late))
		for path, now := range n.kern.Tasks() {
			was := before[path]
			if gained := now.Minus(was); gained.Intersects(ref(set(t, "10-14"))) && path != mix+"/main" {
				t.Errorf("%v takes %s from %s to %s", late, path, was, now)
			}
		}
	}
	n, _ := begin()
	n.apply()
	n.runsOn(mix+"/side", "8")
	n.runsOn(burstable+"/web/main", "8")
}

// A container still has the mask of the time when its pod owned more, and all that its pod has left are offline: so it
// runs on a CPU that another pod owns by now. No write of its move takes it there when its pod's CPUs are back.
func TestAWiderMaskInAPodWhoseCPUsAreBack(t *testing.T) {
	begin := func() (*node, []cgroup.Write) {
		n := newNode(t, "0-15")
		n.pool("shared", "6-7,14-15")
		n.must(n.tree.PutPod(cgroup.Pod{ID: "old", Path: "kubepods/old", Need: n.on("8-9")}))
		n.container("kubepods", "old", "main", n.on("8-9"), "8-11")
		n.pod("kubepods", "db", n.on("10-13"))
		n.pod(burstable, "web", cgroup.InPool("shared"))
		n.apply()
		n.online("0-7,10-15")
		n.runsOn("kubepods/old/main", "10-11")
		n.pool("shared", "14-15")
		n.must(n.tree.PutPod(cgroup.Pod{ID: "old", Path: "kubepods/old", Need: n.on("6-7")}))
		n.container("kubepods", "old", "main", n.on("6-7"), "")
		return n, n.tree.Plan()
	}
	_, plan := begin()
	for i, late := range plan {
		n, plan := begin()
		n.must(n.tree.Execute(plan[:i], n.write))
		n.kern.SetOnline(set(t, "0-15"))
		n.must(n.write(late))
		if now := n.kern.Tasks()["kubepods/old/main"]; now.Intersects(ref(set(t, "10-13"))) {
			t.Errorf("%v of %v takes it to %s", late, plan, now)
		}
	}
	n, _ := begin()
	n.apply()
	n.runsOn("kubepods/old/main", "6-7")
	n.runsOn(burstable+"/web/main", "14-15")
}

// online sets the CPUs that are online.
func (n *node) online(cpus string) {
	n.t.Helper()
	n.kern.SetOnline(set(n.t, cpus))
	n.tree.SetOnline(set(n.t, cpus))
}

// The same of any node: no write that was planned while CPUs were offline takes a cgroup from its CPUs onto those of
// an owner when they are back.
func TestRandomLivesWithWritesThatLandWhenCPUsAreBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLife(t, false)
		for range rapid.IntRange(1, 8).Draw(t, "rounds") {
			l.obey(t, l.steps(t, l.hotplug))
			l.settled(t)
			l.owned = l.owners()
			l.hotplug(t)
			l.settlePools(t)
			plan := l.tree.Plan()
			if len(plan) == 0 {
				continue
			}
			i := rapid.IntRange(0, len(plan)-1).Draw(t, "lands late")
			ok(t, l.run(plan[:i]))
			all := cpuset.Range(0, lifeCPUs-1)
			l.kern.SetOnline(all)
			before := l.kern.Tasks()
			l.kern.After = nil
			ok(t, l.kern.Apply(context.Background(), plan[i].Path, plan[i].Values()))
			l.kern.After = l.check
			l.stays(t, before, plan[i])
			for _, line := range l.kern.Writes() {
				l.model.write(line)
			}
			l.online = all
			l.model.online = parsed(all.String())
			l.tree.SetOnline(all)
			l.settlePools(t)
			l.tree.Written(plan[i], fmt.Errorf("no answer: %w", cgroup.ErrInFlight))
			l.readBack(time.Unix(0, 0))
			l.readBack(time.Unix(0, 0).Add(cgroup.InFlightFor))
			l.obey(t, l.tree.Plan())
			l.settled(t)
		}
	})
}

// stays requires that no cgroup has gained a CPU of an owner by a write.
func (l *life) stays(t *rapid.T, before map[string]cpuset.Set, w cgroup.Write) {
	for _, p := range l.pods {
		for _, c := range p.containers {
			now, was, right := l.kern.Tasks()[c.path], before[c.path], l.wish(p, c)
			gained := now.Minus(was).Minus(right)
			if gained = gained.And(l.owners()); !gained.IsEmpty() {
				t.Fatalf("%v lands when CPUs are back and takes %s from %s to %s (it needs %s)%s", w, c.path, was, now,
					right, l.model.tree())
			}
		}
	}
}
