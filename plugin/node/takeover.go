package node

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/quietcore/quietcore/internal/failpoint"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/policy"
)

// takeover takes over running pods. A Synchronize is answered when half of its time has passed,
// from what was read by then, the state file and the runtime's lists; later reads correct the
// answer. Reads are kept until the takeover is finished. If the runtime gives up and
// synchronizes again, they count until they are repeated.
type takeover struct {
	c        *Core
	saved    state.Snapshot
	reads    reads
	current  *taking  // answered or not; nil: everything is read
	request  *Request // not answered yet; nil: there is none
	answerBy time.Time
	retryAt  time.Time       // of reads that failed
	unread   map[string]bool // pods, by UID, that an earlier takeover left unread
	// guessed are the containers, by ID, whose limits the policy has as they were answered, not as they were read.
	guessed map[string]policy.Container
	// open means that the policy does not have the runtime's latest list, in which may be pods that it does not
	// know; gen is the writer's batch that has the pods of the last list that it has. lost means that the runtime is
	// not connected: what it lists next may have more pods.
	open, lost bool
	gen        uint64

	taken       bool // running pods were taken over at least once: until then the file knows more than we do
	ownersKnown bool // all owners were known at least once
	once        bool // a Synchronize was answered at least once
}

func newTakeover(c *Core) takeover {
	return takeover{c: c, saved: c.o.Saved, reads: newReads()}
}

// live reports whether this event makes all owners known, for the first time or by another
// Synchronize. Until then nothing is written: a pool would grow onto the CPUs of an owner that is
// not read yet.
func (t *takeover) live(e policy.Event) bool {
	_, synchronized := e.(policy.Synchronized)
	t.taken = t.taken || synchronized
	known := t.known()
	begins := known && (synchronized || !t.ownersKnown)
	t.ownersKnown = t.ownersKnown || known
	return begins
}

// known reports whether all owners are known.
func (t *takeover) known() bool { return t.taken && t.c.machine.Unread() == 0 }

// begin starts to read running pods, in place of an earlier takeover that is not finished.
func (t *takeover) begin(r *Request) {
	if t.request != nil {
		t.c.reply(Reply{To: t.request, Err: context.Canceled})
		t.request, t.current = nil, nil
	}
	t.open, t.lost = true, false
	t.c.o.At(failpoint.SyncBegun)
	kept := t.c.machine.Kept()
	placed := podsOf(kept.Pods)
	t.unread = map[string]bool{}
	for uid := range placed {
		if t.c.machine.IsUnread(uid) {
			t.unread[uid] = true
			delete(placed, uid)
		}
	}
	from := recovery{
		topo: t.c.machine.Topology(), now: t.c.now,
		placed: placed, saved: t.saved.Places(), caps: t.saved.Caps, claimed: claimedIn(t.saved.Claims),
		toldLimits: toldLimits{lost: t.capsLost(), limited: t.c.writer.limited(), guessed: t.guessed},
	}
	if t.taken { // the file is older than the machine, but not than what the machine was told unread
		from.saved, from.caps, from.lost = nil, t.guessedCaps(r.Inventory), from.lost && len(t.guessed) > 0
		from.claimed = claimedIn(kept.Claims)
	}
	if t.c.o.Tree.Reads {
		from.reader = seenReader(nil) // cgroups can be read
	}
	t.current = newTaking(from, *r.Inventory, t.taken, t.unread)
	t.request = r
	t.answerBy = t.c.now
	if !r.Deadline.IsZero() {
		t.answerBy = t.c.now.Add(r.Deadline.Sub(t.c.now) / 2)
	}
	t.reads.ask(t.current.queries, t.current.urgent)
}

// capsLost reports whether the file at the start may lack caps.
func (t *takeover) capsLost() bool { return t.saved.Revision == 0 || t.saved.CapsUnknown }

// capsUnknown reports whether there still may be caps that nobody knows.
func (t *takeover) capsUnknown() bool { return t.capsLost() && len(t.guessed) > 0 }

// guessedCaps are the caps in the file of containers whose limits are guessed.
func (t *takeover) guessedCaps(listed *Inventory) []state.Cap {
	uids := map[string]string{} // by sandbox
	for i := range listed.Pods {
		uids[listed.Pods[i].Sandbox] = listed.Pods[i].UID
	}
	guessed := map[[2]string]bool{} // by the pod's UID and the container's name
	for _, c := range t.guessed {
		guessed[[2]string{uids[c.Sandbox], c.Name}] = true
	}
	return slices.DeleteFunc(slices.Clone(t.saved.Caps), func(c state.Cap) bool {
		return !guessed[[2]string{c.PodUID, c.Container}]
	})
}

func (t *takeover) next() time.Time {
	switch {
	case t.request != nil:
		return t.answerBy
	case t.current != nil && len(t.reads.wanted) == 0:
		return t.retryAt
	}
	return time.Time{}
}

// lanes is how many cgroups are read at a time: a read that hangs blocks its own lane only.
const lanes = 4

func (t *takeover) proceed() {
	for len(t.reads.inFlight) < lanes {
		q, ok := t.reads.take()
		if !ok {
			break
		}
		t.c.perform(q.effect(), func(r *Result) { t.reads.put(q, q.reading(r)) })
	}
	if t.current == nil {
		return
	}
	left := len(t.reads.wanted)
	switch {
	case t.request != nil && (left == 0 || !t.c.now.Before(t.answerBy)):
		t.answer()
	case t.request == nil && t.reads.news:
		t.reads.news, t.retryAt = false, t.c.now.Add(readAgainAfter) // the retry after a panic is not urgent
		if t.correct() && left == 0 && !t.readAgain(t.current) {
			t.current = nil
			t.forget()
		}
	case t.request == nil && left == 0 && !t.c.now.Before(t.retryAt):
		for _, q := range t.unreadable(t.current) {
			t.reads.repeat(q)
		}
		t.reads.news = len(t.reads.wanted) == 0 // the unreadable pods have ended
	}
}

// forget ends a takeover: everything is read.
func (t *takeover) forget() {
	t.guessed = nil
	t.reads.forget()
}

// readAgain reports whether there are cgroups that could not be read, and schedules the next reads of
// them: until they are read nothing is written and no owner starts, since their pods may run anywhere.
func (t *takeover) readAgain(current *taking) bool {
	if len(t.unreadable(current)) == 0 {
		return false
	}
	t.retryAt = t.c.now.Add(readAgainAfter)
	return true
}

func (t *takeover) unreadable(current *taking) []query {
	return current.unreadable(t.reads.seen, t.c.machine.IsUnread, t.c.machine.Knows)
}

// readAgainAfter is how long after a failed read of a possible owner the next one follows.
const readAgainAfter = 5 * time.Second

// answer gives the policy what is known of running pods, and replies to the Synchronize.
func (t *takeover) answer() {
	r, current := t.request, t.current
	t.request, t.current = nil, nil // if this fails, only the reads stay
	t.c.unfinished.request = r
	out := current.answer(t.reads.seen, t.c.machine.IsUnread)
	if !t.taken { // else the machine knows more than the file
		out.event.Claims = t.saved.Claims
	}
	before := t.guessed
	t.guessed = current.guesses(t.reads.seen)
	maps.Copy(t.guessed, before) // until they are corrected
	t.c.o.At(failpoint.SyncRead)
	err := t.c.take(out.event, out.observed).err
	t.c.o.At(failpoint.SyncTaken)
	if err != nil {
		t.guessed = before
		t.c.reply(Reply{To: r, Err: err})
		return
	}
	t.cancelCreates()
	t.markStarted(&out.event)
	for i := range out.event.Pods {
		t.c.presence.named[out.event.Pods[i].UID] = true
		if f, ok := t.c.o.Facts(out.event.Pods[i].UID); ok {
			if err := t.c.take(f, nil).err; err != nil {
				t.c.o.Log.Error("the API server's facts about a pod are not taken over", "pod",
					out.event.Pods[i].UID, "err", err)
			}
		}
	}
	t.followResizes(out.resized)
	if len(t.reads.wanted) == 0 && len(t.unread)+len(before) == 0 && t.c.machine.Unread() == 0 &&
		!t.readAgain(current) {
		t.forget()
	} else {
		t.current, t.reads.news = current, true
	}
	t.once, t.open, t.gen = true, t.lost, t.c.writer.inbox.last
	t.c.waitForAll() // what is listed may run on CPUs that a claim waits for
	t.c.presence.roundDue = true
	t.c.reply(Reply{To: r})
}

// lose records that the runtime is not connected any more.
func (t *takeover) lose() {
	t.open, t.lost = true, true
	t.cancelCreates()
	t.c.writer.put(batch{lost: true})
}

// cancelCreates ends the waits of creates whose connection is lost. The runtime has gone
// on without a reply, so its lists say which of these containers exist: the end of a wait does
// not mean any more that the container does not.
func (t *takeover) cancelCreates() {
	for _, w := range t.c.waiters {
		if !w.update {
			w.ended, w.reply.Container = true, nil
			t.c.reply(Reply{To: w.reply.To, Err: context.Canceled})
		}
	}
	t.c.waiters = slices.DeleteFunc(t.c.waiters, func(w *waiter) bool { return w.ended })
}

// markStarted records that the pods with listed containers have started: without us.
func (t *takeover) markStarted(s *policy.Synchronized) {
	uids := make(map[string]string, len(s.Pods)) // by sandbox
	for i := range s.Pods {
		uids[s.Pods[i].Sandbox] = s.Pods[i].UID
	}
	for i := range s.Containers {
		delete(t.c.fresh, uids[s.Containers[i].Sandbox])
	}
}

// correct gives the policy what was read after the answer.
func (t *takeover) correct() (taken bool) {
	c := t.current.correct(t.reads.seen, t.c.machine.IsUnread)
	if len(c.corrected.Pods)+len(c.corrected.Containers)+len(c.observed) > 0 {
		if err := t.c.take(c.corrected, c.observed).err; err != nil {
			t.c.o.Log.Error("cgroups that were read after the Synchronize are not taken over; it is tried again",
				"pods", len(c.corrected.Pods), "containers", len(c.corrected.Containers), "err", err)
			return false
		}
		t.c.waitForAll()
	}
	t.current.note(&c.now)
	guesses := t.current.guesses(t.reads.seen)
	maps.DeleteFunc(guesses, func(id string, _ policy.Container) bool { _, were := t.guessed[id]; return !were })
	t.guessed = guesses
	t.followResizes(c.resized)
	return true
}

func (t *takeover) followResizes(resized []policy.PodResized) {
	for _, e := range resized {
		if err := t.c.take(e, nil).err; err != nil {
			t.c.o.Log.Warn("a pod was resized without a daemon, and the resize cannot be followed; it keeps its CPUs",
				"sandbox", e.Sandbox, "to", e.Resources.RequestMilli, "err", err)
		}
	}
}

// wrote drops reads of a cgroup that we write.
func (t *takeover) wrote(path string) { t.reads.wrote(path) }

// othersWrite makes reads of a pod's or container's cgroup stale: kubelet or the runtime writes it.
func (t *takeover) othersWrite(s *subject) {
	if s != nil && t.current != nil {
		t.reads.outdate(cleanOf(s.path))
	}
}

// updated records that kubelet has updated a container: if it has set its limit, what was answered of it is known,
// and what is read later corrects nothing, not even if the limit is the one that was answered.
func (t *takeover) updated(e *policy.ContainerUpdate) {
	t.othersWrite(t.c.writer.ctrs[e.ID])
	if e.Quota == 0 && e.Resources == nil {
		return
	}
	delete(t.guessed, e.ID)
	if t.current != nil {
		delete(t.current.guessed, e.ID)
		delete(t.current.limits, e.ID)
	}
}

// resized records that kubelet resizes a pod, of which the policy knows what it owns: what its cgroup shows meanwhile
// is older, or half of the resize.
func (t *takeover) resized(e *policy.PodResized) {
	if e.Shares == 0 || t.current == nil {
		return
	}
	if p := t.current.podsBySandbox()[e.Sandbox]; p != nil && !t.c.machine.IsUnread(p.UID) {
		t.current.followed[e.Sandbox] = true
	}
}

// reads are the queries of a takeover and their results.
type reads struct {
	seen     map[query]reading
	queue    []query
	inFlight map[query]bool
	wanted   map[query]bool // not answered yet; true: urgent
	urgent   int            // how many of wanted are urgent
	// stale are queries that were in flight when they were wanted again: their results count until
	// they are repeated.
	stale map[query]bool
	// news means that all urgent queries are answered, or that one was answered while all the
	// rest are in flight, of which any may hang.
	news bool
}

func newReads() reads {
	return reads{seen: map[query]reading{}, inFlight: map[query]bool{}, wanted: map[query]bool{},
		stale: map[query]bool{}}
}

// ask replaces the queries; the first urgent ones decide most. Results of an earlier takeover count
// until they are read again, after the rest: without a reply the runtime goes on, and kubelet
// resizes.
func (r *reads) ask(list []query, urgent int) {
	r.queue, r.wanted, r.urgent, r.news = nil, map[query]bool{}, 0, false
	var again []query
	for i, q := range list {
		_, done := r.seen[q]
		r.wanted[q] = i < urgent && !done
		if r.wanted[q] {
			r.urgent++
		}
		switch {
		case r.inFlight[q]:
			r.stale[q] = true
		case done:
			again = append(again, q)
		default:
			r.queue = append(r.queue, q)
		}
	}
	r.queue = append(r.queue, again...)
}

// repeat queues a failed query again.
func (r *reads) repeat(q query) {
	delete(r.seen, q)
	r.wanted[q] = true
	r.urgent++
	r.queue = append(r.queue, q)
}

// outdate has a cgroup read again if it was read or is being read.
func (r *reads) outdate(path string) {
	for _, kind := range []EffectKind{ReadCPUs, ReadAll} {
		q := query{path, kind}
		if r.inFlight[q] {
			r.stale[q] = true
		}
		_, done := r.seen[q]
		_, wanted := r.wanted[q]
		delete(r.seen, q)
		if done && !wanted {
			r.wanted[q] = false
			r.queue = append(r.queue, q)
		}
	}
}

// take returns the next query to perform.
func (r *reads) take() (query, bool) {
	for len(r.queue) > 0 {
		q := r.queue[0]
		r.queue = r.queue[1:]
		if _, wanted := r.wanted[q]; wanted {
			r.inFlight[q] = true
			return q, true
		}
	}
	return query{}, false
}

func (r *reads) put(q query, found reading) {
	stale := r.stale[q]
	delete(r.stale, q)
	delete(r.inFlight, q)
	urgent, wanted := r.wanted[q]
	if !wanted {
		return // an earlier takeover wanted it and this one does not, or it was written since
	}
	r.seen[q] = found
	delete(r.wanted, q)
	if stale {
		r.wanted[q] = false
		r.queue = append(r.queue, q)
	}
	if urgent {
		r.urgent--
	}
	r.news = r.news || urgent && r.urgent == 0 || len(r.queue) == 0
}

// wrote drops reads of a cgroup that we write: its new values are known.
func (r *reads) wrote(path string) {
	if len(r.seen) == 0 && len(r.wanted) == 0 {
		return
	}
	for _, kind := range []EffectKind{ReadCPUs, ReadAll} {
		q := query{cleanOf(path), kind}
		delete(r.seen, q)
		if urgent, wanted := r.wanted[q]; wanted && !urgent {
			delete(r.wanted, q)
		}
	}
	r.news = r.news || len(r.wanted) == 0
}

// forget ends a takeover.
func (r *reads) forget() {
	clear(r.seen)
	clear(r.wanted)
	clear(r.stale)
	r.queue, r.urgent, r.news = nil, 0, false
}
