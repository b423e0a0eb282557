package loop

import (
	"context"
	"time"

	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/usage"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/reclaim"
)

// A look reads every pod, once a second. A poll reads two cgroups five times a second:
// all pods of kubelet, and its best-effort slice. If the difference has grown so much
// that best effort must shrink, the next look happens at once.
const (
	pollEvery = 200 * time.Millisecond
	// leastSpan is the least time between a look and one brought forward, which
	// measures the mean of that time.
	leastSpan = 400 * time.Millisecond
)

// poll owns its reader. A path that is empty is not followed.
type poll struct {
	reader   Reader
	all, be  string // paths
	readings []usage.Reading
	meter    reclaim.Meter // of production, as these two show it, between polls
	looks    reclaim.Meter // the same between looks
	// surplus is how much more the polls show than production used at the last look:
	// pods of class BE may lie in other slices too.
	surplus float64
}

// IDs of the two.
const (
	allPods    = "kubepods"
	bestEffort = "besteffort"
)

// follow derives kubelet's slices from the pods' paths.
func (g *poll) follow(pods []policy.PodView) {
	all, be := slicesOf(pods)
	if all == g.all && be == g.be {
		return
	}
	g.reader.Forget(allPods)
	g.reader.Forget(bestEffort)
	g.all, g.be, g.meter, g.looks = "", "", reclaim.Meter{}, reclaim.Meter{}
	if be == "" {
		return // there is no best effort to shrink
	}
	if g.reader.Follow(allPods, all) == nil && g.reader.Follow(bestEffort, be) == nil {
		g.all, g.be = all, be
	}
}

// slicesOf returns the cgroups of all pods and of best-effort pods; empty if no pod
// shows them.
func slicesOf(pods []policy.PodView) (all, be string) {
	for i := range pods {
		parent := cgroup.Parent(pods[i].Cgroup)
		switch cgroup.Classify(parent) {
		case cgroup.BestEffort:
			return cgroup.Parent(parent), parent
		case cgroup.Burstable:
			all = cgroup.Parent(parent)
		case cgroup.Guaranteed:
			all = parent
		}
	}
	return all, ""
}

// used is the CPU time of all pods without the best-effort slice.
func (g *poll) used() (at time.Time, cpu time.Duration, ok bool) {
	if g.be == "" {
		return at, 0, false
	}
	g.readings = g.reader.Read(g.readings[:0])
	if len(g.readings) != 2 {
		return at, 0, false
	}
	for i := range g.readings {
		r := &g.readings[i]
		if r.Err != nil {
			return at, 0, false
		}
		if r.ID == bestEffort {
			cpu -= r.CPU
		} else {
			cpu, at = cpu+r.CPU, r.At
		}
	}
	return at, cpu, true
}

// calibrate corrects polls by what a look has measured.
func (g *poll) calibrate(production float64) {
	at, cpu, ok := g.used()
	if !ok {
		return
	}
	if use, _, ok := g.looks.Use(at, cpu); ok {
		g.surplus = use - production
	}
}

// production is production's use since the last poll.
func (g *poll) production() (float64, bool) {
	at, cpu, ok := g.used()
	if !ok {
		return 0, false
	}
	use, _, ok := g.meter.Use(at, cpu)
	return use - g.surplus, ok
}

// lookEarly brings the next look forward if best effort would lose at least a core.
func (l *Loop) lookEarly(ctx context.Context) {
	if l.poll == nil || l.o.Suppress == nil {
		return
	}
	production, ok := l.poll.production()
	s := l.Status()
	if !ok || !s.Known || l.o.Clock.Now().Sub(l.lastLook) < leastSpan {
		return
	}
	target := s.Budget.Target - (production - s.Production)
	core := float64(l.o.Node().Topology.ThreadsPerCore())
	if max(s.Budget.Floor, target) <= s.Budget.CPUs-core {
		l.look(ctx)
	}
}
