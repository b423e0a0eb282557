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
	verify  []string // containers
	todo    []string // what the present audit has still to look at
	round   uint64   // audits begun so far
	drifted map[string]bool
}

func newAudit() audit { return audit{drifted: map[string]bool{}} }

// clear leaves out what was to be read back.
func (a *audit) clear() { a.verify, a.todo = nil, nil }

// check reads one cgroup back right after it was written or created: that it is
// not as written is loud.
func (w *writer) check(id string) {
	if d, drifted := w.look(id); drifted {
		w.c.o.Metrics.CpusetWrite("mismatch")
		w.c.o.Log.Error("the kernel does not give what was written", "drift", d.String())
	}
}

// look compares one cgroup with what it should be.
func (w *writer) look(id string) (cgroup.Drift, bool) {
	d, drifted := w.tree.CheckOne(id, w.reader.CPUs)
	w.keepCount(id, d, drifted)
	return d, drifted
}

// keepCount follows the containers that are elsewhere.
func (w *writer) keepCount(id string, d cgroup.Drift, drifted bool) {
	switch elsewhere := drifted && d.Err == nil && d.Got != d.Want && w.ctrs[id] != nil; {
	case elsewhere:
		w.audit.drifted[id] = true
	case w.audit.drifted[id]:
		delete(w.audit.drifted, id)
	}
}

// readBack checks what was asked to be verified, repairs it once and says so if
// that did not help.
func (w *writer) readBack() bool {
	if len(w.audit.verify) == 0 {
		return false
	}
	id := w.audit.verify[0]
	w.audit.verify = w.audit.verify[1:]
	if s := w.ctrs[id]; s != nil && s.limit.ours {
		w.lookAtLimit(s)
	}
	d, drifted := w.look(id)
	if !drifted {
		w.confirm(id)
		return true
	}
	w.c.o.Metrics.Drift(w.sourceOf(d))
	w.c.o.Log.Error("a container does not run where it was put; repairing", "container", w.nameOf(id), "drift",
		d.String())
	w.repair()
	if d, still := w.look(id); still {
		w.c.o.Log.Error("the repair did not help", "container", w.nameOf(id), "drift", d.String())
	}
	return true
}

// confirm sees to it that the manager of a container's cgroup restores what is in
// force there. runc 1.1.5, Debian 12's, tells systemd CPUs from 8 on in the wrong
// byte order and writes the right ones to the file: right until the next reload.
func (w *writer) confirm(id string) {
	s := w.ctrs[id]
	if s == nil || s.path == "" || !w.c.o.Tree.Records {
		return
	}
	now, err := w.reader.CPUs(s.path)
	if err != nil || now.OwnCPUs.IsEmpty() {
		return
	}
	set, ok, err := w.out.recorded(s.path)
	if err != nil || !ok || set == now.OwnCPUs {
		return
	}
	w.c.o.Log.Info("systemd has other CPUs on record than are in force; it is told", "container", s.name, "recorded",
		set.String(), "cpus", now.OwnCPUs.String())
	err = w.out.do(Effect{Kind: Write, Path: s.path, Values: cgroup.Values{CPUs: cgroup.Only(now.OwnCPUs)}}).Err
	w.count(err)
	if err != nil && !errors.Is(err, cgroup.ErrGone) {
		w.c.o.Log.Error("systemd could not be told; its next reload may narrow the container until the audit",
			"container",
			s.name, "err", err)
	}
}

func (w *writer) nameOf(id string) string {
	if s := w.ctrs[id]; s != nil {
		return s.name
	}
	if s := w.pods[id]; s != nil {
		return s.name
	}
	return id
}

func (w *writer) repair() {
	w.write(cgroup.Shrink)
	w.write(cgroup.Grow)
}

// startAudit puts every cgroup on the list. Failed writes get their next chance.
func (w *writer) startAudit() {
	w.again()
	w.audit.round++
	w.findSlices()
	if w.reader != nil {
		w.tree.LookAbove(w.reader.CPUs)
	}
	w.audit.todo = slices.Concat(
		slices.Sorted(maps.Keys(w.slices)), slices.Sorted(maps.Keys(w.pods)), slices.Sorted(maps.Keys(w.ctrs)))
	for _, uid := range slices.Sorted(maps.Keys(w.found)) {
		w.audit.todo = append(w.audit.todo, w.found[uid]...)
	}
	for _, all := range []map[string]*subject{w.pods, w.ctrs, w.limits.slices} {
		for _, id := range slices.Sorted(maps.Keys(all)) {
			if s := all[id]; s.limit.ours || s.idle.ours {
				w.lookAtLimit(s)
			}
		}
	}
}

// auditSome looks at the next few cgroups and repairs what it finds.
func (w *writer) auditSome() bool {
	if len(w.audit.todo) == 0 {
		return false
	}
	n := min(auditBatch, len(w.audit.todo))
	found := 0
	var above []string // the slices and pods among them
	for _, id := range w.audit.todo[:n] {
		d, drifted := w.tree.Audit(id, w.audit.round, w.reader)
		w.keepCount(id, d, drifted)
		if !drifted {
			continue
		}
		found++
		if !d.Inherited && !consequence(d, above) {
			above = append(above, d.Path)
			source := w.sourceOf(d)
			w.c.o.Metrics.Drift(source)
			level := slog.LevelWarn
			if !d.Trespass.IsEmpty() {
				level = slog.LevelError // somebody is on CPUs of others, and no write of ours helps
			}
			w.c.o.Log.Log(context.Background(), level, "drift", "subject", w.nameOf(id), "source", source, "drift",
				d.String())
		}
	}
	w.audit.todo = w.audit.todo[n:]
	if found > 0 {
		w.repair()
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
func (w *writer) sourceOf(d cgroup.Drift) string {
	switch {
	case d.Err != nil:
		return "other"
	case d.Outside():
		return "outside"
	case d.Own == d.Wrote:
		return "kernel" // its own mask is ours: CPUs came or went, or a cgroup above changed
	}
	if w.c.o.Tree.Records {
		if set, ok, err := w.out.recorded(d.Path); err != nil {
			return "other"
		} else if ok {
			return w.sourceOfUnit(d, set)
		}
	}
	switch {
	case d.Own.IsEmpty():
		return "kernel" // gone with its controller
	case w.ctrs[d.ID] != nil:
		return "runtime"
	}
	return "other"
}

// sourceOfUnit is sourceOf under systemd, which every regular change goes through:
// where it still has our mask on record, somebody wrote past it.
func (w *writer) sourceOfUnit(d cgroup.Drift, recorded cpuset.Set) string {
	online := w.topo.Online()
	gaveUp := recorded.IsEmpty() && (d.Wrote.IsEmpty() || online.SubsetOf(&d.Wrote))
	switch {
	case recorded == d.Wrote || gaveUp:
		return "other"
	case w.ctrs[d.ID] != nil:
		return "runtime"
	}
	return "systemd"
}
