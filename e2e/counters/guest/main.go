// Command guest is the init of a guest that measures how exact counting is. It reports
// on its console, a line per result, and shuts the guest down. Package counters on the
// host judges the results.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/quietcore/quietcore/e2e/counters/ability"
	"github.com/quietcore/quietcore/e2e/counters/report"
	"github.com/quietcore/quietcore/e2e/tracepoints"
)

func main() {
	if os.Getpid() != 1 {
		if err := perform(os.Args[1:]); err != nil {
			fmt.Println("guest:", err)
			os.Exit(1)
		}
		return
	}
	err := prepare()
	if err == nil {
		// Not in this process: the eBPF library looks at /proc when it starts.
		cmd := exec.Command("/init", os.Args[1:]...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stdout
		err = cmd.Run()
	}
	report.End(os.Stdout, err)
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
}

func prepare() error {
	var failed error
	for _, m := range []struct{ kind, at string }{{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"},
		{"tmpfs", "/tmp"}, {"cgroup2", cgroups}} {
		if err := unix.Mount("none", m.at, m.kind, 0, ""); err != nil {
			failed = errors.Join(failed, fmt.Errorf("mount %s at %s: %w", m.kind, m.at, err))
		}
	}
	return failed
}

func perform(args []string) error {
	switch {
	case len(args) == 1 && args[0] == report.Instructions:
		return errors.Join(countInstructions(), checkPMU())
	case len(args) == 1 && args[0] == report.Tries:
		return tryAll()
	case len(args) == 1 && args[0] == report.Core:
		return runCore()
	case len(args) == 2 && args[0] == report.Tests:
		return errors.Join(tryAll(), runTests(args[1]))
	}
	return fmt.Errorf("arguments are %q", args)
}

// tryAll reports what counting can do on this kernel.
func tryAll() error {
	if err := tracepoints.Hold(); err != nil {
		return err
	}
	for _, a := range ability.Try(cgroups, "") {
		if err := report.WriteAbility(os.Stdout, a); err != nil {
			return err
		}
	}
	return nil
}

// runTests runs cpi/counter's own tests, which compare with the kernel.
func runTests(which string) error {
	cmd := exec.Command("/counter.test", "-test.v", "-test.short", "-test.timeout=10m", "-test.run="+which)
	cmd.Env = append(os.Environ(), "PATH=/bin", "TMPDIR=/tmp", "QUIETCORE_CI=1", "QUIETCORE_HOTPLUG=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stdout
	return cmd.Run()
}

// runCore runs the tests of the packages that it has, each where its files are.
func runCore() error {
	var failed error
	err := filepath.WalkDir("/"+report.CoreTree, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != report.CoreTest {
			return err
		}
		cmd := exec.Command(path, "-test.v", "-test.short", "-test.timeout=20m")
		cmd.Dir, cmd.Env = filepath.Dir(path), append(os.Environ(), "TMPDIR=/tmp")
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stdout
		if err := cmd.Run(); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", path, err))
		}
		return nil
	})
	return errors.Join(failed, err)
}

// checkPMU runs `make pmu-check`'s program to its end. What the emulated unit counts
// depends on no other process, so that there is no antagonist to find; what is tried is
// the program.
func checkPMU() error {
	cmd := exec.Command("/pmucheck", "-root", cgroups, "-learn", "6", "-disturb", "6", "-threads", "1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stdout
	const exitNotFound = 1
	if err := cmd.Run(); err != nil && cmd.ProcessState.ExitCode() != exitNotFound {
		return fmt.Errorf("pmucheck: %w", err)
	}
	if left, err := filepath.Glob(filepath.Join(cgroups, "quietcore-pmucheck-*")); err != nil || len(left) > 0 {
		return fmt.Errorf("pmucheck left %v, %v", left, err)
	}
	return nil
}
