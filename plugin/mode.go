package plugin

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/quietcore/quietcore/plugin/node"
)

// mode is whether decisions are carried out. It changes to observe at once. It changes back between two
// registrations with the runtime, whose Synchronize then has everything that was started meanwhile.
type mode struct {
	turn     sync.Mutex    // held while the core is told
	wanted   atomic.Bool   // observe
	observes atomic.Bool   // handlers reply nothing
	again    chan struct{} // holds one when the plugin has to register again
}

// errAgain ends a registration that is followed by another one at once.
var errAgain = errors.New("the plugin registers again")

// Observe ends what is enforced: caps and whatever else limits best effort. Placements stay as they are, and nothing
// else is written from then on. Undoing reports when that is done. It may be called again, to end limits that were
// decided in between.
func (p *Plugin) Observe(ctx context.Context) error {
	p.mode.turn.Lock()
	defer p.mode.turn.Unlock()
	p.mode.wanted.Store(true)
	p.mode.observes.Store(true)
	return p.runner.put(ctx, node.Mode{Observe: true})
}

// Enforce has decisions carried out again, once the runtime has listed what runs.
func (p *Plugin) Enforce() {
	p.mode.turn.Lock()
	defer p.mode.turn.Unlock()
	if !p.mode.wanted.Swap(false) {
		return
	}
	select {
	case p.mode.again <- struct{}{}:
	default:
	}
}

// beginEnforcing is called while the plugin is not registered.
func (p *Plugin) beginEnforcing(ctx context.Context) {
	p.mode.turn.Lock()
	defer p.mode.turn.Unlock()
	if p.mode.wanted.Load() || !p.mode.observes.Load() {
		return
	}
	if p.runner.put(ctx, node.Mode{}) == nil {
		p.mode.observes.Store(false)
	}
}

// Observes reports whether nothing is enforced, or will be once it is undone.
func (p *Plugin) Observes() bool { return p.mode.observes.Load() }

// Undoing reports whether what was enforced before Observe is still being undone.
func (p *Plugin) Undoing() bool {
	s := p.runner.status.Load()
	return p.Observes() && (!s.Observing || s.Withdrawing)
}
