package kube

import (
	"sync"
	"time"

	"github.com/quietcore/quietcore/policy"
)

// Bounds of Events. A pod that kubelet retries forever, or a tenant who creates pods by
// the hundred, must fill neither etcd nor our memory.
const (
	maxPending = 256  // Events that wait, of which namespaces have equal shares
	maxKnown   = 1024 // Events that a repeat is counted into, likewise
	// repeatEvery is how often the count of a repeated Event is written. repeatWithin
	// is how long it is the same Event: the API server forgets it after an hour.
	repeatEvery  = time.Minute
	repeatWithin = 30 * time.Minute

	podBurst, podRefill   = 10, 30 * time.Second // different Events of one pod
	nodeBurst, nodeRefill = 50, time.Second      // Events of all
	maxBuckets            = 1024

	// A namespace that denies an Event waits that long, doubled up to the most, and a random part more.
	firstPause, mostPause = time.Second, time.Minute
)

// queue holds notices until they are written. Its lock is only held for map accesses,
// never during a request.
type queue struct {
	node    string
	now     func() time.Time
	dropped func()
	wake    chan struct{} // has one element when there may be something to do

	mu      sync.Mutex
	known   map[noticeKey]*entry
	pending lanes
	pods    map[string]*bucket
	all     bucket
}

// noticeKey identifies equal notices.
type noticeKey struct{ uid, namespace, name, reason, note string }

// entry is an Event, written or not.
type entry struct {
	key         noticeKey
	first, last time.Time
	count       int
	written     int // how much of count is in the API server; 0: nothing
	due         time.Time
	waiting     bool // in pending
	attempts    int  // how often it was denied in a row; for the writer
}

// item is a snapshot of an entry, to be written.
type item struct {
	*entry
	count       int
	create      bool
	first, last time.Time
	least       time.Duration // the pause that the API server asks for, where it denies this
}

func newQueue(node string, now func() time.Time, dropped func()) *queue {
	return &queue{
		node: node, now: now, dropped: dropped, wake: make(chan struct{}, 1),
		known: map[noticeKey]*entry{}, pods: map[string]*bucket{}, all: newBucket(nodeBurst, nodeRefill, now()),
	}
}

const (
	maxNote   = 1024 // bytes, as the API server wants it
	maxReason = 128
)

func (q *queue) put(n policy.Notice) {
	now := q.now()
	key := noticeKey{
		uid: clip(n.Pod.UID, maxUID), namespace: clip(n.Pod.Namespace, maxName), name: clip(n.Pod.Name, maxName),
		reason: printable(n.Reason, maxReason), note: printable(n.Message, maxNote),
	}
	q.mu.Lock()
	lost := q.add(key, now)
	q.mu.Unlock()
	for range lost {
		q.dropped()
	}
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// add counts a notice and returns how many others were dropped for it.
func (q *queue) add(key noticeKey, now time.Time) (lost int) {
	e := q.known[key]
	if e != nil && e.written > 0 && !e.waiting && now.Sub(e.last) > repeatWithin {
		delete(q.known, key)
		e = nil
	}
	if e == nil {
		if !q.bucketOf(key.uid, now).take(now) {
			return 1
		}
		q.forget()
		e = &entry{key: key, first: now}
		q.known[key] = e
	}
	e.count++
	e.last = now
	if e.waiting {
		return 0
	}
	return q.wait(e, false)
}

// wait queues an entry. The oldest of the namespace that has most makes room.
func (q *queue) wait(e *entry, first bool) (lost int) {
	q.pending.add(e, first)
	for q.pending.all > maxPending {
		q.abandon(q.pending.surplus())
		lost++
	}
	return lost
}

// abandon drops an entry. If a part of it was written it stays known, so that repeats
// are counted there.
func (q *queue) abandon(e *entry) {
	q.pending.remove(e)
	if e.written == 0 {
		delete(q.known, e.key)
	}
}

// forget drops a known entry that does not wait: of the namespace that has most of these, the least recent.
func (q *queue) forget() {
	if len(q.known) < maxKnown {
		return
	}
	type crowd struct {
		n      int
		oldest *entry
	}
	crowds := map[string]crowd{}
	var most crowd
	for _, e := range q.known {
		if e.waiting {
			continue
		}
		c := crowds[e.key.namespace]
		c.n++
		if c.oldest == nil || e.last.Before(c.oldest.last) {
			c.oldest = e
		}
		crowds[e.key.namespace] = c
	}
	for _, c := range crowds {
		if c.n > most.n || c.n == most.n && c.oldest.last.Before(most.oldest.last) {
			most = c
		}
	}
	if most.oldest != nil { // maxPending is below maxKnown: there is one
		delete(q.known, most.oldest.key)
	}
}

// next returns what to write now, else the time until something is due; ok false and 0:
// nothing is queued.
func (q *queue) next() (next item, in time.Duration, ok bool) {
	now := q.now()
	q.mu.Lock()
	defer q.mu.Unlock()
	e, in := q.pending.next(now)
	if e == nil {
		return item{}, in, false
	}
	if !q.all.take(now) {
		return item{}, q.all.in(now), false
	}
	q.pending.taken(e)
	return item{entry: e, count: e.count, create: e.written == 0, first: e.first, last: e.last}, 0, true
}

// fate is the result of writing an item.
type fate int

const (
	written  fate = iota
	vanished      // its Event to count up is gone
	refused       // permanently
	failed        // no answer
	denied        // maybe only now
)

// done records the result of an item.
func (q *queue) done(i item, f fate) {
	now := q.now()
	q.mu.Lock()
	lost := 0
	e := i.entry
	if next := q.known[e.key]; next != nil && next != e && f != refused {
		next.inherit(e, i, f)
		q.mu.Unlock()
		return
	}
	switch f {
	case denied:
		e.attempts++
		q.pending.deny(e.key.namespace, now, i.least)
	case failed: // the server was not reached, so the item is still good
	case refused:
		e.attempts = 0
	default:
		e.attempts = 0
		q.pending.accept(e.key.namespace)
	}
	if f != refused && q.known[e.key] == nil {
		q.known[e.key] = e // it was forgotten meanwhile
	}
	switch f {
	case written:
		e.written, e.due = i.count, now.Add(repeatEvery)
		if e.count > e.written && !e.waiting {
			lost = q.wait(e, false)
		}
	case vanished:
		e.count, e.written, e.first, e.due = e.count-e.written, 0, e.last, time.Time{}
		if !e.waiting {
			lost = q.wait(e, false)
		}
	case refused:
		// Not retried within a minute.
		e.due = now.Add(repeatEvery)
		lost = 1
	case failed, denied:
		if !e.waiting {
			lost = q.wait(e, true)
		}
	}
	q.mu.Unlock()
	for range lost {
		q.dropped()
	}
}

// inherit adds to an entry what its predecessor, being written when the entry was
// created, failed to write.
func (e *entry) inherit(old *entry, i item, f fate) {
	missing := old.count - old.written
	if f == written {
		missing = old.count - i.count
	}
	if missing == 0 {
		return
	}
	e.count += missing
	if e.written == 0 {
		e.first = old.first
	}
}

func (q *queue) bucketOf(uid string, now time.Time) *bucket {
	b := q.pods[uid]
	if b != nil {
		return b
	}
	if len(q.pods) >= maxBuckets {
		for k, b := range q.pods {
			if b.full(now) {
				delete(q.pods, k)
			}
		}
		if len(q.pods) >= maxBuckets {
			clear(q.pods) // the bound on all Events still holds
		}
	}
	fresh := newBucket(podBurst, podRefill, now)
	q.pods[uid] = &fresh
	return &fresh
}

// bucket is a token bucket: burst at once, then one per refill.
type bucket struct {
	burst  float64
	refill time.Duration
	tokens float64
	at     time.Time
}

func newBucket(burst int, refill time.Duration, now time.Time) bucket {
	return bucket{burst: float64(burst), refill: refill, tokens: float64(burst), at: now}
}

func (b *bucket) fill(now time.Time) {
	if d := now.Sub(b.at); d > 0 {
		b.tokens = min(b.burst, b.tokens+float64(d)/float64(b.refill))
		b.at = now
	}
}

func (b *bucket) take(now time.Time) bool {
	b.fill(now)
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

func (b *bucket) full(now time.Time) bool { b.fill(now); return b.tokens == b.burst }

// in is the time until take succeeds.
func (b *bucket) in(now time.Time) time.Duration {
	b.fill(now)
	return max(time.Duration((1-b.tokens)*float64(b.refill)), time.Millisecond)
}
