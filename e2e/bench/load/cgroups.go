package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/quietcore/quietcore/e2e/kubelet"
)

const (
	cgroupRoot  = "/sys/fs/cgroup"
	controllers = "+cpuset +cpu +memory +pids"
	sleeperPath = "/usr/bin/sleeper"
)

// tree is the cgroups of kubelet and the runtime, by one of the drivers.
type tree interface {
	// make is kubelet's: the cgroup of a class or of a pod, with its quota.
	make(ctx context.Context, name kubelet.CgroupName, cpu kubelet.CPU) error
	// remove ends a pod's cgroup, in which nothing runs any more.
	remove(ctx context.Context, name kubelet.CgroupName) error
	// start is the runtime's: a container with its process.
	start(ctx context.Context, c container) (*sleeper, error)
	// gone returns once the cgroup of a container that has ended is away.
	gone(ctx context.Context, c container) error
}

// container is what is known of one before it runs.
type container struct {
	pod     *kubelet.Pod
	id      string
	threads int
	works   *os.File // one of them, a little every second, once this has ended; nil: none
	cpus    []int    // its own; none: it inherits
}

// sleeper is a container's process.
type sleeper struct {
	cmd *exec.Cmd
	out *bufio.Reader
}

func spawn(c container, attr *syscall.SysProcAttr) (*sleeper, error) {
	args := []string{fmt.Sprint(c.threads)}
	if c.works != nil {
		args = slices.Insert(args, 0, "work")
	}
	cmd := exec.Command(sleeperPath, args...)
	if c.works != nil {
		cmd.Stdin = c.works
	}
	cmd.Env = sleeperEnv()
	cmd.SysProcAttr = attr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := startAnywhere(cmd); err != nil {
		return nil, err
	}
	return &sleeper{cmd: cmd, out: bufio.NewReader(out)}, nil
}

// startAnywhere keeps from a container's process that the guest's agent, and so
// this program, may run on some of the CPUs only.
func startAnywhere(cmd *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var mine, all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &mine); err != nil {
		return err
	}
	all.Fill()
	if err := unix.SchedSetaffinity(0, &all); err != nil {
		return err
	}
	return errors.Join(cmd.Start(), unix.SchedSetaffinity(0, &mine))
}

// sleeperEnv keeps hundreds of Go programs from doing anything.
func sleeperEnv() []string { return []string{"GOGC=off", "GOMAXPROCS=1"} }

// ready returns when all its threads are there.
func (s *sleeper) ready() error {
	_, err := s.out.ReadString('\n')
	if err != nil {
		return fmt.Errorf("the container's process: %w", err)
	}
	return nil
}

func (s *sleeper) kill() {
	_ = s.cmd.Process.Kill() // it may have ended
	_ = s.cmd.Wait()
}

// folders is the cgroupfs driver.
type folders struct{}

func (folders) make(_ context.Context, name kubelet.CgroupName, cpu kubelet.CPU) error {
	dir := cgroupRoot + kubelet.Cgroupfs.Path(name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(dir+"/cgroup.subtree_control", []byte(controllers), 0o644); err != nil {
		return err
	}
	return writeFiles(dir, cpu)
}

// writeFiles is how libcontainer gives a cgroup its limits; with systemd too, after
// the properties.
func writeFiles(dir string, cpu kubelet.CPU) error {
	for _, f := range cpu.Files() {
		if err := os.WriteFile(filepath.Join(dir, f.Name), []byte(f.Content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (folders) remove(ctx context.Context, name kubelet.CgroupName) error {
	return rmdir(ctx, cgroupRoot+kubelet.Cgroupfs.Path(name))
}

func (folders) start(_ context.Context, c container) (*sleeper, error) {
	dir := cgroupRoot + kubelet.Cgroupfs.ContainerPath(c.pod, c.id)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	if len(c.cpus) > 0 {
		if err := os.WriteFile(dir+"/cpuset.cpus", []byte(list(c.cpus)), 0o644); err != nil {
			return nil, err
		}
	}
	fd, err := syscall.Open(dir, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer syscall.Close(fd)
	s, err := spawn(c, &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: fd})
	if err != nil {
		return nil, err
	}
	return s, s.ready()
}

func (folders) gone(ctx context.Context, c container) error {
	return rmdir(ctx, cgroupRoot+kubelet.Cgroupfs.ContainerPath(c.pod, c.id))
}

// rmdir waits until the last process has left: a killed one stays for a moment.
func rmdir(ctx context.Context, dir string) error {
	return until(ctx, dir+" can be removed", func() (bool, error) {
		err := os.Remove(dir)
		switch {
		case err == nil, errors.Is(err, fs.ErrNotExist):
			return true, nil
		case errors.Is(err, syscall.EBUSY):
			return false, nil
		}
		return false, err
	})
}

// units is the systemd driver.
type units struct{ conn *systemd.Conn }

func newUnits(ctx context.Context) (*units, error) {
	conn, err := systemd.NewWithContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to systemd: %w", err)
	}
	return &units{conn}, nil
}

func (u *units) make(ctx context.Context, name kubelet.CgroupName, cpu kubelet.CPU) error {
	props := []systemd.Property{systemd.PropDescription("libcontainer container " + name.Unit()),
		systemd.PropWants(name.ParentUnit())}
	for _, p := range kubelet.SliceProperties(name) {
		if p.Bool != nil {
			props = append(props, property(p.Name, *p.Bool))
		}
	}
	if err := u.startUnit(ctx, name.Unit(), props); err != nil {
		return err
	}
	// From the root down and without the cgroup itself, as libcontainer does.
	for i := range name {
		dir := cgroupRoot
		if i > 0 {
			dir += kubelet.Systemd.Path(name[:i])
		}
		if err := os.WriteFile(dir+"/cgroup.subtree_control", []byte(controllers), 0o644); err != nil {
			return err
		}
	}
	dir := cgroupRoot + kubelet.Systemd.Path(name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var limits []systemd.Property
	for _, p := range cpu.Properties() {
		if p.Uint != nil {
			limits = append(limits, property(p.Name, *p.Uint))
		}
	}
	if len(limits) > 0 {
		if err := u.conn.SetUnitPropertiesContext(ctx, name.Unit(), true, limits...); err != nil {
			return fmt.Errorf("unit %s: %w", name.Unit(), err)
		}
	}
	return writeFiles(dir, cpu)
}

func (u *units) start(ctx context.Context, c container) (*sleeper, error) {
	s, err := spawn(c, nil)
	if err != nil {
		return nil, err
	}
	slice := c.pod.CgroupName().Unit()
	props := []systemd.Property{
		systemd.PropDescription("libcontainer container " + c.id), systemd.PropSlice(slice),
		systemd.PropPids(uint32(s.cmd.Process.Pid)),
		property("Delegate", true), property("DefaultDependencies", false),
		property("CPUAccounting", true), property("MemoryAccounting", true), property("IOAccounting", true),
		property("TasksAccounting", true),
	}
	if len(c.cpus) > 0 {
		mask := make([]byte, c.cpus[len(c.cpus)-1]/8+1)
		for _, cpu := range c.cpus {
			mask[cpu/8] |= 1 << (cpu % 8)
		}
		props = append(props, property("AllowedCPUs", mask))
	}
	if err := u.startUnit(ctx, scope(c), props); err != nil {
		s.kill()
		return nil, err
	}
	return s, s.ready()
}

func scope(c container) string { return "cri-containerd-" + c.id + ".scope" }

func property(name string, value any) systemd.Property {
	return systemd.Property{Name: name, Value: dbus.MakeVariant(value)}
}

func (u *units) startUnit(ctx context.Context, name string, props []systemd.Property) error {
	return job(ctx, name, func(done chan<- string) error {
		_, err := u.conn.StartTransientUnitContext(ctx, name, "replace", props, done)
		return err
	})
}

func (u *units) remove(ctx context.Context, name kubelet.CgroupName) error {
	err := job(ctx, name.Unit(), func(done chan<- string) error {
		_, err := u.conn.StopUnitContext(ctx, name.Unit(), "replace", done)
		return err
	})
	if err != nil {
		return err
	}
	return rmdir(ctx, cgroupRoot+kubelet.Systemd.Path(name))
}

// gone waits for systemd to notice that a scope is empty.
func (u *units) gone(ctx context.Context, c container) error {
	dir := cgroupRoot + kubelet.Systemd.ContainerPath(c.pod, c.id)
	return until(ctx, dir+" is gone", func() (bool, error) {
		_, err := os.Stat(dir)
		return errors.Is(err, fs.ErrNotExist), nil
	})
}

func job(ctx context.Context, unit string, begin func(done chan<- string) error) error {
	done := make(chan string, 1)
	if err := begin(done); err != nil {
		return fmt.Errorf("unit %s: %w", unit, err)
	}
	select {
	case result := <-done:
		if result != "done" {
			return fmt.Errorf("unit %s: systemd's job ended with %q", unit, result)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("unit %s: %w", unit, ctx.Err())
	case <-time.After(limit):
		return fmt.Errorf("unit %s: systemd's job did not end within %s", unit, limit)
	}
}

// limit bounds every wait. It is long: the machine is emulated and may be busy.
const limit = 2 * time.Minute

func until(ctx context.Context, what string, ok func() (bool, error)) error {
	deadline := time.Now().Add(limit)
	for {
		done, err := ok()
		switch {
		case err != nil:
			return fmt.Errorf("wait until %s: %w", what, err)
		case done:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Now().After(deadline):
			return fmt.Errorf("after %s still not so: %s", limit, what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// list is a cpuset in the kernel's words.
func list(cpus []int) string {
	words := make([]string, len(cpus))
	for i, c := range cpus {
		words[i] = fmt.Sprint(c)
	}
	return strings.Join(words, ",")
}

func readWord(path ...string) (string, error) {
	text, err := os.ReadFile(filepath.Join(path...))
	return strings.TrimSpace(string(text)), err
}
