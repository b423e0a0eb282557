// Package tracepoints keeps a guest's kernel from patching the text of its scheduler and timers.
//
// The first user of a tracepoint, and the end of the last one, make the kernel patch an
// instruction in the middle of the code that passes it, by way of a breakpoint. The
// emulator (QEMU before 8.2, a thread for each CPU) may execute that breakpoint after it
// is gone, for ever: where both CPUs are busy, a guest hangs within 50 times. Real machines
// do not. [Hold] adds two permanent users of each tracepoint that the daemon's counting is
// attached to, so that nothing is patched when it attaches and detaches: 3,000 times left
// the same guest alone.
package tracepoints

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const tracing = "/sys/kernel/tracing"

// Hold has the events of two trace instances use the tracepoints, and record nothing.
func Hold() error {
	if _, err := os.Stat(filepath.Join(tracing, "events")); errors.Is(err, fs.ErrNotExist) {
		if err := unix.Mount("tracefs", tracing, "tracefs", 0, ""); err != nil {
			return &fs.PathError{Op: "mount tracefs on", Path: tracing, Err: err}
		}
	}
	second := filepath.Join(tracing, "instances", "second")
	if err := os.Mkdir(second, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	for _, instance := range []string{tracing, second} {
		for _, w := range [][2]string{{"tracing_on", "0"}, {"events/sched/sched_switch/enable", "1"},
			{"events/timer/hrtimer_expire_entry/enable", "1"}} {
			if err := os.WriteFile(filepath.Join(instance, w[0]), []byte(w[1]), 0); err != nil {
				return err
			}
		}
	}
	return nil
}
