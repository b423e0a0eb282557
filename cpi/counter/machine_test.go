package counter

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The tests burn CPU in copies of themselves, which wait for a line before each
// piece of work and answer with one: the cgroups are still when they are read.
const helperVariable = "QUIETCORE_COUNTER_HELPER"

func TestMain(m *testing.M) {
	if work := os.Getenv(helperVariable); work != "" {
		if err := help(work); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func help(work string) error {
	// Answered once the runtime's own threads have come to rest.
	fmt.Println("ready")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		n, err := strconv.Atoi(in.Text())
		if err != nil {
			return err
		}
		answer, err := perform(work, n)
		if err != nil {
			return err
		}
		fmt.Println(answer)
	}
	return in.Err()
}

// perform does n units of one kind of work.
func perform(work string, n int) (string, error) {
	switch work {
	case "spin": // n milliseconds of CPU time without ever yielding
		spin(time.Duration(n) * time.Millisecond)
	case "echo": // n bytes back and forth with another process, a switch each
		return "", echo(n)
	case "children": // n short-lived processes
		for range n {
			if err := exec.Command("/bin/true").Run(); err != nil {
				return "", err
			}
		}
	case "wander": // n milliseconds of CPU time on every CPU in turn
		return "", wander(time.Duration(n) * time.Millisecond)
	case "fault": // n page faults, and what the kernel says it was
		return fault(n)
	default:
		return "", fmt.Errorf("unknown work %q", work)
	}
	return "", nil
}

func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}

func spin(d time.Duration) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for end := threadTime() + d; threadTime() < end; {
	}
}

func wander(d time.Duration) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cpu := 0
	for end := threadTime() + d; threadTime() < end; cpu++ {
		var set unix.CPUSet
		set.Set(cpu % runtime.NumCPU())
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			return err
		}
		spin(200 * time.Microsecond)
	}
	return nil
}

// echo plays with the pipes 3 and 4. One of two begins; in the end both are empty.
func echo(n int) error {
	var b [1]byte
	hear := func() error { _, err := syscall.Read(3, b[:]); return err }
	say := func() error { _, err := syscall.Write(4, b[:]); return err }
	if os.Getenv("FIRST") != "" {
		hear, say = say, hear
	}
	for range n {
		if err := hear(); err != nil {
			return err
		}
		if err := say(); err != nil {
			return err
		}
	}
	return nil
}

func fault(n int) (string, error) {
	page := os.Getpagesize()
	b, err := unix.Mmap(-1, 0, n*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return "", err
	}
	if err := unix.Madvise(b, unix.MADV_NOHUGEPAGE); err != nil {
		return "", err
	}
	for i := 0; i < len(b); i += page {
		b[i] = 1
	}
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return "", err
	}
	return strconv.FormatInt(u.Minflt+u.Majflt, 10), unix.Munmap(b)
}

// helper is a copy of the test, idle until it is sent work.
type helper struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func startHelper(t testing.TB, work string, extra []*os.File, env ...string) *helper {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h := &helper{t: t, cmd: exec.Command(self)}
	h.cmd.Env = append(os.Environ(), append(env, helperVariable+"="+work, "GOGC=off")...)
	h.cmd.Stderr = os.Stderr
	h.cmd.ExtraFiles = extra
	if h.in, err = h.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	h.out = bufio.NewScanner(out)
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.stop)
	h.answer()
	return h
}

func (h *helper) tell(n int) {
	h.t.Helper()
	if _, err := fmt.Fprintln(h.in, n); err != nil {
		h.t.Fatal(err)
	}
}

func (h *helper) answer() string {
	h.t.Helper()
	if !h.out.Scan() {
		h.t.Fatalf("helper: %v", h.out.Err())
	}
	return h.out.Text()
}

func (h *helper) do(n int) string {
	h.t.Helper()
	h.tell(n)
	return h.answer()
}

func (h *helper) stop() {
	_ = h.in.Close()
	_ = h.cmd.Wait()
}

// hierarchy is where a test makes its cgroups.
type hierarchy struct {
	t    testing.TB
	v1   bool
	root string
	also string // v1: the cpuacct hierarchy, which says what the kernel has counted
}

// needRoot skips, or fails in CI, where everything below can run.
func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("QUIETCORE_CI") == "1" {
			t.Fatal("needs root")
		}
		t.Skip("needs root: eBPF, perf events and cgroups")
	}
}

func unsupportedHere(t testing.TB, err error) {
	t.Helper()
	var u *UnsupportedError
	if errors.As(err, &u) && os.Getenv("QUIETCORE_CI") != "1" {
		t.Skip(err)
	}
	t.Fatal(err)
}

// v2 mounts the one v2 hierarchy once more, and makes a folder in it.
func v2(t testing.TB) *hierarchy {
	t.Helper()
	needRoot(t)
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "cgroup2", 0, ""); err != nil {
		if os.Getenv("QUIETCORE_CI") == "1" {
			t.Fatalf("cgroup v2 cannot be mounted: %v", err)
		}
		t.Skipf("needs a kernel that mounts cgroup v2, and the capability to mount: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return &hierarchy{t: t, root: dir}
}

// v1 skips where v2 has every controller, so that no v1 can be had.
func v1(t testing.TB) *hierarchy {
	t.Helper()
	needRoot(t)
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		t.Skip("needs the cgroup v1 hierarchies cpu and cpuacct in /sys/fs/cgroup; this machine has v2 alone")
	}
	h := &hierarchy{t: t, v1: true, root: "/sys/fs/cgroup/cpu", also: "/sys/fs/cgroup/cpuacct"}
	for _, dir := range []string{h.root, h.also} {
		if _, err := os.Stat(filepath.Join(dir, "tasks")); err != nil {
			if os.Getenv("QUIETCORE_CI") == "1" {
				t.Fatalf("neither v2 nor v1 is in /sys/fs/cgroup: %v", err)
			}
			t.Skipf("needs the cgroup v1 hierarchies cpu and cpuacct in /sys/fs/cgroup: %v", err)
		}
	}
	return h
}

// make makes a cgroup and removes it in the end, with all processes left in it.
func (h *hierarchy) make(name string) string {
	h.t.Helper()
	path := fmt.Sprintf("quietcore-counter-%d", os.Getpid())
	if name != "" {
		path = filepath.Join(path, name)
	}
	for _, root := range []string{h.root, h.also} {
		if root == "" {
			continue
		}
		for _, p := range []string{filepath.Dir(path), path} {
			dir := filepath.Join(root, p)
			if err := os.Mkdir(dir, 0o755); err == nil {
				h.t.Cleanup(func() { remove(h.t, dir) })
			} else if !errors.Is(err, os.ErrExist) {
				h.t.Fatal(err)
			}
		}
	}
	return "/" + path
}

// remove waits for the tasks of a cgroup to be gone: they outlive their parent's wait.
func remove(t testing.TB, dir string) {
	t.Helper()
	for try := 0; ; try++ {
		err := unix.Rmdir(dir)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return
		}
		if try == 2000 {
			t.Errorf("remove %s: %v", dir, err)
			return
		}
		runtime.Gosched()
		unix.Nanosleep(&unix.Timespec{Nsec: int64(time.Millisecond)}, nil)
	}
}

// place puts a helper into a cgroup.
func (h *hierarchy) place(path string, helper *helper) {
	h.t.Helper()
	for _, root := range []string{h.root, h.also} {
		if root == "" {
			continue
		}
		file := filepath.Join(root, path, "cgroup.procs")
		if err := os.WriteFile(file, []byte(strconv.Itoa(helper.cmd.Process.Pid)), 0); err != nil {
			h.t.Fatal(err)
		}
	}
}

// used is what the kernel has counted for a cgroup.
func (h *hierarchy) used(path string) time.Duration {
	h.t.Helper()
	if h.v1 {
		text, err := os.ReadFile(filepath.Join(h.also, path, "cpuacct.usage"))
		if err != nil {
			h.t.Fatal(err)
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err != nil {
			h.t.Fatal(err)
		}
		return time.Duration(n)
	}
	text, err := os.ReadFile(filepath.Join(h.root, path, "cpu.stat"))
	if err != nil {
		h.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "usage_usec" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				h.t.Fatal(err)
			}
			return time.Duration(n) * time.Microsecond
		}
	}
	h.t.Fatalf("no usage_usec in %s", text)
	return 0
}

// openHere opens a counter on a hierarchy, enabled.
func openHere(t testing.TB, h *hierarchy, o Options) *Counter {
	t.Helper()
	o.Root, o.V1 = h.root, h.v1
	c, err := Open(o)
	if err != nil {
		unsupportedHere(t, err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := c.Enable(nil); err != nil {
		t.Fatal(err)
	}
	return c
}

// read reads and checks what holds of every reading.
func read(t testing.TB, c *Counter) *Reading {
	t.Helper()
	r := new(Reading)
	if err := c.Read(r); err != nil {
		t.Fatal(err)
	}
	checkSums(t, r)
	return r
}

func checkSums(t testing.TB, r *Reading) {
	t.Helper()
	sum := r.Other
	for _, g := range r.Groups {
		sum.add(&g.Counts)
		if g.Counted > g.OnCPU {
			t.Errorf("%s: %d ns counted of %d", g.ID, g.Counted, g.OnCPU)
		}
	}
	if sum != r.Machine {
		t.Errorf("the groups and Other are %+v, the machine is %+v", sum, r.Machine)
	}
}

// of is one group of a reading.
func of(t testing.TB, r *Reading, id string) Counts {
	t.Helper()
	for _, g := range r.Groups {
		if g.ID == id {
			return g.Counts
		}
	}
	t.Fatalf("no group %s in %+v", id, r.Groups)
	return Counts{}
}
