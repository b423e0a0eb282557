package kube

import (
	"math/rand/v2"
	"slices"
	"time"
)

// lanes are the Events that wait, by namespace. Namespaces take turns, so that nobody waits for another's crowd or for
// a namespace that accepts none; those of the Node are one more.
type lanes struct {
	of    map[string]*lane
	turns []*lane // whose turn is next comes first
	all   int     // Events that wait
}

// lane are a namespace's Events that wait, in order of arrival.
type lane struct {
	namespace string
	waiting   []*entry
	until     time.Time     // nothing is tried before: the namespace denied one
	pause     time.Duration // how long that was
}

func (l *lanes) lane(namespace string) *lane {
	at := l.of[namespace]
	if at == nil {
		at = &lane{namespace: namespace}
		if l.of == nil {
			l.of = map[string]*lane{}
		}
		l.of[namespace] = at
		l.turns = append(l.turns, at)
	}
	return at
}

// add queues an entry, before the others of its namespace or after them.
func (l *lanes) add(e *entry, first bool) {
	at := l.lane(e.key.namespace)
	if first {
		at.waiting = slices.Insert(at.waiting, 0, e)
	} else {
		at.waiting = append(at.waiting, e)
	}
	e.waiting = true
	l.all++
}

// surplus is who makes room where too much waits: the oldest Event of the namespace that has most, the first of equals
// by turn.
func (l *lanes) surplus() *entry {
	most := l.turns[0]
	for _, at := range l.turns {
		if len(at.waiting) > len(most.waiting) {
			most = at
		}
	}
	return most.waiting[0]
}

func (l *lanes) remove(e *entry) {
	at := l.of[e.key.namespace]
	if i := slices.Index(at.waiting, e); i >= 0 {
		at.waiting = slices.Delete(at.waiting, i, i+1)
		e.waiting = false
		l.all--
	}
}

// next is what is to be written now, else the time until something is due; 0: nothing waits.
func (l *lanes) next(now time.Time) (e *entry, in time.Duration) {
	// An empty lane is forgotten here alone: the one whose Event is being written is still known when that has failed.
	l.turns = slices.DeleteFunc(l.turns, func(at *lane) bool {
		if len(at.waiting) == 0 {
			delete(l.of, at.namespace)
		}
		return len(at.waiting) == 0
	})
	for _, at := range l.turns {
		e, d := at.next(now)
		if e != nil {
			return e, 0
		}
		if in == 0 || d < in {
			in = d
		}
	}
	return nil, in
}

func (at *lane) next(now time.Time) (e *entry, in time.Duration) {
	for _, e := range at.waiting {
		d := max(e.due.Sub(now), at.until.Sub(now))
		if d <= 0 {
			return e, 0
		}
		if in == 0 || d < in {
			in = d
		}
	}
	return nil, in
}

// taken removes an entry that is being written, and ends its namespace's turn.
func (l *lanes) taken(e *entry) {
	l.remove(e)
	at := l.of[e.key.namespace]
	i := slices.Index(l.turns, at)
	l.turns = append(slices.Delete(l.turns, i, i+1), at)
}

// deny has a namespace wait, for longer each time, and at least so long. accept has it wait no more.
func (l *lanes) deny(namespace string, now time.Time, least time.Duration) {
	at := l.lane(namespace)
	at.pause = min(max(2*at.pause, firstPause), mostPause)
	at.until = now.Add(min(max(at.pause+rand.N(at.pause), least), 2*mostPause))
}

func (l *lanes) accept(namespace string) {
	if at := l.of[namespace]; at != nil {
		at.pause, at.until = 0, time.Time{}
	}
}
