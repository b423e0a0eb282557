package daemon

import (
	"context"
	"sync/atomic"

	"github.com/quietcore/quietcore/internal/config"
)

// renewable is a part that is replaced by another one when its configuration changes. The rest of the daemon goes on
// meanwhile.
type renewable[P part] struct {
	// make makes the part of a configuration. last is the one before, whose Run has ended.
	make    func(cfg *config.Config, last P) P
	current atomic.Pointer[P]
	wanted  atomic.Pointer[config.Config]
	stale   chan struct{} // holds one when wanted is newer than current
}

func newRenewable[P part](first P, make_ func(*config.Config, P) P) *renewable[P] {
	r := &renewable[P]{make: make_, stale: make(chan struct{}, 1)}
	r.current.Store(&first)
	return r
}

// now is the part that runs.
func (r *renewable[P]) now() P { return *r.current.Load() }

// renew has the part replaced. It does not wait for that.
func (r *renewable[P]) renew(cfg *config.Config) {
	r.wanted.Store(cfg)
	select {
	case r.stale <- struct{}{}:
	default:
	}
}

// Run runs one part after the other until ctx ends.
func (r *renewable[P]) Run(ctx context.Context) {
	for {
		one, stop := context.WithCancel(ctx)
		together(one, r.now().Run, func(ctx context.Context) {
			defer stop()
			select {
			case <-ctx.Done():
			case <-r.stale:
			}
		})
		if ctx.Err() != nil {
			return
		}
		next := r.make(r.wanted.Load(), r.now())
		r.current.Store(&next)
	}
}

func (r *renewable[P]) Health() map[string]string { return r.now().Health() }
