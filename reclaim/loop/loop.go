package loop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/usage"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/reclaim"
)

// Reader reads the CPU use of cgroups; *usage.Reader implements it.
type Reader interface {
	Follow(id, path string) error
	Forget(id string)
	Read(dst []usage.Reading) []usage.Reading
}

// Options configure a Loop. Usage, Node and Pods are required.
type Options struct {
	Usage Reader
	// Poll reads two cgroups between looks, so that a sudden rise of production is
	// noticed sooner; nil: no polls.
	Poll Reader
	// Node returns the policy's present state, Pods the running pods and what they were
	// promised.
	Node func() *policy.Snapshot
	Pods func(context.Context) ([]policy.PodView, error)
	// Ready says that all running pods are known; nil: they are. Until then best effort
	// has its floor and nothing is estimated.
	Ready func() bool

	// Estimator says what may be promised; nil: nothing is lent.
	Estimator *reclaim.Estimator
	// Offer publishes thousandths of a CPU. Evict requests an eviction, on a goroutine
	// of its own: a slow API server must not delay suppression.
	Offer func(milli int64)
	Evict func(ctx context.Context, pod policy.PodView, why string) Answer
	// Notify publishes an Event; nil: none is published.
	Notify func(policy.Notice)

	// Suppress narrows the best-effort pool by the rules of Suppression; nil: it is not
	// suppressed.
	Suppress    func(context.Context, policy.BESuppressed) error
	Suppression reclaim.Suppress
	Group       Group
	// Reserve is the number of CPUs left to processes outside of pods, in addition to
	// CPUs that best effort may not use. The estimator has its own.
	Reserve float64

	// Save persists what was learned, with every final sample and at the end. It runs
	// on a goroutine of its own: a slow disk must not delay suppression. nil: nothing
	// is persisted.
	Save  func(reclaim.Checkpoint) error
	Name  string // of the node, for the checkpoint
	Clock Clock
	Log   *slog.Logger
}

// Clock is the loop's source of time. Nil fields use the system's clocks.
type Clock struct {
	Now  func() time.Time
	Tick <-chan time.Time // one a second
	// Poll says when to read Options.Poll.
	Poll <-chan time.Time
}

// Intervals.
const (
	lookEvery       = time.Second
	EstimateEvery   = 10 * time.Second
	SaveEvery       = 10 * time.Minute // where samples are longer
	minSaveInterval = time.Minute      // where they are shorter
)

func (o *Options) fill() {
	if o.Clock.Now == nil {
		o.Clock.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Offer == nil {
		o.Offer = func(int64) {}
	}
	if o.Ready == nil {
		o.Ready = func() bool { return true }
	}
	if o.Notify == nil {
		o.Notify = func(policy.Notice) {}
	}
}

// Status is the result of the last look, in CPUs.
type Status struct {
	At         time.Time // zero: before the first look
	Capacity   float64
	Production float64 // use of the pods of LSE, LSR and LS
	OnShared   float64 // the part of it that is not on CPUs of Owned
	Batch      float64 // use of the pods of BE
	Outside    float64 // use of everything but pods
	Known      bool    // the above were measured
	Budget     reclaim.Budget
	Pool       int        // CPUs of the whole best-effort pool
	Apart      int        // CPUs that best effort may not use
	Owned      int        // of these, the CPUs of owners
	Suppressed cpuset.Set // what best effort is left with; empty: its whole pool
	Retreated  bool       // these are the reserved CPUs, which are enough for it; the budget allows more
	QuotaMilli int64      // its quota where narrowing CPUs is impossible; 0: none
	// PodMilli are the parts of it of pods outside of kubelet's best-effort slice, by UID; the slice
	// has the rest. nil: it has all. Never modified.
	PodMilli   map[string]int64
	SliceMilli int64 // the slice's part; 0: it has all
	Estimate
	Evictions, Refusals uint64 // totals
	// What was last taken back; zero: nothing.
	Narrowed Taken   // best effort's CPUs
	Lowered  Taken   // the offer
	Evicted  []Taken // latest first; immutable
}

// Estimate is the last estimate.
type Estimate struct {
	Estimated                                    bool
	Supply, Reclaimable, Offer, Promised, Demand float64
	Idle                                         int
	Overcommitted, Frozen                        bool
	// Halted is why nothing more is lent than was promised; empty: it is.
	Halted string
}

// Taken describes something that was taken back.
type Taken struct {
	At   time.Time
	Pod  string // the pod it was taken from; empty: all of best effort
	What string
	Why  string
	// Observed says that the eviction was only reported, not requested.
	Observed bool
}

// maxEvicted bounds the evictions in a Status.
const maxEvicted = 16

// Loop runs on one goroutine; Status and Pods are safe for concurrent use.
type Loop struct {
	o Options
	shared
	background sync.WaitGroup // evictions and saves in progress
	requests   chan func()    // for Run's goroutine

	// The fields below belong to the goroutine of Run.
	measurement
	suppression
	saving
	brake       reclaim.Brake
	evicted     int // since the last look
	estimated   time.Time
	promises    map[string]promise // of the last estimate, by pod UID
	notified    map[string]time.Time
	lastWarning string // the last one
	ready       bool
	pods        []policy.PodView
}

// shared is used by the goroutine of Run and by others.
type shared struct {
	mu      sync.Mutex // guards the fields below
	status  Status
	answers []answered
}

// suppression is the state of narrowing best effort.
type suppression struct {
	suppressor reclaim.Suppressor
	retreat    reclaim.Retreat
	sent       policy.BESuppressed
	parts      parts
	sentOnce   bool
	squeezed   time.Time // when best effort reached its floor; zero: it is above
}

// promise is what a pod counts with. A change of it triggers an estimate.
type promise struct {
	class   policy.Class
	request float64
}

// New makes a loop that has measured nothing yet.
func New(o Options) (*Loop, error) {
	o.fill()
	if o.Usage == nil || o.Node == nil || o.Pods == nil {
		return nil, errors.New("lending: Options.Usage, Node and Pods are required")
	}
	if err := o.Suppression.Validate(); o.Suppress != nil && err != nil {
		return nil, err
	}
	l := &Loop{
		o: o, requests: make(chan func()), promises: map[string]promise{}, notified: map[string]time.Time{},
		measurement: measurement{meters: map[string]*meter{}},
		saving:      saving{saved: make(chan error, 1)},
	}
	if o.Poll != nil {
		l.poll = &poll{reader: o.Poll}
	}
	return l, nil
}

// Status returns the result of the last look.
func (l *Loop) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status
}

// Run looks once a second until ctx ends. Best effort then keeps its CPUs: the next
// daemon measures anew, and starts with the policy's own pools.
func (l *Loop) Run(ctx context.Context) {
	tick, polls := l.o.Clock.Tick, l.o.Clock.Poll
	if tick == nil {
		t := time.NewTicker(lookEvery)
		defer t.Stop()
		tick = t.C
	}
	if polls == nil && l.poll != nil {
		t := time.NewTicker(pollEvery)
		defer t.Stop()
		polls = t.C
	}
	if err := l.o.Usage.Follow(rootID, "/"); err != nil {
		l.warnOnce(fmt.Errorf("read CPU use of the node: %w", err))
	}
	now := l.o.Clock.Now()
	l.estimated, l.savedAt = now, now
	defer l.saveFinal()
	defer l.background.Wait()
	l.look(ctx) // before the pods are known, so that best effort starts with its floor
	for {
		select {
		case <-ctx.Done():
			return
		case do := <-l.requests:
			do()
		case <-tick:
			// Skip a look right after one that a poll brought forward: a mean over so
			// short a time would mean little.
			if l.poll == nil || l.o.Clock.Now().Sub(l.lastLook) >= leastSpan/2 {
				l.look(ctx)
			}
		case <-polls:
			l.lookEarly(ctx)
		}
	}
}

// rootID stands for the whole node; no pod has such a UID.
const rootID = "/"

// look measures, suppresses and estimates; it is one second's work.
func (l *Loop) look(ctx context.Context) {
	now := l.o.Clock.Now()
	pods, err := l.o.Pods(ctx)
	if err != nil {
		return // the daemon ends or is busy; the next look is soon
	}
	l.pods = pods
	l.follow(pods)
	node := l.o.Node()
	kept := apartOf(node)
	s := l.measure(pods, &kept)
	if l.poll != nil {
		l.poll.follow(pods)
		l.poll.calibrate(s.Production)
	}
	s.At, s.Capacity, s.Pool = now, float64(node.Topology.Online().Count()), node.BEWhole.Count()
	s.Apart = kept.cpus.Count()
	s.Owned = s.Apart - kept.unowned
	l.settle(now, &s)
	l.ready = l.ready || l.o.Ready()
	s.Known = s.Known && l.ready
	span := now.Sub(l.lastLook)
	if l.lastLook.IsZero() || span < 0 {
		span = 0
	}
	l.lastLook = now
	if l.group.heldDown(node, &s) {
		l.since.hid += span
	}
	l.suppress(ctx, node, &s, &kept, span)
	l.ask(ctx, &s)
	l.halt(&s, span)
	if l.ready {
		l.estimate(ctx, pods, &s, &kept)
	}
	l.mu.Lock()
	l.status = s
	l.mu.Unlock()
	l.saveIfDue()
}

// masks returns the CPUs that best effort may be left with.
func masks(s *policy.Snapshot) reclaim.Masks {
	owned := s.Exclusive.Or(s.Withheld).Or(s.Kubelet)
	return reclaim.Masks{Pool: s.BEWhole, Reserved: s.Reserved, Pinned: s.Exclusive.And(s.BEWhole),
		Apart: owned.Minus(s.BEWhole)}
}

// suppress follows production's use within a second.
func (l *Loop) suppress(ctx context.Context, node *policy.Snapshot, s *Status, kept *apart, span time.Duration) {
	if l.o.Suppress == nil {
		return
	}
	was := s.Suppressed
	s.Budget = l.suppressor.Step(l.o.Suppression, reclaim.Load{
		Capacity: s.Capacity, Pool: float64(node.BEWhole.Count()), Core: float64(node.Topology.ThreadsPerCore()),
		Reserve: l.o.Reserve + float64(kept.unowned), Production: s.Production, Outside: s.Outside, Known: s.Known,
		Span: span,
		Own:  float64(s.Owned), OnShared: s.OnShared,
	})
	m := masks(node)
	chosen := reclaim.Choose(node.Topology, m, int(s.Budget.CPUs))
	first := reclaim.First(node.Topology, m)
	fits := l.retreat.Step(l.demand(s, first.Count(), span))
	if s.Retreated = fits && first != chosen && first.SubsetOf(&chosen); s.Retreated {
		chosen = first
	}
	quota := int64(0)
	switch {
	case chosen == node.BEWhole:
		chosen = cpuset.Set{}
	case chosen.IsEmpty() && s.Budget.CPUs < float64(s.Pool):
		quota = quotaOf(s.Budget)
	}
	wasQuota := s.QuotaMilli
	s.QuotaMilli = quota
	s.Suppressed = chosen
	if s.Retreated {
		l.squeezed = time.Time{} // nothing is taken from anybody
	} else {
		l.recordNarrowed(s, was, node.BEWhole)
	}
	l.recordLimited(s, wasQuota)
	l.parts = l.divide(l.pods, quota)
	s.PodMilli, s.SliceMilli = l.parts.milli, l.parts.slice
}

// ask asks the policy for what was decided, if that is new.
func (l *Loop) ask(ctx context.Context, s *Status) {
	if l.o.Suppress == nil {
		return
	}
	next := l.suppressed(s)
	if l.sentOnce && sameSuppression(next, l.sent) {
		return
	}
	if err := l.o.Suppress(ctx, next); err != nil {
		l.warnOnce(fmt.Errorf("suppress best effort: %w", err))
		return
	}
	l.sent, l.sentOnce = next, true
}

// demand is what best effort needs of so many CPUs, its first ones. What runs outside of
// pods is assumed to run there, and production's use to be spread over all CPUs.
func (l *Loop) demand(s *Status, first int, span time.Duration) reclaim.Demand {
	share := float64(first) / max(s.Capacity, 1)
	return reclaim.Demand{Batch: s.Batch, Room: float64(first) - s.Outside - s.Production*share,
		Waits: l.waits, Known: s.Known && l.pressure, Span: span}
}

// quotaOf converts a budget to a quota, in steps that are worth a write.
func quotaOf(b reclaim.Budget) int64 {
	const step = 100
	if milli := b.Milli(); milli >= step {
		return milli / step * step
	}
	return b.Milli()
}

// estimate passes what was measured since the last time to the estimator. It does so at
// once when a pod starts or ends: a starting production pod lowers the offer before it
// has been measured.
func (l *Loop) estimate(ctx context.Context, pods []policy.PodView, s *Status, kept *apart) {
	e, now := l.o.Estimator, s.At
	if e == nil {
		return
	}
	span := now.Sub(l.estimated)
	due := span >= EstimateEvery || span < 0
	if !due && !l.promised(pods) {
		return
	}
	r := reclaim.Report{Capacity: s.Capacity, Reserve: float64(kept.cpus.Count()), Room: s.Budget.CPUs}
	if due {
		r.Span, r.Throttled = max(span, 0), l.since.hid > span/10
	}
	clear(l.promises)
	for i := range pods {
		p := &pods[i]
		one := reclaim.Pod{ID: p.UID, Batch: p.Class == policy.BE, Request: requestOf(p), Created: p.CreatedAt}
		if m := l.meters[p.UID]; m != nil && due {
			// A pod that was seen for a part of the time counts as not measured.
			if m.covered > span*9/10 {
				one.Use, one.Sampled, one.Throttled = m.used/m.covered.Seconds(), true, m.hid > m.covered/10
			}
			m.used, m.covered, m.hid = 0, 0, 0
		}
		l.promises[p.UID] = promise{p.Class, one.Request}
		if kept.takes(p, &one) {
			r.Pods = append(r.Pods, one)
		}
	}
	if due {
		l.estimated, l.since = now, since{}
	}
	o, err := e.Step(now, r)
	if err != nil {
		l.warnOnce(err)
		return
	}
	was := s.Estimate
	if was.Halted != "" {
		o.Offer = min(o.Offer, o.Promised)
	}
	s.Estimate = Estimate{
		Halted:    was.Halted,
		Estimated: true, Supply: o.Supply, Reclaimable: o.Reclaimable, Offer: o.Offer, Promised: o.Promised,
		Demand: o.Demand,
		Idle:   len(o.Idle), Overcommitted: o.Overcommitted, Frozen: o.Frozen,
	}
	l.recordLowered(s, was, o)
	l.o.Offer(int64(o.Offer * 1000))
	l.evict(ctx, o.Evict)
}

// requestOf is what a pod was promised, in CPUs. It is bounded, since the estimator
// rejects a whole report with an impossible number.
func requestOf(p *policy.PodView) float64 {
	milli := p.RequestMilli
	if p.Class == policy.BE {
		milli = max(milli, p.BatchMilli)
	}
	return float64(min(max(milli, 0), maxRequestMilli)) / 1000
}

// maxRequestMilli exceeds any machine: a million CPUs.
const maxRequestMilli = 1e9

// promised says whether the pods or their promises differ from the last estimate.
func (l *Loop) promised(pods []policy.PodView) bool {
	if len(pods) != len(l.promises) {
		return true
	}
	for i := range pods {
		p := &pods[i]
		if was, running := l.promises[p.UID]; !running || was != (promise{p.Class, requestOf(p)}) {
			return true
		}
	}
	return false
}

// warnOnce logs an error unless it is the one logged last.
func (l *Loop) warnOnce(err error) {
	if text := err.Error(); text != l.lastWarning {
		l.lastWarning = text
		l.o.Log.Warn("a problem while lending idle CPUs", "err", err)
	}
}
