package plugin

import (
	"sync"
	"sync/atomic"

	"github.com/quietcore/quietcore/internal/cgroup"
)

// lanes is how many cgroups are read at a time: a read that hangs holds up its own
// lane only.
const lanes = 4

// reads carries out the queries of a taking. What was read is kept until the taking is
// finished, also when the runtime gives up on a Synchronize and asks again; an entry is
// dropped when the path is written.
type reads struct {
	reader     cgroup.Reader
	unfinished chan *taking // one with reads left after its answer
	busy       atomic.Bool  // there is one

	mu     sync.Mutex
	seen   map[query]reading
	queue  []query
	flying map[query]bool
	wanted map[query]bool // not answered yet; true: urgent
	urgent int            // how many of them are
	lanes  int
	closed bool
	news   chan struct{} // closed and replaced; see left
}

func newReads(r cgroup.Reader) *reads {
	return &reads{reader: r, unfinished: make(chan *taking, 1), seen: map[query]reading{}, flying: map[query]bool{},
		news: make(chan struct{})}
}

// ask replaces what is to be read; the first urgent ones are those that decide most.
func (r *reads) ask(list []query, urgent int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue, r.wanted, r.urgent = nil, map[query]bool{}, 0
	for i, q := range list {
		if _, done := r.seen[q]; done {
			continue
		}
		r.wanted[q] = i < urgent
		if i < urgent {
			r.urgent++
		}
		if !r.flying[q] {
			r.queue = append(r.queue, q)
		}
	}
	for r.lanes < min(lanes, len(r.queue)) && !r.closed {
		r.lanes++
		go r.lane()
	}
}

// lane reads until the queue is empty.
func (r *reads) lane() {
	for {
		r.mu.Lock()
		if len(r.queue) == 0 {
			r.lanes--
			r.mu.Unlock()
			return
		}
		q := r.queue[0]
		r.queue = r.queue[1:]
		r.flying[q] = true
		r.mu.Unlock()
		r.put(q, q.read(r.reader))
	}
}

func (r *reads) put(q query, found reading) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.flying, q)
	urgent, wanted := r.wanted[q]
	if !wanted {
		return // of an earlier taking, and not asked again
	}
	r.seen[q] = found
	delete(r.wanted, q)
	if urgent {
		r.urgent--
	}
	if urgent && r.urgent == 0 || len(r.queue) == 0 {
		close(r.news)
		r.news = make(chan struct{})
	}
}

// left is how many queries are not answered. news is closed when the urgent ones are,
// and at each answer once all others have begun: one of them may hang.
func (r *reads) left() (queries int, news <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.wanted), r.news
}

// found copies what was read.
func (r *reads) found() map[query]reading {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := make(map[query]reading, len(r.seen))
	for q, found := range r.seen {
		seen[q] = found
	}
	return seen
}

// wrote drops what was read of a cgroup before it was written.
func (r *reads) wrote(path string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.seen) == 0 && len(r.wanted) == 0 {
		return
	}
	for _, kind := range []queryKind{readCPUs, readAll} {
		q := query{cleanOf(path), kind}
		delete(r.seen, q)
		if urgent, wanted := r.wanted[q]; wanted && !urgent {
			delete(r.wanted, q) // what is written is known
		}
	}
	if len(r.wanted) == 0 {
		close(r.news)
		r.news = make(chan struct{})
	}
}

// forget ends a taking, and wakes whoever waits for an earlier one. stop ends the reading.
func (r *reads) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.seen)
	r.queue, r.wanted, r.urgent = nil, nil, 0
	close(r.news)
	r.news = make(chan struct{})
}

func (r *reads) stop() {
	r.forget()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}
