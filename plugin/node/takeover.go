package node

import (
	"context"
	"slices"
	"time"

	"github.com/quietcore/quietcore/internal/failpoint"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/policy"
)

// takeover takes over what runs. A Synchronize is answered from what was read until half
// of its time has passed, from the state file and from the runtime's lists; what is read
// later corrects that. What was read is kept until the takeover is finished, also when the
// runtime gives up and asks again, and then read once more.
type takeover struct {
	c        *Core
	saved    state.Snapshot
	reads    reads
	current  *taking  // answered or not; nil: everything is read
	request  *Request // that is not answered yet
	answerBy time.Time
	retryAt  time.Time       // of reads that failed
	unread   map[string]bool // pods, by UID, that an earlier takeover left unread

	taken bool // what runs was taken over at least once: before, the file knows more than we do
	alive bool // it was known once who owns what
	once  bool // a Synchronize was answered at least once
}

func newTakeover(c *Core) takeover {
	return takeover{c: c, saved: c.o.Saved, reads: newReads()}
}

// live reports whether from this event on it is known who owns what, or it is known anew.
// Before, nothing is written: a pool would grow onto the CPUs of an owner that is not read
// yet.
func (t *takeover) live(e policy.Event) bool {
	_, synchronized := e.(policy.Synchronized)
	t.taken = t.taken || synchronized
	live := t.known()
	begins := live && (synchronized || !t.alive)
	t.alive = t.alive || live
	return begins
}

// known reports whether it is known who owns what.
func (t *takeover) known() bool { return t.taken && t.c.machine.Unread() == 0 }

// begin reads what runs, in place of an earlier takeover that is not finished.
func (t *takeover) begin(r *Request) {
	if t.request != nil {
		t.c.reply(Reply{To: t.request, Err: context.Canceled})
		t.request, t.current = nil, nil
	}
	t.c.o.At(failpoint.SyncBegun)
	placed := podsOf(t.c.machine.Machine)
	t.unread = map[string]bool{}
	for uid := range placed {
		if t.c.machine.IsUnread(uid) {
			t.unread[uid] = true
			delete(placed, uid)
		}
	}
	from := recovery{
		topo: t.c.machine.Topology(), now: t.c.now,
		placed: placed, saved: t.saved.Places(), caps: t.saved.Caps, lost: t.saved.Revision == 0 && !t.taken,
		limited: t.c.writer.limited(),
	}
	if t.taken {
		from.saved, from.caps = nil, nil // older than what we know ourselves
	}
	if t.c.o.Tree.Reads {
		from.reader = seenReader(nil) // there is something to read
	}
	t.current = newTaking(from, *r.Inventory, t.taken, t.unread)
	t.request = r
	t.answerBy = t.c.now
	if !r.Deadline.IsZero() {
		t.answerBy = t.c.now.Add(r.Deadline.Sub(t.c.now) / 2)
	}
	t.reads.ask(t.current.queries, t.current.urgent)
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

// lanes is how many cgroups are read at a time: a read that hangs holds up its own
// lane only.
const lanes = 4

func (t *takeover) proceed() {
	for len(t.reads.flying) < lanes {
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
		t.reads.news, t.retryAt = false, t.c.now.Add(readAgainAfter) // a panic is no reason to hurry
		if t.correct() && left == 0 && !t.readAgain(t.current) {
			t.current = nil
			t.reads.forget()
		}
	case t.request == nil && left == 0 && !t.c.now.Before(t.retryAt):
		for _, q := range t.current.unreadable(t.reads.seen, t.c.machine.IsUnread) {
			t.reads.repeat(q)
		}
		t.reads.news = len(t.reads.wanted) == 0 // they have ended
	}
}

// readAgain reports whether cgroups are left that could not be read, and has them read again later:
// nothing is written, and no owner starts, while one may run anywhere.
func (t *takeover) readAgain(current *taking) bool {
	if len(current.unreadable(t.reads.seen, t.c.machine.IsUnread)) == 0 {
		return false
	}
	t.retryAt = t.c.now.Add(readAgainAfter)
	return true
}

// readAgainAfter is how long after a failed read that decides who owns what follows the next.
const readAgainAfter = 5 * time.Second

// answer gives the policy what is known of what runs.
func (t *takeover) answer() {
	r, current := t.request, t.current
	t.request, t.current = nil, nil // of an attempt that fails only what was read stays
	t.c.unfinished.request = r
	out := current.answer(t.reads.seen, t.c.machine.IsUnread)
	t.c.o.At(failpoint.SyncRead)
	err := t.c.take(out.event, out.observed).err
	t.c.o.At(failpoint.SyncTaken)
	if err != nil {
		t.c.reply(Reply{To: r, Err: err})
		return
	}
	t.endCreates()
	t.startedAlone(&out.event)
	for i := range out.event.Pods {
		t.c.presence.named[out.event.Pods[i].UID] = true
		if f, ok := t.c.o.Facts(out.event.Pods[i].UID); ok {
			if err := t.c.take(f, nil).err; err != nil {
				t.c.o.Log.Error("what the API server says of a pod is not taken over", "pod", out.event.Pods[i].UID,
					"err", err)
			}
		}
	}
	t.followResizes(out.resized)
	if len(t.reads.wanted) == 0 && len(t.unread) == 0 && t.c.machine.Unread() == 0 && !t.readAgain(current) {
		t.reads.forget()
	} else {
		t.current, t.reads.news = current, true
	}
	t.once = true
	t.c.presence.roundDue = true
	t.c.reply(Reply{To: r})
}

// endCreates ends the waits of creates that came before the runtime connected anew. It went
// on without their answers, so its lists say which of the containers exist: the end of a
// wait no longer means that there is none.
func (t *takeover) endCreates() {
	for _, w := range t.c.waiters {
		if !w.update {
			w.ended, w.reply.Container = true, nil
			t.c.reply(Reply{To: w.reply.To, Err: context.Canceled})
		}
	}
	t.c.waiters = slices.DeleteFunc(t.c.waiters, func(w *waiter) bool { return w.ended })
}

// startedAlone notes the pods whose containers the runtime let start without asking.
func (t *takeover) startedAlone(s *policy.Synchronized) {
	uids := make(map[string]string, len(s.Pods)) // by sandbox
	for i := range s.Pods {
		uids[s.Pods[i].Sandbox] = s.Pods[i].UID
	}
	for i := range s.Containers {
		delete(t.c.fresh, uids[s.Containers[i].Sandbox])
	}
}

// correct gives the policy what was read since the answer.
func (t *takeover) correct() (taken bool) {
	c := t.current.correct(t.reads.seen, t.c.machine.IsUnread)
	if len(c.corrected.Pods)+len(c.corrected.Containers)+len(c.observed) > 0 {
		if err := t.c.take(c.corrected, c.observed).err; err != nil {
			t.c.o.Log.Error("what was read after the Synchronize is not taken over; it is tried again", "err", err)
			return false
		}
		t.c.await()
	}
	t.current.note(&c.now)
	t.followResizes(c.resized)
	return true
}

func (t *takeover) followResizes(resized []policy.PodResized) {
	for _, e := range resized {
		if err := t.c.take(e, nil).err; err != nil {
			t.c.o.Log.Warn("a resize that was missed cannot be followed; the pod keeps what it has",
				"sandbox", e.Sandbox, "to", e.Resources.RequestMilli, "err", err)
		}
	}
}

// wrote drops what was read of a cgroup before it was written.
func (t *takeover) wrote(path string) { t.reads.wrote(path) }

// others notes that kubelet or the runtime writes the cgroup of a pod or a container: what was
// read of it is old.
func (t *takeover) others(s *subject) {
	if s != nil && t.current != nil {
		t.reads.outdate(cleanOf(s.path))
	}
}

// reads are the queries of a takeover and what came of them.
type reads struct {
	seen   map[query]reading
	queue  []query
	flying map[query]bool
	wanted map[query]bool // not answered yet; true: urgent
	urgent int            // how many of them are
	// early are those that were under way when they were asked for: what they find counts until
	// they are read again.
	early map[query]bool
	// news says that the urgent ones are answered, or that one was since all others have
	// begun: one of them may hang.
	news bool
}

func newReads() reads {
	return reads{seen: map[query]reading{}, flying: map[query]bool{}, wanted: map[query]bool{}, early: map[query]bool{}}
}

// ask replaces what is to be read; the first urgent ones are those that decide most. What was
// read for an earlier question counts until it is read again, after the rest: without an
// answer the runtime goes on, and kubelet resizes.
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
		case r.flying[q]:
			r.early[q] = true
		case done:
			again = append(again, q)
		default:
			r.queue = append(r.queue, q)
		}
	}
	r.queue = append(r.queue, again...)
}

// repeat reads once more what could not be read.
func (r *reads) repeat(q query) {
	delete(r.seen, q)
	r.wanted[q] = true
	r.urgent++
	r.queue = append(r.queue, q)
}

// outdate has a cgroup read again that was read, or is being read.
func (r *reads) outdate(path string) {
	for _, kind := range []EffectKind{ReadCPUs, ReadAll} {
		q := query{path, kind}
		if r.flying[q] {
			r.early[q] = true
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

// take returns the next query to carry out.
func (r *reads) take() (query, bool) {
	for len(r.queue) > 0 {
		q := r.queue[0]
		r.queue = r.queue[1:]
		if _, wanted := r.wanted[q]; wanted {
			r.flying[q] = true
			return q, true
		}
	}
	return query{}, false
}

func (r *reads) put(q query, found reading) {
	early := r.early[q]
	delete(r.early, q)
	delete(r.flying, q)
	urgent, wanted := r.wanted[q]
	if !wanted {
		return // of an earlier takeover, and not asked again, or written since
	}
	r.seen[q] = found
	delete(r.wanted, q)
	if early {
		r.wanted[q] = false
		r.queue = append(r.queue, q)
	}
	if urgent {
		r.urgent--
	}
	r.news = r.news || urgent && r.urgent == 0 || len(r.queue) == 0
}

// wrote drops what was read of a cgroup before it was written: what is written is known.
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
	clear(r.early)
	r.queue, r.urgent, r.news = nil, 0, false
}
