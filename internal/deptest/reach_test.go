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

func checkReach(files []*file) []finding {
	imported := arrows(files)
	var list []finding
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
