package plugin

import (
	"context"
	"maps"
	"slices"

	"github.com/quietcore/quietcore/internal/cgroup"
)

// auditBatch is how many cgroups are read between two looks at the inbox.
const auditBatch = 32

// check reads one cgroup back right after it was written or created: that it is
// not as written is loud.
func (e *enforcer) check(id string) {
	if d, drifted := e.tree.CheckOne(id, e.reader.CPUs); drifted {
		e.meter.Drift(sourceOf(d))
		e.log.Error("the kernel does not give what was written", "drift", d.String())
	}
}

// readBack checks what was asked to be verified, repairs it once and says so if
// that did not help.
func (e *enforcer) readBack(ctx context.Context) bool {
	if len(e.toVerify) == 0 {
		return false
	}
	id := e.toVerify[0]
	e.toVerify = e.toVerify[1:]
	if s := e.ctrs[id]; s != nil && s.limit.ours {
		s.pending = true
	}
	d, drifted := e.tree.CheckOne(id, e.reader.CPUs)
	if !drifted {
		return true
	}
	e.meter.Drift(sourceOf(d))
	e.log.Error("a container does not run where it was put; repairing", "container", e.nameOf(id), "drift", d.String())
	e.repair(ctx)
	if d, still := e.tree.CheckOne(id, e.reader.CPUs); still {
		e.log.Error("the repair did not help", "container", e.nameOf(id), "drift", d.String())
	}
	return true
}

func (e *enforcer) nameOf(id string) string {
	if s := e.ctrs[id]; s != nil {
		return s.name
	}
	if s := e.pods[id]; s != nil {
		return s.name
	}
	return id
}

func (e *enforcer) repair(ctx context.Context) {
	e.write(ctx, cgroup.Shrink)
	e.write(ctx, cgroup.Grow)
}

// startAudit puts every cgroup on the list. Failed writes get their next chance.
func (e *enforcer) startAudit() {
	e.failed, e.rounds = false, 0
	e.auditing = slices.Concat(
		slices.Sorted(maps.Keys(e.slices)), slices.Sorted(maps.Keys(e.pods)), slices.Sorted(maps.Keys(e.ctrs)))
	for _, s := range e.pods {
		s.pending = s.pending || s.limit.ours
	}
	for _, s := range e.ctrs {
		s.pending = s.pending || s.limit.ours
	}
}

// auditSome looks at the next few cgroups and repairs what it finds.
func (e *enforcer) auditSome(ctx context.Context) bool {
	if len(e.auditing) == 0 {
		return false
	}
	n := min(auditBatch, len(e.auditing))
	found := 0
	for _, id := range e.auditing[:n] {
		d, drifted := e.tree.CheckOne(id, e.reader.CPUs)
		if !drifted {
			continue
		}
		found++
		e.meter.Drift(sourceOf(d))
		e.log.Warn("drift", "subject", e.nameOf(id), "drift", d.String())
	}
	e.auditing = e.auditing[n:]
	if found > 0 {
		e.repair(ctx)
	}
	return true
}

// sourceOf guesses who changed a cgroup from what is left on it.
func sourceOf(d cgroup.Drift) string {
	switch {
	case d.Err != nil:
		return "unreadable"
	case d.Own.IsEmpty() && !d.Wrote.IsEmpty():
		return "reset"
	case d.Own == d.Wrote:
		return "above"
	}
	return "overwritten"
}
