package loop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/cpi/sampler"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// Options are what a Loop is made of. Submit is required.
type Options struct {
	Detector detect.Config
	// Submit hands an event to the policy and waits until it has handled it.
	Submit func(context.Context, policy.Event) error
	// Notify publishes an Event on a pod; OnFinding receives every finding. Neither may block.
	Notify    func(policy.Notice)
	OnFinding func(*Finding)
	// OnLearned receives the samples that show what is normal for their jobs. It must
	// neither block nor keep the slice.
	OnLearned func([]detect.Learned)
	// Background runs as long as Run does; nil: nothing.
	Background func(context.Context)
	// Save persists what the detector learned, every SaveEvery and when Run ends; nil:
	// nothing is persisted.
	Save  func(detect.State) error
	Clock Clock
	Log   *slog.Logger
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

// Loop runs the detector. Run owns it; the other methods may be called from any
// goroutine.
type Loop struct {
	o        Options
	windows  chan *sampler.Window
	replaced atomic.Uint64
	anchor   time.Time // plus Clock.Boot is the detector's clock: it reads like a wall clock and never jumps
	saved    time.Time // when Save was last called

	mu       sync.Mutex // guards what follows
	detector *detect.Detector
	topology *topology.Topology // at the last window
	known    map[string]bool    // IDs of the containers the detector follows; false: not in this window
	samples  []detect.Sample
}

// New makes a loop whose detector has learned nothing yet.
func New(o Options) (*Loop, error) {
	o.fill()
	if o.Submit == nil {
		return nil, errors.New("loop: Options.Submit is required")
	}
	d, err := detect.New(o.Detector)
	if err != nil {
		return nil, fmt.Errorf("detector: %w", err)
	}
	return &Loop{
		anchor: o.Clock.Wall().Add(-o.Clock.Boot()).Round(0).UTC(), o: o, windows: make(chan *sampler.Window, 1),
		detector: d,
		known:    map[string]bool{},
	}, nil
}

// Take queues a window and never blocks. A window that is still queued is replaced and
// counted in Replaced.
func (l *Loop) Take(w *sampler.Window) {
	for {
		select {
		case l.windows <- w:
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
func (l *Loop) Counters() detect.Counters {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.detector.Counters()
}

// Jobs lists the jobs that the detector knows.
func (l *Loop) Jobs() []detect.JobInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.detector.Jobs()
}

// SetSpecs gives the detector the cluster's specs, valid for the duration good. It
// skips implausible specs and returns an error for each.
func (l *Loop) SetSpecs(specs []detect.Spec, good time.Duration) (refused []error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	for i := range specs {
		if err := l.detector.SetSpec(now, specs[i], now.Add(good)); err != nil {
			refused = append(refused, err)
		}
	}
	return refused
}

// Inspect calls look with the detector, under the loop's lock. look must not keep it.
func (l *Loop) Inspect(look func(*detect.Detector)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	look(l.detector)
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
			l.judge(ctx, w)
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
func (l *Loop) Restore(s detect.State) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.detector.Restore(l.now(), s)
}

// saveIfDue saves the learned state if the last time is at least SaveEvery ago.
func (l *Loop) saveIfDue(now time.Time) {
	if l.o.Save == nil || now.Sub(l.saved) < SaveEvery {
		return
	}
	l.saved = now
	l.mu.Lock()
	learned := l.detector.Save()
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
	at, ok := l.detector.Next()
	return max(at.Sub(l.now()), 0), ok
}

func (l *Loop) tick(ctx context.Context) {
	l.mu.Lock()
	now := l.now()
	orders := l.handle(l.detector.Tick(now), now)
	l.mu.Unlock()
	l.execute(ctx, orders)
}

func (l *Loop) judge(ctx context.Context, w *sampler.Window) {
	if w.Failed != nil {
		return
	}
	l.mu.Lock()
	now := l.at(w.Boot)
	l.topology = w.Topology
	orders := l.follow(w, now)
	orders = append(orders, l.handle(l.detector.Observe(now, l.samples), now)...)
	l.o.OnLearned(l.detector.Learned())
	l.mu.Unlock()
	l.execute(ctx, orders)
}

// follow passes a window's containers to the detector and forgets those that are gone.
// It leaves their samples in l.samples.
func (l *Loop) follow(w *sampler.Window, now time.Time) []order {
	for id := range l.known {
		l.known[id] = false
	}
	l.samples = l.samples[:0]
	for i := range w.Containers {
		r := &w.Containers[i]
		if r.Dropped == sample.Ended {
			continue
		}
		ref, err := l.detector.Put(now, onPlatform(r.Container, w.Reference))
		if err != nil {
			l.o.Log.Debug("the detector does not follow a container", "container", r.ID, "err", err)
			continue
		}
		l.known[r.ID] = true
		if r.Dropped == sample.None {
			l.samples = append(l.samples, sampleOf(r, ref, now))
		}
	}
	var orders []order
	for id, here := range l.known {
		if !here {
			orders = append(orders, l.handle(l.detector.Forget(now, id), now)...)
			delete(l.known, id)
		}
	}
	return orders
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

// sampleOf converts a container's result of a window to a sample of the detector.
func sampleOf(r *sample.Result, ref detect.Ref, at time.Time) detect.Sample {
	s := detect.Sample{Ref: ref, At: at, Usage: r.Usage, Threads: r.Threads, Capped: r.Capped}
	if r.NoCPI == sample.None {
		s.CPI, s.Counted = r.CPI, r.Counted
	}
	if r.HasMPKI && r.Length > 0 {
		s.Misses = float64(r.Delta.Events[sample.LLCMisses]) / r.Length.Seconds()
	}
	return s
}

// order is a command for the policy, and the finding to report once the policy has
// accepted it.
type order struct {
	event   policy.Event
	command detect.Command
	target  *cpi.Container
	finding *Finding
}

// execute submits the commands to the policy. If the policy refuses one, the detector
// learns of it and tries the next suspect.
func (l *Loop) execute(ctx context.Context, orders []order) {
	for i := range orders {
		o := &orders[i]
		err := l.o.Submit(ctx, o.event)
		if err == nil {
			l.report(o.finding)
			continue
		}
		if ctx.Err() != nil {
			return // the policy keeps the deadlines of the commands it accepted
		}
		l.o.Log.Warn("the policy refused a command of the detector", "command", o.command.Kind,
			"pod", o.target.Namespace+"/"+o.target.Pod, "container", o.target.Name, "err", err)
		l.mu.Lock()
		now := l.now()
		l.handle(l.detector.Refuse(now, o.command, err.Error()), now) // a refusal orders nothing
		l.mu.Unlock()
	}
}

// orderOf converts a command to an event for the policy; nil for a command that the
// policy does not execute.
func (l *Loop) orderOf(c *detect.Command, now time.Time) *order {
	target := l.detector.Container(c.Container)
	o := &order{command: *c, target: target}
	left := c.Until.Sub(now)
	switch c.Kind {
	case detect.DoCap:
		o.event = policy.CapVerdict{ID: target.ID, Milli: c.Milli, For: left}
	case detect.DoUncap:
		o.event = policy.CapReleased{ID: target.ID}
	case detect.DoMove:
		o.event = policy.BEKeptOff{Victim: target.ID, CPUs: around(l.topology, target.Place.CPUs), For: left}
	case detect.DoRestore:
		o.event = policy.BEKeptOff{Victim: target.ID}
	default:
		return nil
	}
	return o
}
