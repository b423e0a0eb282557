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
	// Submit gives the policy an event and waits for it.
	Submit func(context.Context, policy.Event) error
	// Notify tells people about a pod; Told has every finding. Neither may wait.
	Notify func(policy.Notice)
	Told   func(*Finding)
	// Learned has the samples that show what is normal for their jobs. It must not
	// wait, and must not keep them.
	Learned func([]detect.Learned)
	// Beside runs as long as Run does; nil: nothing does.
	Beside func(context.Context)
	// Keep saves what was learned, every KeepEvery and at the end; nil: nobody does.
	Keep  func(detect.State) error
	Clock Clock
	Log   *slog.Logger
}

// Clock is time as the loop sees it. Nil fields are the real thing; Boot goes on
// while the machine is suspended.
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
	if o.Told == nil {
		o.Told = func(*Finding) {}
	}
	if o.Learned == nil {
		o.Learned = func([]detect.Learned) {}
	}
}

// Loop runs the detector. Run owns it; the other methods may be called from any
// goroutine.
type Loop struct {
	o       Options
	windows chan *sampler.Window
	late    atomic.Uint64
	anchor  time.Time // what Clock.Boot is added to: the detector's clock reads like a wall clock and never jumps
	kept    time.Time // when Keep was last asked

	mu       sync.Mutex // guards what follows
	detector *detect.Detector
	topology *topology.Topology // of the last window
	known    map[string]bool    // IDs of the containers that the detector was given; false: not in this window
	samples  []detect.Sample
}

// New makes a loop whose detector knows nothing yet.
func New(o Options) (*Loop, error) {
	o.fill()
	if o.Submit == nil {
		return nil, errors.New("loop: no policy is given")
	}
	d, err := detect.New(o.Detector)
	if err != nil {
		return nil, fmt.Errorf("cpi: %w", err)
	}
	return &Loop{
		anchor: o.Clock.Wall().Add(-o.Clock.Boot()).Round(0).UTC(), o: o, windows: make(chan *sampler.Window, 1),
		detector: d,
		known:    map[string]bool{},
	}, nil
}

// Take hands over a window. It never waits: a window that finds the one before it
// still there replaces it, and that is counted.
func (l *Loop) Take(w *sampler.Window) {
	for {
		select {
		case l.windows <- w:
			return
		default:
		}
		select {
		case <-l.windows:
			l.late.Add(1)
		default:
		}
	}
}

// Late is how many windows were replaced before the detector saw them.
func (l *Loop) Late() uint64 { return l.late.Load() }

// Counters of the detector.
func (l *Loop) Counters() detect.Counters {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.detector.Counters()
}

// Jobs are those that are known here.
func (l *Loop) Jobs() []detect.JobInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.detector.Jobs()
}

// SetSpecs takes what the cluster knows of jobs, good for a time. What cannot be
// believed is left out, and why is returned.
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

// With lets somebody look at the detector, which he must not keep.
func (l *Loop) With(look func(*detect.Detector)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	look(l.detector)
}

// Run judges windows and keeps deadlines until ctx ends.
func (l *Loop) Run(ctx context.Context) {
	l.kept = l.now()
	defer func() { l.keep(l.kept.Add(KeepEvery)) }()
	if l.o.Beside != nil {
		var beside sync.WaitGroup
		defer beside.Wait()
		beside.Go(func() { l.o.Beside(ctx) })
	}
	for {
		l.keep(l.now())
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

// KeepEvery is how often what was learned is saved: a kill loses no more than that
// of what takes hours to learn.
const KeepEvery = 10 * time.Minute

// Restore takes what an earlier daemon learned. It is called before Run; what
// cannot be true is left out and told.
func (l *Loop) Restore(s detect.State) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.detector.Restore(l.now(), s)
}

// keep saves what was learned where it is time.
func (l *Loop) keep(now time.Time) {
	if l.o.Keep == nil || now.Sub(l.kept) < KeepEvery {
		return
	}
	l.kept = now
	l.mu.Lock()
	learned := l.detector.Save()
	l.mu.Unlock()
	if err := l.o.Keep(learned); err != nil {
		l.o.Log.Warn("what was learned of jobs is not saved; a restart learns it again", "err", err)
	}
}

// at is a reading of Clock.Boot on the detector's clock.
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
	l.carryOut(ctx, orders)
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
	l.o.Learned(l.detector.Learned())
	l.mu.Unlock()
	l.carryOut(ctx, orders)
}

// follow gives the detector the containers of a window and forgets the others. It
// leaves their samples in l.samples.
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
		ref, err := l.detector.Put(now, r.Container)
		if err != nil {
			l.o.Log.Debug("a container is not watched for interference", "container", r.ID, "err", err)
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

// sampleOf is what the detector has to know of a window of a container.
func sampleOf(r *sample.Result, ref detect.Ref, at time.Time) detect.Sample {
	s := detect.Sample{Ref: ref, At: at, Usage: r.Usage, Threads: r.Threads, Capped: r.Capped}
	if r.NoCPI == sample.None {
		s.CPI = r.CPI
	}
	if r.HasMPKI && r.Length > 0 {
		s.Misses = float64(r.Delta.Events[sample.LLCMisses]) / r.Length.Seconds()
	}
	return s
}

// order is something for the policy to do, and what is told once it is done.
type order struct {
	event   policy.Event
	command detect.Command
	target  *cpi.Container
	told    *Finding
}

// carryOut has the policy do what was ordered. What it refuses it refuses for a
// reason: the detector hears it and goes on to the next suspect.
func (l *Loop) carryOut(ctx context.Context, orders []order) {
	for i := range orders {
		o := &orders[i]
		err := l.o.Submit(ctx, o.event)
		if err == nil {
			l.tell(o.told)
			continue
		}
		if ctx.Err() != nil {
			return // the policy keeps the deadlines of what it was told
		}
		l.o.Log.Warn("not carried out", "what", o.command.Kind, "pod", o.target.Namespace+"/"+o.target.Pod, "container",
			o.target.Name, "err", err)
		l.mu.Lock()
		now := l.now()
		l.handle(l.detector.Refuse(now, o.command, err.Error()), now) // a refusal orders nothing
		l.mu.Unlock()
	}
}

// orderOf turns a command into an event for the policy; nil where there is none.
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
