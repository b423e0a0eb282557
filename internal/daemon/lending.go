package daemon

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/lend"
	"github.com/quietcore/quietcore/internal/metrics"
	"github.com/quietcore/quietcore/internal/page"
	"github.com/quietcore/quietcore/internal/state"
	cgroupusage "github.com/quietcore/quietcore/internal/usage"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/reclaim"
	"github.com/quietcore/quietcore/reclaim/loop"
)

type lendingOptions struct {
	config  *config.Config
	node    *node
	v1      bool
	api     *apiServer
	metrics *metrics.Metrics
	log     *slog.Logger
	notify  func(policy.Notice)
	kept    *reclaim.Checkpoint // what the loop before this one learned; nil: it is in its file, if anywhere
}

// lending lends idle CPUs and takes them back.
type lending struct {
	o       lendingOptions
	cfg     *config.Config
	evictor *lend.Evictor                      // nil: no pod is evicted
	loop    *loop.Loop                         // nil: off, or it does not work
	broken  string                             // why it does not
	kept    atomic.Pointer[reclaim.Checkpoint] // what was learned, where it is not written to a file
}

func newLending(o lendingOptions) *lending {
	l := &lending{o: o, cfg: o.config}
	if l.cfg.Reclaim.Evict && l.cfg.Reclaim.Mode != config.SwitchOff {
		l.evictor = l.newEvictor()
	}
	return l
}

// newEvictor makes what has pods evicted. Where it may evict none, or there is no API
// server to ask, it reports which ones would go.
func (l *lending) newEvictor() *lend.Evictor {
	o := lend.EvictorOptions{Reason: lend.ReasonLending, Observe: !l.enforced(), Log: l.o.log, Report: l.evicted}
	if l.o.api.server != nil {
		o.API = l.o.api.server
	}
	return lend.NewEvictor(o)
}

func (l *lending) on() bool {
	return l.cfg.Reclaim.Mode != config.SwitchOff || l.cfg.Suppress.Mode != config.SwitchOff
}

// build makes the loop, once there is a plugin.
func (l *lending) build() {
	if !l.on() {
		return
	}
	for _, sentence := range l.cfg.Reclaim.Former() {
		l.o.log.Warn("a key of the configuration is of an earlier version", "key", sentence)
	}
	if err := l.newLoop(); err != nil {
		l.broken = err.Error()
		l.o.log.Warn("idle CPUs are neither lent nor taken back; everything else works", "why", err)
	}
}

func (l *lending) Run(ctx context.Context) {
	if l.loop != nil {
		l.loop.Run(ctx)
	}
}

func (l *lending) Health() map[string]string {
	return map[string]string{metrics.FeatureLending: l.broken}
}

// narrows says whether best effort is suppressed.
func (l *lending) narrows() bool {
	return l.cfg.Suppress.Mode == config.SwitchEnforce && l.cfg.Mode != config.Observe
}

// enforced says whether lending is more than observed.
func (l *lending) enforced() bool {
	return l.cfg.Reclaim.Mode == config.SwitchEnforce && l.cfg.Mode != config.Observe
}

func (l *lending) newLoop() error {
	options := cgroupusage.Options{Root: l.cfg.Cgroup.Root, V1: l.o.v1}
	reader, err := cgroupusage.Open(options)
	if err != nil {
		return err
	}
	polls, err := cgroupusage.Open(options)
	if err != nil {
		return errors.Join(err, reader.Close())
	}
	o := loop.Options{
		Usage: reader, Poll: polls, Node: l.o.node.Snapshot, Pods: l.o.node.Pods,
		Ready: l.o.node.Synchronised, Suppression: l.cfg.Suppress.Suppression(), Reserve: l.cfg.Reclaim.Reserve,
		Name: l.cfg.NodeName(), Log: l.o.log, Notify: l.notify,
	}
	observe := l.cfg.Mode == config.Observe
	switch slice := l.cfg.Kubernetes.BatchSlice; {
	case slice == config.SwitchOff:
	case slice == config.SwitchEnforce && !observe:
		o.Group = loop.Grouped
	default:
		o.Group = loop.GroupObserved
	}
	switch {
	case l.narrows():
		o.Suppress = func(ctx context.Context, e policy.BESuppressed) error { return l.o.node.Submit(ctx, e) }
	case l.cfg.Suppress.Mode != config.SwitchOff:
		o.Suppress = func(context.Context, policy.BESuppressed) error { return nil }
	}
	if l.cfg.Reclaim.Mode != config.SwitchOff {
		file := filepath.Join(l.cfg.State.Dir, state.LendingFile)
		if o.Estimator, err = l.estimator(file); err != nil {
			return errors.Join(err, reader.Close(), polls.Close())
		}
		o.Save = func(c reclaim.Checkpoint) error { return keepLending(file, c) }
		if observe {
			o.Save = func(c reclaim.Checkpoint) error { l.kept.Store(&c); return nil }
		}
		if l.o.api.lent != nil && l.enforced() {
			o.Offer = l.o.api.lent.Offer
		}
		if l.evictor != nil {
			o.Evict = func(ctx context.Context, p policy.PodView, why string) loop.Answer {
				a := answerOf(l.evictor.Evict(ctx, lend.Pod{UID: p.UID, Namespace: p.Namespace, Name: p.Name},
					"to give lent CPUs back: "+why))
				a.Observed = !l.enforced() && a.Outcome == loop.Going
				return a
			}
		}
	}
	l.loop, err = loop.New(o)
	return err
}

// notify makes Events of what is so, and only log lines of what would be.
func (l *lending) notify(n policy.Notice) {
	if l.cfg.Mode != config.Observe && l.cfg.Reclaim.Mode != config.SwitchObserve &&
		l.cfg.Suppress.Mode != config.SwitchObserve {
		l.o.notify(n)
		return
	}
	l.o.log.Warn(n.Message, "reason", n.Reason, "observed", true)
}

// evicted counts the result of an eviction.
func (l *lending) evicted(result string) {
	l.o.metrics.Eviction(result)
	l.o.api.evictionEnded(result)
}

// answerOf says what an eviction's end means for the next pod. A pod that our own
// rate kept from being asked for stays the first: there is no other to ask for in its
// place, for which the rate is the same.
func answerOf(err error) loop.Answer {
	var e *lend.EvictError
	switch {
	case err == nil:
		return loop.Answer{Outcome: loop.Going}
	case !errors.As(err, &e):
		return loop.Answer{Outcome: loop.Ended, Err: err}
	}
	switch e.Result {
	case lend.Gone, lend.Repeated:
		return loop.Answer{Outcome: loop.Going, Before: true}
	case lend.Limited, lend.TimedOut, lend.Unanswered:
		return loop.Answer{Outcome: loop.Later, After: e.After, Err: err}
	}
	return loop.Answer{Outcome: loop.Stays, Err: err}
}

// stats are what lending led to, for metrics; nil: nothing is lent or taken back.
func (l *lending) stats() *metrics.Lending {
	if l.loop == nil {
		return nil
	}
	s := l.loop.Status()
	m := &metrics.Lending{Capacity: s.Capacity, Supply: s.Supply, Offered: s.Offer, Promised: s.Promised,
		Demand: s.Demand, Budget: s.Budget.CPUs, Halted: s.Halted != ""}
	if s.Known {
		m.Used = &metrics.Used{Production: s.Production, Batch: s.Batch, Outside: s.Outside}
	}
	switch {
	case s.Retreated: // what it does not use is not withheld
	case !s.Suppressed.IsEmpty():
		m.Withheld = float64(s.Pool - s.Suppressed.Count())
	case s.QuotaMilli > 0:
		m.Withheld = max(float64(s.Pool)-float64(s.QuotaMilli)/1000, 0)
	}
	if l.o.api.lent != nil {
		m.Published = float64(max(l.o.api.lent.Published().Own, 0)) / 1000
	}
	return m
}

// report is what status and explain say; nil: lending is off.
func (l *lending) report(ctx context.Context) *control.Lending {
	if !l.on() {
		return nil
	}
	out := &control.Lending{Mode: string(l.cfg.Reclaim.Mode), Suppression: string(l.cfg.Suppress.Mode)}
	if l.cfg.Mode == config.Observe {
		out.Mode, out.Suppression = observed(l.cfg.Reclaim.Mode), observed(l.cfg.Suppress.Mode)
	}
	if l.loop == nil {
		out.Problem = l.broken
		return out
	}
	s := l.loop.Status()
	out.Capacity, out.Production, out.Batch, out.Outside, out.Known =
		s.Capacity, s.Production, s.Batch, s.Outside, s.Known
	out.Budget, out.Pool, out.Suppressed, out.Blind = s.Budget.CPUs, s.Pool, s.Suppressed.String(), s.Budget.Blind
	out.Retreated = s.Retreated
	out.Quota = float64(s.QuotaMilli) / 1000
	if s.PodMilli != nil {
		out.Group = &control.Group{Mode: string(l.cfg.Kubernetes.BatchSlice), Pods: len(s.PodMilli),
			Slice: float64(s.SliceMilli) / 1000}
		if out.Suppression == string(config.SwitchObserve) {
			out.Group.Mode = out.Suppression
		}
	}
	if s.Estimated {
		out.Estimate = &control.Estimate{
			Supply: s.Supply, Offer: s.Offer, Promised: s.Promised, Demand: s.Demand, Idle: s.Idle,
			Overcommitted: s.Overcommitted, Frozen: s.Frozen, Halted: s.Halted,
		}
	}
	if l.o.api.lent != nil {
		if now := l.o.api.lent.Published(); now.Own >= 0 {
			published := float64(now.Own) / 1000
			out.Published = &published
		}
		if l.cfg.Reclaim.Mode == config.SwitchEnforce {
			out.Problem = l.o.api.lent.State()
		}
	}
	s.Narrowed.Observed, s.Lowered.Observed = out.Suppression == string(config.SwitchObserve), out.Mode == string(
		config.SwitchObserve)
	for _, t := range append([]loop.Taken{s.Narrowed, s.Lowered}, s.Evicted...) {
		if t.What != "" {
			out.Taken = append(out.Taken, control.Taken{At: t.At, Pod: t.Pod, What: t.What, Why: t.Why,
				Observed: t.Observed})
		}
	}
	asking, cancel := context.WithTimeout(ctx, askLending)
	defer cancel()
	pods, err := l.loop.Pods(asking)
	if err != nil {
		return out // it is busy: the sums are there
	}
	for _, p := range pods {
		part, parted := s.PodMilli[p.UID]
		if p.BatchMilli == 0 && !p.Known && !parted {
			continue
		}
		one := control.BatchPod{Namespace: p.Namespace, Pod: p.Name, Requests: float64(p.BatchMilli) / 1000,
			Managed: p.Managed, Part: float64(part) / 1000}
		if p.Known {
			one.Idle, one.Evicting, one.Counts, one.Why = p.View.Idle, p.View.Evicting, p.View.Use, p.View.Why()
		}
		out.Pods = append(out.Pods, one)
	}
	return out
}

// askLending bounds how long status waits for a look that is under way.
const askLending = time.Second

func observed(s config.Switch) string {
	if s == config.SwitchOff {
		return string(s)
	}
	return string(config.SwitchObserve)
}

// maxLending bounds what is read of a checkpoint; a thousand pods take 0.4 MiB.
const maxLending = 16 << 20

func (l *lending) estimator(file string) (*reclaim.Estimator, error) {
	cfg := l.cfg.Reclaim.Estimation()
	c, err := l.learned(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return reclaim.New(cfg)
	case err == nil:
		var e *reclaim.Estimator
		cost := c.Conversion(cfg)
		if e, err = reclaim.Resume(cfg, l.cfg.NodeName(), time.Now(), c); err == nil {
			if cost != "" {
				l.o.log.Warn("what was learned of pods' use is converted to the windows that are configured now",
					"file", file, "cost", cost)
			}
			return e, nil
		}
	}
	l.o.log.Warn("what was learned of pods' use is not used: nobody is idle until a window is full again", "file",
		file, "err", err)
	return reclaim.New(cfg)
}

// learned is what an earlier loop learned.
func (l *lending) learned(file string) (c reclaim.Checkpoint, err error) {
	if l.o.kept != nil {
		return *l.o.kept, nil
	}
	text, err := state.ReadFile(file, maxLending)
	if err != nil {
		return c, err
	}
	return reclaim.DecodeCheckpoint(text)
}

func keepLending(name string, c reclaim.Checkpoint) error {
	text, err := c.Encode()
	if err != nil {
		return err
	}
	return state.WriteFile(name, text)
}

// measured is what production and best effort use; nil where it is not measured.
func (l *lending) measured() *page.Lending {
	if l.loop == nil {
		return nil
	}
	s := l.loop.Status()
	return &page.Lending{
		Known: s.Known, Production: s.Production, Batch: s.Batch, Offered: s.Estimated, Offer: s.Offer,
	}
}
