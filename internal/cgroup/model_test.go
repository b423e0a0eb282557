package cgroup_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	oracle "k8s.io/utils/cpuset"
)

// model is the kernel's rules for cpusets once more, in another form than both
// the planner and cgrouptest.Kernel have them: it keeps the text of every file
// and works out from the root down what each cgroup's tasks may use
// (Documentation/admin-guide/cgroup-v2.rst, cpuset.cpus and
// cpuset.cpus.effective).
type model struct {
	online oracle.CPUSet
	files  map[string]string // cpuset.cpus of each cgroup that exists
	tasks  map[string]bool
}

func newModel(online string) *model {
	return &model{online: parsed(online), files: map[string]string{}, tasks: map[string]bool{}}
}

func parsed(list string) oracle.CPUSet {
	set, err := oracle.Parse(list)
	if err != nil {
		panic(err)
	}
	return set
}

// mkdir creates a cgroup; on v1 it starts with its parent's set.
func (m *model) mkdir(path string, tasks, v1 bool) {
	names := strings.Split(path, "/")
	for i := range names {
		at := strings.Join(names[:i+1], "/")
		if _, there := m.files[at]; there {
			continue
		}
		m.files[at] = ""
		if v1 {
			m.files[at] = m.online.String()
			if i > 0 {
				m.files[at] = m.files[strings.Join(names[:i], "/")]
			}
		}
	}
	if tasks {
		m.tasks[path] = true
	}
}

func (m *model) rmdir(path string) {
	below := func(p string) bool { return p == path || strings.HasPrefix(p, path+"/") }
	maps.DeleteFunc(m.files, func(p, _ string) bool { return below(p) })
	maps.DeleteFunc(m.tasks, func(p string, _ bool) bool { return below(p) })
}

// write takes a line of the fake kernel's log: "path file=text".
func (m *model) write(line string) {
	path, rest, _ := strings.Cut(line, " ")
	if file, text, _ := strings.Cut(rest, "="); file == "cpuset.cpus" {
		m.files[path] = text
	}
}

// effective starts with the CPUs online and narrows them by each file on the
// way, except by those that would leave nothing.
func (m *model) effective(path string) oracle.CPUSet {
	cpus := m.online
	names := strings.Split(path, "/")
	for i := range names {
		own := parsed(m.files[strings.Join(names[:i+1], "/")])
		if narrowed := cpus.Intersection(own); narrowed.Size() > 0 {
			cpus = narrowed
		}
	}
	return cpus
}

// where returns the effective set of every cgroup that has tasks.
func (m *model) where() map[string]oracle.CPUSet {
	all := map[string]oracle.CPUSet{}
	for path := range m.tasks {
		all[path] = m.effective(path)
	}
	return all
}

// tree lists the files, for a message.
func (m *model) tree() string {
	var b strings.Builder
	for _, path := range slices.Sorted(maps.Keys(m.files)) {
		fmt.Fprintf(&b, "\n\t%s [%s] -> %s", path, m.files[path], m.effective(path))
	}
	return b.String()
}
