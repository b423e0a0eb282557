package incidents

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
)

// Options of a Store; zero values have defaults.
type Options struct {
	Path     string
	MaxBytes int64         // of the file; 64 MiB
	MaxAge   time.Duration // 30 days
	// Queue bounds the incidents that wait for the disk; 128. When the queue is full,
	// the oldest is dropped.
	Queue int
	// Pause is how long incidents are gathered before they are written together; 5s.
	// Retry is the pause after a failed write; 1m.
	Pause, Retry time.Duration
	// Before is why there are none before Run; empty: it is about to be called.
	Before string
	Now    func() time.Time
	After  func(time.Duration) <-chan time.Time
	// Report is called at every change, on the store's own goroutine; may be nil.
	Report func(Stats)
}

// LeastBytes is the smallest bound of a file that makes sense.
const LeastBytes = 1 << 20

const (
	defaultBytes = 64 << 20
	defaultAge   = 30 * 24 * time.Hour
	defaultQueue = 128
	defaultPause = 5 * time.Second
	defaultRetry = time.Minute
	upkeepEvery  = time.Hour
)

// Stats are the Store's counts since its start.
type Stats struct {
	Puts    uint64 // taken
	Written uint64 // on disk; several Puts of one incident may be one
	Dropped uint64 // never on disk, nor ever to be
	Deleted uint64 // to keep the bounds
	Bytes   int64  // size of the file
	Kept    int    // incidents in it
	Oldest  time.Time
	// Why nothing can be written; empty: it can.
	Why string
	// Aside is the new name of a damaged file, DamagedWhy the damage.
	Aside, DamagedWhy string
}

// UnavailableError says that there is no database at the moment.
type UnavailableError struct{ Why string }

func (e *UnavailableError) Error() string {
	return "the database of incidents is not available: " + e.Why
}

// Store is a file of incidents. Its methods are safe for concurrent use and need Run to
// be running.
type Store struct {
	o     Options
	codec codec // Run's alone

	mu      sync.Mutex // guards pending and stats
	pending []*Incident
	stats   Stats

	// open guards db: readers hold it while they read. It is taken before mu.
	open sync.RWMutex
	db   *bolt.DB // nil: none is open

	newer  bool // the file is of a newer version: do not write. Owned by Run
	wake   chan struct{}
	flush  chan chan struct{}
	broken chan error // what a reader found
	ended  chan struct{}
}

var _ Source = (*Store)(nil)

// New makes a Store; it does not touch the file before Run.
func New(o Options) *Store {
	o.MaxBytes = max(cmp.Or(o.MaxBytes, defaultBytes), LeastBytes)
	o.MaxAge = cmp.Or(o.MaxAge, defaultAge)
	o.Queue = cmp.Or(o.Queue, defaultQueue)
	o.Pause = cmp.Or(o.Pause, defaultPause)
	o.Retry = cmp.Or(o.Retry, defaultRetry)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.After == nil {
		o.After = time.After
	}
	if o.Report == nil {
		o.Report = func(Stats) {}
	}
	return &Store{
		o: o, stats: Stats{Why: cmp.Or(o.Before, "it is being opened")},
		wake: make(chan struct{}, 1), flush: make(chan chan struct{}), broken: make(chan error, 1),
		ended: make(chan struct{}),
	}
}

// Put stores an incident, and replaces one of the same ID. It never waits for the disk
// and does not retain i. It returns the ID, from NewID if i has none.
func (s *Store) Put(i Incident) string {
	i = Bounded(i)
	s.mu.Lock()
	s.stats.Puts++
	if at := slices.IndexFunc(s.pending, func(p *Incident) bool { return p.ID == i.ID }); at >= 0 {
		s.pending[at] = &i
	} else {
		s.pending = append(s.pending, &i)
	}
	if extra := len(s.pending) - s.o.Queue; extra > 0 {
		s.pending = slices.Delete(s.pending, 0, extra)
		s.stats.Dropped += uint64(extra)
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default: // already woken
	}
	return i.ID
}

// Stats returns the present counts.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// Run owns the file until ctx ends, and then writes what is queued.
func (s *Store) Run(ctx context.Context) {
	defer close(s.ended)
	s.begin()
	upkeep := s.o.After(upkeepEvery)
	var due <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			s.work()
			s.close()
			return
		case done := <-s.flush:
			s.work()
			due = s.next()
			close(done)
		case <-s.wake:
			if due == nil {
				due = s.o.After(s.o.Pause)
			}
		case <-due:
			s.work()
			due = s.next()
		case <-upkeep:
			s.upkeep()
			upkeep = s.o.After(upkeepEvery)
		case err := <-s.broken:
			s.replace(err)
		}
	}
}

// next is when to retry; nil: when there is something new.
func (s *Store) next() <-chan time.Time {
	s.mu.Lock()
	waiting := len(s.pending)
	s.mu.Unlock()
	if waiting == 0 {
		return nil
	}
	return s.o.After(s.o.Retry)
}

// Flush waits until everything Put earlier has been tried.
func (s *Store) Flush(ctx context.Context) error {
	done := make(chan struct{})
	select {
	case s.flush <- done:
	case <-s.ended:
		return errors.New("the store has ended")
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-done:
		return nil
	case <-s.ended:
		return errors.New("the store has ended")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// read runs do on the file, after everything Put earlier was written, unless the disk
// is too slow.
func (s *Store) read(ctx context.Context, do func(library) error) error {
	const patience = 2 * time.Second
	wait, cancel := context.WithTimeout(ctx, patience)
	_ = s.Flush(wait) // an older answer is better than none
	cancel()
	return s.use(do)
}

func (s *Store) use(do func(library) error) error {
	s.open.RLock()
	defer s.open.RUnlock()
	if s.db == nil {
		return &UnavailableError{s.Stats().Why}
	}
	err := do(library{s.db, s.o.Now()})
	var damaged *DamagedError
	if errors.As(err, &damaged) && damaged.Path == s.o.Path {
		select {
		case s.broken <- err:
		default: // already reported
		}
	}
	return err
}

// List, Get, Top and Export implement Source.
func (s *Store) List(ctx context.Context, f Filter) (out *Listing, err error) {
	err = s.read(ctx, func(l library) (err error) { out, err = l.list(f); return err })
	if err != nil {
		return nil, err
	}
	out.Kept = s.Stats().Kept
	return out, nil
}

func (s *Store) Get(ctx context.Context, id string) (i *Incident, err error) {
	err = s.read(ctx, func(l library) (err error) { i, err = l.get(id); return err })
	return i, err
}

func (s *Store) Top(ctx context.Context, q TopQuery) (out *Top, err error) {
	err = s.read(ctx, func(l library) (err error) { out, err = l.top(q); return err })
	return out, err
}

func (s *Store) Export(ctx context.Context, f Filter, give func(*Incident) error) error {
	_ = s.read(ctx, func(library) error { return nil }) // writes what waits
	return export(f, func(from string) (list []*Incident, next string, err error) {
		if err := ctx.Err(); err != nil {
			return nil, "", err
		}
		err = s.use(func(l library) (err error) { list, next, err = l.chunk(f, from, exportChunk); return err })
		return list, next, err
	}, give)
}

func (s *Store) set(change func(*Stats)) {
	s.mu.Lock()
	change(&s.stats)
	s.mu.Unlock()
}

func (s *Store) report() { s.o.Report(s.Stats()) }

// refuse records why nothing can be written.
func (s *Store) refuse(err error) {
	s.set(func(st *Stats) { st.Why = err.Error() })
}
