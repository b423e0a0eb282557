package daemon

import (
	"maps"
	"path"
	"sync"
	"time"

	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/loop"
	"github.com/quietcore/quietcore/internal/ledger"
)

// proven are the pairs of jobs of which one was limited for the other's sake, and that helped: what a
// scheduler is told. The detector's own memory of pairs is of containers, and never ends.
type proven struct {
	mu    sync.Mutex
	until map[[2]string]time.Time // by victim and antagonist
}

// maxProven bounds them; fewer are published.
const maxProven = 256

func newProven() *proven { return &proven{until: map[[2]string]time.Time{}} }

// find takes over an outcome.
func (p *proven) find(f *loop.Finding, now time.Time) {
	if f.Kind != detect.OutcomeEvent || f.Outcome == nil || f.Outcome.Kind != detect.DoCap ||
		f.Outcome.Result != detect.Success || f.Victim == nil || f.Target == nil {
		return
	}
	// A container's job has its container's name behind the pod's: shop/Deployment/web/main.
	key := [2]string{path.Dir(f.Victim.Job), path.Dir(f.Target.Job)}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(now)
	if _, known := p.until[key]; known || len(p.until) < maxProven {
		p.until[key] = ledger.Holds(now)
	}
}

func (p *proven) forget(now time.Time) {
	maps.DeleteFunc(p.until, func(_ [2]string, until time.Time) bool { return !until.After(now) })
}

// pairs are those that hold.
func (p *proven) pairs(now time.Time) (list []ledger.Pair) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(now)
	for key, until := range p.until {
		list = append(list, ledger.Pair{Victim: key[0], Antagonist: key[1], Until: until})
	}
	return list
}
