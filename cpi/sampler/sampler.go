package sampler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/counter"
	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/topology"
)

// Sampler takes samples of every container. Run runs it; the other methods may
// be called from any goroutine.
type Sampler struct {
	o       Options
	present [sample.NumEvents]bool
	waits   bool
	told    []func(*Window)

	last  atomic.Pointer[Window]
	state atomic.Pointer[string]
	next  atomic.Int64 // Clock.Monotonic of the next window's beginning; -1: it is open

	mu        sync.Mutex // guards histories
	histories map[string]*sample.History

	// The rest belongs to Run.
	lives    map[string]uint64 // of followed containers, by ID
	left     map[string]bool   // that could not be followed
	setup    uint64
	topology *topology.Topology
	edges    [2]edge
	silent   string // the last complaint, so that nothing is said twice
}

// New makes a sampler. present says which events the counter counts at all,
// waits whether it counts waiting.
func New(o Options, present [sample.NumEvents]bool, waits bool) *Sampler {
	o.fill()
	s := &Sampler{o: o, present: present, waits: waits, histories: map[string]*sample.History{},
		lives: map[string]uint64{}, left: map[string]bool{}}
	for i := range s.edges {
		s.edges[i].worth = o.Worth
	}
	s.state.Store(new(string))
	return s
}

// Subscribe has every window told, on the goroutine of Run. It is called before
// Run; what it is given is nobody's to change.
func (s *Sampler) Subscribe(told func(*Window)) { s.told = append(s.told, told) }

// Latest is the last window, nil before the first.
func (s *Sampler) Latest() *Window { return s.last.Load() }

// State is what is wrong with the last window, "" that nothing is.
func (s *Sampler) State() string { return *s.state.Load() }

// Next is how long it is until the next window opens; open says that one is.
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

// Run opens windows until ctx ends. A window that a timer missed is left out, so
// that they never follow each other without a pause.
func (s *Sampler) Run(ctx context.Context) {
	c := &s.o.Clock
	at := c.Monotonic() + time.Duration(c.Jitter()*float64(s.o.Interval-s.o.Window))
	s.next.Store(int64(at))
	for s.sleepUntil(ctx, at) {
		s.next.Store(-1)
		w := s.window(ctx)
		at += (max(c.Monotonic()-at, 0)/s.o.Interval + 1) * s.o.Interval
		s.next.Store(int64(at))
		if w != nil {
			s.keep(w)
		}
	}
}

// sleepUntil is false when ctx ended first.
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

// window counts for the length of one; nil says that ctx ended.
func (s *Sampler) window(ctx context.Context) *Window {
	from, to := &s.edges[0], &s.edges[1]
	why := s.follow(from)
	if err := s.o.Counter.Enable(); err != nil {
		return s.failed(fmt.Errorf("open a window: %w", err))
	}
	begun := s.read(from, from.node.Containers)
	if begun == nil {
		s.pause(ctx)
	}
	var ended error
	if begun == nil && ctx.Err() == nil {
		ended = s.read(to, from.node.Containers) // who came meanwhile has no sample
	}
	disabled := s.o.Counter.Disable()
	if ctx.Err() != nil {
		return nil
	}
	if err := errors.Join(begun, ended, disabled); err != nil {
		return s.failed(fmt.Errorf("count: %w", err))
	}
	from.fill(s.lives, s.setup, s.present, s.waits)
	s.look(to)
	there := s.there(to)
	for id := range s.left {
		delete(there, id) // it did not begin in this window
	}
	to.fill(there, s.setup, s.present, s.waits)
	w := &Window{
		Window: *sample.Judge(&from.sample, &to.sample, s.o.Rules), Topology: to.node.Topology,
		Faults:   to.reading.Faults,
		Followed: len(s.lives), Unfollowed: len(s.left), Unfollowable: why,
	}
	s.threads(w)
	s.complain(why)
	return w
}

func (s *Sampler) pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-s.o.Clock.After(s.o.Window):
	}
}

// read reads every counter, every clock, and before and after it the kernel's account
// of these.
func (s *Sampler) read(e *edge, containers []*cpi.Container) error {
	c := &s.o.Clock
	e.sample.Wall = c.Wall()
	asleep := c.Boot() - c.Monotonic()
	e.accounts[0] = s.accounts(containers)
	if err := s.o.Counter.Read(&e.reading); err != nil {
		return err
	}
	e.sample.Monotonic = e.reading.At
	e.sample.Boot = e.reading.At + asleep
	e.accounts[1] = s.accounts(containers)
	return nil
}

func (s *Sampler) accounts(of []*cpi.Container) map[string]time.Duration {
	if s.o.Accounts == nil {
		return nil
	}
	return s.o.Accounts(of)
}

// look takes what runs now.
func (s *Sampler) look(e *edge) {
	e.node = s.o.Node()
	if e.node.Topology != s.topology {
		s.topology = e.node.Topology
		s.setup += 1 << 32 // what the counter itself reopened is added below
	}
}

// there is which of an edge's containers have a cgroup now.
func (s *Sampler) there(e *edge) map[string]uint64 {
	lives := make(map[string]uint64, len(e.node.Containers))
	for _, c := range e.node.Containers {
		if c.Cgroup == "" {
			continue
		}
		if life, err := s.o.Life(c.Cgroup); err == nil {
			lives[c.ID] = life
		}
	}
	return lives
}

// follow has the counter follow what runs now, and nothing else. The error is
// why it does not follow one of those that it should.
func (s *Sampler) follow(e *edge) (why error) {
	s.look(e)
	there := s.there(e)
	for id := range s.lives {
		if _, still := there[id]; !still {
			s.forget(id)
		}
	}
	clear(s.left)
	for _, c := range e.node.Containers {
		life, is := there[c.ID]
		if known, followed := s.lives[c.ID]; !is || followed && known == life {
			continue
		}
		err := s.o.Counter.Follow(c.ID, c.Cgroup)
		if err == nil {
			s.lives[c.ID] = life
			continue
		}
		s.forget(c.ID)
		if _, gone := s.o.Life(c.Cgroup); gone == nil {
			s.left[c.ID], why = true, err
		}
	}
	return why
}

func (s *Sampler) forget(id string) {
	s.o.Counter.Forget(id)
	delete(s.lives, id)
}

// keep adds a window to the histories and tells it.
func (s *Sampler) keep(w *Window) {
	if w.Failed == nil {
		s.remember(w)
		text := ""
		if w.Unfollowed > 0 {
			text = fmt.Sprintf("%d of %d containers are not counted: %v", w.Unfollowed, w.Unfollowed+w.Followed,
				w.Unfollowable)
		}
		s.state.Store(&text)
	}
	s.last.Store(w)
	for _, told := range s.told {
		told(w)
	}
}

func (s *Sampler) remember(w *Window) {
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
	s.complain(err)
	text := err.Error()
	s.state.Store(&text)
	return &Window{Window: sample.Window{End: s.o.Clock.Wall(), Boot: s.o.Clock.Boot()}, Failed: err}
}

// complain says what is wrong once, until it is another thing.
func (s *Sampler) complain(err error) {
	if err == nil {
		s.silent = ""
		return
	}
	var full *counter.FullError
	key := err.Error()
	if errors.As(err, &full) {
		key = "full" // whose turn it was to be left out does not matter
	}
	if key != s.silent {
		s.silent = key
		s.o.Log.Warn("CPU performance is not counted as it should be; everything else goes on", "err", err)
	}
}

// edge is one end of a window.
type edge struct {
	node     Node
	reading  counter.Reading
	accounts [2]map[string]time.Duration // before the reading and after
	sample   sample.Edge
	worth    [sample.NumEvents]uint64
}

// fill makes the edge of what was read. lives are the cgroups that are there.
func (e *edge) fill(lives map[string]uint64, setup uint64, present [sample.NumEvents]bool, waits bool) {
	r := &e.reading
	s := &e.sample
	s.Setup, s.CPUs, s.Missed = setup+r.Faults.Reopened, r.CPUs, r.Faults.Missed
	s.Lost = time.Duration(r.Other.OnCPU - min(r.Other.Counted, r.Other.OnCPU))
	s.Present, s.Waits = present, waits
	for i := range sample.NumEvents {
		s.Enabled[i], s.Running[i] = time.Duration(r.Enabled[i]), time.Duration(r.Running[i])
	}
	s.Groups = s.Groups[:0]
	for _, c := range e.node.Containers {
		life, there := lives[c.ID]
		if !there {
			continue
		}
		g := sample.Group{Container: c, Life: life, Account: e.account(c.ID)}
		if at, found := slices.BinarySearchFunc(r.Groups, c.ID, func(g counter.Group, id string) int {
			return cmp.Compare(g.ID, id)
		}); found {
			g.Counts = e.countsOf(&r.Groups[at].Counts)
		}
		s.Groups = append(s.Groups, g)
	}
}

func (e *edge) account(id string) (a sample.Account) {
	var earlier, later bool
	a.Before, earlier = e.accounts[0][id]
	a.After, later = e.accounts[1][id]
	a.Known = earlier && later
	return a
}

func (e *edge) countsOf(c *counter.Counts) sample.Counts {
	events := c.Events
	for i, worth := range e.worth {
		events[i] *= max(worth, 1)
	}
	return sample.Counts{
		Events: events, OnCPU: time.Duration(c.OnCPU), Counted: time.Duration(c.Counted),
		Wait: time.Duration(c.RunQueueWait), Switches: c.Switches,
	}
}
