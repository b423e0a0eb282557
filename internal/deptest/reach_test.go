package deptest

import (
	"maps"
	"slices"
)

// mayNotReach are packages that another one does without, in its own imports and in
// those of everything that it imports.
var mayNotReach = map[string][]string{
	"internal/metrics": {"internal/render", "internal/incidents", "internal/page", "internal/top", "plugin"},
	"plugin": {"internal/render", "internal/incidents", "internal/page", "internal/top", "internal/kube",
		"internal/control"},
}

// narrow are modules with powers that nobody takes but through one package.
var narrow = map[string]string{
	"github.com/godbus/dbus/v5":        "internal/systemd", // whoever holds systemd's socket can start units as root
	"github.com/coreos/go-systemd/v22": "",
}

func checkReach(files []*file) []finding {
	imported := arrows(files)
	list := checkNarrow(files)
	for _, from := range slices.Sorted(maps.Keys(mayNotReach)) {
		via := map[string]string{from: from}
		for todo := []string{from}; len(todo) > 0; todo = todo[1:] {
			for _, next := range imported[todo[0]] {
				if via[next] == "" {
					via[next] = via[todo[0]] + " -> " + next
					todo = append(todo, next)
				}
			}
		}
		for _, dir := range mayNotReach[from] {
			if way := via[dir]; way != "" {
				list = append(list, found(from, "%s reaches %s: %s", from, dir, way))
			}
		}
	}
	return list
}

// checkNarrow leaves out what is no part of the daemon, and the model of systemd that tests have.
func checkNarrow(files []*file) []finding {
	var list []finding
	for _, f := range code(files) {
		if below(f.dir, "e2e") || below(f.dir, "hack") || f.dir == "internal/cgroup/cgrouptest" {
			continue
		}
		for _, i := range f.imports() {
			for module, through := range narrow {
				if below(i, module) && f.dir != through {
					list = append(list, found(f.path, "%s imports %s: ask systemd through internal/systemd", f.path, i))
				}
			}
		}
	}
	return list
}
