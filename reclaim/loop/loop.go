package loop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/quietcore/quietcore/internal/cpuset"
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
	// Node is the present state, Pods what runs and what it was promised.
	Node func() *policy.Snapshot
	Pods func(context.Context) ([]policy.PodView, error)

	// Estimator says what may be promised; nil: nothing is lent.
	Estimator *reclaim.Estimator
	// Offer publishes thousandths of a CPU; Evict asks for a pod back.
	Offer func(milli int64)
	Evict func(ctx context.Context, pod policy.PodView, why string) error

	// Suppression, where Suppress is not nil, narrows the best-effort pool.
	Suppress    func(context.Context, policy.BESuppressed) error
	Suppression reclaim.Suppress

	// Keep saves what was learned, every KeepEvery and at the end; nil: nobody does.
	Keep  func(reclaim.Checkpoint) error
	Name  string // of the node, for the checkpoint
	Clock Clock
	Log   *slog.Logger
}

// Clock is time as the loop sees it. Nil fields are the real thing.
type Clock struct {
	Now  func() time.Time
	Tick <-chan time.Time // one a second
}

// How often what is done.
const (
	lookEvery     = time.Second
	EstimateEvery = 10 * time.Second
	KeepEvery     = 10 * time.Minute
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
}

// Status is what the last look led to, in CPUs.
type Status struct {
	Capacity   float64
	Production float64 // use of the pods of LSE, LSR and LS
	Batch      float64 // use of the pods of BE
	Outside    float64 // use of what is no pod
	Known      bool    // the above were measured
	Budget     reclaim.Budget
	Suppressed cpuset.Set // all that best effort is left with; empty: its whole pool
	// Of the last estimate:
	Estimated                            bool
	Supply, Reclaimable, Offer, Promised float64
	Idle                                 int
	Overcommitted, Frozen                bool
	Evictions, Refusals                  uint64 // so far
}

// Loop runs on one goroutine; Status may be called from any.
type Loop struct {
	o          Options
	suppressor reclaim.Suppressor

	mu     sync.Mutex // guards status
	status Status

	// The rest belongs to Run.
	meters    map[string]*meter // by pod UID
	root      reclaim.Meter
	readings  []usage.Reading
	sent      cpuset.Set
	sentOnce  bool
	estimated time.Time
	kept      time.Time
	looked    time.Time
	since     since
	said      string // the last complaint
}

// meter is one pod between two looks, and since the last estimate.
type meter struct {
	reclaim.Meter
	path    string
	totals  reclaim.Totals
	at      time.Time
	used    float64 // CPU-seconds since the last estimate
	covered time.Duration
	hid     time.Duration // time of looks in which contention hid demand
}

// since is what was measured since the last estimate.
type since struct {
	covered time.Duration
	hid     time.Duration
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
	return &Loop{o: o, meters: map[string]*meter{}}, nil
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
	tick := l.o.Clock.Tick
	if tick == nil {
		t := time.NewTicker(lookEvery)
		defer t.Stop()
		tick = t.C
	}
	if err := l.o.Usage.Follow(rootID, "/"); err != nil {
		l.complain(fmt.Errorf("the use of the whole node is not known: %w", err))
	}
	now := l.o.Clock.Now()
	l.estimated, l.kept = now, now
	defer l.keep(true)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
			l.look(ctx)
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
	l.follow(pods)
	node := l.o.Node()
	s := l.measure(pods)
	s.Capacity = float64(node.Topology.Online().Count())
	span := now.Sub(l.looked)
	if l.looked.IsZero() || span < 0 {
		span = 0
	}
	l.looked = now
	l.suppress(ctx, node, &s, span)
	l.estimate(ctx, pods, &s, now)
	l.mu.Lock()
	l.status = s
	l.mu.Unlock()
	l.keep(false)
}

// follow reads the cgroups of the pods that run, and no others.
func (l *Loop) follow(pods []policy.PodView) {
	there := make(map[string]bool, len(pods))
	for i := range pods {
		p := &pods[i]
		if p.Cgroup == "" {
			continue
		}
		there[p.UID] = true
		if m := l.meters[p.UID]; m != nil && m.path == p.Cgroup {
			continue
		}
		if err := l.o.Usage.Follow(p.UID, p.Cgroup); err != nil {
			l.complain(fmt.Errorf("the use of pod %s/%s is not known: %w", p.Namespace, p.Name, err))
			continue
		}
		l.meters[p.UID] = &meter{path: p.Cgroup}
	}
	for uid := range l.meters {
		if !there[uid] {
			l.o.Usage.Forget(uid)
			delete(l.meters, uid)
		}
	}
}

// measure reads everybody once.
func (l *Loop) measure(pods []policy.PodView) Status {
	class := make(map[string]policy.Class, len(pods))
	for i := range pods {
		class[pods[i].UID] = pods[i].Class
	}
	last := l.Status()
	s := Status{
		Known: true, Estimated: last.Estimated, Supply: last.Supply, Reclaimable: last.Reclaimable, Offer: last.Offer, Promised: last.Promised,
		Idle: last.Idle, Overcommitted: last.Overcommitted, Frozen: last.Frozen, Evictions: last.Evictions, Refusals: last.Refusals,
	}
	l.readings = l.o.Usage.Read(l.readings[:0])
	whole, rooted := 0.0, false
	hidden := false
	for i := range l.readings {
		r := &l.readings[i]
		if r.ID == rootID {
			use, _, ok := l.root.Use(r.At, r.CPU)
			whole, rooted = use, ok && r.Err == nil
			continue
		}
		m := l.meters[r.ID]
		if m == nil || r.Err != nil {
			continue // a pod that ended uses nothing
		}
		use, span, ok := m.Use(r.At, r.CPU)
		now := reclaim.Totals{Waiting: r.Waiting, Periods: r.Periods, Throttled: r.Throttled}
		hid := ok && now.Hid(m.totals, span)
		m.totals = now
		if !ok {
			continue
		}
		m.used += use * span.Seconds()
		m.covered += span
		if hid {
			m.hid += span
		}
		switch class[r.ID] {
		case policy.LSE, policy.LSR, policy.LS:
			s.Production += use
		case policy.BE:
			s.Batch += use
			hidden = hidden || hid
		default:
			s.Outside += use
		}
	}
	if rooted {
		s.Outside = max(s.Outside, whole-s.Production-s.Batch)
	}
	s.Known = rooted
	if hidden {
		l.since.hid += lookEvery
	}
	return s
}

// masks are the CPUs that best effort may be left with.
func masks(s *policy.Snapshot) reclaim.Masks {
	owned := s.Exclusive.Or(s.Withheld).Or(s.Kubelet)
	return reclaim.Masks{Pool: s.BEWhole, Reserved: s.Reserved, Pinned: s.Exclusive.And(s.BEWhole), Apart: owned.Minus(s.BEWhole)}
}

// suppress follows production's use within a second.
func (l *Loop) suppress(ctx context.Context, node *policy.Snapshot, s *Status, span time.Duration) {
	if l.o.Suppress == nil {
		return
	}
	s.Budget = l.suppressor.Step(l.o.Suppression, reclaim.Load{
		Capacity: s.Capacity, Pool: float64(node.BEWhole.Count()), Core: float64(node.Topology.ThreadsPerCore()),
		Production: s.Production, Outside: s.Outside, Known: s.Known, Span: span,
	})
	chosen := reclaim.Choose(node.Topology, masks(node), int(s.Budget.CPUs))
	if chosen == node.BEWhole {
		chosen = cpuset.Set{}
	}
	s.Suppressed = chosen
	if l.sentOnce && chosen == l.sent {
		return
	}
	if err := l.o.Suppress(ctx, policy.BESuppressed{CPUs: chosen}); err != nil {
		l.complain(fmt.Errorf("best effort is not suppressed: %w", err))
		return
	}
	l.sent, l.sentOnce = chosen, true
}

// estimate has the estimator look at what was measured since the last time.
func (l *Loop) estimate(ctx context.Context, pods []policy.PodView, s *Status, now time.Time) {
	e := l.o.Estimator
	span := now.Sub(l.estimated)
	if e == nil || span < EstimateEvery && span >= 0 {
		return
	}
	l.estimated = now
	r := reclaim.Report{Capacity: s.Capacity, Span: max(span, 0), Room: s.Budget.CPUs, Throttled: l.since.hid > span/10}
	views := make(map[string]policy.PodView, len(pods))
	for i := range pods {
		p := &pods[i]
		views[p.UID] = *p
		one := reclaim.Pod{ID: p.UID, Batch: p.Class == policy.BE, Request: float64(p.RequestMilli) / 1000, Created: p.CreatedAt}
		if one.Batch {
			one.Request = float64(max(p.BatchMilli, p.RequestMilli)) / 1000
		}
		if m := l.meters[p.UID]; m != nil {
			// A pod that was seen for a part of the time counts as not measured.
			if m.covered > span*9/10 {
				one.Use, one.Sampled, one.Throttled = m.used/m.covered.Seconds(), true, m.hid > m.covered/10
			}
			m.used, m.covered, m.hid = 0, 0, 0
		}
		r.Pods = append(r.Pods, one)
	}
	l.since = since{}
	o, err := e.Step(now, r)
	if err != nil {
		l.complain(err)
		return
	}
	s.Estimated, s.Supply, s.Reclaimable, s.Offer, s.Promised = true, o.Supply, o.Reclaimable, o.Offer, o.Promised
	s.Idle, s.Overcommitted, s.Frozen = len(o.Idle), o.Overcommitted, o.Frozen
	l.o.Offer(int64(o.Offer * 1000))
	for _, wish := range o.Evict {
		l.evict(ctx, views[wish.Pod], wish.Why, s, now)
	}
}

func (l *Loop) evict(ctx context.Context, pod policy.PodView, why string, s *Status, now time.Time) {
	if l.o.Evict == nil || pod.UID == "" {
		return
	}
	if err := l.o.Evict(ctx, pod, why); err != nil {
		s.Refusals++
		l.o.Estimator.Refused(now, pod.UID)
		l.complain(err)
		return
	}
	s.Evictions++
}

func (l *Loop) keep(now bool) {
	if l.o.Keep == nil || l.o.Estimator == nil || !now && l.o.Clock.Now().Sub(l.kept) < KeepEvery {
		return
	}
	l.kept = l.o.Clock.Now()
	if err := l.o.Keep(l.o.Estimator.Checkpoint(l.o.Name)); err != nil {
		l.complain(fmt.Errorf("what was learned of pods is not saved; a restart takes nobody for idle until a window is full again: %w", err))
	}
}

// complain says what is wrong once, until it is another thing.
func (l *Loop) complain(err error) {
	if text := err.Error(); text != l.said {
		l.said = text
		l.o.Log.Warn("lending idle CPUs", "err", err)
	}
}
