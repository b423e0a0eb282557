package cgroup

import "fmt"

// Disagreement is a cgroup for which the one set that it certainly has is not the one that
// is listed for it; empty: there is none.
func (t *Tree) Disagreement() string {
	for path, n := range t.byPath {
		only := t.certainlyHas(n)
		if only == nil {
			continue
		}
		if listed := t.mayHave(n); len(listed) != 1 || listed[0] != *only {
			return fmt.Sprintf("cgroup %s certainly has %s, listed is %v", path, only, listed)
		}
	}
	return ""
}
