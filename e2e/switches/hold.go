// Package switches keeps a guest's kernel from patching the text of its scheduler.
//
// The first user of the tracepoint of context switches, and the end of the last one,
// make the kernel patch an instruction in the middle of the scheduler by way of a
// breakpoint. The emulator (QEMU 7.2, several threads) sometimes executes that
// breakpoint after it is gone, and all CPUs hang in the scheduler. Real machines do
// not. [Hold] adds two permanent users, so that nothing is patched when the daemon
// attaches and detaches, twice a window.
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
