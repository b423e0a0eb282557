package state

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Lock is held by the one daemon of a state directory. The kernel releases it when its holder dies,
// however it dies. The directory itself is locked as well as the file in it: on a file system that
// has become read-only there may be no file.
type Lock struct{ dir, f *os.File }

// BusyError means that another daemon holds the lock.
type BusyError struct {
	Dir    string
	Holder string // "pid 12 on host-a", or "unknown"
}

func (e *BusyError) Error() string {
	return fmt.Sprintf(
		"state directory %s is in use by another quietcore, %s: only one can use it; stop that one, or give this "+
			"one another state.dir and nri.name", e.Dir, e.Holder)
}

// TakeLock creates the directory if necessary and takes its lock, without waiting.
func TakeLock(dir string) (*Lock, error) {
	if err := Prepare(dir); err != nil {
		return nil, err
	}
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("state directory: %w: it is root's; run this as root, or give it another state.dir", err)
	}
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	f, err := openLock(filepath.Join(dir, lockName))
	if err != nil {
		d.Close()
		return nil, fmt.Errorf("lock: %w", err)
	}
	l := &Lock{d, f}
	for _, locked := range []*os.File{f, d} {
		if locked == nil {
			continue
		}
		if err := unix.Flock(int(locked.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			defer l.Release()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, &BusyError{Dir: dir, Holder: holder(f)}
			}
			return nil, fmt.Errorf("lock %s: %w", locked.Name(), err)
		}
	}
	l.sign()
	return l, nil
}

// openLock opens the file; nil if there is none and it cannot be created.
func openLock(name string) (*os.File, error) {
	const flags = unix.O_NOFOLLOW | unix.O_NONBLOCK
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|flags, 0o600)
	if err == nil || !errors.Is(err, unix.EROFS) && !errors.Is(err, unix.ENOSPC) {
		return f, err
	}
	if f, err = os.OpenFile(name, os.O_RDONLY|flags, 0); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return f, err
}

// sign records which process holds the lock. That is for people: a full disk does not keep the
// daemon from pinning.
func (l *Lock) sign() {
	if l.f == nil {
		return
	}
	host, err := os.Hostname()
	if err != nil {
		host = "this host"
	}
	if l.f.Truncate(0) == nil {
		_, _ = l.f.WriteAt([]byte(fmt.Sprintf("pid %d on %s\n", os.Getpid(), host)), 0)
	}
}

// holder is what the other daemon recorded about itself.
func holder(f *os.File) string {
	const most = 300
	if f == nil {
		return "whose pid is not known"
	}
	text, err := io.ReadAll(io.LimitReader(f, most))
	line := strings.TrimSpace(string(text))
	if err != nil || !strings.HasPrefix(line, "pid ") || strings.ContainsFunc(line, func(r rune) bool {
		return r < ' ' || r > '~'
	}) {
		return "whose pid is not known"
	}
	return line
}

// Release releases the lock. The file stays: removing it would let a third daemon lock another file
// of the same name.
func (l *Lock) Release() error {
	if l.f == nil {
		return l.dir.Close()
	}
	return errors.Join(l.f.Close(), l.dir.Close())
}
