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

// Reader reads what cgroups have used. *usage.Reader is one.
type Reader interface {
	Follow(id, path string) error
	Forget(id string)
	Read(dst []usage.Reading) []usage.Reading
}

// Options are what a Loop is made of. Usage, Node and Pods are required.
type Options struct {
	Usage Reader
	// Poll reads two cgroups between looks, so that production's sudden rise is seen
	// sooner; nil: nobody does.
	Poll Reader
	// Node is the present state, Pods what runs and what it was promised.
	Node func() *policy.Snapshot
	Pods func(context.Context) ([]policy.PodView, error)
	// Ready says whether all that runs is known; nil: it is. Before it was so once,
	// best effort has its floor and nothing is estimated.
	Ready func() bool

	// Estimator says what may be promised; nil: nothing is lent.
	Estimator *reclaim.Estimator
	// Offer publishes thousandths of a CPU; Evict asks for a pod back, on a goroutine
	// of its own: an API server that is slow must not keep best effort from giving way.
	Offer func(milli int64)
	Evict func(ctx context.Context, pod policy.PodView, why string) Answer
	// Notify sends a notice; nil: none is sent.
	Notify func(policy.Notice)

	// Suppression, where Suppress is not nil, narrows the best-effort pool.
	Suppress    func(context.Context, policy.BESuppressed) error
	Suppression reclaim.Suppress
	// Reserve is how many CPUs are left to what runs outside of pods, in addition to those that
	// no pod of best effort may use. The estimator has its own.
	Reserve float64

	// Keep saves what was learned, with every sample that is final and at the end, on a
	// goroutine of its own: a disk that is slow must not keep best effort from giving way; nil: nobody does.
	Keep  func(reclaim.Checkpoint) error
	Name  string // of the node, for the checkpoint
	Clock Clock
	Log   *slog.Logger
}

// Clock is time as the loop sees it. Nil fields are the real thing.
type Clock struct {
	Now  func() time.Time
	Tick <-chan time.Time // one a second
	// Poll is when Options.Poll is read.
	Poll <-chan time.Time
}

// How often what is done.
const (
	lookEvery     = time.Second
	EstimateEvery = 10 * time.Second
	KeepEvery     = 10 * time.Minute // where samples are longer
	keepLeast     = time.Minute      // where they are shorter
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

// Status is what the last look led to, in CPUs.
type Status struct {
	At         time.Time // zero: nobody has looked yet
	Capacity   float64
	Production float64 // use of the pods of LSE, LSR and LS
	OnShared   float64 // the part of it that is not on CPUs of Owned
	Batch      float64 // use of the pods of BE
	Outside    float64 // use of what is no pod
	Known      bool    // the above were measured
	Budget     reclaim.Budget
	Pool       int        // CPUs of the whole best-effort pool
	Apart      int        // CPUs that no pod of best effort may use
	Owned      int        // of these, the CPUs of owners
	Suppressed cpuset.Set // all that best effort is left with; empty: its whole pool
	QuotaMilli int64      // that holds it back where no CPUs can; 0: none does
	Estimate
	Evictions, Refusals uint64 // so far
	// What was taken back last; zero: nothing was.
	Narrowed Taken   // best effort's CPUs
	Lowered  Taken   // the offer
	Evicted  []Taken // the latest first; never written to
}

// Estimate is the last one.
type Estimate struct {
	Estimated                                    bool
	Supply, Reclaimable, Offer, Promised, Demand float64
	Idle                                         int
	Overcommitted, Frozen                        bool
}

// Taken is something that was taken back.
type Taken struct {
	At   time.Time
	Pod  string // the pod that it was taken from; empty: all of best effort
	What string
	Why  string
	// Observed says of a pod that it only would have been.
	Observed bool
}

// maxEvicted is how many evictions a Status remembers.
const maxEvicted = 16

// Loop runs on one goroutine; Status and Pods may be called from any.
type Loop struct {
	o Options
	shared
	asking sync.WaitGroup // evictions and saves in progress
	asks   chan func()    // for Run's goroutine

	// The rest belongs to Run.
	measurement
	suppression
	saving
	estimated time.Time
	promises  map[string]promise // of the last estimate, by pod UID
	notified  map[string]time.Time
	complaint string // the last one
	ready     bool
	pods      []policy.PodView
}

// shared is what Run's goroutine and others both use.
type shared struct {
	mu      sync.Mutex // guards the fields below
	status  Status
	answers []answered
}

// suppression is what best effort was narrowed to.
type suppression struct {
	suppressor reclaim.Suppressor
	sent       policy.BESuppressed
	sentOnce   bool
	squeezed   time.Time // since when best effort is at its floor; zero: it is not
}

// promise is what makes a pod count; another one is news for the estimator.
type promise struct {
	class   policy.Class
	request float64
}

// New makes a loop that has read nothing.
func New(o Options) (*Loop, error) {
	o.fill()
	if o.Usage == nil || o.Node == nil || o.Pods == nil {
		return nil, errors.New("lending: no usage, node or pods are given")
	}
	if err := o.Suppression.Validate(); o.Suppress != nil && err != nil {
		return nil, err
	}
	l := &Loop{
		o: o, asks: make(chan func()), promises: map[string]promise{}, notified: map[string]time.Time{},
		measurement: measurement{meters: map[string]*meter{}},
		saving:      saving{saved: make(chan error, 1)},
	}
	if o.Poll != nil {
		l.poll = &poll{reader: o.Poll}
	}
	return l, nil
}

// Status is what the last look led to.
func (l *Loop) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status
}

// Run looks once a second until ctx ends. Then best effort keeps what it has: the
// next daemon finds out anew, and the policy's pools are those of its own start.
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
		l.complain(fmt.Errorf("the use of the whole node is not known: %w", err))
	}
	now := l.o.Clock.Now()
	l.estimated, l.kept = now, now
	defer l.keepLast()
	defer l.asking.Wait()
	l.look(ctx) // before it is known who runs, so that nothing is widened first
	for {
		select {
		case <-ctx.Done():
			return
		case do := <-l.asks:
			do()
		case <-tick:
			// One that a poll brought forward was just now: the mean of so short a
			// time would say little.
			if l.poll == nil || l.o.Clock.Now().Sub(l.looked) >= leastSpan/2 {
				l.look(ctx)
			}
		case <-polls:
			l.polled(ctx)
		}
	}
}

// rootID is the node as a whole; no pod has such a UID.
const rootID = "/"

// look is one second's work.
func (l *Loop) look(ctx context.Context) {
	now := l.o.Clock.Now()
	pods, err := l.o.Pods(ctx)
	if err != nil {
		return // the daemon ends, or is busy: the next look is soon
	}
	l.pods = pods
	l.follow(pods)
	node := l.o.Node()
	kept := apartOf(node)
	s := l.measure(pods, &kept)
	if l.poll != nil {
		l.poll.follow(pods)
		l.poll.learn(s.Production)
	}
	s.At, s.Capacity, s.Pool = now, float64(node.Topology.Online().Count()), node.BEWhole.Count()
	s.Apart = kept.cpus.Count()
	s.Owned = s.Apart - kept.nobodys
	l.settle(now, &s)
	l.ready = l.ready || l.o.Ready()
	s.Known = s.Known && l.ready
	span := now.Sub(l.looked)
	if l.looked.IsZero() || span < 0 {
		span = 0
	}
	l.looked = now
	if l.group.heldDown(node, &s) {
		l.since.hid += span
	}
	l.suppress(ctx, node, &s, &kept, span)
	if l.ready {
		l.estimate(ctx, pods, &s, &kept)
	}
	l.mu.Lock()
	l.status = s
	l.mu.Unlock()
	l.keep()
}

// masks are the CPUs that best effort may be left with.
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
		Reserve: l.o.Reserve + float64(kept.nobodys), Production: s.Production, Outside: s.Outside, Known: s.Known,
		Span: span,
		Own:  float64(s.Owned), OnShared: s.OnShared,
	})
	chosen := reclaim.Choose(node.Topology, masks(node), int(s.Budget.CPUs))
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
	l.noteNarrowed(s, was, node.BEWhole)
	l.noteLimited(s, wasQuota)
	next := policy.BESuppressed{CPUs: chosen, QuotaMilli: quota}
	if l.sentOnce && next == l.sent {
		return
	}
	if err := l.o.Suppress(ctx, next); err != nil {
		l.complain(fmt.Errorf("best effort is not suppressed: %w", err))
		return
	}
	l.sent, l.sentOnce = next, true
}

// quotaOf is a budget as a quota, in steps that are worth a write.
func quotaOf(b reclaim.Budget) int64 {
	const step = 100
	if milli := b.Milli(); milli >= step {
		return milli / step * step
	}
	return b.Milli()
}

// estimate has the estimator look at what was measured since the last time, and at
// once where a pod came or went: production that starts lowers the offer before it
// was measured.
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
		l.complain(err)
		return
	}
	was := s.Estimate
	s.Estimate = Estimate{
		Estimated: true, Supply: o.Supply, Reclaimable: o.Reclaimable, Offer: o.Offer, Promised: o.Promised,
		Demand: o.Demand,
		Idle:   len(o.Idle), Overcommitted: o.Overcommitted, Frozen: o.Frozen,
	}
	l.noteLowered(s, was, o)
	l.o.Offer(int64(o.Offer * 1000))
	l.evict(ctx, o.Evict)
}

// requestOf is what a pod was promised, in CPUs. The estimator refuses a number that
// no node can have; that of one pod must not stop it for the others.
func requestOf(p *policy.PodView) float64 {
	milli := p.RequestMilli
	if p.Class == policy.BE {
		milli = max(milli, p.BatchMilli)
	}
	return float64(min(max(milli, 0), maxRequestMilli)) / 1000
}

// maxRequestMilli is more than any machine has: a million CPUs.
const maxRequestMilli = 1e9

// promised says whether the pods or what they were promised are others than at the
// last estimate.
func (l *Loop) promised(pods []policy.PodView) bool {
	if len(pods) != len(l.promises) {
		return true
	}
	for i := range pods {
		p := &pods[i]
		if was, there := l.promises[p.UID]; !there || was != (promise{p.Class, requestOf(p)}) {
			return true
		}
	}
	return false
}

// complain says what is wrong once, until it is another thing.
func (l *Loop) complain(err error) {
	if text := err.Error(); text != l.complaint {
		l.complaint = text
		l.o.Log.Warn("lending idle CPUs", "err", err)
	}
}
