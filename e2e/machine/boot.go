package machine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/quietcore/quietcore/e2e/kubelet"
)

// Options describe a machine.
type Options struct {
	Grid      Grid
	Driver    kubelet.Driver    // of cgroups; empty: Cgroupfs. Systemd makes a guest with systemd as its init
	Runtime   Runtime           // empty: Containerd
	Suite     Suite             // whose kernel it is; empty: Bookworm
	Cache     string            // where the parts are kept between runs
	Dir       string            // where this run writes its console log and sockets; empty: a temporary one
	Agent     string            // path of the agent's binary; empty: it is built
	Files     map[string]string // more files for the guest: path there -> path here
	MemoryMiB int               // 0: as much as the driver's guest needs
	Progress  io.Writer         // nil: nothing is said
	// OneThread emulates all CPUs in turn on one host CPU. That is nearly as fast for
	// guests with little parallelism, and two of them do not disturb each other.
	OneThread bool
	// Network gives the guest a card: it is GuestAddress, the host's loopback is
	// HostAddress, and there is nothing else.
	Network bool
	// Forward makes ports of the host's loopback ports of the guest's card.
	Forward map[int]int
	// Absent are how many of the grid's CPUs, its last ones, come with Plug only.
	Absent int
	// Next is a runtime that ChangeRuntime can put in the place of the first; empty: none.
	Next Runtime
}

// Machine is a running guest.
type Machine struct {
	*client
	Dir     string
	Grid    Grid
	Driver  kubelet.Driver
	Runtime Runtime
	Booted  time.Duration // from QEMU's start to the agent's first answer
	qemu    *exec.Cmd
	exited  chan struct{}
	ownDir  bool
	say     func(format string, args ...any)
	console string
	present int // of the grid's CPUs, the first ones
}

// qemu emulates the guests of Boot.
const qemu = "qemu-system-x86_64"

// helloLimits bound how long a guest that does not answer is believed in, try after
// try. It takes 5 to 12 s, and has been seen to take 30 on a busy host; QEMU hangs
// in about one of ten boots with a thread for each CPU and then never answers.
var helloLimits = []time.Duration{40 * time.Second, 75 * time.Second, 5 * time.Minute}

// Boot starts a machine and waits until its agent answers. It retries, since QEMU's
// emulation of many CPUs on few sometimes breaks a booting kernel.
func Boot(ctx context.Context, o Options) (*Machine, error) {
	if err := o.Grid.Check(); err != nil {
		return nil, err
	}
	// Before anything is built for minutes; and a program that is missing is missing at the next try.
	if _, err := exec.LookPath(qemu); err != nil {
		return nil, fmt.Errorf("%w (e2e/setup.sh installs what is missing)", err)
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	if o.Driver == "" {
		o.Driver = kubelet.Cgroupfs
	}
	if o.Runtime == "" {
		o.Runtime = Containerd
	}
	if o.Suite = cmp.Or(o.Suite, Bookworm); o.Suite != Bookworm && o.Network {
		return nil, fmt.Errorf("a machine with the kernel of %s has no network: its modules are bookworm's", o.Suite)
	}
	assets, err := Build(ctx, o.Cache, Kind{o.Driver, o.Runtime, o.Suite}, o.Progress)
	if err != nil {
		return nil, err
	}
	if o.Next != "" {
		if err := addNext(ctx, &o); err != nil {
			return nil, err
		}
	}
	if o.Agent == "" {
		if o.Agent, err = BuildAgent(ctx, o.Cache); err != nil {
			return nil, err
		}
	}
	if o.Network {
		if err := addNetwork(ctx, &o, assets); err != nil {
			return nil, err
		}
	}
	for i := 0; ; i++ {
		m, err := boot(ctx, o, assets, helloLimits[i])
		never := NotRealisable{}
		if err == nil || ctx.Err() != nil || errors.As(err, &never) || i == len(helloLimits)-1 {
			return m, err
		}
		fmt.Fprintf(o.Progress, "e2e: the guest did not come up, trying again: %v\n", err)
	}
}

// BuildAgent builds what a guest runs to serve the host.
func BuildAgent(ctx context.Context, cache string) (string, error) {
	return BuildGo(ctx, cache, "./e2e/guest", "agent")
}

// BuildGo builds a static binary of this module into the cache. The Go tool's own
// cache makes that quick when nothing has changed. Another run may be reading the
// binary that is there, so it is replaced and not written to.
func BuildGo(ctx context.Context, cache, pkg, name string) (string, error) {
	return GoBinary{Package: pkg, Name: name}.Build(ctx, cache)
}

// BuildDaemon builds the daemon that tests can make fail: a production one cannot be.
func BuildDaemon(ctx context.Context, cache, name string) (string, error) {
	return GoBinary{Package: "./cmd/quietcore", Name: name, Tags: "quietcore_faults"}.Build(ctx, cache)
}

// GoBinary is a static binary to be made.
type GoBinary struct {
	Package, Name string
	Tags          string // of the build
	Arch          string // Go's word for it; empty: the host's
	Test          bool   // the package's tests
}

// Build is BuildGo.
func (g GoBinary) Build(ctx context.Context, cache string) (string, error) {
	dir, err := filepath.Abs(filepath.Join(cache, "bin"))
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(dir, making)
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	made, out := filepath.Join(tmp, g.Name), filepath.Join(dir, g.Name)
	argv := []string{"build"}
	if g.Test {
		argv = []string{"test", "-c"}
	}
	cmd := exec.CommandContext(ctx, "go", append(argv, "-p", "2", "-trimpath", "-tags", g.Tags, "-ldflags", "-s -w",
		"-o",
		made, g.Package)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if g.Arch != "" {
		cmd.Env = append(cmd.Env, "GOARCH="+g.Arch)
	}
	if msg, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go %s %s: %w: %s", argv[0], g.Package, err, tail(msg, 4000))
	}
	return out, os.Rename(made, out)
}

func boot(ctx context.Context, o Options, assets *Assets, limit time.Duration) (m *Machine, err error) {
	m = &Machine{Dir: o.Dir, Grid: o.Grid, Driver: o.Driver, Runtime: o.Runtime, exited: make(chan struct{}),
		present: o.Grid.CPUs() - o.Absent}
	m.say = func(format string, args ...any) { fmt.Fprintf(o.Progress, "e2e: "+format+"\n", args...) }
	if m.Dir == "" {
		if m.Dir, err = os.MkdirTemp("", "quietcore-e2e-"); err != nil {
			return nil, err
		}
		m.ownDir = true
	}
	if m.Dir, err = filepath.Abs(m.Dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(m.Dir, 0o755); err != nil {
		return nil, err
	}
	m.console = filepath.Join(m.Dir, "console.log")
	initrd := filepath.Join(m.Dir, "initrd")
	if err := writeInitrd(initrd, assets.Base, o); err != nil {
		return nil, err
	}
	m.say("boot %s, %s, %s, %s", o.Grid, o.Runtime, o.Driver, o.Suite)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := m.launch(ctx, o, assets.Kernel, initrd); err != nil {
		err = fmt.Errorf("%w; the console's last words:\n%s", err, m.ConsoleTail(2000))
		return nil, errors.Join(err, m.Close())
	}
	m.say("the guest answers after %.1f s", m.Booted.Seconds())
	return m, nil
}

// writeInitrd appends this run's overlay to the base; the kernel unpacks archives
// one after the other.
func writeInitrd(name string, base []string, o Options) error {
	out, err := os.Create(name)
	if err != nil {
		return err
	}
	defer out.Close()
	for _, b := range base {
		if err := appendFile(out, b); err != nil {
			return err
		}
	}
	c := newCpio(out)
	c.files(0o755, map[string]string{"init": initScript, "rc": rcScript(o.Driver, o.Network)})
	files := map[string]string{"usr/bin/agent": o.Agent}
	for to, from := range o.Files {
		files[to] = from
	}
	for to, from := range files {
		data, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		c.file(to, 0o755, data)
	}
	if err := c.close(); err != nil {
		return err
	}
	return out.Close()
}

func appendFile(out io.Writer, name string) error {
	in, err := os.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = io.Copy(out, in)
	return err
}

func (m *Machine) launch(ctx context.Context, o Options, kernel, initrd string) error {
	address := filepath.Join(m.Dir, "agent.sock")
	if err := os.Remove(address); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	port, err := net.Listen("unix", address)
	if err != nil {
		return err
	}
	defer port.Close()
	if o.MemoryMiB == 0 {
		o.MemoryMiB = memoryMiB[o.Driver]
	}
	options := initOptions[o.Driver]
	if o.Grid.Isolated != "" {
		options = " isolcpus=" + o.Grid.Isolated + options
	}
	args := append(m.qemuArgs(kernel, initrd, options, o.OneThread), o.Grid.qemuArgs(o.MemoryMiB, m.present)...)
	if o.Network {
		args = append(args, networkArgs(o.Forward)...)
	}
	m.qemu = exec.Command(qemu, args...)
	var stderr bytes.Buffer
	m.qemu.Stderr = &stderr
	started := time.Now()
	if err := m.startQemu(); err != nil {
		return err
	}
	go func() { // an Accept knows no context
		select {
		case <-ctx.Done():
		case <-m.exited:
		}
		port.Close()
	}()
	conn, err := port.Accept()
	if err != nil {
		return fmt.Errorf("QEMU did not open the agent's port: %s", stderr.String())
	}
	m.client = newClient(conn, m.exited)
	hello, err := m.Hello(ctx)
	if err != nil {
		return fmt.Errorf("no hello from the guest after %.0f s: %w %s", time.Since(started).Seconds(), err,
			stderr.String())
	}
	m.Booted = time.Since(started)
	if hello.CPUs != m.present {
		return fmt.Errorf("the guest has %d CPUs, want %d", hello.CPUs, m.present)
	}
	if err := m.verify(ctx); err != nil {
		return err
	}
	go m.watch(pulse, silence)
	return nil
}

// startQemu dedicates a thread to QEMU, since the kernel kills the child when the
// thread that started it ends: no guest outlives a killed harness.
func (m *Machine) startQemu() error {
	m.qemu.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer close(m.exited)
		err := m.qemu.Start()
		started <- err
		if err == nil {
			_ = m.qemu.Wait()
		}
	}()
	return <-started
}

// memoryMiB is for the root tree, which stays in memory, and a few dozen pods.
var memoryMiB = map[kubelet.Driver]int{kubelet.Cgroupfs: 2048, kubelet.Systemd: 3072}

// initOptions are what the guest's init reads on the kernel's command line.
var initOptions = map[kubelet.Driver]string{
	kubelet.Systemd: " systemd.unit=" + guestTarget +
		" systemd.show_status=0 systemd.log_level=notice systemd.mask=getty@.service",
}

func (m *Machine) qemuArgs(kernel, initrd, init string, oneThread bool) []string {
	accel := "tcg,thread=multi"
	if oneThread {
		accel = "tcg,thread=single"
	}
	return []string{
		"-accel", accel, "-cpu", "max,vendor=GenuineIntel,erms=off,fsrm=off", "-machine", "pc",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-kernel", kernel, "-initrd", initrd,
		"-append",
		"console=ttyS0 quiet panic=-1 rdinit=/init mitigations=off random.trust_cpu=on nokaslr nowatchdog " +
			"rcupdate.rcu_expedited=1 init_on_alloc=0 clearcpuid=112" + init,
		"-chardev", "socket,id=console,server=on,wait=off,path=" + filepath.Join(m.Dir, "console.sock") + ",logfile=" +
			m.console,
		"-serial", "chardev:console",
		"-chardev", "socket,id=monitor,server=on,wait=off,path=" + m.monitorSocket(),
		"-mon", "chardev=monitor,mode=control",
		"-device", "virtio-serial-pci",
		"-chardev", "socket,id=agent,path=" + filepath.Join(m.Dir, "agent.sock"),
		"-device", "virtserialport,chardev=agent,name=" + portName,
	}
}

// ConsoleTail is the end of the output of kernel and init.
func (m *Machine) ConsoleTail(n int) string {
	data, err := os.ReadFile(m.console)
	if err != nil {
		return err.Error()
	}
	return tail(data, n)
}

// Jiffies are what QEMU has used of the host's CPUs, in hundredths of a second as in /proc/stat.
func (m *Machine) Jiffies() (float64, error) {
	name := fmt.Sprintf("/proc/%d/stat", m.qemu.Process.Pid)
	stat, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	const user, system = 11, 12 // of the fields after the program's name, which may hold anything
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) <= system {
		return 0, fmt.Errorf("%s has %d fields after the name: %q", name, len(fields), stat)
	}
	utime, err := strconv.ParseFloat(fields[user], 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	stime, err := strconv.ParseFloat(fields[system], 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	return utime + stime, nil
}

// ConsoleSocket is where a terminal reaches the guest's shell.
func (m *Machine) ConsoleSocket() string { return filepath.Join(m.Dir, "console.sock") }

// Close kills the guest; a clean shutdown is not needed.
func (m *Machine) Close() error {
	var err error
	if m.qemu != nil && m.qemu.Process != nil {
		if err = m.qemu.Process.Kill(); errors.Is(err, os.ErrProcessDone) {
			err = nil
		}
		<-m.exited
	}
	if m.client != nil {
		m.client.close()
	}
	if m.ownDir {
		err = errors.Join(err, os.RemoveAll(m.Dir))
	}
	return err
}
