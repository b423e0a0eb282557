package incidents

import (
	"errors"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
)

// library answers queries on an open file. Each is a short read transaction, since a
// long one would keep deleted pages from being reused.
type library struct {
	db  *bolt.DB
	now time.Time
}

func (l library) view(do func(digests, incidents *bolt.Bucket) error) error {
	return guarded(l.db.Path(), func() error {
		return l.db.View(func(tx *bolt.Tx) error {
			d, i := tx.Bucket([]byte(bucketDigests)), tx.Bucket([]byte(bucketIncidents))
			if d == nil || i == nil {
				return &DamagedError{l.db.Path(), errors.New("it has no incidents in it")}
			}
			return do(d, i)
		})
	})
}

// window returns the first key and the key after the last one; empty: unbounded.
func window(since, until time.Time) (low, high string) {
	if !since.IsZero() {
		low = idPrefix(since)
	}
	if !until.IsZero() {
		high = idPrefix(until)
	}
	return low, high
}

func (l library) list(f Filter) (*Listing, error) {
	out := &Listing{Incidents: []Summary{}}
	low, high := window(f.Since, f.Until)
	choose := f.selection(l.now)
	err := l.view(func(digests, _ *bolt.Bucket) error {
		if first, _ := digests.Cursor().First(); first != nil {
			out.Oldest = timeOf(string(first))
		}
		var d digest
		c := digests.Cursor()
		k, v := c.Last()
		if high != "" {
			if k, _ = c.Seek([]byte(high)); k == nil {
				k, v = c.Last()
			} else {
				k, v = c.Prev()
			}
		}
		for ; k != nil && string(k) >= low; k, v = c.Prev() {
			fits, err := d.decodeIf(v, choose.matchesStart)
			if err != nil {
				out.Damaged++
			}
			if !fits || !choose.match(&d) {
				continue
			}
			if f.Limit > 0 && len(out.Incidents) == f.Limit {
				out.More = true
				break
			}
			out.Incidents = append(out.Incidents, d.summary(string(k), choose.now))
		}
		return nil
	})
	return out, err
}

// timeOf is an ID's time, zero if invalid.
func timeOf(id string) time.Time {
	if len(id) < len("20060102-150405000") {
		return time.Time{}
	}
	t, err := time.Parse(idTime, id[:15]+"."+id[15:18])
	if err != nil {
		return time.Time{}
	}
	return t
}

func (l library) top(q TopQuery) (*Top, error) {
	r := q.ranking(l.now)
	low, high := window(q.Since, q.Until)
	err := l.view(func(digests, _ *bolt.Bucket) error {
		var d digest
		c := digests.Cursor()
		for k, v := c.Seek([]byte(low)); k != nil && (high == "" || string(k) < high); k, v = c.Next() {
			fits, err := d.decodeIf(v, r.matchesStart)
			if err != nil {
				r.out.Damaged++
			}
			if fits {
				r.add(&d)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return r.top(), nil
}

func (l library) get(id string) (i *Incident, err error) {
	const most = 5 // candidates that are named
	miss := &NotFoundError{ID: id}
	err = l.view(func(_, incidents *bolt.Bucket) error {
		var value []byte
		c := incidents.Cursor()
		for k, v := c.Seek([]byte(id)); k != nil && strings.HasPrefix(string(k), id) &&
			len(miss.Candidates) < most; k, v = c.Next() {
			if value = v; string(k) == id {
				miss.Candidates = []string{id}
				break
			}
			miss.Candidates = append(miss.Candidates, string(k))
		}
		if len(miss.Candidates) != 1 || id == "" {
			return miss
		}
		if i, err = decode(value); err != nil {
			return &DamagedError{"incident " + miss.Candidates[0], err}
		}
		return nil
	})
	return i, err
}

// chunk returns the next incidents from a key on, and the key to continue from; empty
// at the end.
func (l library) chunk(f Filter, from string, most int) (list []*Incident, next string, err error) {
	low, high := window(f.Since, f.Until)
	choose := f.selection(l.now)
	// Looking at very many at once would be a long transaction as well.
	looks := 200 * most
	err = l.view(func(digests, incidents *bolt.Bucket) error {
		var d digest
		c := digests.Cursor()
		for k, v := c.Seek([]byte(max(low, from))); k != nil && (high == "" || string(k) < high); k, v = c.Next() {
			if looks--; len(list) == most || looks < 0 {
				next = string(k)
				return nil
			}
			if fits, err := d.decodeIf(v, choose.matchesStart); err != nil || !fits || !choose.match(&d) {
				continue
			}
			if i, err := decode(incidents.Get(k)); err == nil {
				list = append(list, i)
			}
		}
		return nil
	})
	return list, next, err
}

func (l library) count() (n int, oldest time.Time, err error) {
	err = l.view(func(digests, _ *bolt.Bucket) error {
		n = digests.Stats().KeyN
		if k, _ := digests.Cursor().First(); k != nil {
			oldest = timeOf(string(k))
		}
		return nil
	})
	return n, oldest, err
}

const exportChunk = 64

func export(f Filter, get func(from string) ([]*Incident, string, error), give func(*Incident) error) error {
	given := 0
	for from := ""; ; {
		list, next, err := get(from)
		if err != nil {
			return err
		}
		for _, i := range list {
			if f.Limit > 0 && given == f.Limit {
				return nil
			}
			if err := give(i); err != nil {
				return err
			}
			given++
		}
		if next == "" {
			return nil
		}
		from = next
	}
}
