package node

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/failpoint"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// observations are what a takeover or a rebuild has read from cgroups, by path. A cgroup without a mask
// is nil: most have none, and a value takes 4 KiB. A nil map means that nothing was read, and
// that the tree knows the masks.
type observations map[string]*cgroup.Effective

// missed reports whether a cgroup should have been read and was not: its mask is not known.
func (o observations) missed(path string) bool {
	_, seen := o[path]
	return o != nil && !seen
}

// batch is the decisions of one step, or a request to the writer.
type batch struct {
	decisions []policy.Decision
	topo      *topology.Topology
	rev       uint64
	observed  observations
	live      bool      // from here on all owners are known
	audit     bool      // read every cgroup now
	lazy      bool      // no reply waits for it, and no pod ends
	resume    bool      // what is decided is carried out again, from the next live batch on
	full      bool      // decisions are the whole state of a new machine: what they do not name is gone
	created   []created // containers that the runtime creates with a mask in our reply
	verify    []string  // containers, by ID, to read back
	recheck   []string  // pods, by UID, whose quota kubelet has written
	soon      []string  // pods, by UID, whose quota kubelet may write in a moment
	lost      bool      // the runtime has lost the connection, and did not get the replies that it waited for
	listed    bool      // decisions follow from what the runtime lists, and it is connected
	panicked  bool      // its absorption panicked: the next attempt is the last
}

// created is a container that the runtime creates, with the mask in our reply.
type created struct {
	id   string
	cpus cpuset.Set
}

// writer turns decisions into cgroup writes: one at a time, and those that take CPUs away first.
// Its routine runs as long as there is something to do, and only it changes the tree.
type writer struct {
	c      *Core
	tree   *cgroup.Tree
	topo   *topology.Topology
	rev    uint64
	inbox  inbox
	shrunk uint64 // up to this batch, every cgroup has left the CPUs that it must not use any more
	live   bool   // all owners are known: until then nothing is written
	// resuming means that live is awaited since decisions are carried out again.
	resuming bool
	retry    retry
	subjects
	limits limits
	audit  audit
	out    outside       // valid in the routine
	reader cgroup.Reader // out, with confirmation that a cgroup is gone; nil: cgroups cannot be read
}

// inbox are the decisions that are not in the tree yet.
type inbox struct {
	batches []batch
	taken   []batch   // those that are being absorbed into the tree
	last    uint64    // number of the last batch
	urgent  uint64    // number of the last batch that is not lazy
	at      time.Time // when they are due
	held    time.Time // they wait until then for a save, since the file contradicts them; zero: they do not
	running bool      // the routine runs and will take them
	partial bool      // a panic left one of them half in the tree, which may lack owners
}

// retry is when failed writes are tried again.
type retry struct {
	failed bool // the next attempt is at the time at, or with the next batch
	at     time.Time
	rounds int   // of growing since the last batch
	cause  error // the last error of a write
}

const (
	// lazyDelay coalesces batches that no reply waits for: the creation of a shared container
	// starts no work that would compete with its reply.
	lazyDelay = 5 * time.Millisecond
	// lazyPiece is how many lazy batches are absorbed at a time, and lazyPause the time between:
	// requests that arrive meanwhile are answered first.
	lazyPiece = 8
	lazyPause = 200 * time.Microsecond
	// retryWrites is how long after a failed write it is tried again.
	retryWrites = 5 * time.Second
	// maxRounds bounds how often the same masks are written if something keeps changing them; then
	// they are left to the audit.
	maxRounds = 8
)

func newWriter(c *Core, m *policy.Machine) *writer {
	w := &writer{
		c: c, tree: cgroup.NewTree(m.Topology().Online(), cgroup.Options{Flat: c.o.Tree.Flat}),
		topo: m.Topology(), rev: m.Rev(), subjects: newSubjects(), limits: newLimits(), audit: newAudit(),
	}
	// The pools of a new machine are no step's decisions.
	for _, d := range m.UsedPools() {
		w.setPool(d)
	}
	return w
}

// put adds a batch and returns its number.
func (w *writer) put(b batch) uint64 {
	now := w.c.now
	at := now.Add(w.c.o.Late)
	if b.lazy {
		at = now.Add(lazyDelay)
	}
	if len(w.inbox.batches) == 0 || at.Before(w.inbox.at) {
		w.inbox.at = at
	}
	if until := w.c.saving.ahead(b.decisions, b.full); w.inbox.held.IsZero() && w.c.o.Late == 0 {
		w.inbox.held = until
	}
	w.inbox.batches = append(w.inbox.batches, b)
	w.inbox.last++
	if !b.lazy {
		w.inbox.urgent = w.inbox.last
	}
	return w.inbox.last
}

// saved releases batches that waited for a save, unless the file contradicts newer decisions.
func (w *writer) saved() {
	if w.c.saving.places.contradicted(w.c.now).IsZero() {
		w.inbox.held = time.Time{}
	}
}

// recheck asks for a pod's quota to be looked at.
func (w *writer) recheck(in Recheck) {
	if in.Soon {
		w.put(batch{soon: []string{in.Pod}})
		return
	}
	w.put(batch{recheck: []string{in.Pod}})
}

// next is when the routine has something to do; zero: never.
func (w *writer) next() time.Time {
	if w.inbox.running {
		return time.Time{}
	}
	next := w.retry.at
	add := func(at time.Time) {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if at := w.inbox.at; w.carried() > 0 {
		if at.Before(w.inbox.held) {
			at = w.inbox.held
		}
		add(at)
	}
	add(w.limits.soonAt)
	return next
}

// idle reports whether nothing is left to write, read back or repair.
func (w *writer) idle() bool {
	return !w.inbox.running && len(w.inbox.batches) == 0 && !w.retry.failed && len(w.limits.soon) == 0 &&
		!w.uncertain()
}

// why is the reason why CPUs are held.
func (w *writer) why() error { return cmp.Or(w.retry.cause, errNotYetRead) }

func (w *writer) uncertain() bool { return w.writes() && len(w.tree.Uncertain()) > 0 }

// writes reports whether the writer may write.
func (w *writer) writes() bool { return w.live && w.c.o.Tree.Writes && !w.c.mode.still }

// proceed starts the routine if it does not run and there is something to do.
func (w *writer) proceed() {
	at := w.next()
	if at.IsZero() || w.c.now.Before(at) {
		return
	}
	w.inbox.running = true
	w.c.run("writer", w.work, w.worked)
}

// work is the routine: it does the most urgent thing until nothing is left.
func (w *writer) work(do do) {
	w.out = outside{do}
	if w.c.o.Tree.Reads {
		w.reader = answered{cgroup.Confirmed(w.out), w.unanswered}
	}
	if at := w.retry.at; !at.IsZero() && !w.c.now.Before(at) {
		w.again()
	}
	if at := w.limits.soonAt; !at.IsZero() && !w.c.now.Before(at) {
		w.lookAgain(w.limits.soon)
		w.limits.soon, w.limits.soonAt = nil, time.Time{}
	}
	for w.turn() {
	}
}

// worked is called at the end of the routine and schedules the next one.
func (w *writer) worked(panicked any) {
	w.inbox.running, w.retry.at = false, time.Time{}
	if panicked != nil {
		w.retry.failed = true
		w.tree.Interrupted()
		w.putBack()
	}
	if w.retry.failed || w.uncertain() {
		w.retry.at = w.c.now.Add(retryWrites)
	}
	if len(w.limits.soon) > 0 && w.limits.soonAt.IsZero() {
		w.limits.soonAt = w.c.now.Add(resizeDelay)
	}
}

// putBack puts batches that a panic has interrupted back into the inbox, and has every cgroup read
// back. A batch that panics twice is replaced by the whole state: a part of it may be in the tree,
// and no owner starts on CPUs that the rest was to free. Nor may the tree have the masks that were read with it,
// so none counts as known.
func (w *writer) putBack() {
	left := w.inbox.taken
	w.inbox.taken, w.inbox.partial = nil, w.inbox.partial || len(left) > 0
	if len(left) > 0 && w.reader != nil {
		w.tree.UnreadAll()
	}
	switch {
	case len(left) == 0:
	case !left[0].panicked:
		left[0].panicked = true
	default:
		observed := left[0].observed
		if left[0].full {
			observed = nil // it may be the cause of the panic
		}
		w.c.unfinished.add(observed)
		left = left[1:]
		// The batches behind it come into the tree before the whole state does, and what their pods have may have been
		// read with the one that is replaced.
		nothingRead(left)
		nothingRead(w.inbox.batches)
	}
	w.inbox.batches = slices.Concat(left, w.inbox.batches, []batch{{audit: true}})
	w.inbox.last++
	w.inbox.urgent = w.inbox.last
	w.c.afterPanic()
	w.inbox.at = w.c.now.Add(retryWrites)
}

// nothingRead marks batches whose pods and containers may have run before, and were not read.
func nothingRead(batches []batch) {
	for i := range batches {
		if batches[i].observed == nil {
			batches[i].observed = observations{}
		}
	}
}

// again tries failed writes again. Unwritten masks are in the tree's plan; limits have to be queued.
func (w *writer) again() {
	w.retry.failed, w.retry.at, w.retry.rounds = false, time.Time{}, 0
	unwritten := w.limits.unwritten
	w.limits.unwritten = nil
	for _, s := range unwritten {
		w.lookAtLimit(s)
	}
}

// turn does the most urgent thing and reports whether there was one. Shrinking comes first, since
// an owner waits for it; the rest is done in small pieces, and the inbox is checked in between.
func (w *writer) turn() bool {
	if w.news() {
		pause := w.takeIn()
		w.again()
		for len(w.inbox.taken) > 0 {
			w.absorb(w.inbox.taken[0])
			w.inbox.taken = w.inbox.taken[1:]
		}
		w.inbox.partial = w.c.unfinished.undelivered
		w.write(cgroup.Shrink)
		if !w.c.unfinished.undelivered {
			w.shrunk = w.inbox.last - uint64(len(w.inbox.batches))
		}
		return !pause || w.news()
	}
	if !w.writes() {
		w.audit.clear()
		if !w.c.o.Tree.Writes || w.c.mode.still { // otherwise they are written once all owners are known
			w.limits.clear()
		}
		return w.withdrawn()
	}
	return !w.retry.failed && w.write(cgroup.Grow) || w.writeLimits() || w.readBack() || w.auditSome() || w.withdrawn()
}

// takeIn takes batches out of the inbox: all of them, or a piece if no reply waits for any; then the
// writer pauses.
func (w *writer) takeIn() (pause bool) {
	n := w.carried()
	if before := w.inbox.last - uint64(len(w.inbox.batches)); n > lazyPiece && w.inbox.urgent <= before {
		n, pause = lazyPiece, true
		w.inbox.at = w.c.now.Add(lazyPause)
	}
	w.inbox.taken, w.inbox.batches, w.inbox.held = w.inbox.batches[:n:n], w.inbox.batches[n:], time.Time{}
	return pause
}

// absorbed is the number of the last batch that is in the tree.
func (w *writer) absorbed() uint64 {
	return w.inbox.last - uint64(len(w.inbox.batches)) - uint64(len(w.inbox.taken))
}

// news reports whether there are batches that are due.
func (w *writer) news() bool {
	return w.carried() > 0 && !w.c.now.Before(w.inbox.at) && !w.c.now.Before(w.inbox.held)
}

// waitsForSave reports whether batches wait for a save: the decisions before them may let others grow
// onto CPUs that have an owner again.
func (w *writer) waitsForSave() bool { return len(w.inbox.batches) > 0 && w.c.now.Before(w.inbox.held) }

// lacks reports whether the tree may lack owners, since a panic interrupted what was to bring them into it: what
// grows could be given their CPUs.
func (w *writer) lacks() bool { return w.inbox.partial || w.c.unfinished.undelivered }

// write executes the plan up to a phase (growing includes shrinks that were not possible before)
// and reports whether there was anything to write.
func (w *writer) write(phase cgroup.Phase) bool {
	if !w.writes() {
		return false
	}
	w.readUncertain()
	var todo []cgroup.Write
	for _, next := range w.tree.Plan() {
		if next.Phase <= phase {
			todo = append(todo, next)
		}
	}
	if len(todo) == 0 {
		return false
	}
	var done []string
	replan := false
	err := w.tree.Execute(todo, func(next cgroup.Write) error {
		// A new owner waits for shrinks, but not for grows. A cgroup that moves grows, too: the CPUs
		// that it moves to may have an owner by now.
		grows := next.Phase == cgroup.Grow || w.tree.Widens(next)
		if (grows || phase == cgroup.Grow) && len(done) > 0 && w.news() ||
			grows && (w.waitsForSave() || w.lacks() || w.losesReplies()) {
			return cgroup.ErrSkipRest
		}
		if replan = w.freed(); replan {
			return cgroup.ErrSkipRest
		}
		if w.outdated() || w.widensParent(next) || w.masksParent(next) {
			w.inbox.at, w.inbox.held = w.c.now, time.Time{}
			w.c.mode.undo = w.inbox.last // these are carried out too, since nothing is undone without them
			return cgroup.ErrSkipRest
		}
		done = append(done, next.ID)
		return w.apply(next)
	})
	if err != nil {
		w.retry.failed, w.retry.cause = true, err
		w.readUncertain()
		w.c.o.Log.Error("cgroup writes failed; they are tried again", "phase", phase.String(), "err", err)
	}
	if phase == cgroup.Grow {
		for _, id := range done {
			w.check(id)
		}
		switch w.retry.rounds++; {
		case len(done) == 0: // nothing can be written now: it would be unsafe, or there are newer batches
			w.retry.failed = w.retry.failed || !w.news() && !replan
		case w.retry.rounds > maxRounds:
			w.retry.failed = true
			w.c.o.Log.Error("something changes a cgroup after every write of ours; it is left to the audit",
				"cgroup", todo[0].Path, "writes", maxRounds)
		}
	}
	return true
}

// outdated reports whether CPUs went online or offline that the tree does not know of yet: if all CPUs
// of a mask are offline the kernel uses others, and the plan does not allow for that.
func (w *writer) outdated() bool {
	return slices.ContainsFunc(w.inbox.batches, func(b batch) bool {
		return b.topo != nil && b.topo.Online() != w.topo.Online()
	})
}

// freed reports whether the limit of a cgroup above ours has changed: a plan for the old limit would take
// CPUs of others. A CPU that is offline before the daemon is notified looks like such a limit, and
// comes back.
func (w *writer) freed() bool {
	return w.reader != nil && w.tree.Limited() && w.tree.LookAbove(w.reader.CPUs)
}

// widensParent reports whether a write widens the parent of a pod whose latest decision is not in the
// tree: the pod may have started on the CPUs of the parent, and has no mask of its own that keeps it
// off the CPUs that its neighbours get. The decision has to be absorbed first.
func (w *writer) widensParent(next cgroup.Write) bool {
	return w.tree.Widens(next) && slices.ContainsFunc(w.inbox.batches, func(b batch) bool {
		return slices.ContainsFunc(b.decisions, func(d policy.Decision) bool {
			pod, ok := d.(policy.SetPod)
			return ok && cgroup.Parent(pod.Pod.CgroupParent) == next.Path
		})
	})
}

// masksParent reports whether a write sets the mask of a cgroup in which the runtime creates a container with
// a mask that is not in the tree yet: if the write leaves the cgroup none of the container's CPUs, the
// kernel lets the container run on all that are left, including its neighbours'.
func (w *writer) masksParent(next cgroup.Write) bool {
	in := func(path string) bool { return strings.HasPrefix(cleanOf(path), next.Path+"/") }
	return !next.CPUs.IsZero() && slices.ContainsFunc(w.inbox.batches, func(b batch) bool {
		return slices.ContainsFunc(b.created, func(m created) bool {
			c := w.ctrs[m.id]
			return c != nil && in(c.path)
		}) || slices.ContainsFunc(b.decisions, func(d policy.Decision) bool {
			c, ok := d.(policy.SetContainer)
			return ok && c.StartMask != nil && in(c.Container.CgroupPath)
		})
	})
}

func (w *writer) apply(next cgroup.Write) error {
	e := Effect{Kind: Write, Path: next.Path, Values: next.Values()}
	e.Before, e.After = pointsOf(next.Phase)
	w.forgetReads(next.Path)
	err := w.out.do(e).Err
	w.forgetReads(next.Path) // it may have been read before the write took effect
	w.count(err)
	if errors.Is(err, cgroup.ErrGone) {
		return w.confirmGone(next, err)
	}
	if err == nil && next.Phase == cgroup.Shrink && !next.CPUs.IsZero() {
		return w.mustHaveLeft(next)
	}
	return err
}

// forgetReads drops a takeover's reads of a cgroup that is written, also those in the inbox: they are
// stale.
func (w *writer) forgetReads(path string) {
	w.c.takeover.wrote(path)
	for i := range w.inbox.batches {
		maps.DeleteFunc(w.inbox.batches[i].observed, func(read string, _ *cgroup.Effective) bool {
			return cleanOf(read) == path
		})
	}
}

// confirmGone asks the reader whether a cgroup is gone: if it is not, its tasks may be on the CPUs of
// an owner.
func (w *writer) confirmGone(next cgroup.Write, err error) error {
	_, readErr := w.reader.CPUs(next.Path)
	switch {
	case errors.Is(readErr, cgroup.ErrGone):
		return err
	case readErr == nil:
		readErr = errors.New("reading it succeeds")
	}
	return fmt.Errorf("cgroup %s: the write found no cgroup, but that is not confirmed: %w", next.Path, readErr)
}

// mustHaveLeft reads back whether the cgroup may still use CPUs that it has to leave; an owner that
// waits for them is not started meanwhile.
func (w *writer) mustHaveLeft(next cgroup.Write) error {
	now, err := w.reader.CPUs(next.Path)
	switch {
	case errors.Is(err, cgroup.ErrGone):
		return err
	case err != nil:
		now.CPUs = w.topo.Online() // not known, so it may be any
	}
	left := now.CPUs.Minus(next.CPUs.Set())
	if left.IsEmpty() {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("cgroup %s: wrote CPUs %s, the kernel still allows %s", next.Path, next.CPUs.Set(), now.CPUs)
		w.c.o.Metrics.CpusetWrite("mismatch")
	}
	w.tree.MayAllow(next.Path, left)
	return err
}

// readUncertain reads back masks that are uncertain after an error. Those that stay uncertain are
// read again with the next retry.
func (w *writer) readUncertain() {
	for _, path := range w.tree.Uncertain() {
		w.readBackMask(path)
	}
}

func (w *writer) count(err error) {
	switch {
	case err == nil:
		w.c.o.Metrics.CpusetWrite("ok")
	case errors.Is(err, cgroup.ErrGone):
		w.c.o.Metrics.CpusetWrite("gone")
	default:
		w.c.o.Metrics.CpusetWrite("error")
	}
}

func pointsOf(phase cgroup.Phase) (before, after failpoint.Point) {
	if phase == cgroup.Shrink {
		return failpoint.ShrinkWriting, failpoint.ShrinkWritten
	}
	return failpoint.GrowWriting, failpoint.GrowWritten
}

// subjects are the pods, containers and slices in the tree.
type subjects struct {
	pods   map[string]*subject
	ctrs   map[string]*subject
	slices map[string]bool
	found  map[string][]string // the tree's IDs of unannounced pods and their child cgroups, by UID
	// unproven are the containers, by ID, whose masks are known from our replies alone; unanswered those, by path, that
	// the runtime creates without one: see loseReplies.
	unproven, unanswered map[string]bool
	raw                  bool // a systemd cgroup is written as a file: logged once
}

func newSubjects() subjects {
	return subjects{
		pods: map[string]*subject{}, ctrs: map[string]*subject{}, slices: map[string]bool{},
		found: map[string][]string{}, unproven: map[string]bool{}, unanswered: map[string]bool{},
	}
}

// subject is the writer's state of a pod, a container or a best-effort slice.
type subject struct {
	path      string
	name      string
	rev       uint64
	logged    string // the last CPUs in the log
	limit     limit
	idle      idleness
	weight    uint64       // of a pod on lent CPUs, beside its limit; 0: kubelet's
	stale     uint64       // a weight that an earlier daemon may have left; 0: none, or that was looked at
	asked     cgroup.Quota // what kubelet asked for
	container bool
	compared  bool     // its weight was, or is to be, compared with stale
	pending   bool     // limit is queued
	dropped   bool     // it has ended: there is nothing left to limit
	foreign   bool     // a pod in the best-effort slice that is not best effort
	rooms     []string // containers of a pod whose CPUs its mask keeps
}
