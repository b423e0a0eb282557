package node

import (
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
)

// A pod has a claim, and another container of it waits for its reply as the connection is lost: the runtime creates
// it without a mask, now or in a moment. The slice gets the claim's CPUs only once that container has its own mask,
// or is known not to exist.
func TestAContainerThatIsCreatedWithoutItsReply(t *testing.T) {
	for _, c := range []struct {
		name                string
		atOnce, later, ends bool
	}{
		{name: "before anything is read", atOnce: true},
		{name: "after its cgroup was not found", later: true},
		{name: "never", ends: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStepped(t)
			s.up(burstable("web"))
			given := s.given(s.prepare("app", time.Time{}))
			p := burstable("app")
			main, side := mainOf(p), mainOf(p)
			main.Claims = []string{policy.ClaimDevice("c1", 0)}
			p.Claims = map[string][]string{"main": main.Claims}
			side.ID, side.Name, side.CgroupPath = "app-side", "side", p.CgroupParent+"/app-side"
			s.hangs = at(Write, "kubepods/poduid-db")
			s.sandbox(lse("db", 2000))
			s.wantHanging(1, "the owner's mask, which holds up all other writes")
			s.step(&Request{Event: policy.ClaimPrepared{UID: "c2", Namespace: "default", Name: "others",
				Requests: []policy.ClaimRequest{{Device: "numa-1", Within: s.topo.Nodes()[1].CPUs, CPUs: 2}}}})
			s.sandbox(p)
			s.step(Lost{}) // main is created without a mask, in the pool
			s.kernel.Mkdir(main.CgroupPath, 1)
			s.ctrs[main.ID] = main
			s.synchronize()
			r := &Request{Event: policy.ContainerCreate{Pod: p, Container: side}, Pod: p.UID,
				Deadline: s.now.Add(time.Second)}
			s.step(r)
			if _, answered := s.replies[r]; answered {
				t.Fatalf("it does not wait: the test shows nothing: %+v", s.replies[r])
			}
			create := func() {
				s.kernel.Mkdir(side.CgroupPath, 1)
				s.ctrs[side.ID] = side
			}
			s.step(Lost{})
			if c.atOnce {
				create()
			}
			onPool := func(when string) {
				t.Helper()
				if s.ctrs[side.ID].ID == "" {
					return
				}
				if on, err := cpuset.Parse(s.on(side.ID)); err != nil || on.Intersects(&given) {
					t.Errorf("%s: the container without the claim is on %s, the claim has %s", when, on, given)
				}
			}
			s.fail = func(*Effect) error {
				onPool("while cgroups are written")
				return nil
			}
			s.hangs = nil
			s.resume()
			s.pass(30 * time.Second)
			if c.later {
				create()
				onPool("as it is created")
			}
			s.pass(30 * time.Second)
			if on := s.on(main.ID); (on == given.String()) == c.ends {
				t.Errorf("before the list the container with the claim is on %s, and the slice has %s", on,
					s.allows("kubepods/burstable"))
			}
			s.synchronize()
			s.settle()
			onPool("in the end")
			s.want(main.ID, given.String())
			if c.ends && len(s.core.Checkpoint().Containers) != 2 {
				t.Errorf("there are %d containers", len(s.core.Checkpoint().Containers))
			}
			if n := len(s.core.writer.unanswered); n != 0 {
				t.Errorf("%d containers are still unanswered", n)
			}
		})
	}
}
