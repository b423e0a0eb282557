package cgroup

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxFileBytes bounds what is read of one file; the longest valid cpuset takes less than 24 KiB.
const maxFileBytes = 64 << 10

// root opens cgroups below one mounted hierarchy. No path leaves it: names are checked by
// CleanPath, and every component is opened without following symbolic links (os.Root would follow
// those that stay inside).
type root struct {
	dir *os.File
}

func openRoot(path string) (root, error) {
	dir, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return root{}, fmt.Errorf("open cgroup hierarchy: %w", err)
	}
	return root{dir: dir}, nil
}

func (r root) close() error { return r.dir.Close() }

// group opens the directory of one cgroup.
func (r root) group(path string) (group, error) {
	clean, err := CleanPath(path)
	if err != nil {
		return group{}, err
	}
	fd, err := openBeneath(int(r.dir.Fd()), clean)
	if err != nil {
		return group{}, groupError(clean, err)
	}
	return group{root: r, fd: fd, path: clean}, nil
}

// top opens the root of the hierarchy.
func (r root) top() (group, error) {
	fd, err := unix.Openat(int(r.dir.Fd()), ".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return group{}, groupError(rootPath, err)
	}
	return group{root: r, fd: fd, path: rootPath}, nil
}

func (r root) groupOrTop(path string) (group, error) {
	if path == rootPath {
		return r.top()
	}
	return r.group(path)
}

// rootPath names the root of the hierarchy, which is read and never written.
const rootPath = "/"

const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

func openBeneath(dir int, path string) (int, error) {
	fd, err := unix.Openat2(dir, path, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: beneath,
	})
	if !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) {
		return fd, err
	}
	return walkBeneath(dir, path)
}

// walkBeneath does the same on kernels before 5.6, and under seccomp profiles without openat2,
// which answer EPERM.
func walkBeneath(dir int, path string) (int, error) {
	at := dir
	for name := range strings.SplitSeq(path, "/") {
		fd, err := unix.Openat(at, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if at != dir {
			unix.Close(at)
		}
		if err != nil {
			return -1, err
		}
		at = fd
	}
	return at, nil
}

func groupError(path string, err error) error {
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV):
		return fmt.Errorf("cgroup %s: %w", path, ErrGone)
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR):
		return fmt.Errorf("cgroup %s: a component is a symbolic link or a file, which no cgroup is: %w", path, err)
	}
	return fmt.Errorf("open cgroup %s: %w", path, err)
}

// peek reads one file of a cgroup into buf in three system calls. It is the fast path: if it fails,
// or the file does not fit, the path through group reports the error. path must be clean.
func (r root) peek(path, file string, buf []byte) ([]byte, bool) {
	name := file
	if path != rootPath {
		name = path + "/" + file
	}
	fd, err := unix.Openat2(int(r.dir.Fd()), name, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_CLOEXEC,
		Resolve: beneath})
	if err != nil {
		return nil, false
	}
	defer unix.Close(fd)
	// The kernel returns such a file in one read.
	n, err := unix.Read(fd, buf)
	if err != nil || n == len(buf) {
		return nil, false
	}
	return buf[:n], true
}

// group is one open cgroup directory; close it after use.
type group struct {
	root root
	fd   int
	path string
}

func (g group) close() { unix.Close(g.fd) }

// read returns a file's text.
func (g group) read(file string) (string, error) {
	f, err := g.open(file, unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return "", g.ioError("read", file, "", err)
	}
	if len(b) > maxFileBytes {
		return "", fmt.Errorf("read %s of cgroup %s: longer than %d bytes", file, g.path, maxFileBytes)
	}
	return string(b), nil
}

// write puts text into a file in one system call, as the kernel requires.
func (g group) write(file, text string) error {
	f, err := g.open(file, unix.O_WRONLY|unix.O_TRUNC)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		return g.ioError("write", file, text, err)
	}
	return nil
}

func (g group) open(file string, flags int) (*os.File, error) {
	fd, err := unix.Openat(g.fd, file, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, g.ioError("open", file, "", err)
	}
	return os.NewFile(uintptr(fd), file), nil
}

// ioError distinguishes a cgroup that was removed from one that lacks the controller: the file is
// missing in both.
func (g group) ioError(verb, file, text string, err error) error {
	var bare syscall.Errno // without the file's name, which the error has with the cgroup's
	if errors.As(err, &bare) {
		err = bare
	}
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT) && g.removed() {
		return fmt.Errorf("%s %s of cgroup %s: %w", verb, file, g.path, ErrGone)
	}
	if errors.Is(err, unix.ENOENT) {
		controller, _, _ := strings.Cut(file, ".")
		return &NoControllerError{Path: g.path, Controller: controller, File: file}
	}
	if why := reason(err); why != "" {
		err = fmt.Errorf("%w: %s", err, why)
	}
	if verb == "write" {
		return fmt.Errorf("write %s to %s of cgroup %s: %w", quoted(text), file, g.path, err)
	}
	return fmt.Errorf("%s %s of cgroup %s: %w", verb, file, g.path, err)
}

// reason explains an error of a cgroup file, with the way out, if the error's own text is not
// enough.
func reason(err error) string {
	switch {
	case errors.Is(err, unix.EROFS):
		return "cgroups are mounted read-only here; mount the host's /sys/fs/cgroup writable (in a pod: a hostPath " +
			"volume without readOnly)"
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return "it needs root, and on cgroup v1 a set within that of the cgroup above"
	case errors.Is(err, unix.EBUSY):
		return "a cgroup below holds CPUs outside this set, or a cpuset partition next to it claims them"
	case errors.Is(err, unix.EINVAL):
		return "the kernel does not accept this value here: CPUs or memory nodes that the machine does not have, or " +
			"a quota beyond that of the cgroup above"
	case errors.Is(err, unix.ERANGE):
		return "the number is beyond what this kernel was built for"
	case errors.Is(err, unix.ENOSPC):
		return "this kernel refuses to empty the set of a populated cgroup"
	}
	return ""
}

// removed looks the path up again: cgroupfs keeps the link count of a removed directory, so the
// open descriptor does not show it.
func (g group) removed() bool {
	fd, err := openBeneath(int(g.root.dir.Fd()), g.path)
	if err == nil {
		unix.Close(fd)
	}
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV)
}

// children lists the cgroups directly below.
func (g group) children() ([]string, error) {
	fd, err := unix.Openat(g.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, groupError(g.path, err)
	}
	dir := os.NewFile(uintptr(fd), g.path)
	defer dir.Close()
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return nil, groupError(g.path, err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}
