package cgroup

import (
	"errors"
	"fmt"
	"path"
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

// confirm turns an answer "gone" into another error where it is not to be believed.
// A pod's end takes its containers along; a missing slice ends none of the pods in it.
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
	return fmt.Errorf("cgroup %s is perhaps gone: %v", at, listErr)
}
