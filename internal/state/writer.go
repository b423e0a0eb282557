package state

import (
	"errors"
	"sync"
)

// Writer saves in its own goroutine, so that whoever decides never waits for a
// disk. Of several snapshots that wait the latest is written; after Close
// returns, the last one is.
type Writer struct {
	save func(Snapshot) error
	wake chan struct{}
	done chan struct{}

	mu      sync.Mutex // guards what follows
	pending *Snapshot
	waiting []chan error
	closed  bool
}

// ErrClosed is what SaveNow returns after Close.
var ErrClosed = errors.New("save state: the daemon is stopping")

// NewWriter starts a writer. saved hears of every save, in the writer's
// goroutine.
func NewWriter(s *Store, saved func(error)) *Writer {
	return newWriter(func(snapshot Snapshot) error {
		err := s.Save(snapshot)
		saved(err)
		return err
	})
}

func newWriter(save func(Snapshot) error) *Writer {
	w := &Writer{save: save, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go w.run()
	return w
}

// Save hands over a snapshot and returns at once.
func (w *Writer) Save(s Snapshot) { w.put(s, nil) }

// SaveNow returns when the snapshot, or a later one, is on disk: for what must
// be known before it is done, such as a cap.
func (w *Writer) SaveNow(s Snapshot) error {
	saved := make(chan error, 1)
	if !w.put(s, saved) {
		return ErrClosed
	}
	return <-saved
}

func (w *Writer) put(s Snapshot, waiter chan error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.pending = &s
	if waiter != nil {
		w.waiting = append(w.waiting, waiter)
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
	return true
}

func (w *Writer) run() {
	defer close(w.done)
	for range w.wake {
		w.flush()
	}
	w.flush()
}

func (w *Writer) flush() {
	w.mu.Lock()
	s, waiting := w.pending, w.waiting
	w.pending, w.waiting = nil, nil
	w.mu.Unlock()
	if s == nil {
		return
	}
	err := w.save(*s)
	for _, c := range waiting {
		c <- err
	}
}

// Close writes what still waits and ends the goroutine.
func (w *Writer) Close() {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		close(w.wake)
	}
	w.mu.Unlock()
	<-w.done
}
