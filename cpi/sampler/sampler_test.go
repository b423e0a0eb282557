package sampler

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/counter"
	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/topology"
)

// load is what one container does from its start on.
type load struct{ usage, hertz, cpi float64 }

// machine is a node whose containers are known exactly, and a counter of it.
type machine struct {
	t      testing.TB
	start  time.Time
	asleep time.Duration // that the machine was suspended so far

	mu         sync.Mutex
	containers []cpi.Container
	topo       *topology.Topology
	cgroupIDs  map[string]uint64 // by cgroup
	loads      map[string]load   // by ID
	totals     map[string]*counter.Counts
	charged    time.Duration
	enabled    bool
	faults     counter.Faults
	changes    uint64
	cost       time.Duration // of each window, on 4 CPUs
	present    [sample.NumEvents]bool
	skip       cpuset.Set
	broken     error
	most       int // containers that can be followed
	edges      []time.Duration
	hidden     time.Duration // that the counters do not have of each container
	follows    int           // calls of Follow
	closed     error         // of Enable
	refused    error         // of Follow
}

func newMachine(t testing.TB) *machine {
	m := &machine{t: t, start: time.Now(), cgroupIDs: map[string]uint64{}, loads: map[string]load{},
		totals: map[string]*counter.Counts{}, most: 1000,
		present: [sample.NumEvents]bool{sample.Instructions: true, sample.RefCycles: true}}
	m.hotplug()
	return m
}

func (m *machine) now() time.Duration { return time.Since(m.start) + time.Hour }

func (m *machine) boot() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now() + m.asleep
}

// charge runs every followed container up to now.
func (m *machine) charge() {
	ran := m.now() - m.charged
	m.charged = m.now()
	if !m.enabled {
		return
	}
	for id, c := range m.totals {
		l, runs := m.loads[id]
		if !runs {
			continue
		}
		on := l.usage * ran.Seconds()
		c.OnCPU += uint64(on * 1e9)
		c.Counted += uint64(on * 1e9)
		c.CountedRef, c.CountedMisses = c.Counted, c.Counted
		c.Events[counter.RefCycles] += uint64(on * l.hertz)
		c.Events[counter.Instructions] += uint64(on * l.hertz / l.cpi)
	}
}

func (m *machine) Follow(id, cgroup string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.charge()
	m.follows++
	if m.refused != nil {
		return m.refused
	}
	if m.cgroupIDs[cgroup] == 0 {
		return errors.New("no such cgroup")
	}
	if m.totals[id] == nil && len(m.totals) == m.most {
		return &counter.FullError{ID: id, MaxGroups: m.most}
	}
	if m.totals[id] == nil {
		m.totals[id] = &counter.Counts{}
	}
	return nil
}

func (m *machine) Forget(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.charge()
	delete(m.totals, id)
}

func (m *machine) Enable(dst *counter.Reading) error {
	if err := m.enable(true); err != nil {
		return err
	}
	err := m.read(dst)
	if err != nil {
		return errors.Join(err, m.enable(false))
	}
	return nil
}

func (m *machine) Disable(dst *counter.Reading) error {
	return cmp.Or(m.enable(false), m.read(dst))
}

func (m *machine) SetSkip(cpus cpuset.Set) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.skip = cpus
	return nil
}

func (m *machine) enable(yes bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.charge()
	if yes && m.closed != nil {
		return m.closed
	}
	if m.enabled == yes {
		m.t.Errorf("enabled %t twice", yes)
	}
	m.enabled = yes
	m.edges = append(m.edges, m.now()-time.Hour)
	return nil
}

func (m *machine) read(dst *counter.Reading) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.charge()
	if m.broken != nil {
		return m.broken
	}
	*dst = counter.Reading{At: m.now(), Groups: dst.Groups[:0], CPUs: 4, Faults: m.faults, Changes: m.changes,
		Present: m.present, Cost: m.cost, MostCost: m.cost / 4, PerRun: time.Microsecond}
	for id, c := range m.totals {
		dst.Groups = append(dst.Groups, counter.Group{ID: id, Counts: *c})
	}
	slices.SortFunc(dst.Groups, func(a, b counter.Group) int { return cmp.Compare(a.ID, b.ID) })
	return nil
}

func (m *machine) node() Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := Node{Topology: m.topo}
	for _, c := range m.containers {
		n.Containers = append(n.Containers, &c)
	}
	return n
}

// accounts are the kernel's, of what ran in windows.
func (m *machine) accounts(of []*cpi.Container) map[string]sample.Used {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.charge()
	all := map[string]sample.Used{}
	for _, c := range of {
		if t := m.totals[c.ID]; t != nil {
			all[c.ID] = sample.Used{CPU: time.Duration(t.OnCPU) + m.hidden}
		} else if l, runs := m.loads[c.ID]; runs { // the kernel's account is of all
			all[c.ID] = sample.Used{CPU: time.Duration(l.usage * float64(m.now()))}
		}
	}
	return all
}

func (m *machine) life(cgroup string) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if life := m.cgroupIDs[cgroup]; life != 0 {
		return life, nil
	}
	return 0, errors.New("gone")
}

// add starts a container.
func (m *machine) add(id string, l load) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.charge()
	m.containers = append(m.containers, cpi.Container{ID: id, Cgroup: "/" + id, PodUID: "pod-" + id,
		Namespace: "default",
		Pod:       "p-" + id, Name: "main", Class: cpi.LS})
	m.cgroupIDs["/"+id]++
	m.loads[id] = l
}

// remove ends one.
func (m *machine) remove(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.charge()
	m.containers = slices.DeleteFunc(m.containers, func(c cpi.Container) bool { return c.ID == id })
	delete(m.cgroupIDs, "/"+id)
	delete(m.loads, id)
}

// reuse gives a container's path to another cgroup.
func (m *machine) reuse(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cgroupIDs["/"+id] += 100
}

// upset does something to the whole machine.
func (m *machine) upset(do func(*machine)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	do(m)
}

func (m *machine) hotplug() { m.topo = &topology.Topology{} }

func (m *machine) sleep() { m.asleep += time.Minute }

func (m *machine) breaks(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.broken = err
}

func (m *machine) sampler(log *bytes.Buffer) *Sampler {
	o := m.options()
	if log != nil {
		o.Log = slog.New(slog.NewTextHandler(log, nil))
	}
	return newSampler(o)
}

func newSampler(o Options) *Sampler {
	return New(o)
}

func (m *machine) options() Options {
	return Options{
		Counter: m, Node: m.node, CgroupID: m.life, Accounts: m.accounts, Interval: time.Minute,
		Window: 10 * time.Second,
		Rules:  sample.Hardware(10 * time.Second),
		Clock:  Clock{Monotonic: m.now, Boot: m.boot, Jitter: func() float64 { return 0.5 }},
	}
}

// run runs a sampler in a bubble until the test ends, with its windows.
func run(t *testing.T, s *Sampler) <-chan *Window {
	windows := make(chan *Window, 1000)
	s.Subscribe(func(w *Window) { windows <- w })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { s.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return windows
}

func (w *Window) of(id string) *sample.Result {
	for i := range w.Containers {
		if w.Containers[i].ID == id {
			return &w.Containers[i]
		}
	}
	return nil
}

func near(got, want float64) bool { return math.Abs(got-want) <= 1e-6*math.Abs(want) }

func TestTenSecondsOfEveryMinuteAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.add("a", load{2, 2e9, 1.5})
		s := m.sampler(nil)
		windows := run(t, s)
		if in, open := s.Next(); s.Latest() != nil || s.State() != "" || open || in > time.Minute {
			t.Errorf("before the first window: %+v, the next in %v, open %t", s.Latest(), in, open)
		}
		for range 3 {
			w := <-windows
			o := w.of("a")
			if o == nil || o.Dropped != sample.None || !near(o.Usage, 2) || !near(o.CPI, 1.5) || o.Pod != "p-a" ||
				w.Length != 10*time.Second || w.Followed != 1 {
				t.Fatalf("%+v", w)
			}
		}
		synctest.Wait()
		last := s.Latest().of("a").Sample
		last.End = last.End.Round(0) // a history has the wall clock alone
		if got := s.History("a", nil); len(got) != 3 || got[2] != last || !near(got[0].CPI, 1.5) {
			t.Errorf("history: %+v", got)
		}
		if in, open := s.Next(); open || in != 50*time.Second {
			t.Errorf("the next window in %v, open %t", in, open)
		}
		want := []time.Duration{25, 35, 85, 95, 145, 155}
		for i, at := range m.edges {
			if at != want[i]*time.Second {
				t.Fatalf("enabled and disabled at %v, want %v s", m.edges, want)
			}
		}
	})
}

// TestWindowsCannotBeForeseen: every interval has one, anywhere in it, with a pause after the one
// before; what is told at the beginning of an interval comes in a rhythm of its own.
func TestWindowsCannotBeForeseen(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		o := m.options()
		o.Clock.Jitter = rand.New(rand.NewPCG(seed, 0)).Float64
		var begins []time.Duration
		o.Begin = func() { begins = append(begins, m.now()-time.Hour) }
		s := newSampler(o)
		windows := run(t, s)
		const n = 1000
		var tenths [10]int
		for range n {
			<-windows
		}
		synctest.Wait()
		var ended time.Duration
		for i := range n {
			from, to, begin := m.edges[2*i], m.edges[2*i+1], time.Duration(i)*time.Minute
			if from < begin || to > begin+time.Minute || i > 0 && from < ended+10*time.Second {
				t.Fatalf("window %d is %v to %v, the one before ended at %v", i, from, to, ended)
			}
			tenths[min((from-begin)/(5*time.Second), 9)]++
			ended = to
			if begins[i] != begin {
				t.Fatalf("interval %d was told of at %v", i, begins[i])
			}
		}
		for i, count := range tenths {
			if count < n/20 || count > n/5 {
				t.Errorf("%d of %d windows begin in tenth %d of where they may", count, n, i)
			}
		}
	})
}

// Threads are those of what may be capped, at the window's end and outside of it.
func TestThreadsOfWhatMayBeCapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		for _, id := range []string{"batch", "web", "silent", "ends"} {
			m.add(id, load{1, 2e9, 1})
		}
		for i := range m.containers {
			m.containers[i].Class = cpi.BE
			if m.containers[i].ID == "web" {
				m.containers[i].Class = cpi.LS
			}
		}
		o := m.options()
		asked := 0
		o.Threads = func(cgroup string) (int32, error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.enabled {
				t.Errorf("%s is asked in the middle of a window", cgroup)
			}
			asked++
			if cgroup != "/batch" {
				return 7, errors.New("no such file")
			}
			return int32(8 * len(m.edges)), nil
		}
		windows := run(t, newSampler(o))
		time.Sleep(30 * time.Second) // the first window is open
		m.remove("ends")
		for i := range int32(2) {
			w := <-windows
			if w.of("batch").Threads != 16*(i+1) || w.of("web").Threads != 0 || w.of("silent").Threads != 0 {
				t.Errorf("window %d: %d, %d and %d threads", i, w.of("batch").Threads, w.of("web").Threads,
					w.of("silent").Threads)
			}
		}
		if asked != 4 {
			t.Errorf("asked %d times of two containers in two windows", asked)
		}
	})
}

func TestAnEventMayStandForMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.add("a", load{2, 2e9, 1.5})
		o := m.options()
		o.Worth[sample.Instructions] = 3
		if got := (<-run(t, newSampler(o))).of("a"); !near(got.CPI, 0.5) || !near(got.Usage, 2) {
			t.Errorf("%+v", got)
		}
	})
}

func TestContainersComeAndGoInAWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		for _, id := range []string{"stays", "ends", "reused", "between"} {
			m.add(id, load{0.5, 3e9, 2})
		}
		m.containers = append(m.containers, cpi.Container{ID: "created", Cgroup: "/created"},
			cpi.Container{ID: "pathless"})
		m.cgroupIDs[""] = 1 // the root, which is no container's
		s := m.sampler(nil)
		windows := run(t, s)
		<-windows
		m.remove("between")
		time.Sleep(55 * time.Second) // into the second window
		m.remove("ends")
		m.reuse("reused")
		m.add("begins", load{1, 2e9, 1})
		w := <-windows
		for id, want := range map[string]sample.Reason{"stays": sample.None, "ends": sample.Ended,
			"reused": sample.Restarted, "begins": sample.First} {
			if o := w.of(id); o == nil || o.Dropped != want {
				t.Errorf("%s: %+v, want %q", id, o, want)
			}
		}
		if len(w.Containers) != 4 {
			t.Errorf("%d containers: %+v", len(w.Containers), w.Containers)
		}
		synctest.Wait()
		if got := s.History("ends", nil); len(got) != 0 {
			t.Errorf("of what ended in the window: %+v", got)
		}
		w = <-windows
		for _, id := range []string{"stays", "reused", "begins"} {
			if o := w.of(id); o == nil || o.Dropped != sample.None || o.CPI == 0 {
				t.Errorf("a window later, %s: %+v", id, o)
			}
		}
		synctest.Wait()
		if len(m.totals) != 3 || len(s.histories) != 3 || w.Followed != 3 {
			t.Errorf("followed %v, remembered %d", m.totals, len(s.histories))
		}
		if got := s.History("ends", nil); len(got) != 0 {
			t.Errorf("of what ended: %+v", got)
		}
	})
}

// What the whole machine goes through drops a window and spoils no other.
func TestAWindowThatTheMachineSpoiltIsDropped(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*machine)
		want  sample.Reason
	}{
		"suspended":            {(*machine).sleep, sample.Clock},
		"a CPU off and on":     {(*machine).hotplug, sample.CPUs},
		"the kernel has more":  {func(m *machine) { m.hidden += time.Second }, sample.Missed},
		"a CPU joined":         {func(m *machine) { m.changes++ }, sample.CPUs},
		"counters opened anew": {func(m *machine) { m.faults.Reopened++ }, sample.None},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine(t)
				m.add("a", load{1, 2e9, 3})
				s := m.sampler(nil)
				windows := run(t, s)
				<-windows
				time.Sleep(55 * time.Second)
				m.upset(c.spoil)
				// What the kernel's own account is right about stays.
				used := c.want == sample.CPUs || c.want == sample.Missed || c.want == sample.None
				w := <-windows
				got := w.of("a")
				if w.Dropped != c.want && c.want != sample.Missed || used != (got.Dropped == sample.None) ||
					used && (got.NoCPI != c.want || got.Usage < 0.9) || !used && got.Dropped != c.want {
					t.Errorf("dropped %q, %q, no CPI %q, usage %v; want %q", w.Dropped, got.Dropped, got.NoCPI,
						got.Usage, c.want)
				}
				if w := <-windows; w.Dropped != sample.None || !near(w.of("a").CPI, 3) {
					t.Errorf("the next window: %+v", w)
				}
				synctest.Wait()
				if got := s.History("a", nil); len(got) != 2 && !used || len(got) != 3 && used {
					t.Errorf("history: %+v", got)
				}
			})
		})
	}
}

func TestALateTimerSkipsWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.add("a", load{1, 2e9, 3})
		s := m.sampler(nil)
		// the waits of two windows, for their intervals and moments, and their lengths
		late := []time.Duration{0, 5 * time.Second, 0, 0, 200 * time.Second}
		s.o.Clock.After = func(d time.Duration) <-chan time.Time {
			if len(late) > 0 {
				d, late = d+late[0], late[1:]
			}
			return time.After(d)
		}
		windows := run(t, s)
		if w := <-windows; w.Length != 15*time.Second || !near(w.of("a").Usage, 1) || !near(w.of("a").CPI, 3) {
			t.Errorf("5 s late: %+v", w)
		}
		if w := <-windows; w.Dropped != sample.Clock {
			t.Errorf("200 s late: %+v", w)
		}
		if w := <-windows; w.Dropped != sample.None || m.edges[4] != 327500*time.Millisecond {
			t.Errorf("the next window %+v\nedges %v; want it in the next minute, 10 s after the last at least: in the "+
				"middle of 305 to 350 s", w, m.edges)
		}
	})
}

func TestACounterThatFailsIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.add("a", load{1, 2e9, 3})
		var log bytes.Buffer
		s := m.sampler(&log)
		windows := run(t, s)
		<-windows
		m.breaks(errors.New("the PMU is on fire"))
		for range 3 {
			if w := <-windows; w.Failed == nil || len(w.Containers) != 0 {
				t.Errorf("%+v", w)
			}
			synctest.Wait()
			if !strings.Contains(s.State(), "on fire") {
				t.Errorf("state %q", s.State())
			}
		}
		if m.enabled {
			t.Error("a window that failed was left open")
		}
		m.breaks(nil)
		if w := <-windows; w.Failed != nil || !near(w.of("a").CPI, 3) {
			t.Errorf("mended: %+v", w)
		}
		synctest.Wait()
		if n := strings.Count(log.String(), "on fire"); n != 1 || s.State() != "" {
			t.Errorf("%d lines, state %q", n, s.State())
		}
	})
}

func TestAWindowThatDoesNotOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.add("a", load{1, 2e9, 3})
		m.closed = errors.New("no such program")
		s := m.sampler(nil)
		windows := run(t, s)
		w := <-windows
		synctest.Wait()
		if w.Failed == nil || w.End.IsZero() || w.Boot == 0 ||
			!strings.Contains(s.State(), "open a window: no such program") || len(m.edges) > 0 {
			t.Errorf("%+v, state %q, edges %v", w, s.State(), m.edges)
		}
		m.upset(func(m *machine) { m.closed = nil })
		if w := <-windows; w.Failed != nil || !near(w.of("a").CPI, 3) {
			t.Errorf("mended: %+v", w)
		}
	})
}

// What is followed is not followed anew in every window: that is work in the kernel.
func TestContainersAreFollowedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.add("a", load{1, 2e9, 3})
		m.containers = append(m.containers, cpi.Container{ID: "created", Cgroup: "/created"}) // it has no cgroup
		o := m.options()
		o.Accounts = nil // it does not matter whether there are any
		windows := run(t, newSampler(o))
		for range 3 {
			if w := <-windows; w.Unfollowed != 0 || !near(w.of("a").CPI, 3) {
				t.Errorf("%+v", w)
			}
		}
		if m.follows != 1 {
			t.Errorf("followed %d times", m.follows)
		}
		m.reuse("a")
		<-windows
		if <-windows; m.follows != 2 {
			t.Errorf("followed %d times, once as another cgroup", m.follows)
		}
		m.upset(func(m *machine) { m.refused = errors.New("no memory") })
		m.reuse("a")
		<-windows
		if w := <-windows; w.Followed != 0 || w.Unfollowed != 1 || len(m.totals) != 0 ||
			w.of("a").Dropped != sample.Unwatched {
			t.Errorf("what counted its last cgroup is there yet: %+v", w)
		}
	})
}

// A container that is capped at either end of a window was capped in it: its sample is not
// normal for it.
func TestCappedInPartOfAWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.add("a", load{1, 2e9, 3})
		capped := func(yes bool) { m.upset(func(m *machine) { m.containers[0].Capped = yes }) }
		windows := run(t, m.sampler(nil))
		for i, c := range []struct{ change, to, want bool }{{want: false}, {true, true, true}, {want: true},
			{true, false, true}, {want: false}} {
			time.Sleep(30 * time.Second) // the window is open
			if c.change {
				capped(c.to)
			}
			if w := <-windows; w.of("a").Capped != c.want {
				t.Errorf("window %d: capped %t, want %t", i, w.of("a").Capped, c.want)
			}
			time.Sleep(time.Until(m.start.Add(time.Duration(i+1) * time.Minute)))
		}
	})
}

// An account that is known of one of two readings only is unknown.
func TestEdgesOfWhatWasRead(t *testing.T) {
	one, both := map[string]sample.Used{"a": {CPU: 1}}, map[string]sample.Used{"a": {CPU: 3, Stopped: 2}}
	for _, c := range []struct {
		accounts [2]map[string]sample.Used
		want     sample.Account
	}{
		{[2]map[string]sample.Used{one, both}, sample.Account{Known: true, Before: 1, After: 3, Stopped: 2}},
		{[2]map[string]sample.Used{one, nil}, sample.Account{Before: 1}},
		{[2]map[string]sample.Used{nil, both}, sample.Account{After: 3, Stopped: 2}},
	} {
		e := edge{accounts: c.accounts}
		if got := e.account("a"); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.accounts, got, c.want)
		}
	}
}

func TestThreadsInACgroup(t *testing.T) {
	for text, want := range map[string]int32{"8\n": 8, "0\n": 0, "99999999999\n": math.MaxInt32, "": -1, "max\n": -1,
		"-1\n": -1} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "pod"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "pod", "pids.current"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := ThreadsIn(dir)("/pod"); err == nil != (want >= 0) || err == nil && got != want {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
		if _, err := ThreadsIn(dir)("/gone"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("no cgroup: %v", err)
		}
	}
}

func TestTheRealClocks(t *testing.T) {
	var o Options
	o.fill()
	c := &o.Clock
	if boot, monotonic := c.Boot(), c.Monotonic(); monotonic <= 0 || boot+time.Minute < monotonic {
		t.Errorf("since boot %v, of which awake %v", boot, monotonic)
	}
	if now := c.Wall(); time.Since(now).Abs() > time.Minute {
		t.Errorf("it is %v", now)
	}
	if j := c.Jitter(); j < 0 || j >= 1 || c.After == nil || o.Log == nil {
		t.Errorf("jitter %v", j)
	}
}

func TestWhatDoesNotFitIsSaidAndNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.most = 2
		for i := range 4 {
			m.add(fmt.Sprint(i), load{1, 2e9, 3})
		}
		var log bytes.Buffer
		s := m.sampler(&log)
		windows := run(t, s)
		for range 2 {
			w := <-windows
			if w.Followed != 2 || w.Unfollowed != 2 || len(w.Containers) != 4 {
				t.Errorf("%+v", w)
			}
			uncounted := 0
			for _, o := range w.Containers {
				if o.NoCPI == sample.Unwatched {
					uncounted++
				}
				if o.Dropped != sample.None || !near(o.Usage, 1) {
					t.Errorf("%s: dropped %q, usage %v: the kernel knows it", o.ID, o.Dropped, o.Usage)
				}
			}
			if uncounted != 2 {
				t.Errorf("%d of 2 are said to be uncounted", uncounted)
			}
		}
		synctest.Wait()
		if want := "2 of 4 containers are not counted"; !strings.Contains(s.State(), want) ||
			strings.Count(log.String(), "\n") != 1 {
			t.Errorf("state %q, want %q; log\n%s", s.State(), want, &log)
		}
		m.remove("0")
		if w := <-windows; w.Followed != 2 || w.Unfollowed != 1 {
			t.Errorf("with room for one more: %+v", w)
		}
	})
}

// TestTurnsAreTaken: of more than have a place, those in question are counted in every window
// with who runs next to them, and everybody is in turn.
func TestTurnsAreTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.most = 4
		for i, usage := range []float64{0.1, 0.2, 3, 2, 0.3, 0.4, 0.5} {
			m.add(fmt.Sprint(i), load{usage, 2e9, 3})
		}
		m.containers[4].Class = cpi.BE
		o := m.options()
		o.Most = 4
		o.Questions = func() []cpi.Question { return []cpi.Question{{Victim: "1"}} }
		windows := run(t, newSampler(o))
		counted := map[string]int{}
		for i := range 8 {
			w := <-windows
			var full *counter.FullError
			if !errors.As(w.FollowErr, &full) || full.MaxGroups != 4 || w.Followed != 4 || w.Unfollowed != 3 {
				t.Errorf("window %d: %+v", i, w)
			}
			for _, c := range w.Containers {
				if (c.NoCPI == sample.None) != (c.Role != sample.NoPlace) || c.Dropped != sample.None {
					t.Errorf("window %d: %s is %v, and its sample %+v", i, c.ID, c.Role, c.Sample)
				}
				if c.Role != sample.NoPlace {
					counted[c.ID]++
				}
			}
			if v, s := w.of("1").Role, w.of("4").Role; v != sample.AsVictim || s != sample.AsSuspect {
				t.Errorf("window %d: the victim is counted as %v, the suspect as %v", i, v, s)
			}
		}
		for id := range m.loads {
			if counted[id] == 0 {
				t.Errorf("%s was not counted in 8 windows: %v", id, counted)
			}
		}
	})
}

// TestATestHasABudget: where the budget shortens windows, a running test has its pair counted
// in whole ones, and nobody else but whose turn it is.
func TestATestHasABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		for i := range 40 {
			m.add(fmt.Sprint(i), load{0.01, 2e9, 3})
		}
		o := m.options()
		o.Budget = Budget{Node: 0.001, CPU: 0.05, Test: 0.005}
		o.LeaveOut = func([sample.NumEvents]bool, string) error { return nil }
		test := []cpi.Question{{Victim: "38"}, {Victim: "39", Suspects: []string{"7"}, Test: true}}
		var asked []cpi.Question
		o.Questions = func() []cpi.Question { return asked }
		s := newSampler(o)
		m.cost = 3600 * time.Millisecond // 1.5 % of 4 CPUs in a minute, fifteen times the budget
		windows := run(t, s)
		<-windows
		synctest.Wait()
		m.upset(func(m *machine) { m.cost = 360 * time.Millisecond }) // 0.15 %
		if w := <-windows; w.Step != Short || w.Testing || w.Length != 5*time.Second || w.FollowErr != nil {
			t.Fatalf("without a test: step %d, %v, %t, %v", w.Step, w.Length, w.Testing, w.FollowErr)
		}
		synctest.Wait()
		asked = test
		for range 2 * calmWindows {
			w := <-windows
			if !w.Testing || w.Length != 10*time.Second || w.Followed != 3 || w.of("39").Role != sample.AsVictim ||
				w.of("7").Role != sample.AsSuspect || w.FollowErr != nil {
				t.Fatalf("with a test: step %d, %v, %d counted, %v and %v, %v", w.Step, w.Length, w.Followed,
					w.of("39").Role, w.of("7").Role, w.FollowErr)
			}
		}
		synctest.Wait()
		if want := "by cpi.budget.test"; !strings.Contains(s.State(), want) {
			t.Errorf("state %q, want %q in it", s.State(), want)
		}
		m.upset(func(m *machine) { m.cost = 2 * time.Second }) // 0.83 %, more than 0.5 %
		<-windows
		synctest.Wait()
		if w := <-windows; !w.Testing || w.Length != 5*time.Second {
			t.Errorf("beyond its own budget: step %d, %v", w.Step, w.Length)
		}
		synctest.Wait()
		asked = nil
		if w := <-windows; w.Testing || w.Step <= Eighth {
			t.Errorf("after the test: step %d, testing %t", w.Step, w.Testing)
		}
	})
}

func TestTheEndLeavesNoWindowOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		s := m.sampler(nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { s.Run(ctx); close(done) }()
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if _, open := s.Next(); !m.enabled || !open {
			t.Fatal("no window is open after 30 s")
		}
		cancel()
		<-done
		if m.enabled || s.Latest() != nil {
			t.Errorf("enabled %t, latest %+v", m.enabled, s.Latest())
		}
	})
}

// step is one thing that happens to a random node, and the time until the next.
type step struct {
	what  string
	whom  int
	load  load
	after time.Duration
}

func drawSteps(r *rapid.T) []step {
	return rapid.SliceOfN(rapid.Custom(func(r *rapid.T) step {
		return step{
			what: rapid.SampledFrom([]string{"add", "add", "remove", "replace", "reuse", "hotplug", "sleep", "break",
				"mend", "wait"}).Draw(r, "what"),
			whom: rapid.IntRange(0, 9).Draw(r, "whom"),
			load: load{rapid.Float64Range(0.1, 1).Draw(r, "usage"), rapid.Float64Range(1e9, 4e9).Draw(r, "hertz"),
				rapid.Float64Range(0.3, 9).Draw(r, "cpi")},
			after: time.Duration(rapid.Int64Range(0, int64(90*time.Second)).Draw(r, "after")),
		}
	}), 20, 60).Draw(r, "steps")
}

func (m *machine) play(s step, i int, truth map[string]load) {
	add := func(id string) { truth[id] = s.load; m.add(id, s.load) }
	switch all := m.node().Containers; s.what {
	case "add":
		add(fmt.Sprint("c", i))
	case "remove", "replace", "reuse":
		if s.whom >= len(all) {
			return
		}
		id := all[s.whom].ID
		switch s.what {
		case "reuse":
			m.reuse(id)
		case "remove":
			m.remove(id)
		case "replace":
			m.remove(id)
			add(fmt.Sprint("c", i))
		}
	case "hotplug":
		m.upset((*machine).hotplug)
	case "sleep":
		m.upset((*machine).sleep)
	case "break":
		m.breaks(errors.New("broken"))
	case "mend":
		m.breaks(nil)
	}
}

// A node that lives at random: every sample is the truth.
func TestSamplesOfARandomNodeAreTrue(t *testing.T) {
	kept := 0
	check := func(r *rapid.T) {
		steps := drawSteps(r) // outside of the bubble, where rapid is at home
		var wrong error
		synctest.Test(t, func(t *testing.T) {
			m := newMachine(t)
			windows := run(t, m.sampler(nil))
			truth := map[string]load{}
			for i, s := range steps {
				m.play(s, i, truth)
				time.Sleep(s.after)
				synctest.Wait()
				for len(windows) > 0 {
					for _, o := range (<-windows).Containers {
						l := truth[o.ID]
						if o.Dropped != sample.None {
							continue
						}
						kept++
						if !near(o.Usage, l.usage) || o.NoCPI == sample.None && !near(o.CPI, l.cpi) {
							wrong = fmt.Errorf("%s: usage %v and CPI %v, in truth %+v", o.ID, o.Usage, o.CPI, l)
						}
					}
				}
			}
		})
		if wrong != nil {
			r.Fatal(wrong)
		}
	}
	// With -short a check is 20 lives, too few to be sure of that many samples.
	for round := 0; round == 0 || round < 20 && kept < 100; round++ {
		rapid.Check(t, check)
	}
	if kept < 100 {
		t.Errorf("only %d samples were kept", kept)
	}
}

func TestAHistoryCostsLittle(t *testing.T) {
	const budget, kept = 8 << 10, 80 // bytes a sample of a history: cpi/sample, TestWhatAHistoryKeepsIsSmall
	if cost := maxDepth*kept + unsafe.Sizeof(sample.History{}) +
		unsafe.Sizeof(sample.Result{}) + unsafe.Sizeof(cpi.Container{}) +
		unsafe.Sizeof(sample.Result{}) + 512; cost > budget {
		t.Errorf("a container costs %d bytes at most, the budget is %d", cost, budget)
	}
	for interval, want := range map[time.Duration]int{time.Second: maxDepth, 15 * time.Second: 61, time.Minute: 16,
		time.Hour: minDepth} {
		if got := depth(interval); got != want {
			t.Errorf("windows every %v: %d are kept, want %d", interval, got, want)
		}
	}
}

// Who may run on CPUs that are left alone, and on no others, has usage and no place in the
// counter.
func TestContainersOnCPUsThatAreLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.add("alone", load{1, 2e9, 3})
		m.add("both", load{1, 2e9, 3})
		alone, both, skip := cpuset.Of(2, 3), cpuset.Of(1, 2), cpuset.Of(2, 3)
		m.containers[0].Place.CPUs, m.containers[1].Place.CPUs = &alone, &both
		o := m.options()
		o.Node = func() Node {
			n := m.node()
			n.Skip = skip
			return n
		}
		s := newSampler(o)
		windows := run(t, s)
		w := <-windows
		if got := w.of("alone"); got.Dropped != sample.None || got.NoCPI != sample.Skipped || !near(got.Usage, 1) {
			t.Errorf("on CPUs that are left alone: dropped %q, no CPI %q, usage %v", got.Dropped, got.NoCPI, got.Usage)
		}
		if got := w.of("both"); got.NoCPI != sample.None || !near(got.CPI, 3) {
			t.Errorf("on one of them and another: %+v", got)
		}
		if m.skip != skip || len(m.totals) != 1 || w.Unfollowed != 0 || s.State() != "" {
			t.Errorf("the counter leaves %s alone and follows %d; %d are too many; %q", &m.skip, len(m.totals),
				w.Unfollowed, s.State())
		}
	})
}

// A window that took too much is followed by one that counts less and says why; when counting
// is cheap again everything comes back.
func TestCountingIsGoverned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		for i := range 40 {
			m.add(fmt.Sprint(i), load{0.25, 2e9, 3})
		}
		var left [sample.NumEvents]bool
		o := m.options()
		o.Budget = testBudget
		o.LeaveOut = func(events [sample.NumEvents]bool, why string) error {
			if events != (Step(0)).leftOut() && !strings.Contains(why, "cpi.budget") {
				t.Errorf("left out, since %q", why)
			}
			left = events
			return nil
		}
		s := newSampler(o)
		m.cost = 1800 * time.Millisecond // 0.75 % of 4 CPUs in a minute: the budget is 0.1 %
		windows := run(t, s)
		if w := <-windows; w.Step != Everything || w.Unfollowed != 0 {
			t.Errorf("the first window is at step %d", w.Step)
		}
		synctest.Wait()
		m.upset(func(m *machine) { m.cost = time.Millisecond })
		w := <-windows
		if w.Step != Eighth || w.Followed != 5 || w.Unfollowed != 35 || left != Eighth.leftOut() {
			t.Errorf("after a window of 7.5 times the budget: step %d, %d followed, left out %v", w.Step, w.Followed,
				left)
		}
		synctest.Wait()
		if !strings.Contains(s.State(), "cpi.budget is 0.1 and 1 %") {
			t.Errorf("the state is %q", s.State())
		}
		for _, o := range w.Containers {
			if o.Dropped != sample.None || !near(o.Usage, 0.25) {
				t.Errorf("%s has no usage: dropped %q", o.ID, o.Dropped)
			}
		}
		for range int(Eighth)*calmWindows + 1 {
			w = <-windows
		}
		synctest.Wait()
		if w.Step != Everything || w.Followed != 40 || s.State() != "" || left != (Step(0)).leftOut() {
			t.Errorf("cheap again: step %d, %d followed, %q", w.Step, w.Followed, s.State())
		}
	})
}
