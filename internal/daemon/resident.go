package daemon

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// afterStart is when a daemon has done what it does only once, and unmapEvery how long a page may stay mapped that
// nothing needs any more: pods that come and go need code that a quiet node does not.
const (
	afterStart = time.Minute
	unmapEvery = 5 * time.Minute
)

// unmapUnneeded lets go of the program's pages after the start, and then every few minutes; the start alone needs half
// of its text and constants. They stay in the page cache, and what is needed again costs a minor fault for each 64 KiB.
func unmapUnneeded(ctx context.Context, log *slog.Logger) {
	for wait := afterStart; ; wait = unmapEvery {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		if err := unmapProgram(); err != nil {
			log.Debug("the program's pages stay mapped", "err", err)
		}
	}
}

func unmapProgram() error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return err
	}
	defer f.Close()
	list, err := pristine(f, program)
	for _, m := range list {
		if _, _, failed := unix.Syscall(unix.SYS_MADVISE, m.begin, m.end-m.begin, unix.MADV_DONTNEED); failed != 0 {
			return fmt.Errorf("madvise %x-%x: %w", m.begin, m.end, failed)
		}
	}
	return err
}

// mapping is a range of addresses.
type mapping struct{ begin, end uintptr }

// pristine lists, from /proc/PID/smaps, the read-only mappings of a file that are as the file is. A page that was
// changed, by a relocation or a debugger's breakpoint, would be lost.
func pristine(smaps io.Reader, file string) (list []mapping, err error) {
	var m mapping
	candidate := false
	lines := bufio.NewScanner(smaps)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) >= 5 && !strings.HasSuffix(fields[0], ":"):
			candidate = strings.HasSuffix(lines.Text(), " "+file) && strings.HasPrefix(fields[1], "r-") &&
				strings.HasSuffix(fields[1], "p")
			if !candidate {
				continue
			}
			if _, err := fmt.Sscanf(fields[0], "%x-%x", &m.begin, &m.end); err != nil {
				return nil, fmt.Errorf("%q: %w", lines.Text(), err)
			}
		case candidate && fields[0] == "Anonymous:":
			if len(fields) > 1 && fields[1] == "0" && m.end > m.begin {
				list = append(list, m)
			}
			candidate = false
		}
	}
	return list, lines.Err()
}
