package policy

import (
	"testing"
	"time"
)

// TestMemoryModes: preferred asks for a memory policy and restricts nobody, strict
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
