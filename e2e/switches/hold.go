// Package switches keeps the kernel of a guest from rewriting its scheduler's text.
//
// Whoever is the first or the last on the tracepoint of context switches has the
// kernel change an instruction in the middle of the scheduler, by way of a breakpoint.
// The emulator (QEMU 7.2, several threads) now and then goes on executing that
// breakpoint after it is gone, and all CPUs are caught in the scheduler for good.
// Machines know no such thing. With two others who stay, nothing is rewritten when the
// daemon comes and goes there, twice a window.
package switches

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const tracing = "/sys/kernel/tracing"

// Hold puts the event and the recorder of command names on the tracepoint, and has
// them record nothing.
func Hold() error {
	if _, err := os.Stat(filepath.Join(tracing, "events")); errors.Is(err, fs.ErrNotExist) {
		if err := unix.Mount("tracefs", tracing, "tracefs", 0, ""); err != nil {
			return &fs.PathError{Op: "mount tracefs on", Path: tracing, Err: err}
		}
	}
	for _, w := range [][2]string{{"tracing_on", "0"}, {"options/record-cmd", "1"},
		{"events/sched/sched_switch/enable", "1"}} {
		if err := os.WriteFile(filepath.Join(tracing, w[0]), []byte(w[1]), 0); err != nil {
			return err
		}
	}
	return nil
}
