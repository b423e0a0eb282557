package machine

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// Bare is a guest that runs one program as its init and ends with it: a kernel and the
// program.
type Bare struct {
	Arch     string            // AMD64 or ARM64; the kernel is Debian's of that architecture
	Suite    Suite             // whose kernel it is; empty: Bookworm
	CPUs     int               // ARM64: 1, since all CPUs of an instruction-counting QEMU count together
	NoPMU    bool              // ARM64: QEMU counts no instructions, which is faster
	Cache    string            // where kernels are kept between runs
	Init     string            // the program, static; the guest is over when it ends
	Args     []string          // its arguments
	Kernel   string            // more of the kernel's command line
	Files    map[string]string // more programs for the guest: path there -> path here
	Progress io.Writer
}

// Busybox is Debian's static busybox, from the cache.
func Busybox(ctx context.Context, cache string, progress io.Writer) (string, error) {
	return locked(cache, progress, func(b *builder) (string, error) {
		tree, err := b.debianTree(ctx)
		return filepath.Join(tree, "bin", "busybox"), err
	})
}

// Run boots the guest and copies its console to out until it ends. Only that output
// shows how the program ended.
func (g Bare) Run(ctx context.Context, out io.Writer) error {
	kernel, err := locked(g.Cache, g.Progress, func(b *builder) (string, error) {
		suite := cmp.Or(g.Suite, Bookworm)
		if g.Arch == AMD64 && suite == Bookworm {
			return b.kernel(ctx)
		}
		return b.foreignKernel(ctx, suite, g.Arch, nil)
	})
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "quietcore-bare-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	initrd := filepath.Join(dir, "initrd")
	if err := g.write(initrd); err != nil {
		return err
	}
	argv := g.qemu(filepath.Join(kernel, "vmlinuz"), initrd)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = out, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // see startQemu
	defer runtime.UnlockOSThread()
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s (e2e/setup.sh installs it): %w %s", argv[0], err, tail(stderr.Bytes(), 2000))
	}
	return ctx.Err()
}

func (g Bare) write(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	c := newCpio(f)
	for _, dir := range []string{"proc", "sys", "tmp"} {
		c.dir(dir)
	}
	c.char("dev/console", deviceNumber{5, 1})
	files := map[string]string{"init": g.Init}
	for there, here := range g.Files {
		files[there] = here
	}
	for there, here := range files {
		data, err := os.ReadFile(here)
		if err != nil {
			return err
		}
		c.file(there, 0o755, data)
	}
	if err := c.close(); err != nil {
		return err
	}
	return f.Close()
}

// qemu: on arm64 QEMU derives time from counted instructions, a nanosecond each, so
// that its performance monitoring unit counts both, the same in every run.
func (g Bare) qemu(kernel, initrd string) []string {
	argv := []string{
		qemu, "-accel", "tcg,thread=multi", "-cpu", "max,vendor=GenuineIntel,erms=off,fsrm=off",
		"-machine", "pc",
	}
	// On a busy host the kernel takes the timer for broken before its first ticks come.
	console := "ttyS0 mitigations=off clearcpuid=112 nokaslr no_timer_check"
	if g.Arch == ARM64 {
		argv = []string{"qemu-system-aarch64", "-cpu", "max,pauth-impdef=on", "-machine", "virt"}
		if !g.NoPMU {
			argv = append(argv, "-icount", "shift=0,sleep=off")
		}
		console = "ttyAMA0"
	}
	return append(argv, "-smp", strconv.Itoa(g.CPUs), "-m", "1024M", "-nodefaults", "-no-user-config", "-display",
		"none", "-no-reboot",
		"-serial", "stdio", "-kernel", kernel, "-initrd", initrd,
		"-append", "console="+console+" quiet loglevel=3 panic=-1 rdinit=/init random.trust_cpu=on nowatchdog "+
			g.Kernel+" -- "+strings.Join(g.Args, " "))
}
