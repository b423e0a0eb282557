package usage

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quietcore/quietcore/internal/cgroup"
)

// Options say where the cgroups are.
type Options struct {
	// Root is where they are mounted: the hierarchy itself on v2, the parent directory
	// of the hierarchies on v1.
	Root string
	V1   bool
	// KeepOpen bounds the number of open files; 0: a quarter of the process' limit.
	// Further files are opened for each pass, which is about three times as slow.
	KeepOpen int
	Now      func() time.Time // nil: time.Now
}

// Reading is one cgroup at one moment: totals since its creation, including cgroups
// below it.
type Reading struct {
	ID  string
	At  time.Time
	CPU time.Duration // time that it ran on CPUs
	// Periods of its own CFS quota in which it ran, those in which it was throttled,
	// and for how long. Quota is false if the kernel does not report them.
	Periods   uint64
	Throttled uint64
	Stopped   time.Duration
	Quota     bool
	// Waiting is the time in which some runnable task waited. Pressure is false if the
	// kernel does not report it: on v1, and without PSI.
	Waiting  time.Duration
	Pressure bool
	// Err is cgroup.ErrGone, or the error of reading. The numbers are then 0 and
	// meaningless.
	Err error
}

// The files of a cgroup.
const (
	statFile = iota
	pressureFile
	accountFile // v1 only
	fileCount
)

// Reader reads the cgroups that it follows. It is not safe for concurrent use.
type Reader struct {
	v1        bool
	keep      int
	now       func() time.Time
	hierarchy [fileCount]*os.File // by file; several may be the same
	groups    []*group
	byID      map[string]*group
	open      int
	noPSI     bool
	buf       [4096]byte
}

// group is one cgroup that is followed.
type group struct {
	id    string
	names [fileCount]string // path and name of each file, below the hierarchy
	fds   [fileCount]int    // -1: not open
	index int               // in Reader.groups
}

// Open finds the hierarchies.
func Open(o Options) (*Reader, error) {
	r := &Reader{v1: o.V1, keep: o.KeepOpen, now: o.Now, byID: map[string]*group{}}
	if r.now == nil {
		r.now = time.Now
	}
	if r.keep <= 0 {
		var limit unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			return nil, fmt.Errorf("usage: limit of open files: %w", err)
		}
		r.keep = int(min(limit.Cur/4, 1<<16))
	}
	folders := [fileCount][]string{{"."}, {"."}, nil}
	if o.V1 {
		folders = [fileCount][]string{statFile: {"cpu", "cpu,cpuacct", "cpuacct,cpu"},
			accountFile: {"cpuacct", "cpu,cpuacct", "cpuacct,cpu"}}
	}
	for file, names := range folders {
		if names == nil {
			continue
		}
		dir, err := openFirst(o.Root, names)
		if err != nil {
			return nil, errors.Join(err, r.Close())
		}
		r.hierarchy[file] = dir
	}
	return r, nil
}

func openFirst(root string, names []string) (*os.File, error) {
	var errs []error
	for _, name := range names {
		dir, err := os.OpenFile(filepath.Join(root, name), os.O_RDONLY|unix.O_DIRECTORY, 0)
		if err == nil {
			return dir, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("usage: no cgroup hierarchy at %s: %w", root, errors.Join(errs...))
}

// Close closes all files; the Reader must not be used afterwards.
func (r *Reader) Close() error {
	for _, g := range r.groups {
		r.shut(g)
	}
	r.groups, r.byID = nil, map[string]*group{}
	var errs []error
	for i, dir := range r.hierarchy {
		if dir != nil {
			errs = append(errs, dir.Close())
			r.hierarchy[i] = nil
		}
	}
	return errors.Join(errs...)
}

// Follow reads a cgroup under an ID from the next pass on. An ID that is followed
// already moves to the path. The cgroup need not exist yet. "/" is the root.
func (r *Reader) Follow(id, path string) error {
	prefix := ""
	if path != "/" {
		clean, err := cgroup.CleanPath(path)
		if err != nil {
			return fmt.Errorf("usage: follow %s: %w", id, err)
		}
		prefix = clean + "/"
	}
	r.Forget(id)
	g := &group{id: id, index: len(r.groups), fds: [fileCount]int{-1, -1, -1}}
	g.names[statFile] = prefix + "cpu.stat"
	if r.v1 {
		g.names[accountFile] = prefix + "cpuacct.usage"
	} else {
		g.names[pressureFile] = prefix + "cpu.pressure"
	}
	r.groups = append(r.groups, g)
	r.byID[id] = g
	return nil
}

// Forget ends Follow.
func (r *Reader) Forget(id string) {
	g := r.byID[id]
	if g == nil {
		return
	}
	r.shut(g)
	delete(r.byID, id)
	last := r.groups[len(r.groups)-1]
	r.groups[g.index], last.index = last, g.index
	r.groups[len(r.groups)-1] = nil
	r.groups = r.groups[:len(r.groups)-1]
}

// Read is one pass: it appends a reading of every followed cgroup to dst, in no order.
// It allocates only if a file must be opened or fails.
func (r *Reader) Read(dst []Reading) []Reading {
	for _, g := range r.groups {
		dst = append(dst, Reading{})
		r.read(g, &dst[len(dst)-1])
	}
	return dst
}

func (r *Reader) read(g *group, to *Reading) {
	to.ID, to.At = g.id, r.now()
	if err := r.fill(g, to); err != nil {
		*to = Reading{ID: g.id, At: to.At, Err: err}
	}
}

func (r *Reader) fill(g *group, to *Reading) error {
	text, err := r.text(g, statFile)
	if err != nil {
		return err
	}
	if err := parseStat(text, r.v1, to); err != nil {
		return fmt.Errorf("read %s: %w", g.names[statFile], err)
	}
	if r.v1 {
		if text, err = r.text(g, accountFile); err != nil {
			return err
		}
		if to.CPU, err = parseTime(bytes.TrimSuffix(text, []byte{'\n'}), 1); err != nil {
			return fmt.Errorf("read %s: %w", g.names[accountFile], lineError(text, err))
		}
		return nil
	}
	return r.pressure(g, to)
}

// pressure is missing if the kernel was built or booted without PSI.
func (r *Reader) pressure(g *group, to *Reading) error {
	if r.noPSI {
		return nil
	}
	text, err := r.text(g, pressureFile)
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		r.noPSI = true
		return nil
	case errors.Is(err, cgroup.ErrGone): // cpu.stat is there: the file is not
		return nil
	case err != nil:
		return err
	}
	if to.Waiting, err = parsePressure(text); err != nil {
		return fmt.Errorf("read %s: %w", g.names[pressureFile], err)
	}
	to.Pressure = true
	return nil
}

// text returns a file's contents. A file that stayed open while its cgroup was removed
// returns ENODEV from then on, even if a cgroup of that name is created again.
func (r *Reader) text(g *group, file int) ([]byte, error) {
	if fd := g.fds[file]; fd >= 0 {
		text, err := r.pread(fd)
		if err == nil {
			return text, nil
		}
		r.shut(g)
		if !errors.Is(err, unix.ENODEV) {
			return nil, fmt.Errorf("read %s: %w", g.names[file], err)
		}
	}
	fd, err := openBeneath(int(r.hierarchy[file].Fd()), g.names[file])
	if err != nil {
		return nil, fileError("open", g.names[file], err)
	}
	text, err := r.pread(fd)
	if err == nil && r.open < r.keep {
		g.fds[file] = fd
		r.open++
		return text, nil
	}
	unix.Close(fd)
	if err != nil {
		return nil, fileError("read", g.names[file], err)
	}
	return text, nil
}

func fileError(verb, name string, err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) {
		err = cgroup.ErrGone
	}
	return fmt.Errorf("%s %s: %w", verb, name, err)
}

// pread reads a whole file into the buffer; the kernel returns it in one piece.
func (r *Reader) pread(fd int) ([]byte, error) {
	for {
		n, err := unix.Pread(fd, r.buf[:], 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, err
		case n == len(r.buf):
			return nil, fmt.Errorf("longer than %d bytes", len(r.buf)-1)
		}
		return r.buf[:n], nil
	}
}

func (r *Reader) shut(g *group) {
	for i, fd := range g.fds {
		if fd >= 0 {
			unix.Close(fd)
			g.fds[i] = -1
			r.open--
		}
	}
}

const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// openBeneath opens a file below a directory; no component may be a symbolic link.
func openBeneath(dir int, path string) (int, error) {
	fd, err := unix.Openat2(dir, path, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_CLOEXEC, Resolve: beneath})
	if !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) {
		return fd, err
	}
	return walkBeneath(dir, path)
}

// walkBeneath does the same on kernels before 5.6, and where a seccomp profile rejects
// openat2 with EPERM.
func walkBeneath(dir int, path string) (int, error) {
	at := dir
	for {
		name, rest, more := strings.Cut(path, "/")
		flags := unix.O_NOFOLLOW | unix.O_CLOEXEC
		if more {
			flags |= unix.O_PATH | unix.O_DIRECTORY
		}
		fd, err := unix.Openat(at, name, flags, 0)
		if at != dir {
			unix.Close(at)
		}
		if err != nil || !more {
			return fd, err
		}
		at, path = fd, rest
	}
}
