package cgroup

import (
	"fmt"
	"strings"

	"github.com/quietcore/quietcore/cpuset"
)

// PutRoom keeps CPUs in the mask of a pod for a container that owns them, whether the container
// runs or not. Meanwhile the pod's other containers have masks of their own, so that neither a
// restart nor a refused create changes the mask of any other container.
func (t *Tree) PutRoom(id, pod string, cpus cpuset.Set) error {
	p := t.byID[pod]
	if p == nil || p.level != podLevel {
		return fmt.Errorf("room %s: its pod %s is not known; put the pod first", id, pod)
	}
	if cpus.IsEmpty() {
		return fmt.Errorf("room %s: %w", id, ErrEmptySet)
	}
	path := p.path + "/\x00" + strings.ReplaceAll(id, "/", "\x00") // no cgroup has such a name
	if old := t.byID[id]; old != nil && old.path != path {
		t.Remove(id)
	}
	n := t.byPath[path]
	if n == nil {
		n = newNode(containerLevel, path, On(cpus))
		n.gone, n.room = true, true
		t.join(n, p)
		t.byPath[path] = n
		t.name(n, id)
		t.attach(n, p)
	}
	t.setNeed(n, On(cpus))
	return nil
}
