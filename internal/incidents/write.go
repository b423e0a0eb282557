package incidents

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// Everything in this file runs on Run's goroutine, the only writer.

// How full the file may be of its bound. Deleting needs pages of its own, so it
// begins before the bound is reached, and goes so far that it does not begin again
// at once.
const (
	fullAt      = 0.70
	emptiedTo   = 0.60
	deleteBatch = 256
)

// begin opens the file, renames a damaged one, and records what prevents writing.
func (s *Store) begin() {
	if s.newer {
		return
	}
	db, err := s.opened()
	if isDamage(err) {
		var renamed string
		why := err
		if renamed, err = renameDamaged(s.o.Path, s.o.Now()); err == nil {
			s.set(func(st *Stats) { st.Aside, st.DamagedWhy = renamed, why.Error() })
			db, err = s.opened()
		}
	}
	var newer *NewerError
	s.newer = errors.As(err, &newer)
	if err != nil {
		s.set(func(st *Stats) { st.Why, st.Bytes, st.Kept, st.Oldest = err.Error(), 0, 0, time.Time{} })
		s.report()
		return
	}
	s.take(db)
	s.upkeep()
}

func (s *Store) opened() (*bolt.DB, error) {
	db, err := openBolt(s.o.Path, s.o.MaxBytes, false)
	if err != nil {
		return nil, err
	}
	if err := schema(db); err != nil {
		s.abandon(db, err)
		return nil, err
	}
	return db, nil
}

// abandon closes a file. Closing a damaged one may block on an unfinished operation;
// the next opener must not wait for it.
func (s *Store) abandon(db *bolt.DB, why error) {
	if isDamage(why) {
		go func() { _ = guarded(s.o.Path, db.Close) }()
		return
	}
	_ = db.Close() // it was not written to, or what was written is on disk
}

func (s *Store) take(db *bolt.DB) {
	s.open.Lock()
	s.db = db
	s.open.Unlock()
	if db != nil {
		s.set(func(st *Stats) { st.Why = "" })
	}
}

func (s *Store) close() {
	db := s.db
	s.take(nil)
	if db != nil {
		s.set(func(st *Stats) { st.Why = "the daemon is ending" })
		_ = db.Close() // every commit is on disk already
	}
}

// replace starts a new file after damage was found in the open one.
func (s *Store) replace(why error) {
	if db := s.db; db != nil {
		s.take(nil)
		s.abandon(db, why)
	}
	renamed, err := renameDamaged(s.o.Path, s.o.Now())
	if err != nil {
		s.refuse(fmt.Errorf("%w; %w", why, err))
		s.report()
		return
	}
	s.set(func(st *Stats) { st.Aside, st.DamagedWhy = renamed, why.Error() })
	s.begin()
}

// work writes what is queued.
func (s *Store) work() {
	s.mu.Lock()
	batch := slices.Clone(s.pending)
	s.mu.Unlock()
	if s.db == nil {
		s.begin()
	}
	if s.newer {
		s.done(batch, &s.stats.Dropped)
	}
	if s.db == nil || len(batch) == 0 {
		s.report()
		return
	}
	err := s.write(batch)
	if isDamage(err) {
		s.replace(err)
		if s.db == nil {
			return
		}
		err = s.write(s.left(batch))
	}
	if errors.Is(err, berrors.ErrMaxSizeReached) {
		// The batch exceeds the reserve. Deleting makes room for a second attempt; what
		// does not fit then never will.
		s.shrink(s.used() / 4)
		if err = s.write(s.left(batch)); errors.Is(err, berrors.ErrMaxSizeReached) {
			s.done(s.left(batch), &s.stats.Dropped)
		}
	}
	if err != nil {
		s.refuse(fmt.Errorf("write %s: %w", s.o.Path, err))
	} else {
		s.set(func(st *Stats) { st.Why = "" })
	}
	s.keepBounds()
	s.report()
}

// left returns those of a batch that are still queued.
func (s *Store) left(batch []*Incident) []*Incident {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(batch), func(i *Incident) bool { return !slices.Contains(s.pending, i) })
}

// done removes incidents from the queue and counts them; one that was replaced
// meanwhile stays.
func (s *Store) done(batch []*Incident, count *uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = slices.DeleteFunc(s.pending, func(i *Incident) bool { return slices.Contains(batch, i) })
	*count += uint64(len(batch))
}

// write commits a batch, in several transactions if it is large: each must fit into
// what keepBounds leaves free.
func (s *Store) write(batch []*Incident) error {
	for len(batch) > 0 {
		var values [][]byte
		for size := int64(0); len(values) < len(batch) && size < s.o.MaxBytes/32; {
			value, err := s.codec.encode(batch[len(values)])
			if err != nil {
				return err // bounded incidents can be encoded
			}
			values = append(values, value)
			size += int64(len(value))
		}
		part := batch[:len(values)]
		if err := s.commit(part, values); err != nil {
			return err
		}
		s.done(part, &s.stats.Written)
		s.keepBounds()
		batch = batch[len(values):]
	}
	return nil
}

func (s *Store) commit(part []*Incident, values [][]byte) error {
	fresh := 0
	err := guarded(s.o.Path, func() error {
		fresh = 0
		return s.db.Update(func(tx *bolt.Tx) error {
			incidents, digests, order := tx.Bucket([]byte(bucketIncidents)), tx.Bucket(
				[]byte(bucketDigests)), tx.Bucket([]byte(bucketOrder))
			// Keys come in order: pages need no room for others between them.
			const fill = 0.95
			incidents.FillPercent, digests.FillPercent, order.FillPercent = fill, fill, fill
			for n, i := range part {
				id := []byte(i.ID)
				var known digest
				if known.decode(digests.Get(id)) != nil {
					seq, err := order.NextSequence()
					if err != nil {
						return err
					}
					if err := order.Put(seqKey(seq), id); err != nil {
						return err
					}
					known.seq = seq
					fresh++
				}
				d := digestOf(i, known.seq)
				if err := digests.Put(id, d.encode()); err != nil {
					return err
				}
				if err := incidents.Put(id, values[n]); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err == nil {
		s.set(func(st *Stats) { st.Kept += fresh })
	}
	return err
}

func seqKey(seq uint64) []byte { return binary.BigEndian.AppendUint64(nil, seq) }

// used is how much of the file is in use.
func (s *Store) used() int64 {
	var high int64
	_ = s.db.View(func(tx *bolt.Tx) error { high = tx.Size(); return nil })
	return high - int64(s.db.Stats().FreeAlloc)
}

// keepBounds deletes the oldest incidents once the file is too full.
func (s *Store) keepBounds() {
	if s.db == nil {
		return
	}
	if used := s.used(); float64(used) > fullAt*float64(s.o.MaxBytes) {
		s.shrink(used - int64(emptiedTo*float64(s.o.MaxBytes)))
	}
	s.measure()
}

func (s *Store) measure() {
	err := guarded(s.o.Path, func() error {
		return s.db.View(func(tx *bolt.Tx) error {
			first, _ := tx.Bucket([]byte(bucketDigests)).Cursor().First()
			s.set(func(st *Stats) {
				st.Oldest = timeOf(string(first))
				st.Bytes = fileSize(s.o.Path)
			})
			return nil
		})
	})
	if err != nil {
		s.refuse(err)
	}
}

// shrink deletes the oldest incidents until so many bytes are free.
func (s *Store) shrink(bytes int64) {
	before := s.used()
	for bytes > 0 {
		taken, err := s.deleteOldest(func(_ string, size int64) bool { return size < bytes })
		if err != nil || taken == 0 {
			if err != nil {
				s.refuse(fmt.Errorf("delete the oldest of %s: %w", s.o.Path, err))
			}
			return
		}
		now := s.used()
		bytes, before = bytes-(before-now), now
	}
}

// deleteOldest deletes in the order of arrival while more, given an ID and the size
// deleted so far, returns true. It returns how many it deleted.
func (s *Store) deleteOldest(more func(id string, size int64) bool) (taken int, err error) {
	gone := 0 // some may have lost their incident to damage
	err = guarded(s.o.Path, func() error {
		taken, gone = 0, 0
		return s.db.Update(func(tx *bolt.Tx) error {
			incidents, digests, order := tx.Bucket([]byte(bucketIncidents)), tx.Bucket(
				[]byte(bucketDigests)), tx.Bucket([]byte(bucketOrder))
			var keys, ids [][]byte
			size := int64(0)
			c := order.Cursor()
			for k, id := c.First(); k != nil && len(keys) < deleteBatch && more(string(id), size); k, id = c.Next() {
				size += int64(len(incidents.Get(id)) + len(digests.Get(id)))
				keys, ids = append(keys, slices.Clone(k)), append(ids, slices.Clone(id))
			}
			taken = len(keys)
			for n := range keys {
				if digests.Get(ids[n]) != nil {
					gone++
				}
				if err := errors.Join(order.Delete(keys[n]), incidents.Delete(ids[n]),
					digests.Delete(ids[n])); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err == nil {
		s.set(func(st *Stats) { st.Kept -= gone; st.Deleted += uint64(gone) })
	}
	return taken, err
}

// upkeep deletes expired incidents and returns unused space to the disk.
func (s *Store) upkeep() {
	if s.db == nil {
		return
	}
	kept, _, err := library{s.db, s.o.Now()}.count()
	if isDamage(err) {
		s.replace(err)
		return
	}
	s.set(func(st *Stats) { st.Kept = kept })
	limit := idPrefix(s.o.Now().Add(-s.o.MaxAge))
	for {
		taken, err := s.deleteOldest(func(id string, _ int64) bool { return id < limit })
		if err != nil {
			s.refuse(fmt.Errorf("delete expired incidents in %s: %w", s.o.Path, err))
			break
		}
		if taken == 0 {
			break
		}
	}
	s.keepBounds()
	s.compactIfSparse()
	s.report()
}

// compactIfSparse compacts a file of some size if more than half of it is unused, or if
// the bound was lowered.
func (s *Store) compactIfSparse() {
	const worth = 4 << 20
	size := fileSize(s.o.Path)
	if size <= s.o.MaxBytes && (size < worth || s.used() > size/2) {
		return
	}
	s.open.Lock() // readers would read the old file for ever
	defer s.open.Unlock()
	replaced, err := compact(s.db, s.o.MaxBytes)
	if replaced {
		s.db, err = s.opened()
		if err != nil {
			s.db = nil
		}
	}
	why := ""
	if err != nil && s.db == nil {
		why = err.Error() // begin will see to it
	}
	s.set(func(st *Stats) { st.Why, st.Bytes = why, fileSize(s.o.Path) })
}
