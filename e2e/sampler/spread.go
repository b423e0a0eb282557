package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/quietcore/quietcore/cpuset"
)

// Pinned says where spread put a thread.
type Pinned struct {
	TID int `json:"tid"`
	CPU int `json:"cpu"`
}

// spread pins every busy thread onto a CPU of its own as far as there are any,
// the lowest first: those that the next owner gets. A thread that pins itself
// there is the worst neighbour that a container can have.
func spread(root string) ([]Pinned, error) {
	w := &window{root: root, threads: map[int]*thread{}}
	if err := w.refresh(); err != nil {
		return nil, err
	}
	var out []Pinned
	for i, tid := range slices.Sorted(maps.Keys(w.threads)) {
		allowed, err := allowedCPUs(root, tid)
		if err == nil && !allowed.IsEmpty() {
			cpus := slices.Collect(allowed.All())
			cpu := cpus[i%len(cpus)]
			var set unix.CPUSet
			set.Set(cpu)
			if err = unix.SchedSetaffinity(tid, &set); err == nil {
				out = append(out, Pinned{TID: tid, CPU: cpu})
			}
		}
		if err != nil && !vanished(err) && !errors.Is(err, unix.EINVAL) { // its pool shrank meanwhile
			return out, fmt.Errorf("thread %d: %w", tid, err)
		}
	}
	return out, nil
}

func allowedCPUs(root string, tid int) (cpuset.Set, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", tid))
	if err != nil {
		return cpuset.Set{}, err
	}
	_, path, _ := strings.Cut(strings.TrimSpace(string(text)), "::")
	return readCPUs(filepath.Join(root, path))
}
