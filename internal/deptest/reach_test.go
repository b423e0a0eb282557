package deptest

import (
	"slices"
	"strings"
	"testing"
)

// mayNotReach are packages that another one does without, in its own imports and in
// those of everything that it imports.
var mayNotReach = map[string][]string{
	"internal/metrics": {"internal/render", "internal/incidents", "internal/page", "internal/top", "plugin"},
	"plugin": {"internal/render", "internal/incidents", "internal/page", "internal/top", "internal/kube",
		"internal/control"},
}

func TestWhatAPackageMayNotReach(t *testing.T) {
	_, files := parseAll(t)
	imported := map[string][]string{}
	for _, f := range files {
		if f.test {
			continue
		}
		for _, i := range imports(f) {
			if in, ours := strings.CutPrefix(i, module); ours {
				imported[f.dir] = append(imported[f.dir], in)
			}
		}
	}
	for from, never := range mayNotReach {
		if len(imported[from]) == 0 {
			t.Errorf("%s imports nothing of ours: is it still there?", from)
		}
		via := map[string]string{from: from}
		for todo := []string{from}; len(todo) > 0; todo = todo[1:] {
			for _, next := range imported[todo[0]] {
				if via[next] == "" {
					via[next] = via[todo[0]] + " -> " + next
					todo = append(todo, next)
				}
			}
		}
		for dir, way := range via {
			if slices.Contains(never, dir) {
				t.Errorf("%s reaches %s: %s", from, dir, way)
			}
		}
	}
}
