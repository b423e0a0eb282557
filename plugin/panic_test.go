package plugin

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/state"
)

// defective panics at the first write, the first read and the first save.
type defective struct {
	cgroup.Driver
	cgroup.Reader
	Store
	wrote, read, saved atomic.Bool
}

func once(done *atomic.Bool) {
	if done.CompareAndSwap(false, true) {
		panic("a defect")
	}
}

func (d *defective) Apply(ctx context.Context, path string, v cgroup.Values) error {
	once(&d.wrote)
	return d.Driver.Apply(ctx, path, v)
}

func (d *defective) CPUs(path string) (cgroup.Effective, error) {
	once(&d.read)
	return d.Reader.CPUs(path)
}

func (d *defective) Save(s state.Snapshot) error {
	once(&d.saved)
	return d.Store.Save(s)
}

// What panics outside the core has failed, and is tried again.
func TestAPanicOfADriverEndsNoDaemon(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	d := &defective{Driver: n.kernel, Reader: n.kernel, Store: n.store}
	n.up(func(o *Options) { o.Driver, o.Reader, o.Store = d, d, d })
	mustRun(t, n, burstable("web"))
	_ = n.run(lse("db", 4000)) // may be refused: what the write has done is not known
	for range 5 {
		n.passes(5 * time.Second)
	}
	if !d.wrote.Load() || !d.read.Load() || !d.saved.Load() {
		t.Fatal("not everything panicked: the test shows nothing")
	}
	mustRun(t, n, lse("other", 2000))
	n.settle()
	n.checkOwners()
	last := n.store.load()
	if saved := last.Places(); saved["uid-other"].CPUs.Count() != 2 {
		t.Errorf("saved is %+v", saved)
	}
}
