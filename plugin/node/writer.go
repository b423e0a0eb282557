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

// observations are what cgroups, by path, were found to hold by whoever looked at the node: a takeover,
// or a machine that is rebuilt. One without a mask is nil: it is what most are, and a value takes 4 KiB.
// Nil altogether: nobody did, and the tree knows what is there.
type observations map[string]*cgroup.Effective

// missed says that a cgroup was to be looked at and was not seen: what it holds is not known.
func (o observations) missed(path string) bool {
	_, seen := o[path]
	return o != nil && !seen
}

// batch is what one step decided, or asks the writer for.
type batch struct {
	decisions []policy.Decision
	topo      *topology.Topology
	rev       uint64
	observed  observations
	live      bool     // from here on it is known who owns what
	audit     bool     // look at every cgroup now
	lazy      bool     // nothing waits for it, and no pod has to leave
	full      bool     // decisions are the whole state of a new machine: what they do not name is gone
	made      []made   // what the runtime is told to make
	verify    []string // ids of containers to read back
	recheck   []string // UIDs of pods whose quota was written by others
	soon      []string // UIDs of pods whose quota may be written by others in a moment
	panicked  bool     // it could not be taken in: the next time is the last
}

// made is a container that the runtime is told to make, with a mask.
type made struct {
	id   string
	cpus cpuset.Set
}

// writer turns decisions into cgroup writes: one at a time, those first that take CPUs
// away. Its routine runs as long as there is something to do and alone changes the tree.
type writer struct {
	c      *Core
	tree   *cgroup.Tree
	topo   *topology.Topology
	rev    uint64
	inbox  inbox
	shrunk uint64 // up to this batch, everyone has left what is not theirs any more
	live   bool   // it is known who owns what: before, nothing is written
	retry  retry
	subjects
	limits limits
	audit  audit
	out    outside       // valid in the routine
	reader cgroup.Reader // out, which wants to see that a cgroup is gone; nil: there is none
}

// inbox is what was decided and is not in the tree yet.
type inbox struct {
	batches []batch
	taken   []batch   // those that are being taken into the tree
	last    uint64    // number of the last one put in
	urgent  uint64    // number of the last one that is not lazy
	at      time.Time // when they have to be taken
	held    time.Time // not before, while the file contradicts them; zero: it does not
	running bool      // the routine will take them
}

// retry is what failed and when it is tried again.
type retry struct {
	failed bool // wait for news or at before trying again
	at     time.Time
	rounds int   // of growing since the last news
	cause  error // the last failure of a write
}

const (
	// lazyDelay lets what nobody waits for come together: a shared container's creation
	// starts nothing that would compete with its answer.
	lazyDelay = 5 * time.Millisecond
	// lazyPiece is how many of those are taken in at a time, and lazyPause the time between:
	// whoever comes meanwhile is answered first.
	lazyPiece = 8
	lazyPause = 200 * time.Microsecond
	// retryWrites is how long after a failed write it is tried again.
	retryWrites = 5 * time.Second
	// maxRounds bounds how often the same masks are written before whoever keeps changing
	// them is left to the audit.
	maxRounds = 8
)

func newWriter(c *Core, m *policy.Machine) *writer {
	w := &writer{
		c: c, tree: cgroup.NewTree(m.Topology().Online(), cgroup.Options{Flat: c.o.Tree.Flat}),
		topo: m.Topology(), rev: m.Rev(), subjects: newSubjects(), limits: newLimits(), audit: newAudit(),
	}
	// What the machine decided when it was made came with no step.
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

// saved lets go on what waited for a save, unless something came since.
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

// next is when there is something to do.
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
	if at := w.inbox.at; len(w.inbox.batches) > 0 {
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

// why is the reason for which CPUs are held.
func (w *writer) why() error { return cmp.Or(w.retry.cause, errNotYetRead) }

func (w *writer) uncertain() bool { return w.writes() && len(w.tree.Uncertain()) > 0 }

// writes says whether the writer may write at all.
func (w *writer) writes() bool { return w.live && w.c.o.Tree.Writes }

// proceed starts the routine where it stands still and there is something to do.
func (w *writer) proceed() {
	at := w.next()
	if at.IsZero() || w.c.now.Before(at) {
		return
	}
	w.inbox.running = true
	w.c.run("writer", w.work, w.worked)
}

// work is the routine: the most urgent thing there is, until there is none.
func (w *writer) work(do do) {
	w.out = outside{do}
	if w.c.o.Tree.Reads {
		w.reader = cgroup.Confirmed(w.out)
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

// worked notes that the routine has ended, and when it goes on.
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

// putBack takes in again what a panic left out, and has everything read back. In place of a
// batch that panics twice comes the whole state: part of it may be in the tree, and no owner
// starts on what the rest was to free.
func (w *writer) putBack() {
	left := w.inbox.taken
	w.inbox.taken = nil
	switch {
	case len(left) == 0:
	case !left[0].panicked:
		left[0].panicked = true
	default:
		observed := left[0].observed
		if left[0].full {
			observed = nil // it may be this that panics
		}
		w.c.unfinished.add(observed)
		left = left[1:]
	}
	w.inbox.batches = slices.Concat(left, w.inbox.batches, []batch{{audit: true}})
	w.inbox.last++
	w.inbox.urgent = w.inbox.last
	w.c.afterPanic()
	w.inbox.at = w.c.now.Add(retryWrites)
}

// again gives what failed another chance. Masks that are not written show in the tree's
// plan, quotas have to be asked for.
func (w *writer) again() {
	w.retry.failed, w.retry.at, w.retry.rounds = false, time.Time{}, 0
	unwritten := w.limits.unwritten
	w.limits.unwritten = nil
	for _, s := range unwritten {
		w.lookAtLimit(s)
	}
}

// turn does the most urgent thing there is and reports whether there was one.
// Shrinking comes first, since an owner waits for it; the rest is done in small
// pieces with a look at the inbox between.
func (w *writer) turn() bool {
	if w.news() {
		pause := w.takeIn()
		w.again()
		for len(w.inbox.taken) > 0 {
			w.absorb(w.inbox.taken[0])
			w.inbox.taken = w.inbox.taken[1:]
		}
		w.write(cgroup.Shrink)
		if !w.c.unfinished.undelivered {
			w.shrunk = w.inbox.last - uint64(len(w.inbox.batches))
		}
		return !pause || w.news()
	}
	if !w.writes() {
		w.audit.clear()
		if !w.c.o.Tree.Writes { // otherwise they are written once it is known who owns what
			w.limits.clear()
		}
		return false
	}
	return !w.retry.failed && w.write(cgroup.Grow) || w.writeLimits() || w.readBack() || w.auditSome()
}

// takeIn begins to take what was decided into the tree: all of it, or a piece where nobody
// waits for it; then the writer pauses.
func (w *writer) takeIn() (pause bool) {
	n := len(w.inbox.batches)
	if before := w.inbox.last - uint64(n); n > lazyPiece && w.inbox.urgent <= before {
		n, pause = lazyPiece, true
		w.inbox.at = w.c.now.Add(lazyPause)
	}
	w.inbox.taken, w.inbox.batches, w.inbox.held = w.inbox.batches[:n:n], w.inbox.batches[n:], time.Time{}
	return pause
}

// news says whether there are decisions that have to be taken now.
func (w *writer) news() bool {
	return len(w.inbox.batches) > 0 && !w.c.now.Before(w.inbox.at) && !w.c.now.Before(w.inbox.held)
}

// waitsForSave says whether decisions are held back until they are on disk: what was decided
// before them may let others grow onto CPUs that have an owner again.
func (w *writer) waitsForSave() bool { return len(w.inbox.batches) > 0 && w.c.now.Before(w.inbox.held) }

// write executes the plan as far as the phase goes (growing includes what could
// not shrink before) and reports whether there was anything to write.
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
		// An owner that comes waits for others to leave, but not for others to come. A cgroup that moves
		// comes, too: what it comes onto may be an owner's since.
		comes := next.Phase == cgroup.Grow || w.tree.Widens(next)
		if (comes || phase == cgroup.Grow) && len(done) > 0 && w.news() || comes && w.waitsForSave() {
			return cgroup.ErrSkipRest
		}
		if replan = w.freed(); replan {
			return cgroup.ErrSkipRest
		}
		if w.outdated() || w.widensAround(next) || w.comesInto(next) {
			w.inbox.at, w.inbox.held = w.c.now, time.Time{}
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
		case len(done) == 0: // nothing can be written now: it is left out as unsafe, or there is news
			w.retry.failed = w.retry.failed || !w.news() && !replan
		case w.retry.rounds > maxRounds:
			w.retry.failed = true
			w.c.o.Log.Error("a cgroup is changed again and again after it was written; it is left to the audit",
				"cgroup", todo[0].Path)
		}
	}
	return true
}

// outdated says whether CPUs came or went that the tree does not know of yet: where those of
// a mask are off, the kernel gives others, and the plan does not foresee that.
func (w *writer) outdated() bool {
	return slices.ContainsFunc(w.inbox.batches, func(b batch) bool {
		return b.topo != nil && b.topo.Online() != w.topo.Online()
	})
}

// freed says whether a limit from outside has changed: the plan that was made for it would take
// CPUs of others. A CPU that is off without the daemon's knowing looks like one, and comes back.
func (w *writer) freed() bool {
	return w.reader != nil && w.tree.Limited() && w.tree.LookAbove(w.reader.CPUs)
}

// widensAround says whether a write gives a cgroup CPUs while a pod in it is not in the tree
// yet, or not as it was decided last: the pod may have been let start on what the cgroup
// had, and has no mask of its own to keep it off what others in it are given. It has to be
// taken in first.
func (w *writer) widensAround(next cgroup.Write) bool {
	return w.tree.Widens(next) && slices.ContainsFunc(w.inbox.batches, func(b batch) bool {
		return slices.ContainsFunc(b.decisions, func(d policy.Decision) bool {
			pod, ok := d.(policy.SetPod)
			return ok && cgroup.Parent(pod.Pod.CgroupParent) == next.Path
		})
	})
}

// comesInto says whether a container that the tree does not know yet, or not as it is made, comes with
// a mask of its own into a cgroup that is written: where the cgroup is left nothing of that mask, the
// kernel gives the container all that is left, its neighbours' CPUs as well.
func (w *writer) comesInto(next cgroup.Write) bool {
	in := func(path string) bool { return strings.HasPrefix(cleanOf(path), next.Path+"/") }
	return !next.CPUs.IsZero() && slices.ContainsFunc(w.inbox.batches, func(b batch) bool {
		return slices.ContainsFunc(b.made, func(m made) bool {
			c := w.ctrs[m.id]
			return c != nil && in(c.path)
		}) || slices.ContainsFunc(b.decisions, func(d policy.Decision) bool {
			c, ok := d.(policy.SetContainer)
			return ok && c.Beside != nil && in(c.Container.CgroupPath)
		})
	})
}

func (w *writer) apply(next cgroup.Write) error {
	e := Effect{Kind: Write, Path: next.Path, Values: next.Values()}
	e.Before, e.After = pointsOf(next.Phase)
	w.forgetReads(next.Path)
	err := w.out.do(e).Err
	w.forgetReads(next.Path) // it may have been read before the write had its effect
	w.count(err)
	if errors.Is(err, cgroup.ErrGone) {
		return w.confirmGone(next, err)
	}
	if err == nil && next.Phase == cgroup.Shrink && !next.CPUs.IsZero() {
		return w.mustHaveLeft(next)
	}
	return err
}

// forgetReads drops what a takeover has read of a cgroup that is written: it is old, also
// where it waits in the inbox.
func (w *writer) forgetReads(path string) {
	w.c.takeover.wrote(path)
	for i := range w.inbox.batches {
		maps.DeleteFunc(w.inbox.batches[i].observed, func(read string, _ *cgroup.Effective) bool {
			return cleanOf(read) == path
		})
	}
}

// confirmGone wants the reader to agree that a cgroup is gone: its tasks are on no
// CPU then, and otherwise perhaps on those of an owner.
func (w *writer) confirmGone(next cgroup.Write, err error) error {
	_, readErr := w.reader.CPUs(next.Path)
	switch {
	case errors.Is(readErr, cgroup.ErrGone):
		return err
	case readErr == nil:
		readErr = errors.New("the reader sees it")
	}
	return fmt.Errorf("cgroup %s is said to be gone: %w", next.Path, readErr)
}

// mustHaveLeft reads back that nothing in the cgroup may still run on the CPUs that
// it was to leave; an owner that waits for them is not started while it may.
func (w *writer) mustHaveLeft(next cgroup.Write) error {
	now, err := w.reader.CPUs(next.Path)
	switch {
	case errors.Is(err, cgroup.ErrGone):
		return err
	case err != nil:
		now.CPUs = w.topo.Online() // unknown, so all of them
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

// readUncertain reads back what an error left uncertain. What stays uncertain is
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
	found  map[string][]string // what the tree has of pods that were never announced, by UID
	raw    bool                // a systemd cgroup was seen: logged once
}

func newSubjects() subjects {
	return subjects{
		pods: map[string]*subject{}, ctrs: map[string]*subject{}, slices: map[string]bool{},
		found: map[string][]string{},
	}
}

// subject is what the writer knows of a pod, a container or a best-effort slice.
type subject struct {
	path      string
	name      string
	rev       uint64
	logged    string // the CPUs last logged
	limit     limit
	idle      idleness
	weight    uint64       // of a pod on lent CPUs, beside its limit; 0: kubelet's
	asked     cgroup.Quota // what kubelet asked for
	container bool
	pending   bool     // limit has to be looked at
	dropped   bool     // there is nothing left to limit
	foreign   bool     // a pod in the best-effort slice that is not best effort
	rooms     []string // the containers of a pod for which it keeps CPUs
}
