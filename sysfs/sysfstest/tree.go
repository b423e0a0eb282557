// Package sysfstest writes /sys trees for tests, the way a kernel of today
// shows a machine: offline CPUs have a directory without topology or caches.
//
//	t, _, err := sysfs.Read(sysfstest.Tree(machine)) // the same machine again
package sysfstest

import (
	"fmt"
	"strconv"
	"strings"
	"testing/fstest"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/topology"
)

// Tree is the /sys of a machine; its root stands for /sys.
func Tree(t *topology.Topology) fstest.MapFS {
	w := &writer{t: t, files: fstest.MapFS{}, online: t.Online()}
	w.lists()
	present := w.present()
	for cpu := range present.All() {
		w.cpu(cpu)
	}
	w.nodes()
	w.kinds()
	return w.files
}

type writer struct {
	t      *topology.Topology
	files  fstest.MapFS
	online cpuset.Set
}

func (w *writer) put(name string, value any) {
	w.files[name] = &fstest.MapFile{Data: fmt.Appendf(nil, "%v\n", value), Mode: 0o444}
}

// both writes a set in the kernel's two formats, name as a mask.
func (w *writer) both(name string, s cpuset.Set) {
	w.put(name, mask(s))
	w.put(name+"_list", s)
}

// mask writes groups of 32 bits in hexadecimal, the highest first.
func mask(s cpuset.Set) string {
	top := cpuset.Words - 1
	for top > 0 && s.Word(top) == 0 {
		top--
	}
	var groups []string
	for i := top; i >= 0; i-- {
		word := s.Word(i)
		groups = append(groups, fmt.Sprintf("%08x,%08x", word>>32, uint32(word)))
	}
	return strings.Join(groups, ",")
}

func (w *writer) present() cpuset.Set { return w.online.Or(w.t.Offline()) }

func (w *writer) lists() {
	const dir = "devices/system/cpu/"
	present := w.present()
	w.put(dir+"online", w.online)
	w.put(dir+"offline", w.t.Offline())
	w.put(dir+"present", present)
	w.put(dir+"possible", present)
	w.put(dir+"isolated", w.t.Isolated())
}

func (w *writer) cpu(id int) {
	dir := "devices/system/cpu/cpu" + strconv.Itoa(id) + "/"
	if !w.online.Has(id) {
		w.put(dir+"online", 0)
		return
	}
	if id != 0 {
		w.put(dir+"online", 1)
	}
	c, _ := w.t.CPU(id)
	top := dir + "topology/"
	w.put(top+"physical_package_id", c.Socket)
	w.put(top+"die_id", c.Die)
	w.put(top+"cluster_id", c.L2)
	w.put(top+"core_id", c.Core)
	core := w.same(func(o topology.CPU) bool { return o.Core == c.Core })
	socket := w.same(func(o topology.CPU) bool { return o.Socket == c.Socket })
	w.both(top+"core_cpus", core)
	w.both(top+"thread_siblings", core)
	w.both(top+"package_cpus", socket)
	w.both(top+"core_siblings", socket)
	w.both(top+"die_cpus", w.same(func(o topology.CPU) bool { return o.Die == c.Die && o.Socket == c.Socket }))
	l2 := w.same(func(o topology.CPU) bool { return o.L2 == c.L2 })
	w.both(top+"cluster_cpus", l2)
	w.cache(dir, 0, 1, "Data", core)
	w.cache(dir, 1, 1, "Instruction", core)
	w.cache(dir, 2, 2, "Unified", l2)
	w.cache(dir, 3, 3, "Unified", w.same(func(o topology.CPU) bool { return o.L3 == c.L3 }))
}

// same lists the online CPUs that share something.
func (w *writer) same(shares func(topology.CPU) bool) (s cpuset.Set) {
	for _, o := range w.t.CPUs() {
		if w.online.Has(o.ID) && shares(o) {
			s.Add(o.ID)
		}
	}
	return s
}

func (w *writer) cache(dir string, index, level int, kind string, shared cpuset.Set) {
	at := dir + "cache/index" + strconv.Itoa(index) + "/"
	w.put(at+"level", level)
	w.put(at+"type", kind)
	w.put(at+"shared_cpu_map", mask(shared))
	w.put(at+"shared_cpu_list", shared)
}

func (w *writer) nodes() {
	const dir = "devices/system/node/"
	nodes := w.t.Nodes()
	var ids cpuset.Set
	for i, n := range nodes {
		ids.Add(n.ID)
		at := dir + "node" + strconv.Itoa(n.ID) + "/"
		row := make([]string, len(nodes))
		for j := range nodes {
			row[j] = strconv.Itoa(w.t.Distance(i, j))
		}
		w.put(at+"distance", strings.Join(row, " "))
		w.put(at+"cpumap", mask(n.CPUs.And(w.online)))
		w.put(at+"cpulist", n.CPUs.And(w.online))
		w.put(at+"meminfo", fmt.Sprintf("Node %d MemTotal:       %d kB\nNode %d MemFree:        0 kB", n.ID,
			n.MemoryBytes>>10, n.ID))
	}
	w.put(dir+"online", ids)
	w.put(dir+"possible", ids)
}

// kinds writes the PMUs by which an Intel hybrid machine distinguishes its cores.
func (w *writer) kinds() {
	efficient := w.same(func(o topology.CPU) bool { return o.Kind == topology.Efficiency })
	if efficient.IsEmpty() {
		return
	}
	w.put("devices/cpu_core/cpus", w.online.Minus(efficient))
	w.put("devices/cpu_atom/cpus", efficient)
}
