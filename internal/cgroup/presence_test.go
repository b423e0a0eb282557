package cgroup_test

import (
	"errors"
	"testing"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/cgroup/cgrouptest"
)

// blind is a reader that has lost sight of everything below these paths.
type blind struct {
	cgroup.Reader
	reads, lists bool // reading, listing finds nothing
}

func (b blind) CPUs(path string) (cgroup.Effective, error) {
	if b.reads {
		return cgroup.Effective{}, cgroup.ErrGone
	}
	return b.Reader.CPUs(path)
}

func (b blind) Children(path string) ([]string, error) {
	if b.lists {
		return nil, cgroup.ErrGone
	}
	return b.Reader.Children(path)
}

func TestGoneIsBelievedOnlyWhereTheListingAgrees(t *testing.T) {
	k := cgrouptest.New(cpuset.Range(0, 3))
	k.Mkdir("kubepods/burstable/pod1/c", 1)
	k.Mkdir("kubepods/burstable/pod2", 0)
	for _, c := range []struct {
		path         string
		reads, lists bool
		gone, known  bool
	}{
		{path: "kubepods/burstable/pod1/c", known: true},
		{path: "kubepods/burstable/pod2/c", gone: true, known: true},
		{path: "kubepods/burstable/pod3", gone: true, known: true},
		{path: "kubepods/burstable/pod3/c", gone: true, known: true}, // with its pod
		{path: "kubepods/burstable/pod1/c", reads: true},             // it is listed
		{path: "kubepods/burstable/pod1/c", reads: true, lists: true},
		{path: "kubepods/burstable/pod3/c", reads: true, lists: true},
		{path: "kubepods.slice/kubepods-pod1.slice"}, // the root is another than thought
		{path: "kubepods.slice/kubepods-pod1.slice/c"},
	} {
		r := cgroup.Confirmed(blind{k, c.reads, c.lists})
		_, err := r.CPUs(c.path)
		if gone := errors.Is(err, cgroup.ErrGone); gone != c.gone || (err == nil || gone) != c.known {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
