package node

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

// audit is what the writer reads back.
type audit struct {
	verify []string // containers
	todo   []string // what the present audit has still to look at
	round  uint64   // audits begun so far
	strays map[string]bool
}

func newAudit() audit { return audit{strays: map[string]bool{}} }

// clear leaves out what was to be read back.
func (a *audit) clear() { a.verify, a.todo = nil, nil }

// check reads one cgroup back right after it was written or created: that it is
// not as written is loud.
func (e *writer) check(id string) {
	if d, drifted := e.look(id); drifted {
		e.c.o.Metrics.CpusetWrite("mismatch")
		e.c.o.Log.Error("the kernel does not give what was written", "drift", d.String())
	}
}

// look compares one cgroup with what it should be.
func (e *writer) look(id string) (cgroup.Drift, bool) {
	d, drifted := e.tree.CheckOne(id, e.reader.CPUs)
	e.keepCount(id, d, drifted)
	return d, drifted
}

// keepCount follows the containers that are elsewhere.
func (e *writer) keepCount(id string, d cgroup.Drift, drifted bool) {
	switch astray := drifted && d.Err == nil && d.Got != d.Want && e.ctrs[id] != nil; {
	case astray:
		e.audit.strays[id] = true
	case e.audit.strays[id]:
		delete(e.audit.strays, id)
	}
}

// readBack checks what was asked to be verified, repairs it once and says so if
// that did not help.
func (e *writer) readBack() bool {
	if len(e.audit.verify) == 0 {
		return false
	}
	id := e.audit.verify[0]
	e.audit.verify = e.audit.verify[1:]
	if s := e.ctrs[id]; s != nil && s.limit.ours {
		e.lookAtLimit(s)
	}
	d, drifted := e.look(id)
	if !drifted {
		e.confirm(id)
		return true
	}
	e.c.o.Metrics.Drift(e.sourceOf(d))
	e.c.o.Log.Error("a container does not run where it was put; repairing", "container", e.nameOf(id), "drift",
		d.String())
	e.repair()
	if d, still := e.look(id); still {
		e.c.o.Log.Error("the repair did not help", "container", e.nameOf(id), "drift", d.String())
	}
	return true
}

// confirm sees to it that the manager of a container's cgroup restores what is in
// force there. runc 1.1.5, Debian 12's, tells systemd CPUs from 8 on in the wrong
// byte order and writes the right ones to the file: right until the next reload.
func (e *writer) confirm(id string) {
	s := e.ctrs[id]
	if s == nil || s.path == "" || !e.c.o.Tree.Records {
		return
	}
	now, err := e.reader.CPUs(s.path)
	if err != nil || now.OwnCPUs.IsEmpty() {
		return
	}
	set, ok, err := e.out.recorded(s.path)
	if err != nil || !ok || set == now.OwnCPUs {
		return
	}
	e.c.o.Log.Info("systemd has other CPUs on record than are in force; it is told", "container", s.name, "recorded",
		set.String(), "cpus", now.OwnCPUs.String())
	err = e.out.do(Effect{Kind: Write, Path: s.path, Values: cgroup.Values{CPUs: cgroup.Only(now.OwnCPUs)}}).Err
	e.count(err)
	if err != nil && !errors.Is(err, cgroup.ErrGone) {
		e.c.o.Log.Error("systemd could not be told; its next reload may narrow the container until the audit",
			"container",
			s.name, "err", err)
	}
}

func (e *writer) nameOf(id string) string {
	if s := e.ctrs[id]; s != nil {
		return s.name
	}
	if s := e.pods[id]; s != nil {
		return s.name
	}
	return id
}

func (e *writer) repair() {
	e.write(cgroup.Shrink)
	e.write(cgroup.Grow)
}

// startAudit puts every cgroup on the list. Failed writes get their next chance.
func (e *writer) startAudit() {
	e.again()
	e.audit.round++
	e.findSlices()
	if e.reader != nil {
		e.tree.LookAbove(e.reader.CPUs)
	}
	e.audit.todo = slices.Concat(
		slices.Sorted(maps.Keys(e.slices)), slices.Sorted(maps.Keys(e.pods)), slices.Sorted(maps.Keys(e.ctrs)))
	for _, uid := range slices.Sorted(maps.Keys(e.found)) {
		e.audit.todo = append(e.audit.todo, e.found[uid]...)
	}
	for _, all := range []map[string]*subject{e.pods, e.ctrs, e.limits.slices} {
		for _, id := range slices.Sorted(maps.Keys(all)) {
			if s := all[id]; s.limit.ours || s.idle.ours {
				e.lookAtLimit(s)
			}
		}
	}
}

// auditSome looks at the next few cgroups and repairs what it finds.
func (e *writer) auditSome() bool {
	if len(e.audit.todo) == 0 {
		return false
	}
	n := min(auditBatch, len(e.audit.todo))
	found := 0
	var above []string // the slices and pods among them
	for _, id := range e.audit.todo[:n] {
		d, drifted := e.tree.Audit(id, e.audit.round, e.reader)
		e.keepCount(id, d, drifted)
		if !drifted {
			continue
		}
		found++
		if !d.Inherited && !consequence(d, above) {
			above = append(above, d.Path)
			source := e.sourceOf(d)
			e.c.o.Metrics.Drift(source)
			level := slog.LevelWarn
			if !d.Trespass.IsEmpty() {
				level = slog.LevelError // somebody is on CPUs of others, and no write of ours helps
			}
			e.c.o.Log.Log(context.Background(), level, "drift", "subject", e.nameOf(id), "source", source, "drift",
				d.String())
		}
	}
	e.audit.todo = e.audit.todo[n:]
	if found > 0 {
		e.repair()
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
func (e *writer) sourceOf(d cgroup.Drift) string {
	switch {
	case d.Err != nil:
		return "other"
	case d.Outside():
		return "outside"
	case d.Own == d.Wrote:
		return "kernel" // its own mask is ours: CPUs came or went, or a cgroup above changed
	}
	if e.c.o.Tree.Records {
		if set, ok, err := e.out.recorded(d.Path); err != nil {
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
func (e *writer) sourceOfUnit(d cgroup.Drift, recorded cpuset.Set) string {
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
