package cdi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/dirwatch"
	"github.com/quietcore/quietcore/policy"
)

const (
	// maxFiles bounds the specs of one directory.
	maxFiles = 4096
	// mostLook bounds a look.
	mostLook = 10 * time.Second
)

// Dirs are the directories of specs that the CDI specification and every runtime have by default.
func Dirs() []string { return []string{"/etc/cdi", "/var/run/cdi"} }

// Options of what follows a node's specs.
type Options struct {
	Dirs []string // later ones go before earlier ones
	Take func(context.Context, policy.ForeignClaims) error
	Log  *slog.Logger
}

// Specs follows the CDI specs of a node.
type Specs struct {
	Options
	owner func(fs.FileInfo) error // rootOwned; tests replace it

	looking chan struct{}   // holds one while Look works: unlike with a lock, who waits for it can give up
	files   map[string]file // what was read last, by path
	taken   map[string]cpuset.Set
	looked  bool
	warned  map[string]string // the last complaint about a path
}

// file is a spec as it was read. One that changed has another size, time or inode.
type file struct {
	size    int64
	changed time.Time
	inode   uint64
	devices []Device
}

func (f *file) same(now *file) bool {
	return f.size == now.size && f.changed.Equal(now.changed) && f.inode == now.inode
}

// New follows nothing until Look or Watch is called.
func New(o Options) *Specs {
	return &Specs{Options: o, owner: rootOwned, looking: make(chan struct{}, 1), warned: map[string]string{}}
}

// Look reads what has changed, and hands on all claims if they are others than before. It takes no longer than ctx and
// mostLook allow, also where Take hangs for somebody else.
func (s *Specs) Look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, mostLook)
	defer cancel()
	select {
	case s.looking <- struct{}{}:
		defer func() { <-s.looking }()
	case <-ctx.Done():
		s.Log.Warn("the CPUs of other drivers' claims are not looked at: another look takes too long")
		return
	}
	next := make(map[string]file, len(s.files))
	claims := map[string]cpuset.Set{}
	for _, dir := range s.Dirs {
		for _, f := range s.read(dir, next) {
			for _, d := range f.devices {
				if _, known := claims[d.Name]; len(claims) < maxDevices || known {
					claims[d.Name] = d.CPUs
				}
			}
		}
	}
	s.files = next
	if s.looked && maps.Equal(claims, s.taken) || !s.looked && len(claims) == 0 {
		return
	}
	if err := s.Take(ctx, policy.ForeignClaims{Devices: claims}); err != nil {
		s.Log.Warn("the CPUs of other drivers' claims are not taken over; the previous ones stay in effect", "err", err)
		return
	}
	s.taken, s.looked = claims, true
}

// read reads a directory's specs in order of name. One that is bad now keeps what it said before: its CPUs stay kept.
func (s *Specs) read(dir string, next map[string]file) []file {
	entries, err := s.list(dir)
	if err != nil {
		s.complain(dir, "a directory of CDI specs is not read; what it said before stays in effect", err)
		return s.keep(dir, next)
	}
	s.complain(dir, "", nil)
	var all []file
	for _, name := range entries {
		path := filepath.Join(dir, name)
		f, err := s.readFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			s.complain(path, "a CDI spec is not read; what it said before stays in effect", err)
			f = s.files[path]
		} else {
			s.complain(path, "", nil)
		}
		next[path] = f
		all = append(all, f)
	}
	return all
}

// keep are the specs of a directory as they were read last.
func (s *Specs) keep(dir string, next map[string]file) (all []file) {
	for _, path := range slices.Sorted(maps.Keys(s.files)) {
		if filepath.Dir(path) == filepath.Clean(dir) {
			next[path] = s.files[path]
			all = append(all, s.files[path])
		}
	}
	return all
}

// list are the names of a directory's specs; none if it does not exist.
func (s *Specs) list(dir string) ([]string, error) {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = s.owner(info)
	}
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); ext == ".json" || ext == ".yaml" {
			names = append(names, e.Name())
		}
	}
	if len(names) > maxFiles {
		return nil, fmt.Errorf("%d specs are in it; at most %d are read", len(names), maxFiles)
	}
	slices.Sort(names)
	return names, nil
}

func (s *Specs) readFile(path string) (file, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return file{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return file{}, err
	}
	if !info.Mode().IsRegular() {
		return file{}, errors.New("it is not a regular file")
	}
	if err := s.owner(info); err != nil {
		return file{}, err
	}
	now := file{size: info.Size(), changed: info.ModTime()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		now.inode = st.Ino
	}
	if was, ok := s.files[path]; ok && was.same(&now) {
		return was, nil
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSpec+1))
	if err != nil {
		return file{}, err
	}
	now.devices, err = Parse(text)
	return now, err
}

// rootOwned refuses what others than root could have written.
func rootOwned(info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return errors.New("its owner is not known")
	case st.Uid != 0:
		return fmt.Errorf("it belongs to user %d; only root's specs are believed: chown it to root", st.Uid)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("its mode is %#o, so others than root may write it; take that right away", info.Mode().Perm())
	}
	return nil
}

// complain warns once about each reason.
func (s *Specs) complain(path, what string, err error) {
	if err == nil {
		delete(s.warned, path)
		return
	}
	if s.warned[path] == err.Error() {
		return
	}
	s.warned[path] = err.Error()
	s.Log.Warn(what, "path", path, "err", err)
}

// Watch looks at every change until ctx ends.
func (s *Specs) Watch(ctx context.Context) {
	dirwatch.Watch(ctx, s.Dirs, s.Look, func(err error) {
		s.Log.Warn("CDI specs are polled instead of watched", "err", err)
	})
}
