package sampler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/counter"
	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/topology"
)

// Sampler takes samples of every container. Run owns it; the other methods are safe for
// concurrent use.
type Sampler struct {
	o           Options
	subscribers []func(*Window)

	last  atomic.Pointer[Window]
	state atomic.Pointer[string]
	next  atomic.Int64 // Clock.Monotonic at the next window's start; -1: a window is open

	mu        sync.Mutex // guards histories
	histories map[string]*sample.History

	// The fields below belong to the goroutine of Run.
	followed
	setup uint64
	core  bool // the last window had its CPIs in core cycles
	steps
	topology    *topology.Topology
	edges       [2]edge
	lastWarning string // so that it is not logged twice
}

// steps is how much is counted.
type steps struct {
	governor governor
	tests    governor // of windows that count the pair of a test alone
	spared   int      // further windows that are left out, for what the last one took
	told     Step     // that the counter knows of
}

// followed is which containers are counted, all by ID.
type followed struct {
	cgroupIDs map[string]uint64  // of those that are
	left      map[string]left    // that are not, though they run
	used      map[string]float64 // CPUs in the windows, of both
	roles     map[string]sample.Role
	waits     map[string]int // windows since each was counted, of those that could be
	number    uint64         // of the window
}

// left is a container that is not counted.
type left struct {
	cgroupID uint64
	why      sample.Reason
}

// New makes a sampler.
func New(o Options) *Sampler {
	o.fill()
	s := &Sampler{o: o, histories: map[string]*sample.History{},
		followed: followed{cgroupIDs: map[string]uint64{}, left: map[string]left{}, roles: map[string]sample.Role{}},
		steps:    steps{tests: governor{top: Eighth, step: Eighth}}}
	for i := range s.edges {
		s.edges[i].worth = o.Worth
	}
	s.state.Store(new(string))
	s.governor.budget = o.Budget
	s.tests.budget = Budget{Node: o.Budget.Test, CPU: o.Budget.CPU}
	return s
}

// Subscribe registers f for every window. Run calls it on its own goroutine. Subscribe
// must be called before Run, and f must not change the window.
func (s *Sampler) Subscribe(f func(*Window)) { s.subscribers = append(s.subscribers, f) }

// Latest returns the last window, nil before the first.
func (s *Sampler) Latest() *Window { return s.last.Load() }

// State says what is wrong with the last window; empty: nothing.
func (s *Sampler) State() string { return *s.state.Load() }

// Next returns the time until the next window opens; open says that one is open now.
func (s *Sampler) Next() (in time.Duration, open bool) {
	at := s.next.Load()
	if at < 0 {
		return 0, true
	}
	return max(time.Duration(at)-s.o.Clock.Monotonic(), 0), false
}

// History appends the kept samples of a container to dst, oldest first.
func (s *Sampler) History(id string, dst []sample.Sample) []sample.Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.histories[id]; h != nil {
		dst = h.AppendTo(dst)
	}
	return dst
}

// Run opens one window in every interval until ctx ends, at a random moment of it: what runs
// can neither work around the windows nor rest in them. A window that ends in a later
// interval takes that one's place, and between two there is always a pause. While Short asks
// for them, further windows fill the time between.
func (s *Sampler) Run(ctx context.Context) {
	c := &s.o.Clock
	origin := c.Monotonic()
	begin := origin
	at := s.moment(begin, begin)
	s.next.Store(int64(at))
	for s.sleepUntil(ctx, begin) {
		s.o.Begin()
		if s.between(ctx, at); !s.sleepUntil(ctx, at) {
			return
		}
		s.next.Store(-1)
		p := s.plan()
		w := s.window(ctx, &p)
		now := c.Monotonic()
		begin = origin + (max(now-origin, 0)/s.o.Interval+1)*s.o.Interval
		at = s.moment(begin, now+s.pauseBetween())
		s.next.Store(int64(at))
		if w != nil {
			s.keep(w)
		}
		s.between(ctx, begin)
	}
}

// between opens further windows up to a time, as long as a test asks for them.
func (s *Sampler) between(ctx context.Context, until time.Duration) {
	for s.o.Short != nil && ctx.Err() == nil {
		now, short := s.o.Clock.Monotonic(), s.o.Short()
		length := min(cmp.Or(short, s.o.Interval/asksPerInterval), until-now)
		if length <= 0 || length < short/2 {
			return
		}
		if short > 0 {
			s.further(ctx, length)
		}
		s.sleepUntil(ctx, now+length)
	}
}

// asksPerInterval is how often Short is asked where it has asked for nothing.
const asksPerInterval = 12

// further opens a window of a test.
func (s *Sampler) further(ctx context.Context, length time.Duration) {
	if s.spared > 0 {
		s.spared--
		return
	}
	p := s.testsAlone(length - length/10) // others need the counters too
	if p.pair == 0 {
		return
	}
	if w := s.window(ctx, &p); w != nil && w.Failed == nil {
		for _, f := range s.subscribers {
			f(w)
		}
	}
}

// moment draws when to open the window of the interval that begins at from, not before first.
func (s *Sampler) moment(from, first time.Duration) time.Duration {
	last := from + s.o.Interval - s.o.Window
	first = min(max(from, first), last)
	return first + time.Duration(s.o.Clock.Jitter()*float64(last-first))
}

// pauseBetween leaves the counters to others between two windows.
func (s *Sampler) pauseBetween() time.Duration { return min(s.o.Window, (s.o.Interval-s.o.Window)/2) }

// sleepUntil returns false if ctx ended first.
func (s *Sampler) sleepUntil(ctx context.Context, at time.Duration) bool {
	for {
		wait := at - s.o.Clock.Monotonic()
		if wait <= 0 {
			return ctx.Err() == nil
		}
		select {
		case <-ctx.Done():
			return false
		case <-s.o.Clock.After(wait):
		}
	}
}

// window counts for one window; nil: ctx ended.
func (s *Sampler) window(ctx context.Context, p *plan) *Window {
	from, to := &s.edges[0], &s.edges[1]
	if p.length == 0 && p.governor.rest() {
		return s.failed(errors.New(p.governor.state()))
	}
	why := s.follow(from, p)
	step := p.governor.step
	length := cmp.Or(p.length, step.length(s.o.Window))
	err := errors.Join(s.leaveOut(p.governor), s.o.Counter.SetSkip(from.node.Skip))
	if err == nil {
		err = s.read(from, from.node.Containers, s.o.Counter.Enable)
	}
	if err != nil {
		return s.failed(fmt.Errorf("open a window: %w", err))
	}
	s.pause(ctx, length)
	// A container that started meanwhile has no sample.
	err = s.read(to, from.node.Containers, s.o.Counter.Disable)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return s.failed(fmt.Errorf("count: %w", err))
	}
	from.fill(s.cgroupIDs, s.left, s.setup)
	s.remember(from, to)
	s.snapshot(to)
	to.fill(s.currentIDs(to), s.left, s.setup)
	from.sample.Core = s.core
	from.sample.Waits, to.sample.Waits = s.o.Waits, s.o.Waits
	to.sample.Causes = s.o.Causes
	w := &Window{
		Window: *sample.Judge(&from.sample, &to.sample, s.rules(length)), Topology: to.node.Topology,
		Faults: to.reading.Faults, Calls: to.reading.Calls, Step: step, Testing: p.pair > 0, Between: p.length > 0,
		FollowErr: why,
	}
	w.Followed, w.Unfollowed = s.watched(from)
	w.ByCPU = byCPU(from, to)
	to.reading.Rows = nil // of a thousand containers on 256 CPUs they may be megabytes
	s.core = !w.Reference
	if w.Between {
		s.spare(p.length, &to.reading)
	} else {
		s.govern(p.governor, &to.reading)
		s.warnOnce(why)
	}
	s.turned(w)
	s.threads(w)
	return w
}

// rules are those of windows of a length.
func (s *Sampler) rules(length time.Duration) sample.Rules {
	r := s.o.Rules
	r.MinLength = time.Duration(float64(r.MinLength) * float64(length) / float64(s.o.Window))
	return r
}

// watched is how many containers have a place in the counter, and how many have none. Units of the
// host are no containers.
func (s *Sampler) watched(e *edge) (with, without int) {
	for _, c := range e.node.Containers {
		if c.Class == cpi.Host {
			continue
		}
		if _, counted := s.cgroupIDs[c.ID]; counted {
			with++
		} else if s.left[c.ID].why == sample.Unwatched {
			without++
		}
	}
	return with, without
}

func (s *Sampler) pause(ctx context.Context, length time.Duration) {
	select {
	case <-ctx.Done():
	case <-s.o.Clock.After(length):
	}
}

// leaveOut tells the counter which events a step leaves out.
func (s *Sampler) leaveOut(g *governor) error {
	if g.step == s.told || s.o.LeaveOut == nil {
		return nil
	}
	s.told = g.step
	return s.o.LeaveOut(g.step.leftOut(), cmp.Or(g.why, s.governor.why))
}

// govern chooses how much the next window counts, by what this one took.
func (s *Sampler) govern(g *governor, r *counter.Reading) {
	spent := s.spent(s.o.Interval, r)
	if g.next(&spent) {
		s.o.Log.Warn("how much is counted changes, for what counting costs", "now", g.step.String(), "why", g.why)
	}
}

// spare leaves out as many further windows as the last one's cost calls for.
func (s *Sampler) spare(length time.Duration, r *counter.Reading) {
	spent := s.spent(length, r)
	s.spared = min(max(int(math.Ceil(s.tests.over(&spent)))-1, 0), maxRests)
}

// spent is what a window took of the time that it stands for.
func (s *Sampler) spent(of time.Duration, r *counter.Reading) Spent {
	return Spent{Node: r.Cost.Seconds() / of.Seconds() / float64(max(r.CPUs, 1)),
		CPU: r.MostCost.Seconds() / of.Seconds(), PerRun: r.PerRun, Reads: r.ReadCost, Containers: len(s.waits)}
}

// read reads the counters, by what begins or ends a window, and all clocks. It reads the
// kernel's own account of the containers before and after the counters, as bounds.
func (s *Sampler) read(e *edge, containers []*cpi.Container, counters func(*counter.Reading) error) error {
	c := &s.o.Clock
	e.sample.Wall = c.Wall()
	asleep := c.Boot() - c.Monotonic()
	e.accounts[0] = s.accounts(containers)
	if err := counters(&e.reading); err != nil {
		return err
	}
	e.sample.Monotonic = e.reading.At
	e.sample.Boot = e.reading.At + asleep
	e.accounts[1] = s.accounts(containers)
	if e.taken = nil; s.o.Taken != nil {
		e.taken = s.o.Taken()
	}
	return nil
}

func (s *Sampler) accounts(of []*cpi.Container) map[string]sample.Used {
	if s.o.Accounts == nil {
		return nil
	}
	return s.o.Accounts(of)
}

// snapshot takes the containers that run now.
func (s *Sampler) snapshot(e *edge) {
	e.node = s.o.Node()
	if e.node.Topology != s.topology {
		s.topology = e.node.Topology
		s.setup += 1 << 32 // edge.fill adds how often CPUs joined or left
	}
}

// currentIDs returns the cgroup IDs of those of an edge's containers that have a cgroup
// now.
func (s *Sampler) currentIDs(e *edge) map[string]uint64 {
	cgroupIDs := make(map[string]uint64, len(e.node.Containers))
	for _, c := range e.node.Containers {
		if c.Cgroup == "" {
			continue
		}
		if life, err := s.o.CgroupID(c.Cgroup); err == nil {
			cgroupIDs[c.ID] = life
		}
	}
	return cgroupIDs
}

// remember notes what containers used in a window by the kernel's account, counted or not.
// What was used in earlier ones fades slowly, so that work that rests for a while is counted
// when it comes back.
func (s *Sampler) remember(from, to *edge) {
	const fades = 7.0 / 8
	length := to.sample.Monotonic - from.sample.Monotonic
	used := make(map[string]float64, len(to.accounts[0]))
	for id, until := range to.accounts[0] {
		if since, known := from.accounts[1][id]; known && until.CPU >= since.CPU && length > 0 {
			used[id] = max((until.CPU-since.CPU).Seconds()/length.Seconds(), fades*s.used[id])
		}
	}
	s.used = used
}

// keep adds a window to the histories and passes it to the subscribers.
func (s *Sampler) keep(w *Window) {
	if w.Failed == nil {
		s.addToHistories(w)
		text := s.governor.state()
		if w.Unfollowed > 0 && text == "" {
			text = fmt.Sprintf("%d of %d containers are not counted", w.Unfollowed, w.Unfollowed+w.Followed)
			if w.FollowErr != nil {
				text += ": " + w.FollowErr.Error()
			}
		}
		if w.Testing {
			text += "; the pair of a test is counted alone, by cpi.budget.test"
		}
		s.state.Store(&text)
	}
	s.last.Store(w)
	for _, f := range s.subscribers {
		f(w)
	}
}

func (s *Sampler) addToHistories(w *Window) {
	s.mu.Lock()
	defer s.mu.Unlock()
	there := make(map[string]bool, len(w.Containers))
	for i := range w.Containers {
		o := &w.Containers[i]
		if o.Dropped == sample.Ended {
			continue
		}
		there[o.ID] = true
		if o.Dropped != sample.None {
			continue
		}
		h := s.histories[o.ID]
		if h == nil {
			h = sample.NewHistory(depth(s.o.Interval))
			s.histories[o.ID] = h
		}
		h.Add(o.Sample)
	}
	for id := range s.histories {
		if !there[id] {
			delete(s.histories, id)
		}
	}
}

func (s *Sampler) failed(err error) *Window {
	s.warnOnce(err)
	text := err.Error()
	s.state.Store(&text)
	return &Window{Window: sample.Window{End: s.o.Clock.Wall(), Boot: s.o.Clock.Boot()}, Failed: err}
}

// warnOnce logs an error unless it is the one logged last.
func (s *Sampler) warnOnce(err error) {
	if err == nil {
		s.lastWarning = ""
		return
	}
	var full *counter.FullError
	key := err.Error()
	if errors.As(err, &full) {
		key = "full" // whichever container did not fit: it is the same warning
	}
	if key != s.lastWarning {
		s.lastWarning = key
		s.o.Log.Warn("CPU performance is not fully counted; everything else continues", "err", err)
	}
}

// edge is one end of a window.
type edge struct {
	node     Node
	reading  counter.Reading
	accounts [2]map[string]sample.Used // before and after the reading
	taken    []sample.Taken            // by CPU, so far
	sample   sample.Edge
	worth    [sample.NumEvents]uint64
}

// fill builds sample.Edge from what was read. cgroupIDs are those of the containers
// that exist.
func (e *edge) fill(cgroupIDs map[string]uint64, out map[string]left, setup uint64) {
	r := &e.reading
	s := &e.sample
	s.Setup, s.CPUs, s.Missed = setup+r.Changes, r.CPUs, r.Faults.Missed
	s.Lost, s.Present = time.Duration(r.Unseen), r.Present
	for i := range sample.NumEvents {
		s.Enabled[i], s.Running[i] = time.Duration(r.Enabled[i]), time.Duration(r.Running[i])
	}
	s.Delays = s.Delays[:0]
	for _, w := range r.Waits {
		s.Delays = append(s.Delays, sample.Wait{Victim: w.Victim,
			Delay: sample.Delay{By: w.By, For: time.Duration(w.Nanoseconds)}})
	}
	s.Groups = s.Groups[:0]
	for _, c := range e.node.Containers {
		life, there := cgroupIDs[c.ID]
		uncounted, is := out[c.ID]
		if !there && !is {
			continue
		}
		if !there {
			life = uncounted.cgroupID
		}
		g := sample.Group{Container: c, CgroupID: life, Account: e.account(c.ID), Left: uncounted.why}
		if at, found := slices.BinarySearchFunc(r.Groups, c.ID, func(g counter.Group, id string) int {
			return cmp.Compare(g.ID, id)
		}); found {
			g.Counts = e.countsOf(&r.Groups[at].Counts)
		}
		s.Groups = append(s.Groups, g)
	}
}

func (e *edge) account(id string) (a sample.Account) {
	before, earlier := e.accounts[0][id]
	after, later := e.accounts[1][id]
	a.Before, a.After, a.Known = before.CPU, after.CPU, earlier && later
	a.Waiting, a.Stopped, a.Pressure = after.Waiting, after.Stopped, after.Pressure
	return a
}

func (e *edge) countsOf(c *counter.Counts) sample.Counts {
	events := c.Events
	for i, worth := range e.worth {
		events[i] *= max(worth, 1)
	}
	return sample.Counts{
		Events: events, OnCPU: time.Duration(c.OnCPU), Counted: time.Duration(c.Counted),
		CountedRef: time.Duration(c.CountedRef), CountedMisses: time.Duration(c.CountedMisses),
		Wait: time.Duration(c.RunQueueWait), Switches: c.Switches,
	}
}
