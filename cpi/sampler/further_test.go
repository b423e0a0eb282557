package sampler

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/sample"
)

// crowd is a sampler of forty containers, of which a test's two are asked for in short
// windows once short is set.
func crowd(t *testing.T, short *atomic.Int64) (*machine, *Sampler, <-chan *Window) {
	m := newMachine(t)
	for i := range 40 {
		m.add(fmt.Sprint(i), load{0.1, 2e9, 3})
	}
	o := m.options()
	o.Budget = Budget{Test: 0.005}
	o.LeaveOut = func([sample.NumEvents]bool, string) error { return nil }
	o.Questions = func() []cpi.Question {
		return []cpi.Question{{Victim: "38"}, {Victim: "39", Suspects: []string{"7"}, Test: short.Load() > 0}}
	}
	o.Short = func() time.Duration { return time.Duration(short.Load()) }
	s := newSampler(o)
	return m, s, run(t, s)
}

// TestFurtherWindows follow one another while a test runs and count it alone; the intervals'
// windows stay as they are, and what is kept is theirs.
func TestFurtherWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var short atomic.Int64
		_, s, windows := crowd(t, &short)
		for range 2 {
			if w := <-windows; w.Between || w.Followed != 40 {
				t.Fatalf("without a test: %+v", w)
			}
		}
		short.Store(int64(10 * time.Second))
		between, its := 0, 0
		for range 40 {
			w := <-windows
			pair := []*sample.Result{w.of("39"), w.of("7")}
			for _, r := range pair {
				if r == nil || r.Dropped != sample.None || !near(r.CPI, 3) {
					t.Fatalf("%+v", r)
				}
			}
			if !w.Between {
				if its++; w.Followed != 40 || w.Length != 10*time.Second {
					t.Errorf("an interval's window counts %d, for %v", w.Followed, w.Length)
				}
				continue
			}
			if between++; !w.Testing || w.Followed > 3 || w.Length > 9*time.Second || w.Length < 4*time.Second {
				t.Errorf("a test's window counts %d, for %v", w.Followed, w.Length)
			}
		}
		if between < 4*its || between > 6*its+6 { // the ends of an interval may be half as long
			t.Errorf("%d windows between %d intervals' ones", between, its)
		}
		if got := s.History("39", nil); len(got) < its || len(got) > its+3 || s.Latest().Between {
			t.Errorf("%d windows are kept of %d intervals; the latest: %+v", len(got), its, s.Latest())
		}
		short.Store(0)
		for range 5 { // one may be under way
			<-windows
		}
		for range 3 {
			if w := <-windows; w.Between {
				t.Error("a further window after the test")
			}
		}
	})
}

// TestFurtherWindowsAreRare where they cost too much.
func TestFurtherWindowsAreRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var short atomic.Int64
		short.Store(int64(10 * time.Second))
		m, _, windows := crowd(t, &short)
		m.cost = 800 * time.Millisecond // 2 % of four CPUs in ten seconds, where 0.5 % may be
		between := 0
		for its := 0; its < 20; {
			if w := <-windows; w.Between {
				between++
			} else {
				its++
			}
		}
		if between < 10 || between > 30 {
			t.Errorf("%d further windows in 20 minutes, want one in five to nine of a hundred and twenty", between)
		}
	})
}
