package state

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Lock is held by the one daemon of a state directory. The kernel releases it
// when its holder dies, however it dies.
type Lock struct{ f *os.File }

// BusyError says that another daemon holds the lock.
type BusyError struct {
	Dir    string
	Holder string // "pid 12 on host-a", or that it is unknown
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("state directory %s is in use by another quietcore, %s: one runs on a node; stop it, or give this one another state.dir and nri.name", e.Dir, e.Holder)
}

// TakeLock makes the directory if need be and takes its lock, at once or not at
// all.
func TakeLock(dir string) (*Lock, error) {
	if err := Prepare(dir); err != nil {
		return nil, err
	}
	name := filepath.Join(dir, lockName)
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, &BusyError{Dir: dir, Holder: holder(f)}
		}
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "this host"
	}
	if err := errors.Join(f.Truncate(0), writeAt(f, fmt.Sprintf("pid %d on %s\n", os.Getpid(), host))); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	return &Lock{f}, nil
}

func writeAt(f *os.File, text string) error {
	_, err := f.WriteAt([]byte(text), 0)
	return err
}

// holder is what the other daemon wrote about itself.
func holder(f *os.File) string {
	const most = 300
	text, err := io.ReadAll(io.LimitReader(f, most))
	line := strings.TrimSpace(string(text))
	if err != nil || !strings.HasPrefix(line, "pid ") || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "whose pid is not known"
	}
	return line
}

// Release gives the lock up. The file stays: removing it would let a third
// daemon lock another file of the same name.
func (l *Lock) Release() error { return l.f.Close() }
