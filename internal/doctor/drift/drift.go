// Package drift compares what the daemon wants ([Want]) with what the kernel has
// ([Have]).
//
// [Find] locates the containers' cgroups by their IDs and reads them itself rather than
// ask the daemon, so that it also detects a daemon that is wrong about a cgroup.
//
//	missing, err := drift.Differences(want, have)
package drift

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/doctor"
)

// Want is what the daemon wants of a container. Nil and empty fields are not compared.
type Want struct {
	Container  string // NAMESPACE/POD/CONTAINER
	ID         string
	CPUs, Mems string
	QuotaMilli *int64 // -1: none
	Why        string
}

// Have is what the kernel has.
type Have struct {
	Path       string
	CPUs, Mems cpuset.Set
	QuotaMilli int64
}

// Difference is one value that is not as intended.
type Difference struct {
	Container string `json:"container"`
	ID        string `json:"id"`
	What      string `json:"what"` // cpus, mems, quota, or cgroup where there is none
	Wanted    string `json:"wanted"`
	Kernel    string `json:"kernel"`
	Cgroup    string `json:"cgroup,omitempty"`
	Why       string `json:"why,omitempty"` // why it is wanted
}

func (d *Difference) key() string { return d.ID + " " + d.What + " " + d.Wanted }

// Differences lists what is not as intended, by container.
func Differences(want []Want, have map[string]Have) ([]Difference, error) {
	list := []Difference{}
	for i := range want {
		w := &want[i]
		h, there := have[w.ID]
		add := func(what, wanted, kernel string) {
			list = append(list, Difference{Container: w.Container, ID: w.ID, What: what, Wanted: wanted,
				Kernel: kernel, Cgroup: h.Path, Why: w.Why})
		}
		if !there {
			add("cgroup", "one", "none")
			continue
		}
		for _, set := range []struct {
			what, wanted string
			has          cpuset.Set
		}{{"cpus", w.CPUs, h.CPUs}, {"mems", w.Mems, h.Mems}} {
			if set.wanted == "" {
				continue
			}
			wanted, err := cpuset.Parse(set.wanted)
			if err != nil {
				return nil, fmt.Errorf("what the daemon wants of %s: %w", w.Container, err)
			}
			if wanted != set.has {
				add(set.what, wanted.String(), set.has.String())
			}
		}
		if q := w.QuotaMilli; q != nil && *q != h.QuotaMilli {
			add("quota", quota(*q), quota(h.QuotaMilli))
		}
	}
	slices.SortStableFunc(list, func(a, b Difference) int { return cmp.Compare(a.Container, b.Container) })
	return list, nil
}

func quota(milli int64) string {
	if milli < 0 {
		return "none"
	}
	return fmt.Sprintf("%dm", milli)
}

// Both returns what is in both lists: a change in progress is in one only.
func Both(before, after []Difference) []Difference {
	seen := map[string]bool{}
	for i := range before {
		seen[before[i].key()] = true
	}
	return slices.DeleteFunc(after, func(d Difference) bool { return !seen[d.key()] })
}

// Bounds of the search: a workload may make cgroups below its own.
const (
	maxDepth   = 12
	maxCgroups = 200_000
)

// Find reads the cgroups of containers with these IDs. Those that are not found have
// none, or vanished meanwhile.
func Find(root string, ids map[string]bool) (map[string]Have, error) {
	tree, err := cgroup.Open(root)
	if err != nil {
		return nil, err
	}
	defer tree.Close()
	top := root
	if tree.V1() {
		top = filepath.Join(root, "cpuset")
	}
	entries, err := os.ReadDir(top)
	if err != nil {
		return nil, err
	}
	s := search{tree: tree, ids: ids, found: map[string]Have{}}
	for _, e := range entries {
		if e.IsDir() {
			if err := s.look(e.Name(), 1); err != nil {
				return nil, err
			}
		}
	}
	return s.found, nil
}

type search struct {
	tree  *cgroup.FS
	ids   map[string]bool
	found map[string]Have
	seen  int
}

func (s *search) look(name string, depth int) error {
	if s.seen++; s.seen > maxCgroups || depth > maxDepth || len(s.found) == len(s.ids) {
		return nil
	}
	if id := doctor.ContainerID(path.Base(name)); s.ids[id] {
		e, err := s.tree.Effective(name)
		if err != nil {
			return gone(err)
		}
		s.found[id] = Have{Path: name, CPUs: e.CPUs, Mems: e.Mems, QuotaMilli: e.QuotaMilli}
		return nil
	}
	names, err := s.tree.Children(name)
	if err != nil {
		return gone(err)
	}
	for _, child := range names {
		if err := s.look(name+"/"+child, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func gone(err error) error {
	if errors.Is(err, cgroup.ErrGone) {
		return nil
	}
	return err
}
