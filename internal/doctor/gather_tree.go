package doctor

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/state"
)

func (g *gatherer) cgroup() {
	c, root := &g.f.Cgroup, g.f.Config.Config.Cgroup.Root
	tree := root
	switch {
	case g.there(filepath.Join(root, "cgroup.controllers")):
		c.Version = 2
		c.Controllers = strings.Fields(g.read(filepath.Join(root, "cgroup.controllers")))
	case g.there(filepath.Join(root, "cpuset", "cpuset.cpus")):
		c.Version, c.Controllers = 1, []string{"cpuset"}
		c.Hybrid = g.there(filepath.Join(root, "unified", "cgroup.controllers"))
		if g.there(filepath.Join(root, "cpu")) || g.there(filepath.Join(root, "cpu,cpuacct")) {
			c.Controllers = append(c.Controllers, "cpu")
		}
		tree = filepath.Join(root, "cpuset")
	default:
		return
	}
	c.ReadOnly = readOnly(g.at(tree))
	c.Systemd, c.Plain = g.there(filepath.Join(tree, "kubepods.slice")), g.there(filepath.Join(tree, "kubepods"))
	c.Limited = map[string]cpuset.Set{}
	for _, name := range []string{"kubepods.slice", "kubepods"} {
		if own, err := cpuset.Parse(g.read(filepath.Join(tree, name, "cpuset.cpus"))); err == nil && !own.IsEmpty() &&
			!c.Online.SubsetOf(&own) {
			c.Limited[name] = own
		}
		c.Containers += g.containers(filepath.Join(tree, name))
	}
}

// maxCgroups bounds the walk, since a workload may create cgroups.
const maxCgroups = 100_000

// containers counts the cgroups that have a container's name.
func (g *gatherer) containers(tree string) int {
	n, seen := 0, 0
	_ = filepath.WalkDir(g.at(tree), func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil // it vanished
		}
		if seen++; seen > maxCgroups {
			return fs.SkipAll
		}
		if ContainerID(d.Name()) != "" {
			n++
			return fs.SkipDir
		}
		return nil
	})
	return n
}

// ContainerID is the container of a cgroup of this name, "" for none:
// "cri-containerd-ID.scope", "crio-ID.scope" or "ID". CRI-O's monitor has a cgroup with
// the container's ID too.
func ContainerID(name string) string {
	const length = 64
	name = strings.TrimSuffix(name, ".scope")
	if strings.HasPrefix(name, "crio-conmon-") {
		return ""
	}
	if at := strings.LastIndexByte(name, '-'); at >= 0 {
		name = name[at+1:]
	}
	if len(name) != length || strings.Trim(name, "0123456789abcdef") != "" {
		return ""
	}
	return name
}

func readOnly(path string) bool {
	var s unix.Statfs_t
	return unix.Statfs(path, &s) == nil && s.Flags&unix.ST_RDONLY != 0
}

const stateFile = "state.json"

func (g *gatherer) state() {
	s := &g.f.State
	s.Dir = g.f.Config.Config.State.Dir
	dir := g.at(s.Dir)
	info, err := os.Stat(dir)
	if err != nil {
		if !missing(err) {
			s.Err = err.Error()
		}
		return
	}
	if perm := info.Mode().Perm(); perm&0o077 != 0 {
		s.Open = perm.String()
	}
	var free unix.Statfs_t
	if unix.Statfs(dir, &free) == nil {
		s.Known, s.ReadOnly, s.Free = true, free.Flags&unix.ST_RDONLY != 0, free.Bavail*uint64(free.Bsize)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		s.Err = err.Error()
		return
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), stateFile+".corrupt-") {
			s.Aside = append(s.Aside, e.Name())
		}
	}
	slices.Sort(s.Aside)
	g.stateFile(dir)
	g.lock(dir)
}

// stateFile has the store read a copy, since it renames a bad file.
func (g *gatherer) stateFile(dir string) {
	s := &g.f.State
	name := filepath.Join(dir, stateFile)
	info, err := os.Lstat(name)
	if err != nil {
		return
	}
	s.There, s.SavedAt = true, info.ModTime()
	if !info.Mode().IsRegular() {
		s.Bad = "is " + info.Mode().Type().String() + ", not a file"
		return
	}
	copied, err := copyAside(name, filepath.Dir(g.f.Config.Config.Socket))
	if err != nil {
		s.Err = "the state file is not examined: " + err.Error()
		return
	}
	defer os.RemoveAll(copied)
	store := state.Store{Dir: copied, Node: g.f.Config.Node, BootID: g.read("/proc/sys/kernel/random/boot_id"),
		Now: g.now}
	found := store.Load()
	s.Rebooted = found.Rebooted
	if found.Reason != "" && !found.Rebooted {
		s.Bad = found.Reason
	}
	for _, c := range found.Snapshot.Caps {
		if !c.Until.After(g.f.Now) {
			s.Overdue++
		}
	}
}

// copyAside copies a file into a new directory; in a pod the only writable place may be
// that of the daemon's socket.
func copyAside(name, otherwise string) (string, error) {
	const most = 17 << 20 // more than a state file may have
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	dir, err := os.MkdirTemp("", "quietcore-doctor-")
	if err != nil {
		if dir, err = os.MkdirTemp(otherwise, "doctor-"); err != nil {
			return "", err
		}
	}
	text, err := io.ReadAll(io.LimitReader(f, most))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, filepath.Base(name)), text, 0o600)
	}
	if err != nil {
		os.RemoveAll(dir)
		return "", err
	}
	return dir, nil
}
