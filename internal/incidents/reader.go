package incidents

import (
	"context"
	"errors"
	"io/fs"
	"time"

	bolt "go.etcd.io/bbolt"
)

// Reader reads the file of a daemon that does not run.
type Reader struct {
	db   *bolt.DB
	now  time.Time
	kept int
}

var _ Source = (*Reader)(nil)

// OpenReader opens a file read-only.
func OpenReader(path string, now time.Time) (*Reader, error) {
	db, err := openBolt(path, 0, true)
	var busy *BusyError
	switch {
	case errors.As(err, &busy):
		return nil, errors.New(busy.Error() + ": to read from a running daemon, do not name its file")
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.New("no database at " + path +
			": the daemon makes it, in its state.dir, with the first incident")
	case err != nil:
		return nil, err
	}
	r := &Reader{db: db, now: now}
	if err := r.known(); err != nil {
		db.Close()
		return nil, err
	}
	r.kept, _, err = r.library().count()
	if err != nil {
		db.Close()
		return nil, err
	}
	return r, nil
}

func (r *Reader) known() error {
	return guarded(r.db.Path(), func() error {
		return r.db.View(func(tx *bolt.Tx) error {
			meta := tx.Bucket([]byte(bucketMeta))
			if meta == nil {
				return &DamagedError{r.db.Path(), errors.New("it is a database of another program")}
			}
			if got := string(meta.Get([]byte(keyVersion))); got != version {
				return &NewerError{r.db.Path(), got}
			}
			return nil
		})
	})
}

func (r *Reader) library() library { return library{r.db, r.now} }

// Close closes the file.
func (r *Reader) Close() error { return r.db.Close() }

// List, Get, Top and Export implement Source.
func (r *Reader) List(_ context.Context, f Filter) (*Listing, error) {
	out, err := r.library().list(f)
	if err != nil {
		return nil, err
	}
	out.Kept = r.kept
	return out, nil
}

func (r *Reader) Get(_ context.Context, id string) (*Incident, error) { return r.library().get(id) }

func (r *Reader) Top(_ context.Context, q TopQuery) (*Top, error) { return r.library().top(q) }

func (r *Reader) Export(ctx context.Context, f Filter, give func(*Incident) error) error {
	return export(f, func(from string) ([]*Incident, string, error) {
		if err := ctx.Err(); err != nil {
			return nil, "", err
		}
		return r.library().chunk(f, from, exportChunk)
	}, give)
}
