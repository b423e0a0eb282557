package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/e2e/sampler/sweep"
)

// watchPause keeps the watcher from being a load itself.
const watchPause = time.Millisecond

// watch writes a line whenever the effective CPUs of one of the cgroups change, and
// first what it finds. A line's moment is one at which the CPUs were read so, so the
// change itself was before it.
func watch(ctx context.Context, dirs []string, out io.Writer) error {
	if len(dirs) == 0 {
		return errors.New("say which cgroups")
	}
	enc := json.NewEncoder(out)
	last := make([]string, len(dirs))
	for i := range last {
		last[i] = "nothing read yet"
	}
	tick := time.NewTicker(watchPause)
	defer tick.Stop()
	for {
		for i, dir := range dirs {
			text, err := os.ReadFile(filepath.Join(dir, "cpuset.cpus.effective"))
			if err != nil && !vanished(err) {
				return err
			}
			if now := strings.TrimSpace(string(text)); now != last[i] {
				last[i] = now
				cpus, err := cpuset.Parse(now)
				if err != nil {
					return err
				}
				if err := enc.Encode(sweep.Change{At: time.Now().UnixNano(), Dir: i, CPUs: cpus}); err != nil {
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
