package policy

import (
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpuset"
)

// TestMemoryModes: preferred asks for a memory policy and restricts no pod, strict
// restricts and asks for none, off does neither; a pod in a whole pool is left alone.
func TestMemoryModes(t *testing.T) {
	burst := ls("burst", 1000, map[string]string{AnnSpec: `{"preferredCPUBindPolicy":"ConstrainedBurst"}`})
	for _, c := range []struct {
		mode          Memory
		pod           Pod
		prefers, mems string
	}{
		{MemoryOff, lsr("owner", 2000, nil), "", ""},
		{MemoryPreferred, lsr("owner", 2000, nil), "0", ""},
		{MemoryPreferred, lsr("owner", 10000, nil), "0-1", ""},
		{MemoryPreferred, burst, "0", ""},
		{MemoryPreferred, ls("web", 1000, nil), "", ""},
		{MemoryStrict, lsr("owner", 2000, nil), "", "0"},
		{MemoryStrict, burst, "", "0"},
		{MemoryStrict, ls("web", 1000, nil), "", ""},
	} {
		m := small(t, Config{Memory: c.mode})
		told(t, m, PodRun{Pod: c.pod})
		decisions, err := m.Step(time.Unix(1e9, 0), mainOf(c.pod))
		if err != nil {
			t.Fatal(err)
		}
		prefers, mems := "", ""
		for _, d := range decisions {
			if s, ok := d.(SetContainer); ok {
				if s.PreferNodes != nil {
					prefers = s.PreferNodes.String()
				}
				if s.Mems != nil {
					mems = s.Mems.String()
				}
			}
		}
		if prefers != c.prefers || mems != c.mems {
			t.Errorf("memory %s, pod %s: prefers %q and is restricted to %q, want %q and %q", c.mode, c.pod.Name,
				prefers, mems, c.prefers, c.mems)
		}
	}
}

// TestMemoryIsGivenBack: what memory: strict restricted is given all nodes when it is taken back, at
// a reload and at a restart. What we never restricted, kubelet's memory manager may have.
func TestMemoryIsGivenBack(t *testing.T) {
	pods := []Pod{lsr("owner", 2000, nil), ls("web", 1000, nil),
		lsr("mixed", 1000, map[string]string{AnnContainers: "main"})}
	strict := small(t, Config{Memory: MemoryStrict})
	for _, p := range pods {
		told(t, strict, PodRun{Pod: p})
		told(t, strict, mainOf(p))
	}
	told(t, strict, containerOf(pods[2], "side", Resources{}))
	off := strict.cfg
	off.Memory = MemoryOff
	restarted := small(t, off)
	for name, step := range map[string]struct {
		m *Machine
		e Event
	}{"restart": {restarted, strict.Checkpoint()}, "reload": {strict, Reconfigured{Config: off}}} {
		d := decided(t, step.m, step.e)
		for _, c := range []struct {
			what string
			got  *cpuset.Set
			want string
		}{
			{"an owner's cgroup", d.pods["owner"].Mems, "0-1"},
			{"an owner's container", d.containers["owner-main"].Mems, "0-1"},
			{"a container that owns CPUs", d.containers["mixed-main"].Mems, "0-1"},
			{"a container beside it", d.containers["mixed-side"].Mems, ""},
			{"the cgroup of both", d.pods["mixed"].Mems, ""},
			{"a pod of the pool", d.pods["web"].Mems, ""},
		} {
			got := ""
			if c.got != nil {
				got = c.got.String()
			}
			if got != c.want {
				t.Errorf("%s: memory of %s is %q, want %q", name, c.what, got, c.want)
			}
		}
		again := mainOf(pods[0])
		again.Container.ID = "owner-again"
		if got := decided(t, step.m, again).containers["owner-again"].Mems; got != nil {
			t.Errorf("%s: a container that is made anew has memory %s of ours", name, got)
		}
	}
}
