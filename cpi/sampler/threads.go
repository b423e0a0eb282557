package sampler

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/quietcore/quietcore/cpi/sample"
)

// ThreadsIn returns a function for Options.Threads that counts a cgroup's threads,
// including those of cgroups below it. hierarchy is that of the pids controller; on
// cgroup v2 there is only one.
func ThreadsIn(hierarchy string) func(cgroup string) (int32, error) {
	return func(cgroup string) (int32, error) {
		name := filepath.Join(hierarchy, cgroup, "pids.current")
		f, err := os.Open(name)
		if err != nil {
			return 0, err
		}
		defer f.Close()
		text, err := io.ReadAll(io.LimitReader(f, 32))
		if err != nil {
			return 0, err
		}
		n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		return int32(min(n, math.MaxInt32)), nil
	}
}

// threads counts threads after the window, so that it does not disturb it. It counts
// for every container that may be capped, capped or not: a cap's harm shows in the
// difference.
func (s *Sampler) threads(w *Window) {
	if s.o.Threads == nil {
		return
	}
	for i := range w.Containers {
		o := &w.Containers[i]
		if may, _ := o.MayBeCapped(); !may || o.Cgroup == "" || o.Dropped != sample.None {
			continue
		}
		if n, err := s.o.Threads(o.Cgroup); err == nil {
			o.Threads = n
		}
	}
}
