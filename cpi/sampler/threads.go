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

// ThreadsIn counts the threads of cgroups, those below them included, in the
// hierarchy of the pids controller: the only one on cgroup v2. The answer is for
// Options.Threads.
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

// threads are counted when the window is over, so that it costs none of it. Only
// what may be capped is asked: before a cap too, since a cap's harm shows in the
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
