package cgroup

import (
	"errors"
	"fmt"
	"path"
)

// Confirmed wraps r so that a cgroup counts as gone only if its parent can be listed and does not
// contain it. A reader that has lost access, for example because the root was mounted elsewhere,
// reports every cgroup as gone, and owners' CPUs would be given away. If it cannot be confirmed,
// the error is not ErrGone.
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

// confirm replaces ErrGone by another error if it cannot be confirmed. The end of a pod removes its
// containers' cgroups, too; a missing slice does not mean that the pods in it have ended.
func (c confirmed) confirm(at string, err error) error {
	if !errors.Is(err, ErrGone) {
		return err
	}
	gone, listErr := Gone(c.Reader, at)
	for below := at; errors.Is(listErr, ErrGone); {
		below = Parent(below)
		if _, isPod := PodUID(path.Base(below)); !isPod {
			break
		}
		gone, listErr = Gone(c.Reader, below)
	}
	switch {
	case gone:
		return err
	case listErr == nil:
		return fmt.Errorf("cgroup %s cannot be read although it is listed", at)
	}
	return fmt.Errorf("cgroup %s may be gone, which cannot be confirmed: %v", at, listErr)
}
