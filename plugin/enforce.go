package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/metrics"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// batch is what one step decided.
type batch struct {
	seq          uint64
	decisions    []policy.Decision
	topo         *topology.Topology
	rev          uint64
	observed     map[string]cgroup.Effective // what cgroups, by path, were found to hold
	synchronized bool                        // from here on it is known who runs
	audit        bool                        // look at every cgroup now
	lazy         bool                        // nobody waits and nobody has to leave
	anew         bool                        // of a new machine, whose revisions begin anew
	verify       []string                    // ids of containers to read back
	recheck      []string                    // UIDs of pods whose quota somebody wrote
	soon         []string                    // UIDs of pods whose quota somebody may write in a moment
}

// enforcer turns decisions into cgroup writes. One goroutine, run, owns the tree
// and does all I/O, so that a write that hangs holds up nobody who has a
// deadline; everything else only adds to the inbox.
type enforcer struct {
	driver cgroup.Driver
	reader cgroup.Reader
	// recorded is Options.Recorded.
	recorded func(context.Context, string) (cpuset.Set, bool, error)
	log      *slog.Logger
	notify   func(policy.Notice)
	meter    *metrics.Metrics
	ticks    <-chan time.Time
	after    func(time.Duration) <-chan time.Time
	at       passing
	late     time.Duration // see Options.late
	now      func() time.Time

	wrote func(path string) // is notified before each write of a mask

	astray atomic.Int64 // containers that do not run where they were put

	mu     sync.Mutex
	inbox  []batch
	seq    uint64                // of the last batch put in
	shrunk uint64                // up to here, everyone has left what is not theirs any more
	held   cpuset.Set            // when the last phase ended: CPUs that others may still have
	heldAt map[string]cpuset.Set // the owned ones of them, by slice or pod
	cause  error                 // why
	ready  map[string]bool       // slices that have had their mask
	moved  chan struct{}         // closed and replaced when shrunk or held changes
	wake   chan struct{}
	quiet  bool // nothing left to do
	armed  bool // a timer will rouse run

	// The rest belongs to run.
	tree   *cgroup.Tree
	topo   *topology.Topology
	rev    uint64
	live   bool // Synchronize has been
	failed bool // a write failed: wait for news or the next audit before trying again
	rounds int  // of growing since the last news
	pods   map[string]*subjectState
	ctrs   map[string]*subjectState
	slices map[string]bool
	found  map[string][]string // what the tree has of pods that were never announced, by UID
	// beSlices are the limits of kubelet's best-effort slices, by path; beQuota is
	// theirs, nil where it is kubelet's business.
	beSlices map[string]*subjectState
	beQuota  *int64
	// unlimited is the pod that keeps a best-effort slice from being limited, once that
	// was told; empty: none does.
	unlimited string
	toVerify  []string
	toLimit   []*subjectState
	// unwritten are those whose limit could not be written.
	unwritten []*subjectState
	soon      []string // UIDs of pods whose quota is looked at again when due
	due       <-chan time.Time
	audits    uint64   // begun so far
	auditing  []string // what the audit has still to look at
	strays    map[string]bool
	raw       bool // a systemd cgroup was seen: said once
	noIdle    bool // there is no cpu.idle: said once
}

// subjectState is what the enforcer remembers of a pod or container.
type subjectState struct {
	path      string
	name      string
	rev       uint64
	said      string // the CPUs last logged
	limit     limit
	idle      idleness
	weight    uint64       // of a pod on lent CPUs, beside its limit; 0: kubelet's
	asked     cgroup.Quota // what kubelet asked for
	container bool
	pending   bool // limit has to be looked at
	dropped   bool // there is nothing left to limit
	stranger  bool // a pod in the best-effort slice that is not best effort
}

func newEnforcer(o *Options, m *policy.Machine) *enforcer {
	e := &enforcer{
		driver: o.Driver, recorded: o.Recorded, log: o.Log, notify: o.Notify,
		meter: o.Metrics, ticks: o.Clock.Audit, after: o.Clock.After, at: o.At, late: o.late,
		now:   o.Clock.Now,
		ready: map[string]bool{}, moved: make(chan struct{}), wake: make(chan struct{}, 1),
		tree: cgroup.NewTree(m.Topology().Online(), cgroup.Options{Flat: o.Flat}),
		topo: m.Topology(), rev: m.Rev(), pods: map[string]*subjectState{}, ctrs: map[string]*subjectState{},
		slices: map[string]bool{}, found: map[string][]string{}, beSlices: map[string]*subjectState{},
		strays: map[string]bool{},
	}
	if o.Reader != nil {
		e.reader = cgroup.Confirmed(o.Reader)
	}
	e.wrote = func(string) {}
	if o.Observe {
		e.driver = nil
	}
	// What the machine decided when it was made came with no step.
	for _, d := range m.UsedPools() {
		e.setPool(d)
	}
	return e
}

// put adds a batch and returns the number to wait for.
func (e *enforcer) put(b batch) uint64 {
	e.mu.Lock()
	e.seq++
	b.seq = e.seq
	e.inbox = append(e.inbox, b)
	e.quiet = false
	arm := b.lazy && !e.armed
	e.armed = e.armed || b.lazy
	e.mu.Unlock()
	switch {
	case arm:
		time.AfterFunc(lazyDelay, e.rouse)
	case !b.lazy:
		e.rouse()
	}
	return b.seq
}

// lazyDelay lets what nobody waits for come together: a shared container's
// creation wakes nobody who would compete with its answer.
const lazyDelay = 5 * time.Millisecond

func (e *enforcer) rouse() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// verify asks for a container's effective set to be read back.
func (e *enforcer) verify(id string) { e.put(batch{verify: []string{id}}) }

// recheck asks for a pod's quota to be looked at again.
func (e *enforcer) recheck(uid string) { e.put(batch{recheck: []string{uid}}) }

// recheckSoon asks for that in a moment.
func (e *enforcer) recheckSoon(uid string) { e.put(batch{soon: []string{uid}}) }

// idle reports whether nothing is left to write, read back or repair.
func (e *enforcer) idle() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.quiet && len(e.inbox) == 0
}

// vacated returns when everybody who has to has left the CPUs of the batch's
// owner, or says why the owner must not start.
func (e *enforcer) vacated(ctx context.Context, seq uint64, own *cpuset.Set) error {
	return e.await(ctx, seq, func() error {
		if both := e.held.And(*own); !both.IsEmpty() {
			return fmt.Errorf("CPUs %s are still in use by others: %w", both, cmp.Or(e.cause, errNotYetRead))
		}
		return nil
	}, func(cause error) error {
		return fmt.Errorf("CPUs %s are not yet free of others: %w", own, cause)
	})
}

// masked returns when a pod that owns nothing is off the CPUs of owners, or says why
// no container of it must start. The batch is the one that placed the pod.
func (e *enforcer) masked(ctx context.Context, seq uint64, path string, exposed bool) error {
	e.mu.Lock()
	served := e.ready[cgroup.Parent(path)]
	e.mu.Unlock()
	if served && !exposed {
		return nil // the slice's mask is that of all in it
	}
	return e.await(ctx, seq, func() error {
		for at := strings.Trim(path, "/"); at != ""; at = cgroup.Parent(at) {
			if cpus, held := e.heldAt[at]; held {
				return fmt.Errorf("cgroup %s may still allow CPUs %s of owners: %w", at, cpus,
					cmp.Or(e.cause, errNotYetRead))
			}
		}
		return nil
	}, func(cause error) error {
		return fmt.Errorf("cgroup %s is not yet off the CPUs of owners: %w", path, cause)
	})
}

// await waits until the batch's writes that take CPUs away are done and returns what
// check says then, with mu held; or late where ctx ends first.
func (e *enforcer) await(ctx context.Context, seq uint64, check func() error, late func(error) error) error {
	if e.driver == nil || e.late > 0 {
		return nil
	}
	for {
		e.mu.Lock()
		done, moved := e.shrunk >= seq, e.moved
		var err error
		if done {
			err = check()
		}
		e.mu.Unlock()
		if done {
			return err
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return late(ctx.Err())
		}
	}
}

// errNotYetRead is why CPUs are held where no write failed.
var errNotYetRead = errors.New("what their cgroups allow is not yet known")

func (e *enforcer) run(ctx context.Context) {
	ticks := e.ticks
	if ticks == nil {
		t := time.NewTicker(auditEvery)
		defer t.Stop()
		ticks = t.C
	}
	for ctx.Err() == nil {
		if e.turn(ctx) {
			continue
		}
		uncertain := e.live && e.driver != nil && len(e.tree.Uncertain()) > 0
		e.mu.Lock()
		e.quiet = len(e.inbox) == 0 && !e.failed && len(e.soon) == 0 && !uncertain
		e.mu.Unlock()
		if len(e.soon) > 0 && e.due == nil {
			e.due = e.after(unsaidResize)
		}
		var retry <-chan time.Time
		if e.failed || uncertain {
			retry = e.after(retryWrites)
		}
		select { // decisions first: a fixed order, so that a simulated run can be repeated
		case <-e.wake:
			continue
		default:
		}
		select {
		case <-ctx.Done():
		case <-e.wake:
		case <-retry:
			e.retry()
		case <-e.due:
			e.lookAgain(e.soon)
			e.soon, e.due = nil, nil
		case <-ticks:
			e.startAudit()
		}
	}
}

// unsaidResize is how long after a container's resize kubelet has written the pod's
// quota.
const unsaidResize = 2 * time.Second

// retryWrites is how long after a failed write it is tried again.
const retryWrites = 5 * time.Second

// retry gives failed writes another chance. Masks that are not written show in the
// tree's plan, quotas have to be asked for.
func (e *enforcer) retry() {
	e.failed, e.rounds = false, 0
	unwritten := e.unwritten
	e.unwritten = nil
	for _, s := range unwritten {
		e.lookAtLimit(s)
	}
}

// turn does the most urgent thing there is and reports whether there was one.
// Shrinking comes first, since somebody waits for it; the rest is done in small
// pieces with a look at the inbox between.
func (e *enforcer) turn(ctx context.Context) bool {
	if batches := e.take(); len(batches) > 0 {
		e.retry()
		for _, b := range batches {
			e.absorb(b)
		}
		e.dally(ctx)
		e.write(ctx, cgroup.Shrink)
		e.announce(batches[len(batches)-1].seq)
		return true
	}
	if !e.live || e.driver == nil {
		e.toVerify, e.auditing, e.toLimit = nil, nil, nil
		return false
	}
	return !e.failed && e.write(ctx, cgroup.Grow) || e.limits(ctx) || e.readBack(ctx) || e.auditSome(ctx)
}

// dally is what a naive order does before it lets the others leave.
func (e *enforcer) dally(ctx context.Context) {
	if e.late == 0 {
		return
	}
	select {
	case <-time.After(e.late):
	case <-ctx.Done():
	}
}

// news says whether take would return something.
func (e *enforcer) news() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.inbox) > 0
}

func (e *enforcer) take() []batch {
	e.mu.Lock()
	defer e.mu.Unlock()
	b := e.inbox
	e.inbox, e.armed = nil, false
	return b
}

// announce lets go on whoever waits for the batches up to seq.
func (e *enforcer) announce(seq uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.shrunk = seq
	e.wakeWaiters()
}

// publishHeld says which CPUs others may still have. It is called when a phase has
// ended, never within one: until then what was published before holds, so that no
// waiter sees a moment in which nothing is held yet.
func (e *enforcer) publishHeld() {
	held, at := e.tree.Held()
	e.mu.Lock()
	defer e.mu.Unlock()
	for path := range e.slices {
		e.ready[path] = e.ready[path] || e.tree.Settled(path)
	}
	if held == e.held && maps.Equal(at, e.heldAt) {
		return
	}
	e.held, e.heldAt = held, at
	e.wakeWaiters()
}

// wakeWaiters is called with mu held.
func (e *enforcer) wakeWaiters() {
	close(e.moved)
	e.moved = make(chan struct{})
}

// maxRounds bounds how often the same masks are written before somebody who
// keeps changing them is left to the audit.
const maxRounds = 8

// write executes the plan as far as the phase goes (growing includes what could
// not shrink before) and reports whether there was anything to write.
func (e *enforcer) write(ctx context.Context, phase cgroup.Phase) bool {
	if !e.live || e.driver == nil {
		return false
	}
	e.readUncertain()
	defer e.publishHeld()
	var todo []cgroup.Write
	for _, w := range e.tree.Plan() {
		if w.Phase <= phase {
			todo = append(todo, w)
		}
	}
	if len(todo) == 0 {
		return false
	}
	var done []string
	err := e.tree.Execute(todo, func(w cgroup.Write) error {
		// An owner that comes waits for others to leave, but not for others to come.
		if phase == cgroup.Grow && len(done) > 0 && e.news() {
			return cgroup.ErrSkipRest
		}
		done = append(done, w.ID)
		return e.apply(ctx, w)
	})
	if err != nil {
		e.failed = true
		e.because(err)
		e.readUncertain()
		e.log.Error("cgroup writes failed; they are tried again", "phase", phase.String(), "err", err)
	}
	if phase == cgroup.Grow {
		for _, id := range done {
			e.check(id)
		}
		if e.rounds++; e.rounds > maxRounds {
			e.failed = true
			e.log.Error("somebody keeps changing what is written; it is left to the audit", "cgroup", todo[0].Path)
		}
	}
	return true
}

func (e *enforcer) apply(ctx context.Context, w cgroup.Write) error {
	writing, written := pointsOf(w.Phase)
	e.at.at(writing)
	e.wrote(w.Path)
	err := e.driver.Apply(ctx, w.Path, w.Values())
	e.at.at(written)
	e.count(err)
	if errors.Is(err, cgroup.ErrGone) {
		return e.confirmGone(w, err)
	}
	if err == nil && w.Phase == cgroup.Shrink && !w.CPUs.IsZero() {
		return e.mustHaveLeft(w)
	}
	return err
}

// confirmGone wants the reader to agree that a cgroup is gone: its tasks are on no
// CPU then, and otherwise perhaps on those of an owner.
func (e *enforcer) confirmGone(w cgroup.Write, err error) error {
	_, readErr := e.reader.CPUs(w.Path)
	switch {
	case errors.Is(readErr, cgroup.ErrGone):
		return err
	case readErr == nil:
		readErr = errors.New("the reader sees it")
	}
	return fmt.Errorf("cgroup %s is said to be gone: %w", w.Path, readErr)
}

// mustHaveLeft reads back that nobody in the cgroup may still run on the CPUs that
// it was to leave; an owner that waits for them is not started while somebody may.
func (e *enforcer) mustHaveLeft(w cgroup.Write) error {
	now, err := e.reader.CPUs(w.Path)
	switch {
	case errors.Is(err, cgroup.ErrGone):
		return err
	case err != nil:
		now.CPUs = e.topo.Online() // nobody knows, so all of them
	}
	left := now.CPUs.Minus(w.CPUs.Set())
	if left.IsEmpty() {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("cgroup %s: wrote CPUs %s, the kernel still allows %s", w.Path, w.CPUs.Set(), now.CPUs)
		e.meter.CpusetWrite("mismatch")
	}
	e.tree.MayAllow(w.Path, left)
	return err
}

// readUncertain reads back what an error left uncertain. What stays uncertain is
// read again with the next retry.
func (e *enforcer) readUncertain() {
	for _, path := range e.tree.Uncertain() {
		switch now, err := e.reader.CPUs(path); {
		case errors.Is(err, cgroup.ErrGone):
			e.tree.Gone(path)
		case err == nil:
			e.tree.ReadBack(path, now, e.now())
		}
	}
}

// because notes why CPUs are held.
func (e *enforcer) because(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cause = err
}

func (e *enforcer) count(err error) {
	switch {
	case err == nil:
		e.meter.CpusetWrite("ok")
	case errors.Is(err, cgroup.ErrGone):
		e.meter.CpusetWrite("gone")
	default:
		e.meter.CpusetWrite("error")
	}
}
