package plugin

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
)

// auditBatch is how many cgroups are read between two looks at the inbox.
const auditBatch = 32

// check reads one cgroup back right after it was written or created: that it is
// not as written is loud.
func (e *enforcer) check(id string) {
	if d, drifted := e.look(id); drifted {
		e.meter.CpusetWrite("mismatch")
		e.log.Error("the kernel does not give what was written", "drift", d.String())
	}
}

// look compares one cgroup with what it should be.
func (e *enforcer) look(id string) (cgroup.Drift, bool) {
	d, drifted := e.tree.CheckOne(id, e.reader.CPUs)
	e.keepCount(id, d, drifted)
	return d, drifted
}

// keepCount follows the containers that are elsewhere.
func (e *enforcer) keepCount(id string, d cgroup.Drift, drifted bool) {
	switch astray := drifted && d.Err == nil && d.Got != d.Want && e.ctrs[id] != nil; {
	case astray:
		e.strays[id] = true
	case e.strays[id]:
		delete(e.strays, id)
	}
	e.astray.Store(int64(len(e.strays)))
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
		e.lookAtLimit(s)
	}
	d, drifted := e.look(id)
	if !drifted {
		e.confirm(ctx, id)
		return true
	}
	e.meter.Drift(e.sourceOf(ctx, d))
	e.log.Error("a container does not run where it was put; repairing", "container", e.nameOf(id), "drift", d.String())
	e.repair(ctx)
	if d, still := e.look(id); still {
		e.log.Error("the repair did not help", "container", e.nameOf(id), "drift", d.String())
	}
	return true
}

// confirm sees to it that the manager of a container's cgroup restores what is in
// force there. runc 1.1.5, Debian 12's, tells systemd CPUs from 8 on in the wrong
// byte order and writes the right ones to the file: right until the next reload.
func (e *enforcer) confirm(ctx context.Context, id string) {
	s := e.ctrs[id]
	if s == nil || s.path == "" || e.recorded == nil {
		return
	}
	now, err := e.reader.CPUs(s.path)
	if err != nil || now.OwnCPUs.IsEmpty() {
		return
	}
	set, ok, err := e.recorded(ctx, s.path)
	if err != nil || !ok || set == now.OwnCPUs {
		return
	}
	e.log.Info("systemd has other CPUs on record than are in force; it is told", "container", s.name, "recorded",
		set.String(), "cpus", now.OwnCPUs.String())
	err = e.driver.Apply(ctx, s.path, cgroup.Values{CPUs: cgroup.Only(now.OwnCPUs)})
	e.count(err)
	if err != nil && !errors.Is(err, cgroup.ErrGone) {
		e.log.Error("systemd could not be told; its next reload may narrow the container until the audit", "container",
			s.name, "err", err)
	}
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
	e.retry()
	e.audits++
	e.findSlices()
	if e.reader != nil {
		e.tree.LookAbove(e.reader.CPUs)
	}
	e.auditing = slices.Concat(
		slices.Sorted(maps.Keys(e.slices)), slices.Sorted(maps.Keys(e.pods)), slices.Sorted(maps.Keys(e.ctrs)))
	for _, uid := range slices.Sorted(maps.Keys(e.found)) {
		e.auditing = append(e.auditing, e.found[uid]...)
	}
	for _, all := range []map[string]*subjectState{e.pods, e.ctrs, e.beSlices} {
		for _, id := range slices.Sorted(maps.Keys(all)) {
			if s := all[id]; s.limit.ours || s.idle.ours {
				e.lookAtLimit(s)
			}
		}
	}
}

// auditSome looks at the next few cgroups and repairs what it finds.
func (e *enforcer) auditSome(ctx context.Context) bool {
	if len(e.auditing) == 0 {
		return false
	}
	n := min(auditBatch, len(e.auditing))
	found := 0
	var above []string // the slices and pods among them
	for _, id := range e.auditing[:n] {
		d, drifted := e.tree.Audit(id, e.audits, e.reader)
		e.keepCount(id, d, drifted)
		if !drifted {
			continue
		}
		found++
		if !d.Inherited && !consequence(d, above) {
			above = append(above, d.Path)
			source := e.sourceOf(ctx, d)
			e.meter.Drift(source)
			level := slog.LevelWarn
			if !d.Trespass.IsEmpty() {
				level = slog.LevelError // somebody is on CPUs of others, and no write of ours helps
			}
			e.log.Log(ctx, level, "drift", "subject", e.nameOf(id), "source", source, "drift", d.String())
		}
	}
	e.auditing = e.auditing[n:]
	if found > 0 {
		e.repair(ctx)
	}
	return true
}

// consequence says that a cgroup is itself as it should be and one above is not.
func consequence(d cgroup.Drift, above []string) bool {
	return d.Err == nil && d.Own == d.Wrote && slices.ContainsFunc(above, func(path string) bool {
		return strings.HasPrefix(d.Path, path+"/")
	})
}

// sourceOf tells who changed a cgroup, in the words of the metric, from what is
// left on it and from what its manager has on record.
func (e *enforcer) sourceOf(ctx context.Context, d cgroup.Drift) string {
	switch {
	case d.Err != nil:
		return "other"
	case d.Outside():
		return "outside"
	case d.Own == d.Wrote:
		return "kernel" // its own mask is ours: CPUs came or went, or a cgroup above changed
	}
	if e.recorded != nil {
		if set, ok, err := e.recorded(ctx, d.Path); err != nil {
			return "other"
		} else if ok {
			return e.sourceOfUnit(d, set)
		}
	}
	switch {
	case d.Own.IsEmpty():
		return "kernel" // gone with its controller
	case e.ctrs[d.ID] != nil:
		return "runtime"
	}
	return "other"
}

// sourceOfUnit is sourceOf under systemd, which every regular change goes through:
// where it still has our mask on record, somebody wrote past it.
func (e *enforcer) sourceOfUnit(d cgroup.Drift, recorded cpuset.Set) string {
	online := e.topo.Online()
	gaveUp := recorded.IsEmpty() && (d.Wrote.IsEmpty() || online.SubsetOf(&d.Wrote))
	switch {
	case recorded == d.Wrote || gaveUp:
		return "other"
	case e.ctrs[d.ID] != nil:
		return "runtime"
	}
	return "systemd"
}
