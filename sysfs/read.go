// Package sysfs reads the machine's topology from a /sys tree, live or copied, and
// watches which CPUs are online. [Read] returns a topology.Topology and [Warning]s,
// [Watch] reports changes.
//
// The only error is "no CPU at all". Anything else that is missing, malformed or
// contradictory is replaced by the simplest assumption at that level, and a Warning
// names the file and the assumption. Work is bounded: no file is read beyond 1 MiB, no
// directory beyond a fixed number of entries.
//
//	fsys, err := sysfs.Open("/sys")
//	t, warnings, err := sysfs.Read(fsys)
//
// Machine-wide numbers: nodes and sockets keep the kernel's, which may have gaps.
// Cores, L2s, L3s and dies are numbered from 0 by their lowest online CPU, since the
// kernel repeats its own numbers in each socket. An offline CPU has no place in /sys;
// topology.Remembering restores the one it had.
package sysfs

import (
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/topology"
)

const cpuDir = "devices/system/cpu"

// reader is the state of one reading.
type reader struct {
	fsys     fs.FS
	warnings []Warning

	dirs     cpuset.Set // CPUs that have a directory
	online   cpuset.Set
	present  cpuset.Set
	isolated cpuset.Set
	cpus     []topology.CPU // the online ones, ascending
	memory   map[int]uint64
	distance map[int]map[int]int
}

// Read builds the machine of a /sys tree. The root of fsys is /sys itself, or a
// directory that contains it as "sys".
func Read(fsys fs.FS) (*topology.Topology, []Warning, error) {
	root, err := sysRoot(fsys)
	if err != nil {
		return nil, nil, err
	}
	r := &reader{fsys: root}
	if err := r.readCPULists(); err != nil {
		return nil, r.warnings, err
	}
	r.readPlaces()
	r.readKinds()
	t, err := r.build()
	return t, r.warnings, err
}

// Open opens a directory for Read.
func Open(dir string) (fs.FS, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("open the /sys tree: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("open the /sys tree: %s is not a directory: give the directory that holds the tree", dir)
	}
	return os.DirFS(dir), nil
}

// sysRoot finds the directory that stands for /sys.
func sysRoot(fsys fs.FS) (fs.FS, error) {
	if isDir(fsys, cpuDir) {
		return fsys, nil
	}
	if isDir(fsys, "sys/"+cpuDir) {
		return fs.Sub(fsys, "sys")
	}
	return nil,
		fmt.Errorf(
			"read topology: neither %s nor sys/%s is a directory here: give the directory that holds the /sys tree",
			cpuDir, cpuDir)
}

func isDir(fsys fs.FS, name string) bool {
	info, err := fs.Stat(fsys, name)
	return err == nil && info.IsDir()
}

// readCPULists reads which CPUs exist, are online and are isolated.
func (r *reader) readCPULists() error {
	r.dirs = r.listCPUDirs()
	online, err := r.list(cpuDir + "/online")
	if err != nil {
		r.warn(cpuDir+"/online", err, "a CPU counts as online unless its own file online says 0")
		online = r.onlineByDirs()
	}
	if !r.dirs.IsEmpty() && !online.SubsetOf(&r.dirs) {
		missing := online.Minus(r.dirs)
		r.warnf(cpuDir+"/online", "names CPUs %s, which have no directory; they are left out", brief(missing))
		online = online.And(r.dirs)
	}
	if online.IsEmpty() && !r.dirs.IsEmpty() {
		r.warnf(cpuDir+"/online",
			"names no CPU that has a directory; a CPU counts as online unless its own file online says 0")
		online = r.onlineByDirs()
	}
	if online.IsEmpty() {
		return fmt.Errorf("read topology: %s has no online CPU: no directory cpuN, and its file online names none",
			cpuDir)
	}
	r.online = online
	if r.present, err = r.list(cpuDir + "/present"); err != nil {
		r.warn(cpuDir+"/present", err, "the CPUs with a directory count as present")
		r.present = r.dirs
	}
	if r.isolated, err = r.list(cpuDir + "/isolated"); err != nil {
		r.warn(cpuDir+"/isolated", err, "no CPU counts as isolated")
	}
	r.isolated = r.isolated.And(r.present.Or(r.online))
	return nil
}

func (r *reader) listCPUDirs() cpuset.Set {
	var s cpuset.Set
	names, err := r.names(cpuDir)
	if err != nil {
		r.warn(cpuDir, err, "the list of CPUs is taken from its files only")
	}
	for _, name := range names {
		if id, ok := numbered(name, "cpu", cpuset.MaxCPUs); ok {
			s.Add(id)
		}
	}
	return s
}

func (r *reader) onlineByDirs() cpuset.Set {
	var s cpuset.Set
	for cpu := range r.dirs.All() {
		if text, err := r.text(cpuPath(cpu, "online")); err == nil && text == "0" {
			continue
		}
		s.Add(cpu)
	}
	return s
}

// numbered parses "cpu12".
func numbered(name, prefix string, limit int) (int, bool) {
	digits, ok := strings.CutPrefix(name, prefix)
	if !ok || digits == "" || len(digits) > 6 || (digits[0] == '0' && digits != "0") {
		return 0, false
	}
	n := 0
	for _, d := range []byte(digits) {
		if d < '0' || d > '9' {
			return 0, false
		}
		n = n*10 + int(d-'0')
	}
	return n, n < limit
}

func cpuPath(cpu int, file string) string {
	return cpuDir + "/cpu" + strconv.Itoa(cpu) + "/" + file
}

// build makes the topology. A core in two places contradicts any model of a machine;
// then the files are too unreliable to guess from.
func (r *reader) build() (*topology.Topology, error) {
	o := topology.Options{Offline: r.present.Minus(r.online), Isolated: r.isolated, Memory: r.memory,
		Distances: r.distance}
	t, err := topology.New(r.cpus, o)
	if err == nil {
		return t, nil
	}
	r.warnf(cpuDir,
		"the files contradict each other (%v); the machine counts as flat: one socket, one node, one L3, one CPU a "+
			"core", err)
	flat := make([]topology.CPU, len(r.cpus))
	for i, c := range r.cpus {
		flat[i] = topology.CPU{ID: c.ID, Core: i, L2: i, Kind: c.Kind}
	}
	o.Memory, o.Distances = nil, nil
	return topology.New(flat, o)
}
