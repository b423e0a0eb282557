package sampler

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/counter"
	"github.com/quietcore/quietcore/cpi/sample"
)

// Of the root of the cgroups the usage is known, and nothing is counted there; it is no container.
func TestTheWholeHostIsNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.add("web", load{1, 2e9, 3})
		m.add("kernel", load{0.5, 2e9, 3})
		kernel := &m.containers[1]
		kernel.Cgroup, kernel.Class = wholeHost, cpi.Host
		m.cgroupIDs[wholeHost] = 1
		s := newSampler(m.options())
		w := <-run(t, s)
		if got := w.of("kernel"); got.Dropped != sample.None || got.NoCPI != sample.Skipped || !near(got.Usage, 0.5) {
			t.Errorf("dropped %q, no CPI %q, usage %v", got.Dropped, got.NoCPI, got.Usage)
		}
		if m.follows != 1 || w.Followed != 1 || w.Unfollowed != 0 || s.State() != "" {
			t.Errorf("%d calls of Follow, %d containers counted and %d not: %q", m.follows, w.Followed, w.Unfollowed,
				s.State())
		}
	})
}

// A window says who ran where by the counter's rows, in seconds, with what stands in for events at
// its worth.
func TestAWindowSaysWhoRanWhere(t *testing.T) {
	from, to := &edge{}, &edge{worth: [sample.NumEvents]uint64{sample.LLCMisses: 3}}
	to.sample.Monotonic = 10 * time.Second
	to.reading.Groups = []counter.Group{{ID: "batch"}, {ID: "web"}}
	if byCPU(from, to) != nil {
		t.Error("something ran where nothing is known")
	}
	to.reading.Rows = []counter.Row{{CPU: 1, Group: 0, OnCPU: 5e9, Instructions: 1e9, Misses: 1e6},
		{CPU: 0, Group: 1, OnCPU: 1e9}}
	from.taken = []sample.Taken{{Steal: 3, Interrupts: 9}}
	to.taken = []sample.Taken{{Steal: 5, Interrupts: 8}, {Steal: 1}}
	b := byCPU(from, to).Beside("web", &sample.Layout{Core: []int32{0, 0}, L3: []int32{0, 0}, Node: []int32{0, 0}})
	want := sample.Neighbour{ID: "batch", CPUs: 0.5, Instructions: 1e8, Misses: 3e5}
	if len(b.Sibling.Most) != 1 || b.Sibling.Most[0] != want || b.Steal != 0.2 || b.Interrupts != 0 {
		t.Errorf("%+v", b)
	}
}
