package cgroup

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
)

// Confirmed is r, but believes that a cgroup is gone only where the one above it
// can be listed and lacks it: a reader that has lost sight, say of a root that was
// mounted elsewhere, answers "gone" for everything, and owners' CPUs would be given
// away. What cannot be confirmed is an error of another kind.
func Confirmed(r Reader) Reader { return confirmed{r} }

type confirmed struct{ Reader }

func (c confirmed) CPUs(path string) (Effective, error) {
	e, err := c.Reader.CPUs(path)
	return e, c.confirm(path, err)
}

func (c confirmed) Effective(path string) (Effective, error) {
	e, err := c.Reader.Effective(path)
	return e, c.confirm(path, err)
}

// confirm turns an answer "gone" into another error where it is not to be believed:
// of those above it the lowest that can be listed has to lack the one below.
func (c confirmed) confirm(at string, err error) error {
	clean, bad := CleanPath(at)
	if !errors.Is(err, ErrGone) || bad != nil {
		return err
	}
	for below := clean; ; {
		above := cmp.Or(Parent(below), rootPath)
		names, listErr := c.Reader.Children(above)
		switch {
		case listErr == nil && slices.Contains(names, path.Base(below)):
			return fmt.Errorf("cgroup %s cannot be read although %s lists %s", clean, above, path.Base(below))
		case listErr == nil:
			return err
		case above == rootPath || !errors.Is(listErr, ErrGone):
			return fmt.Errorf("cgroup %s is perhaps gone, but %s cannot be listed: %v", clean, above, listErr)
		}
		below = above
	}
}
