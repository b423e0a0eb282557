package loop

import (
	"time"

	"github.com/quietcore/quietcore/internal/usage"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/reclaim"
)

// group is best effort as a whole, measured at its slice. What throttles a single pod
// must not void the samples of others.
type group struct {
	path     string // of the slice; empty: no pod is in it
	at       time.Time
	totals   reclaim.Totals
	stopped  bool // throttled by its own quota
	waits    bool // some of its tasks waited for CPUs
	pressure bool // the kernel exposes pressure
}

func (g *group) follow(reader Reader, pods []policy.PodView) {
	_, be := slicesOf(pods)
	if be == g.path {
		return
	}
	reader.Forget(bestEffort)
	*g = group{}
	if be != "" && reader.Follow(bestEffort, be) == nil {
		g.path = be
	}
}

func (g *group) read(r *usage.Reading) {
	g.stopped, g.waits, g.pressure = false, false, false
	if r.Err != nil {
		g.at = time.Time{}
		return
	}
	now := reclaim.Totals{Waiting: r.Waiting, Periods: r.Periods, Throttled: r.Throttled}
	if span := r.At.Sub(g.at); !g.at.IsZero() {
		g.stopped, g.waits = span > 0 && now.Stopped(g.totals), span > 0 && now.Waited(g.totals, span)
		g.pressure = r.Pressure
	}
	g.at, g.totals = r.At, now
}

// saturated is the share of its available CPUs from which on best effort counts as
// using all.
const saturated = 0.9

// heldDown says that suppression or the slice's quota kept best effort from using more,
// so that low use is no evidence of idleness. Waiting alone is none: tasks wait a
// little whenever others run, on a busy machine for more than a tenth of the time.
func (g *group) heldDown(node *policy.Snapshot, s *Status) bool {
	switch {
	case g.stopped:
		return true
	case node.BE == node.BEWhole && node.BEQuota == 0, g.pressure && !g.waits:
		return false
	case !s.Known:
		return true
	}
	// Assume that the use of others is spread over all CPUs, best effort's included.
	room := float64(node.BE.Count()) * max(0, 1-(s.Production+s.Outside)/max(s.Capacity, 1))
	if node.BEQuota > 0 {
		room = min(room, float64(node.BEQuota)/1000)
	}
	return s.Batch >= saturated*room
}
