package loop

import (
	"fmt"
	"time"

	"github.com/quietcore/quietcore/internal/usage"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/reclaim"
)

// measurement is the CPU use of pods and of the whole node.
type measurement struct {
	meters   map[string]*meter // by pod UID
	root     reclaim.Meter
	group    group
	poll     *poll // nil: no polls
	readings []usage.Reading
	lastLook time.Time
	since    since
	// waits says that some batch pod waited for CPUs in the last look; pressure, that the
	// kernel tells of each.
	waits, pressure bool
}

// meter measures one pod between looks, and since the last estimate.
type meter struct {
	reclaim.Meter
	path    string
	totals  reclaim.Totals
	last    float64 // use in the last look
	stopped bool    // its quota stopped it in the last look
	used    float64 // CPU-seconds since the last estimate
	covered time.Duration
	hid     time.Duration // time of looks in which contention hid demand
}

// since accumulates, since the last estimate, the time of looks in which all of best
// effort was held down.
type since struct{ hid time.Duration }

// follow makes the reader follow exactly the cgroups of running pods.
func (l *Loop) follow(pods []policy.PodView) {
	l.group.follow(l.o.Usage, pods)
	running := make(map[string]bool, len(pods))
	for i := range pods {
		p := &pods[i]
		if p.Cgroup == "" {
			continue
		}
		running[p.UID] = true
		if m := l.meters[p.UID]; m != nil && m.path == p.Cgroup {
			continue
		}
		if err := l.o.Usage.Follow(p.UID, p.Cgroup); err != nil {
			l.warnOnce(fmt.Errorf("read CPU use of pod %s/%s: %w", p.Namespace, p.Name, err))
			continue
		}
		l.meters[p.UID] = &meter{path: p.Cgroup}
	}
	for uid := range l.meters {
		if !running[uid] {
			l.o.Usage.Forget(uid)
			delete(l.meters, uid)
		}
	}
}

// measure reads all cgroups once.
func (l *Loop) measure(pods []policy.PodView, kept *apart) Status {
	class := make(map[string]policy.Class, len(pods))
	for i := range pods {
		class[pods[i].UID] = pods[i].Class
	}
	s := l.Status()
	s.Production, s.OnShared, s.Batch, s.Outside, s.Known = 0, 0, 0, 0, true
	l.waits, l.pressure = false, true
	l.readings = l.o.Usage.Read(l.readings[:0])
	whole, rooted := 0.0, false
	for i := range l.readings {
		r := &l.readings[i]
		if r.ID == rootID {
			if r.Err == nil { // a failed reading must not become the base of the next
				whole, _, rooted = l.root.Use(r.At, r.CPU)
			}
			continue
		}
		if r.ID == bestEffort {
			l.group.read(r)
			continue
		}
		m := l.meters[r.ID]
		if m == nil || r.Err != nil {
			continue // a pod that ended uses nothing
		}
		use, span, ok := m.Use(r.At, r.CPU)
		now := reclaim.Totals{Waiting: r.Waiting, Periods: r.Periods, Throttled: r.Throttled}
		hid, waited := ok && now.Hid(m.totals, span), ok && now.Waited(m.totals, span)
		m.last, m.stopped = use, ok && now.Stopped(m.totals)
		m.totals = now
		if !ok {
			continue
		}
		m.used += use * span.Seconds()
		m.covered += span
		if hid {
			m.hid += span
		}
		switch class[r.ID] {
		case policy.LSE, policy.LSR, policy.LS:
			s.Production += use
			s.OnShared += kept.onSharedCPUs(r.ID, use)
		case policy.BE:
			s.Batch += use
			l.waits, l.pressure = l.waits || waited, l.pressure && r.Pressure
		default:
			s.Outside += use
		}
	}
	if rooted {
		s.Outside = max(s.Outside, whole-s.Production-s.Batch)
	}
	s.Known = rooted
	return s
}
