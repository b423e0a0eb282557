package policy

import (
	"testing"

	"github.com/quietcore/quietcore/cpuset"
)

func pins(policy string, entries map[string]map[string]cpuset.Set) KubeletState {
	return KubeletState{PolicyName: policy, Entries: entries}
}

// TestAPinThatComesWithTheContainer: kubelet's state file is read a moment after
// kubelet has pinned; until then the container itself tells.
func TestAPinThatComesWithTheContainer(t *testing.T) {
	guaranteed := func(class string) Pod {
		p := lsr("a", 2000, nil)
		p.Labels = map[string]string{}
		if class != "" {
			p.Labels[LabelClass] = class
		}
		return p
	}
	fraction := guaranteed("")
	fraction.Resources = &Resources{1500, 1500}
	for _, c := range []struct {
		name   string
		policy string
		pod    Pod
		cpus   string
		want   string // what the pod runs on
		shared string
	}{
		{"pinned", "static", guaranteed(""), "4-5", "4-5", "2-3,6-15"},
		{"pinned onto an owner's", "static", guaranteed(""), "0-1", "2-3", "4-15"},
		{"as many as the default set by chance", "static", fraction, "4-5", "2-15", "2-15"},
		{"kubelet's default set", "static", guaranteed(""), "2-15", "2-15", "2-15"},
		{"ours to place", "static", guaranteed("LS"), "4-5", "2-15", "2-15"},
		{"no policy", "none", guaranteed(""), "4-5", "2-15", "2-15"},
		{"nonsense", "static", guaranteed(""), "4-x", "2-15", "2-15"},
		{"CPUs that are not there", "static", guaranteed(""), "98-99", "2-15", "2-15"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := small(t, Config{})
			told(t, m, PodRun{Pod: lsr("owner", 2000, nil)})
			told(t, m, pins(c.policy, nil))
			told(t, m, PodRun{Pod: c.pod})
			e := mainOf(c.pod)
			e.Container.CPUs = c.cpus
			told(t, m, e)
			s := m.Snapshot()
			if got := s.CPUs(s.Containers[0]); got.String() != c.want || s.Shared.String() != c.shared {
				t.Errorf("runs on %s beside the shared pool %s, want %s and %s", got, s.Shared, c.want, c.shared)
			}
			told(t, m, PodRemoved{Sandbox: "a"})
			if got := m.Snapshot().Shared.String(); c.want == c.shared && got != c.shared {
				t.Errorf("of a pod that nobody pinned a pin stays: the shared pool is %s, want %s", got, c.shared)
			}
		})
	}
}

// TestADrainFromStaticToNone: kubelet's owners let go and count as LS; what we gave
// in place of a pin that collided is given back too.
func TestADrainFromStaticToNone(t *testing.T) {
	m := small(t, Config{})
	told(t, m, PodRun{Pod: lsr("owner", 2000, nil)}) // CPUs 0-1
	entries := map[string]map[string]cpuset.Set{"theirs": {"main": cpuset.Of(8, 9)}, "moved": {"main": cpuset.Of(0, 1)}}
	told(t, m, pins("static", entries))
	for _, name := range []string{"theirs", "moved"} {
		p := lsr(name, 2000, nil)
		p.Labels = nil
		told(t, m, PodRun{Pod: p})
		told(t, m, mainOf(p))
	}
	if got := m.Snapshot().Exclusive.String(); got != "0-3,8-9" {
		t.Fatalf("exclusive are %s", got)
	}
	told(t, m, pins("none", nil))
	s := m.Snapshot()
	if got := s.Exclusive.String(); got != "0-1" {
		t.Errorf("exclusive are %s after the drain, want our owner's 0-1", got)
	}
	for _, c := range s.Containers {
		if c.Class != LS || c.Pool != PoolShared || c.ByKubelet {
			t.Errorf("%s is %s in pool %s", c.Pod, c.Class, c.Pool)
		}
	}
	told(t, m, pins("static", entries)) // and back
	if got := m.Snapshot().Exclusive.String(); got != "0-3,8-9" {
		t.Errorf("exclusive are %s after static is back", got)
	}
}
