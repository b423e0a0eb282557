package node

import (
	"context"
	"fmt"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/failpoint"
	"github.com/quietcore/quietcore/internal/state"
)

// Op numbers an effect.
type Op uint64

// EffectKind says what an effect does.
type EffectKind int

const (
	Write       EffectKind = iota + 1 // Values to the cgroup
	ReadAll                           // everything of the cgroup
	ReadCPUs                          // the cgroup's own mask and its effective CPUs
	ReadAllowed                       // its effective CPUs alone
	List                              // its child cgroups
	ReadRecord                        // the mask that its manager (systemd) would restore
	Save                              // State to the state file
)

func (k EffectKind) String() string {
	return [...]string{"", "write", "read all", "read CPUs", "read effective CPUs", "list", "read record", "save"}[k]
}

// Effect is one I/O operation, which may take any time. Its result comes back as a Done with the
// same Op.
type Effect struct {
	Op     Op
	Kind   EffectKind
	Path   string
	Values cgroup.Values
	State  *state.Snapshot
	// Before and After are the failpoints around a write; empty: none.
	Before, After failpoint.Point
}

// Result is how an effect ended.
type Result struct {
	Seen  cgroup.Effective
	Names []string   // of List
	CPUs  cpuset.Set // of ReadAllowed and ReadRecord
	// Recorded is false where the cgroup has no manager that would restore a mask.
	Recorded bool
	Err      error
}

// do performs one effect and waits for its result. It is called in routines only.
type do func(Effect) *Result

// errReadTimeout is the result of a read that took longer than readLimit.
var errReadTimeout = fmt.Errorf("the read has not returned after %v; it is tried again later", readLimit)

// outside is the cgroup tree as a routine sees it: each call is an effect. It is a
// cgroup.Reader.
type outside struct{ do do }

func (o outside) Effective(path string) (cgroup.Effective, error) {
	r := o.do(Effect{Kind: ReadAll, Path: path})
	return r.Seen, r.Err
}

func (o outside) CPUs(path string) (cgroup.Effective, error) {
	r := o.do(Effect{Kind: ReadCPUs, Path: path})
	return r.Seen, r.Err
}

func (o outside) Allowed(path string) (cpuset.Set, error) {
	r := o.do(Effect{Kind: ReadAllowed, Path: path})
	return r.CPUs, r.Err
}

func (o outside) Children(path string) ([]string, error) {
	r := o.do(Effect{Kind: List, Path: path})
	return r.Names, r.Err
}

// recorded is the mask that the cgroup's manager would restore, ok false where it has none.
func (o outside) recorded(path string) (cpuset.Set, bool, error) {
	r := o.do(Effect{Kind: ReadRecord, Path: path})
	return r.CPUs, r.Recorded, r.Err
}

// Backend is a real cgroup tree and state file.
type Backend struct {
	Driver cgroup.Driver
	Reader cgroup.Reader
	// Recorded is the mask that a cgroup's manager would restore by itself; nil, or ok false,
	// where there is no such manager.
	Recorded func(ctx context.Context, path string) (cpus cpuset.Set, ok bool, err error)
	Save     func(state.Snapshot) error
}

// Perform performs an effect. It blocks as long as the kernel, systemd or the disk does.
func (b *Backend) Perform(ctx context.Context, e *Effect) *Result {
	var r Result
	switch e.Kind {
	case Write:
		r.Err = b.Driver.Apply(ctx, e.Path, e.Values)
	case ReadAll:
		r.Seen, r.Err = b.Reader.Effective(e.Path)
	case ReadCPUs:
		r.Seen, r.Err = b.Reader.CPUs(e.Path)
	case ReadAllowed:
		r.CPUs, r.Err = b.Reader.Allowed(e.Path)
	case List:
		r.Names, r.Err = b.Reader.Children(e.Path)
	case ReadRecord:
		r.CPUs, r.Recorded, r.Err = b.Recorded(ctx, e.Path)
	case Save:
		r.Err = b.Save(*e.State)
	default:
		r.Err = fmt.Errorf("unknown effect %d", e.Kind)
	}
	return &r
}
