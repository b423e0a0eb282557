package node

import (
	"context"
	"fmt"
	"testing"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/policy"
)

// A container whose creation was missed has the mask of its creation, whatever the reply to its start would set. In a
// pod whose containers own CPUs it starts once it is off those of the others, and an owner once it has only its own.
func TestAContainerThatWasMadeWithoutAReply(t *testing.T) {
	whole, mixed := lsr("db", 2000), podOf("mix", policy.LSR, policy.Guaranteed, 2500)
	mixed.Annotations = map[string]string{policy.AnnContainers: "main"}
	side := mainOf(mixed)
	side.ID, side.Name, side.CgroupPath = "mix-side", "side", mixed.CgroupParent+"/mix-side"
	side.Resources = policy.Resources{RequestMilli: 500, LimitMilli: 500}
	main := mainOf(mixed)
	main.Resources = policy.Resources{RequestMilli: 2000, LimitMilli: 2000}
	none, own, pool := cpuset.Set{}, cpuset.Range(0, 1), cpuset.Range(2, 15)
	for _, c := range []struct {
		name  string
		pod   policy.Pod
		first []policy.Container // of its pod, with a reply
		later policy.Container
		mask  cpuset.Set // of the later one's creation
		want  cpuset.Set
		waits bool
	}{
		{"a shared one without a mask", mixed, []policy.Container{main}, side, none, pool, true},
		{"a shared one with an owner's CPU", mixed, []policy.Container{main}, side, cpuset.Range(1, 5), pool, true},
		{"a shared one with the pool's", mixed, []policy.Container{main}, side, pool, pool, false},
		{"an owner without a mask", mixed, []policy.Container{side}, main, none, own, true},
		{"an owner with its own", mixed, []policy.Container{side}, main, own, own, false},
		{"one of a pod that owns CPUs", whole, nil, mainOf(whole), cpuset.Of(0), own, false},
	} {
		for _, fails := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, its write fails %t", c.name, fails), func(t *testing.T) {
				s := newStepped(t)
				s.sandbox(c.pod)
				enter := func(ctr policy.Container, made bool) *Request {
					r := &Request{Event: policy.ContainerCreate{Pod: c.pod, Container: ctr}, Pod: c.pod.UID, Made: made}
					s.step(r)
					return r
				}
				for _, ctr := range c.first {
					if first := enter(ctr, false); !s.started(first) {
						t.Fatalf("%s does not start: %v", ctr.ID, s.replies[first].Err)
					}
				}
				s.settle()
				s.kernel.Mkdir(c.later.CgroupPath, 0)
				if v := (cgroup.Values{CPUs: cgroup.Only(c.mask)}); !c.mask.IsEmpty() {
					if err := s.kernel.Apply(context.Background(), c.later.CgroupPath, v); err != nil {
						t.Fatal(err)
					}
				}
				if s.fail = failWrites(c.later.CgroupPath); !fails {
					s.fail, s.hangs = nil, at(Write, c.later.CgroupPath)
				}
				later := enter(c.later, true)
				if s.started(later) == c.waits {
					t.Errorf("it is started: %t, on %s", s.started(later), s.allows(c.later.CgroupPath))
				}
				s.fail, s.hangs = nil, nil
				s.resume()
				s.settle()
				if !s.started(later) {
					t.Fatal("it is not started")
				}
				s.want(c.later.ID, c.want.String())
			})
		}
	}
}
