package loop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/experiment"
	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/cpi/sampler"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// Options are what a Loop is made of. Submit is required.
type Options struct {
	Detector detect.Config
	// Experiment, where it is not nil, is the detector instead. Of Detector it takes what
	// specs of the cluster must be like, and from what usage on samples are passed to
	// OnLearned.
	Experiment *experiment.Config
	// Coin draws a number in [0, 1), which nobody can foresee; nil: from a generator with a
	// random seed.
	Coin func() float64
	// Node returns the containers that run now, so that those of a throttled job that were
	// created since the last window are throttled too; nil: with the next window.
	Node func() sampler.Node
	// Submit hands an event to the policy and waits until it has handled it.
	Submit func(context.Context, policy.Event) error
	// Notify publishes an Event on a pod; OnFinding receives every finding. Neither may block.
	Notify    func(policy.Notice)
	OnFinding func(*Finding)
	// Bandwidth holds containers back from memory; nil: nobody can.
	Bandwidth Bandwidth
	// History returns a container's samples, oldest first, of which an analysis says which
	// resource a victim lacked. nil: none does.
	History func(id string) []sample.Sample
	// OnLearned receives the samples that show what is normal for their jobs. It must
	// neither block nor keep the slice.
	OnLearned func([]detect.Learned)
	// Background runs as long as Run does; nil: nothing.
	Background func(context.Context)
	// Save persists what the detector learned, every SaveEvery, before the coins of a test
	// take effect, and when Run ends; nil: nothing is persisted.
	Save  func(State) error
	Clock Clock
	Log   *slog.Logger
}

// Bandwidth holds containers back from memory, each until its time is over.
type Bandwidth interface {
	Hold(id, cgroup string, d time.Duration) error
	Release(id string) error
}

// Clock is the loop's source of time. Nil fields use the system's clocks. Boot
// continues while the machine is suspended.
type Clock struct {
	Wall  func() time.Time
	Boot  func() time.Duration
	After func(time.Duration) <-chan time.Time
}

func (o *Options) fill() {
	c := &o.Clock
	if c.Wall == nil {
		c.Wall = time.Now
	}
	if c.Boot == nil {
		c.Boot = bootTime
	}
	if c.After == nil {
		c.After = time.After
	}
	if o.Coin == nil {
		o.Coin = rand.Float64
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Notify == nil {
		o.Notify = func(policy.Notice) {}
	}
	if o.OnFinding == nil {
		o.OnFinding = func(*Finding) {}
	}
	if o.OnLearned == nil {
		o.OnLearned = func([]detect.Learned) {}
	}
}

// State is what a detector learned. One of the two is not nil.
type State struct {
	Detector   *detect.State
	Experiment *experiment.State
}

// Counters are the detector's totals. Tests are zero where it makes none.
type Counters struct {
	Samples, Outliers, Anomalies, Analyses uint64
	Tests                                  Tests
}

// Tests are the totals of a detector by experiment.
type Tests = experiment.Counters

// detector is a state machine at work. It is called under the loop's lock.
type detector interface {
	// take judges a window. unsaved says that what was learned must be saved before the
	// orders are executed.
	take(w *queued, now time.Time) (orders []order, unsaved bool)
	// next is when tick is due; false: never.
	next() (time.Time, bool)
	tick(now time.Time) []order
	// refuse says that the policy did not execute an order.
	refuse(o *order, now time.Time, why string)
	// questions are the containers that the next window has to count.
	questions() []cpi.Question
}

// memory is what a detector knows. It is called under the loop's lock.
type memory interface {
	counters() Counters
	jobs(now time.Time) []detect.JobInfo
	setSpec(now time.Time, s *detect.Spec, until time.Time) error
	save() State
	restore(now time.Time, s State) error
}

// accounts say what a detector has in force. It is called under the loop's lock.
type accounts interface {
	throttles(now time.Time) []Throttle
	// short is how long windows are to be that follow one another; 0: they are not.
	short() time.Duration
}

// queued is a window that waits for the detector.
type queued struct {
	*sampler.Window
	began time.Duration // when its interval began, by Clock.Boot
}

// Loop runs the detector. Run owns it; the other methods may be called from any
// goroutine.
type Loop struct {
	o        Options
	windows  chan queued
	replaced atomic.Uint64
	interval atomic.Int64 // Clock.Boot at the last Begin; 0: there was none
	anchor   time.Time    // plus Clock.Boot is the detector's clock: it reads like a wall clock and never jumps
	saved    time.Time    // when Save was last called

	mu       sync.Mutex // guards what follows
	detector detector
	memory   memory
	accounts accounts
	topology *topology.Topology // at the last window
	queue    queue              // of the last window
	known    map[string]bool    // IDs of the containers the detector follows; false: not in this window
}

// New makes a loop whose detector has learned nothing yet.
func New(o Options) (*Loop, error) {
	o.fill()
	if o.Submit == nil {
		return nil, errors.New("loop: Options.Submit is required")
	}
	l := &Loop{anchor: o.Clock.Wall().Add(-o.Clock.Boot()).Round(0).UTC(), o: o, windows: make(chan queued, 1),
		known: map[string]bool{}}
	if o.Experiment != nil {
		d, err := experiment.New(*o.Experiment)
		if err != nil {
			return nil, fmt.Errorf("detector: %w", err)
		}
		t := newTrials(l, d)
		l.detector, l.memory, l.accounts = t, t, t
		return l, nil
	}
	d, err := detect.New(o.Detector)
	if err != nil {
		return nil, fmt.Errorf("detector: %w", err)
	}
	w := &watcher{l: l, d: d}
	l.detector, l.memory, l.accounts = w, w, w
	return l, nil
}

// Begin says that an interval begins, in which there is one window. It and Take are
// called by one goroutine.
func (l *Loop) Begin() { l.interval.Store(int64(l.o.Clock.Boot())) }

// Take queues a window and never blocks. A window that is still queued is replaced and
// counted in Replaced.
func (l *Loop) Take(w *sampler.Window) {
	q := queued{Window: w, began: time.Duration(l.interval.Load())}
	if q.began == 0 {
		q.began = w.Boot
	}
	for {
		select {
		case l.windows <- q:
			return
		default:
		}
		select {
		case <-l.windows:
			l.replaced.Add(1)
		default:
		}
	}
}

// Replaced counts the windows that were dropped for a newer one before the detector saw
// them.
func (l *Loop) Replaced() uint64 { return l.replaced.Load() }

// Counters returns the detector's counters.
func (l *Loop) Counters() Counters {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.memory.counters()
}

// Questions are the detector's, for sampler.Options: the containers that the next window has to count.
func (l *Loop) Questions() []cpi.Question {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.detector.questions()
}

// Short is how long the windows are to be that follow one another now, for sampler.Options;
// 0: there is one in each interval.
func (l *Loop) Short() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.accounts.short()
}

// Throttles lists the containers that the detector has throttled now.
func (l *Loop) Throttles() []Throttle {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.accounts.throttles(l.now())
}

// Jobs lists the jobs that the detector knows. Units of the host are none.
func (l *Loop) Jobs() []detect.JobInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(l.memory.jobs(l.now()), func(j detect.JobInfo) bool { return cpi.OfHost(j.Job) })
}

// SetSpecs gives the detector the cluster's specs, valid for the duration good. It
// skips implausible specs and returns an error for each.
func (l *Loop) SetSpecs(specs []detect.Spec, good time.Duration) (refused []error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	for i := range specs {
		if err := l.memory.setSpec(now, &specs[i], now.Add(good)); err != nil {
			refused = append(refused, err)
		}
	}
	return refused
}

// Run judges windows and enforces deadlines until ctx ends.
func (l *Loop) Run(ctx context.Context) {
	l.saved = l.now()
	defer func() { l.saveIfDue(l.saved.Add(SaveEvery)) }()
	if l.o.Background != nil {
		var background sync.WaitGroup
		defer background.Wait()
		background.Go(func() { l.o.Background(ctx) })
	}
	for {
		l.saveIfDue(l.now())
		var due <-chan time.Time
		if wait, ok := l.next(); ok {
			due = l.o.Clock.After(wait)
		}
		select {
		case <-ctx.Done():
			return
		case w := <-l.windows:
			l.judge(ctx, &w)
		case <-due:
			l.tick(ctx)
		}
	}
}

// SaveEvery is how often the learned state is saved. Learning takes hours, so a crash
// must not lose more than this.
const SaveEvery = 10 * time.Minute

// Restore loads what an earlier daemon learned. It must be called before Run.
// Implausible parts are skipped and named in the error.
func (l *Loop) Restore(s State) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.memory.restore(l.now(), s)
}

// saveIfDue saves the learned state if the last time is at least SaveEvery ago.
func (l *Loop) saveIfDue(now time.Time) {
	if l.o.Save == nil || now.Sub(l.saved) < SaveEvery {
		return
	}
	l.save(now)
}

func (l *Loop) save(now time.Time) {
	if l.o.Save == nil {
		return
	}
	l.saved = now
	l.mu.Lock()
	learned := l.memory.save()
	l.mu.Unlock()
	if err := l.o.Save(learned); err != nil {
		l.o.Log.Warn("cannot save what the detector learned; a restart would lose it", "err", err)
	}
}

// at converts a reading of Clock.Boot to the detector's clock.
func (l *Loop) at(boot time.Duration) time.Time { return l.anchor.Add(boot) }

func (l *Loop) now() time.Time { return l.at(l.o.Clock.Boot()) }

func (l *Loop) next() (time.Duration, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok := l.detector.next()
	return max(at.Sub(l.now()), 0), ok
}

func (l *Loop) tick(ctx context.Context) {
	l.mu.Lock()
	orders := l.detector.tick(l.now())
	l.mu.Unlock()
	l.execute(ctx, orders)
}

func (l *Loop) judge(ctx context.Context, w *queued) {
	if w.Failed != nil {
		return
	}
	l.mu.Lock()
	l.topology = w.Topology
	w = l.queue.take(w)
	orders, unsaved := l.detector.take(w, l.at(w.Boot))
	l.mu.Unlock()
	if unsaved {
		l.save(l.now())
	}
	l.execute(ctx, orders)
}

// follow tells a detector of a window's containers, and of those that are gone.
func (l *Loop) follow(w *queued, put func(*sample.Result) error, forget func(id string)) {
	for id := range l.known {
		l.known[id] = false
	}
	for i := range w.Containers {
		r := &w.Containers[i]
		if r.Dropped == sample.Ended {
			continue
		}
		if err := put(r); err != nil {
			l.o.Log.Debug("the detector does not follow a container", "container", r.ID, "err", err)
			continue
		}
		l.known[r.ID] = true
	}
	for id, here := range l.known {
		if !here {
			forget(id)
			delete(l.known, id)
		}
	}
}

// CoreCycles ends the platform of containers whose CPI is in core cycles. What is normal
// for a job in those is learned apart from what is normal in reference cycles.
const CoreCycles = " (core cycles)"

func onPlatform(c *cpi.Container, reference bool) *cpi.Container {
	if reference {
		return c
	}
	core := *c
	core.Platform += CoreCycles
	return &core
}

// order is an event for the policy, or how long to hold the target back from memory, and the finding to report once
// that is accepted.
type order struct {
	event   policy.Event
	narrow  *time.Duration // 0: let it go; nil: there is an event
	target  *cpi.Container
	finding *Finding       // nil: nothing is reported
	command detect.Command // what a watcher was told to do
}

// execute submits orders to the policy. If the policy refuses one, the detector learns of
// it.
func (l *Loop) execute(ctx context.Context, orders []order) {
	for i := range orders {
		o := &orders[i]
		err := l.carryOut(ctx, o)
		if err == nil {
			if o.finding != nil {
				l.report(o.finding)
			}
			continue
		}
		if ctx.Err() != nil {
			return // the policy keeps the deadlines of the commands it accepted
		}
		l.o.Log.Warn("a command of the detector was refused", "command", o.kind(),
			"pod", o.target.Namespace+"/"+o.target.Pod, "container", o.target.Name, "err", err)
		l.mu.Lock()
		l.detector.refuse(o, l.now(), err.Error())
		l.mu.Unlock()
	}
}

func (l *Loop) carryOut(ctx context.Context, o *order) error {
	switch {
	case o.narrow == nil:
		return l.o.Submit(ctx, o.event)
	case l.o.Bandwidth == nil:
		return errors.New("there is nothing to limit memory bandwidth by")
	case *o.narrow == 0:
		return l.o.Bandwidth.Release(o.target.ID)
	}
	return l.o.Bandwidth.Hold(o.target.ID, o.target.Cgroup, *o.narrow)
}

// kind of an order, for the log.
func (o *order) kind() string {
	if o.narrow != nil {
		return "memory bandwidth"
	}
	return fmt.Sprintf("%T", o.event)
}
