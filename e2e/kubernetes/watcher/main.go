// Command watcher runs in a guest and takes down when a cpuset there changes, which
// the host's look at a guest is too slow for.
//
//	watcher DIR...   the effective CPUs of these cgroups, until SIGTERM
//
// Every change is a line of JSON on standard output: when, in nanoseconds since 1970,
// which of the arguments, and the CPUs from then on. The first lines are what was found.
//
// Invariant: it reads and never writes. A line's moment is one at which the CPUs were
// read so, so the change itself was before it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Change is a line.
type Change struct {
	At   int64  `json:"at"`
	Dir  int    `json:"dir"`
	CPUs string `json:"cpus"` // empty: the cgroup is gone
}

// pause keeps the watcher from being a load itself.
const pause = time.Millisecond

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := watch(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "watcher:", err)
		os.Exit(1)
	}
}

func watch(ctx context.Context, dirs []string, out io.Writer) error {
	if len(dirs) == 0 {
		return errors.New("say which cgroups")
	}
	enc := json.NewEncoder(out)
	last := make([]string, len(dirs))
	for i := range last {
		last[i] = "nothing read yet"
	}
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		for i, dir := range dirs {
			text, err := os.ReadFile(filepath.Join(dir, "cpuset.cpus.effective"))
			if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENODEV) {
				return err
			}
			if now := strings.TrimSpace(string(text)); now != last[i] {
				last[i] = now
				if err := enc.Encode(Change{At: time.Now().UnixNano(), Dir: i, CPUs: now}); err != nil {
					return err
				}
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
