package node

import (
	"errors"
	"fmt"

	"github.com/quietcore/quietcore/internal/cgroup"
)

// A runtime that loses the connection goes on without the replies that it waits for: it creates those containers
// without the masks in them, perhaps only in a moment, and tells nobody before the next Synchronize. Such a container
// is unanswered. Its mask is not known, and stays so where its cgroup is not found: nothing above it is widened onto
// CPUs that it must not have.

// loseReplies makes the containers unanswered whose masks are known from replies alone.
func (w *writer) loseReplies() {
	if w.reader == nil {
		return
	}
	for id := range w.unproven {
		if s := w.ctrs[id]; s != nil && s.path != "" {
			w.unanswered[cleanOf(s.path)] = true
			w.tree.Unread(s.path)
		}
	}
}

// listed ends that: the runtime has listed the containers that exist.
func (w *writer) listed() {
	clear(w.unanswered)
	clear(w.unproven)
}

// losesReplies reports whether the connection was lost and the tree does not know of it yet.
func (w *writer) losesReplies() bool {
	for i := range w.inbox.batches {
		if w.inbox.batches[i].lost {
			return true
		}
	}
	return false
}

// answered is a reader to which no unanswered container is gone.
type answered struct {
	cgroup.Reader
	unanswered map[string]bool
}

func (r answered) CPUs(path string) (cgroup.Effective, error) {
	e, err := r.Reader.CPUs(path)
	if errors.Is(err, cgroup.ErrGone) && r.unanswered[cleanOf(path)] {
		err = fmt.Errorf("cgroup %s may be created at any time, without a reply", path)
	}
	return e, err
}
