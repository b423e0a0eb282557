package cgroup_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

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

// The model shows what was measured in a guest (kernel 6.1): a container with
// CPUs 0-1 in a slice masked to 4-15 runs on 4-15, one with 2-5 on 4-5; an
// offline CPU gives way to the parent's set; what is inside follows.
func TestModelIsAsMeasured(t *testing.T) {
	m := newModel("0-15")
	m.mkdir("slice/a/nested", true, false)
	m.mkdir("slice/b", true, false)
	m.mkdir("slice/c", true, false)
	for _, line := range []string{"slice cpuset.cpus=4-15", "slice/a cpuset.cpus=0-1",
		"slice/a/nested cpuset.cpus=0,15", "slice/b cpuset.cpus=2-5", "slice/c cpuset.cpus=7",
		"slice/c cpuset.mems=0"} {
		m.write(line)
	}
	for _, step := range []struct{ online, a, nested, b, c string }{
		{"0-15", "4-15", "15", "4-5", "7"},
		{"0-6,8-15", "4-6,8-15", "15", "4-5", "4-6,8-15"},
		{"0-14", "4-14", "4-14", "4-5", "7"},
		{"0-3", "0-1", "0", "2-3", "0-3"},
	} {
		m.online = parsed(step.online)
		for path, want := range map[string]string{"slice/a": step.a, "slice/a/nested": step.nested, "slice/b": step.b,
			"slice/c": step.c} {
			if got := m.effective(path).String(); got != want {
				t.Errorf("online %s: %s on %s, want %s", step.online, path, got, want)
			}
		}
	}
}
