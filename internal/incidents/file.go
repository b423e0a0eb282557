package incidents

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"
)

// What is in the file. Order holds the IDs in the order in which they came, which
// is that in which they go: a clock that was wrong for an hour must not make the
// newest the first to be deleted.
const (
	bucketMeta      = "meta"
	bucketIncidents = "incidents"
	bucketDigests   = "digests"
	bucketOrder     = "order"
	keyVersion      = "version"
	version         = "1" // a field more in an incident is no new version
)

func buckets() []string { return []string{bucketIncidents, bucketDigests, bucketOrder} }

// BusyError says that another process has locked the file.
type BusyError struct{ Path string }

func (e *BusyError) Error() string {
	return fmt.Sprintf("%s is in use by another process", e.Path)
}

// DamagedError says that a file cannot be used as a database.
type DamagedError struct {
	Path string
	Why  error
}

func (e *DamagedError) Error() string { return fmt.Sprintf("%s is damaged: %v", e.Path, e.Why) }
func (e *DamagedError) Unwrap() error { return e.Why }

// NewerError says that a newer version wrote the file.
type NewerError struct{ Path, Version string }

func (e *NewerError) Error() string {
	return fmt.Sprintf(
		"%s has version %.20q, this quietcore knows %s: a newer one wrote it; use that one, or move the file away",
		e.Path, e.Version, version)
}

// openBolt opens a file that has been verified under a lock.
func openBolt(path string, maxBytes int64, readOnly bool) (*bolt.DB, error) {
	var refused error
	created := false
	o := &bolt.Options{
		Timeout: time.Millisecond, PageSize: pageSize, FreelistType: bolt.FreelistMapType, ReadOnly: readOnly,
		MaxSize: int(maxBytes), InitialMmapSize: int(maxBytes),
		OpenFile: func(name string, flag int, mode os.FileMode) (f *os.File, err error) {
			if f, err = os.OpenFile(name, flag|unix.O_NOFOLLOW|unix.O_NONBLOCK, mode); err != nil {
				return nil, err
			}
			if created, refused = inspect(f, readOnly); refused != nil {
				f.Close()
				return nil, refused
			}
			return f, nil
		},
	}
	var db *bolt.DB
	err := guarded(path, func() (err error) { db, err = bolt.Open(path, 0o600, o); return err })
	if err == nil {
		db.AllocSize = int(max(maxBytes/64, 16*pageSize))
		return db, nil
	}
	if created && !readOnly {
		_ = os.Remove(path) // half a file would count as damaged
	}
	if refused != nil {
		return nil, refused
	}
	var named *fs.PathError
	if errors.As(err, &named) {
		return nil, err
	}
	return nil, fmt.Errorf("open %s: %w", path, err)
}

// inspect locks the file as bbolt will, and verifies it.
func inspect(f *os.File, readOnly bool) (empty bool, err error) {
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	if !info.Mode().IsRegular() {
		return false, fmt.Errorf("%s is %s, must be a file", f.Name(), info.Mode().Type())
	}
	how := unix.LOCK_EX
	if readOnly {
		how = unix.LOCK_SH
	}
	if err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return false, &BusyError{f.Name()}
	} else if err != nil {
		return false, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	if info, err = f.Stat(); err != nil { // under the lock
		return false, err
	}
	if readOnly && info.Size() == 0 {
		return false, &DamagedError{f.Name(), errors.New("it is empty")}
	}
	if err := verify(f, info.Size()); err != nil {
		return false, &DamagedError{f.Name(), err}
	}
	return info.Size() == 0, nil
}

// guarded turns a panic or memory fault of bbolt on a damaged file into an error.
func guarded(path string, do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = &DamagedError{path, fmt.Errorf("%v", r)}
		}
	}()
	return do()
}

// schema creates the buckets of a new file and checks those of an existing one.
func schema(db *bolt.DB) error {
	return guarded(db.Path(), func() error {
		return db.Update(func(tx *bolt.Tx) error {
			meta, err := tx.CreateBucketIfNotExists([]byte(bucketMeta))
			if err != nil {
				return damagedOr(db, err)
			}
			first, _ := tx.Cursor().First()
			switch got := meta.Get([]byte(keyVersion)); {
			case got == nil && string(first) != bucketMeta:
				return &DamagedError{db.Path(), fmt.Errorf("it has no version but holds %.40q", first)}
			case got == nil:
				if err := meta.Put([]byte(keyVersion), []byte(version)); err != nil {
					return err
				}
			case string(got) != version:
				return &NewerError{db.Path(), string(got)}
			}
			for _, name := range buckets() {
				if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
					return damagedOr(db, err)
				}
			}
			return nil
		})
	})
}

func damagedOr(db *bolt.DB, err error) error {
	if errors.Is(err, berrors.ErrIncompatibleValue) {
		return &DamagedError{db.Path(), err}
	}
	return err
}

const asideMark = ".corrupt-"

// putAside renames a bad file for later inspection. It replaces the previous one, since
// they are large.
func renameDamaged(path string, now time.Time) (string, error) {
	renamed := path + asideMark + now.UTC().Format("20060102T150405.000000000Z")
	if err := os.Rename(path, renamed); err != nil {
		return "", fmt.Errorf("rename a damaged file: %w", err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return renamed, nil // nothing is lost but disk space
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), filepath.Base(path)+asideMark) && e.Name() != filepath.Base(renamed) {
			_ = os.Remove(filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
	return renamed, nil
}

// compact writes a copy without holes and puts it in place. The database is closed when
// it returns, if the file was changed.
func compact(db *bolt.DB, maxBytes int64) (replaced bool, err error) {
	const step = 1 << 20 // more in one transaction needs more memory
	path := db.Path()
	temporary := path + ".compact"
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	defer os.Remove(temporary) // it is gone already if all went well
	to, err := openBolt(temporary, maxBytes, false)
	if err != nil {
		return false, err
	}
	err = guarded(path, func() error { return bolt.Compact(to, db, step) })
	if closing := to.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return false, err
	}
	if err := db.Close(); err != nil {
		return true, err
	}
	if err := os.Rename(temporary, path); err != nil {
		return true, err
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return true, err
	}
	defer d.Close()
	return true, d.Sync()
}

// isDamage says that the file is at fault, not the disk or the caller.
func isDamage(err error) bool {
	var damaged *DamagedError
	return errors.As(err, &damaged)
}

func fileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}
