package policy

import (
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
)

// A container whose own resources contradict the class, which the pod's sums could not
// tell, is refused; where nobody is refused it runs in the shared pool, and is told.
func TestWhatOnlyTheContainerTells(t *testing.T) {
	hidden := lsr("a", 2000, nil)
	hidden.LimitHidden, hidden.Resources = true, &Resources{2000, NoLimit}
	unknown := lsr("a", 2000, nil)
	unknown.Resources = nil
	for _, c := range []struct {
		name      string
		pod       Pod
		container Resources
		refused   Code // where pods are refused; empty: it is not
		cpus      string
	}{
		{"equal", hidden, Resources{2000, 2000}, "", "0-1"},
		{"a limit that the pod's sums hid", hidden, Resources{2000, 4000}, InvalidRequest, "0-15"},
		{"sums that nobody knew, and fit", unknown, Resources{4000, 4000}, "", "0-3"},
		{"sums that nobody knew, no whole CPUs", unknown, Resources{2500, 2500}, InvalidRequest, "0-15"},
		{"sums that nobody knew, too many", unknown, Resources{32000, 32000}, cpuallocator.InsufficientCPUs, "0-15"},
	} {
		for _, degrade := range []bool{false, true} {
			m := small(t, Config{Degrade: degrade})
			told(t, m, PodRun{Pod: c.pod})
			e := mainOf(c.pod)
			e.Container.Resources = c.container
			if c.refused != "" && !degrade {
				before := describe(m.Snapshot())
				if got := code(t, m, e); got != c.refused {
					t.Errorf("%s: refused with %q, want %q", c.name, got, c.refused)
				}
				if after := describe(m.Snapshot()); after != before {
					t.Errorf("%s: a refusal changed\n%s\ninto\n%s", c.name, before, after)
				}
				continue
			}
			notices := told(t, m, e)
			s := m.Snapshot()
			if got := s.CPUs(s.Containers[0]); got.String() != c.cpus {
				t.Errorf("%s, degrading %t: runs on %s, want %s", c.name, degrade, got, c.cpus)
			}
			if c.refused == "" {
				told(t, m, PodRun{Pod: lsr("next", 2000, nil)})
				if next := m.exclusive["next"].grant.cpus; next.Intersects(&m.exclusive["a"].grant.cpus) {
					t.Errorf("%s: the next owner has %s of %s", c.name, next, c.cpus)
				}
			}
			if (notices != "") != (c.refused != "") {
				t.Errorf("%s, degrading %t: notices %q", c.name, degrade, notices)
			}
		}
	}
}

// kubelet's option divides owners that one NUMA node does not hold evenly among several,
// unless a label says otherwise.
func TestDistributeAcrossNUMA(t *testing.T) {
	for _, c := range []struct {
		option, label, want string
	}{
		{"", "", "0-11"},
		{"false", "", "0-11"},
		{"true", "", "0-5,8-13"},
		{"true", "MostAllocated", "0-11"},
		{"", "DistributeEvenly", "0-5,8-13"},
	} {
		m := small(t, Config{Kubelet: Kubelet{Options: map[string]string{"distribute-cpus-across-numa": c.option}}})
		told(t, m, NodeLabels{Labels: map[string]string{LabelStrategy: c.label}})
		told(t, m, PodRun{Pod: lsr("a", 12000, nil)})
		if got := m.Snapshot().Exclusive.String(); got != c.want {
			t.Errorf("option %q, label %q: the pod owns %s, want %s", c.option, c.label, got, c.want)
		}
	}
}

// What was reserved since comes before what a mask in the kernel looks like, but not
// before what our own record says was given.
func TestRecoveredCPUsThatAreReserved(t *testing.T) {
	for _, c := range []struct{ from, cpus, want string }{
		{"kernel", "2-3", "2-3"},
		{"kernel", "0-1", "2-3"}, // placed anew
		{fromState, "0-1", "0-1"},
	} {
		m := small(t, Config{Reserved: cpuset.Of(0, 1)})
		p := lsr("a", 2000, nil)
		own, err := cpuset.Parse(c.cpus)
		if err != nil {
			t.Fatal(err)
		}
		p.Recovered = &Recovered{From: c.from, CPUs: &own}
		told(t, m, Synchronized{Pods: []Pod{p}, Containers: []Container{mainOf(p).Container}})
		if got := m.Snapshot().Exclusive.String(); got != c.want {
			t.Errorf("%s on %s: the pod owns %s, want %s", c.from, c.cpus, got, c.want)
		}
	}
}

// Who was found to own CPUs has them before an older pod is placed, whatever the order
// of the list.
func TestRecoveredOwnersComeFirst(t *testing.T) {
	own := cpuset.Of(0, 1)
	older, found := lsr("older", 2000, nil), lsr("found", 2000, nil)
	older.CreatedAt, found.CreatedAt = time.Unix(1, 0), time.Unix(2, 0)
	found.Recovered = &Recovered{From: "kernel", CPUs: &own}
	for _, pods := range [][]Pod{{older, found}, {found, older}} {
		m := small(t, Config{})
		told(t, m, Synchronized{Pods: pods, Containers: []Container{mainOf(older).Container, mainOf(found).Container}})
		if got := m.exclusive["found"]; got == nil || got.grant.cpus != own {
			t.Errorf("%s first: the pod that owned 0-1 has %+v", pods[0].Name, got)
		}
	}
}

// A pod whose cgroup is gone, without a word of the runtime's, owns nothing any more.
func TestVanishedPod(t *testing.T) {
	m := small(t, Config{})
	p := lsr("a", 2000, nil)
	told(t, m, PodRun{Pod: p})
	told(t, m, mainOf(p))
	told(t, m, PodVanished{UID: "nobody"})
	if got := m.Snapshot().Exclusive.String(); got != "0-1" {
		t.Fatalf("exclusive are %s", got)
	}
	told(t, m, PodVanished{UID: "a"})
	if s := m.Snapshot(); !s.Exclusive.IsEmpty() || len(s.Containers) > 0 || s.Shared.Count() != 16 {
		t.Errorf("after it vanished: exclusive %s, shared %s, %d containers", s.Exclusive, s.Shared, len(s.Containers))
	}
}

// A pod that a synchronisation does not name any more owns nothing, and neither does
// one whose containers alone are gone lose anything.
func TestWhoIsGoneAfterASynchronisation(t *testing.T) {
	gone, stays := lsr("gone", 2000, nil), lsr("stays", 2000, nil)
	m := small(t, Config{})
	for _, p := range []Pod{gone, stays} {
		told(t, m, PodRun{Pod: p})
		told(t, m, mainOf(p))
	}
	if got := m.Snapshot().Exclusive.String(); got != "0-3" {
		t.Fatalf("exclusive are %s", got)
	}
	told(t, m, Synchronized{Pods: []Pod{stays}})
	if s := m.Snapshot(); s.Exclusive.String() != "2-3" || len(s.Containers) != 0 {
		t.Errorf("exclusive are %s, %d containers; want 2-3 of the pod that stays, and none", s.Exclusive,
			len(s.Containers))
	}
}

// kubelet announces a resize one value after the other; half of one moves no owner.
// A request that came as a cgroup's weight is rounded up to the CPUs that it was.
func TestHalfAResize(t *testing.T) {
	for _, c := range []struct {
		name string
		r    Resources
		want string
		code Code
	}{
		{"the limit first", Resources{2000, 4000}, "0-1", ""},
		{"the request first", Resources{4000, 2000}, "0-1", ""},
		{"both", Resources{4000, 4000}, "0-3", ""},
		{"both, the request by its weight", Resources{3980, 4000}, "0-3", ""},
		{"smaller", Resources{1000, 1000}, "0", ""},
		{"more than there are", Resources{32000, 32000}, "0-1", cpuallocator.InsufficientCPUs},
	} {
		m := small(t, Config{})
		p := lsr("a", 2000, nil)
		told(t, m, PodRun{Pod: p})
		told(t, m, mainOf(p))
		if got := code(t, m, PodResized{Sandbox: "a", Resources: c.r}); got != c.code {
			t.Errorf("%s: refused with %q, want %q", c.name, got, c.code)
		}
		if got := m.Snapshot().Exclusive.String(); got != c.want {
			t.Errorf("%s: the pod owns %s, want %s", c.name, got, c.want)
		}
	}
}

// Where the shared pool has no CPU left the youngest owner gives up whole cores until it has
// its floor, all of its CPUs where it has no more, and its containers are decided anew at once.
func TestAllocationLost(t *testing.T) {
	for _, c := range []struct {
		young         int64
		decided, owns string
	}{{8000, "", "8-13"}, {3000, "", "10"}, {2000, "shared", ""}} {
		m := small(t, Config{})
		run(t, m, lsr("old", 6000, nil), lsr("young", c.young, nil))
		decisions, err := m.Step(time.Unix(1e9, 0), KubeletConfigured{Kubelet: Kubelet{Reserved: m.Snapshot().Shared,
			Options: map[string]string{"strict-cpu-reservation": "true"}}})
		if err != nil {
			t.Fatal(err)
		}
		decided := "nothing"
		for _, d := range decisions {
			if c, ok := d.(SetContainer); ok && c.Pod.Name == "young" {
				decided = string(c.Need.Pool)
			}
		}
		owned := ""
		if g := m.pods["young"].grant; g != nil {
			owned = g.cpus.String()
		}
		if decided != c.decided || owned != c.owns || m.pods["old"].grant.cpus.Count() != 6 {
			t.Errorf("young of %dm: decided for pool %q, owns %q, want %q and %q; old owns %s", c.young, decided, owned,
				c.decided, c.owns, m.pods["old"].grant.cpus)
		}
	}
}

// What a namespace may own is counted over its own pods, all of them and no others.
func TestMostThatANamespaceOwns(t *testing.T) {
	of := func(namespace, name string, cpus int64) PodRun {
		p := lsr(name, cpus*1000, nil)
		p.Namespace = namespace
		return PodRun{Pod: p}
	}
	for _, most := range []map[string]int{{"shop": 6, "lab": 4}, {"*": 6, "lab": 4}} {
		m := small(t, Config{Authority: Authority{MaxCPUs: most}})
		for _, c := range []struct {
			run  PodRun
			want Code
		}{
			{of("lab", "a", 4), ""},
			{of("shop", "b", 4), ""}, // what lab owns does not count
			{of("shop", "c", 4), Unauthorized},
			{of("shop", "d", 2), ""}, // just as much as it may
			{of("shop", "e", 2), Unauthorized},
			{of("lab", "f", 2), Unauthorized},
		} {
			if got := code(t, m, c.run); got != c.want {
				t.Errorf("%v, %s/%s: refused with %q, want %q", most, c.run.Pod.Namespace, c.run.Pod.Name, got, c.want)
			}
		}
	}
}

// A container that is refused leaves nothing of a pod that was never announced.
func TestARefusedContainerLeavesNoPod(t *testing.T) {
	m := small(t, Config{})
	p := lsr("a", 2500, nil)
	p.Resources = nil
	e := mainOf(p)
	e.Container.Resources = Resources{2500, 2500}
	if got := code(t, m, e); got != InvalidRequest {
		t.Fatalf("refused with %q", got)
	}
	if len(m.pods) != 0 || len(m.sandboxes) != 0 || len(m.containers) != 0 {
		t.Errorf("%d pods, %d sandboxes and %d containers are left", len(m.pods), len(m.sandboxes), len(m.containers))
	}
	p = lsr("a", 2000, nil) // it may come again, mended
	told(t, m, PodRun{Pod: p})
	if got := m.Snapshot().Exclusive.String(); got != "0-1" {
		t.Errorf("the pod that came again owns %s", got)
	}
}

// An owner whose size is unknown is sized by its first container, whatever a resize
// says before: what the resize said must not pass for a decision.
func TestResizeBeforeTheFirstContainer(t *testing.T) {
	m := small(t, Config{})
	p := lsr("a", 2000, nil)
	p.Resources = nil
	four := Resources{RequestMilli: 4000, LimitMilli: 4000}
	for _, e := range []Event{
		PodRun{Pod: p}, PodResized{Sandbox: "a", Resources: four},
		ContainerCreate{Pod: p, Container: Container{ID: "c", Sandbox: "a", Name: "main", Resources: four}},
	} {
		if _, err := m.Step(time.Unix(0, 0), e); err != nil {
			t.Fatal(err)
		}
	}
	if got := owns(m, "a"); got != "0-3" {
		t.Errorf("the pod owns %q, want 0-3", got)
	}
}
