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
	verify  []string        // containers, by ID
	todo    []string        // what the current audit has not read yet
	round   uint64          // audits started so far
	drifted map[string]bool // containers, by ID, that run on other CPUs than decided
}

func newAudit() audit { return audit{drifted: map[string]bool{}} }

// clear drops everything that was to be read back.
func (a *audit) clear() { a.verify, a.todo = nil, nil }

// check reads one cgroup back right after it was written: a difference is an error.
func (w *writer) check(id string) {
	if d, drifted := w.look(id); drifted {
		w.c.o.Metrics.CpusetWrite("mismatch")
		w.c.o.Log.Error("a cgroup differs from what was just written; it is written again", "drift", d.String())
	}
}

// look compares one cgroup with the decision.
func (w *writer) look(id string) (cgroup.Drift, bool) {
	d, drifted := w.tree.CheckOne(id, w.reader.CPUs)
	w.keepCount(id, d, drifted)
	return d, drifted
}

// keepCount tracks the containers that run on other CPUs than decided.
func (w *writer) keepCount(id string, d cgroup.Drift, drifted bool) {
	switch elsewhere := drifted && d.Err == nil && d.Got != d.Want && w.ctrs[id] != nil; {
	case elsewhere:
		w.audit.drifted[id] = true
	case w.audit.drifted[id]:
		delete(w.audit.drifted, id)
	}
}

// readBack verifies one container on request, repairs it once, and logs an error if that did not
// help.
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
	w.drifted(id, d)
	w.c.o.Log.Error("a container does not run on its CPUs; repairing", "container", w.nameOf(id), "drift",
		d.String())
	w.repair()
	if d, still := w.look(id); still {
		w.c.o.Log.Error("the repair did not help; the next audit tries again", "container", w.nameOf(id), "drift",
			d.String())
	}
	return true
}

// confirm makes systemd, where it manages a container's cgroup, restore the mask that is in
// effect. runc 1.1.5 (Debian 12) passes CPUs from 8 on to systemd in the wrong byte order and
// writes the right ones to the file: they are right until the next reload.
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
	w.c.o.Log.Info("systemd has other CPUs on record than are in effect; its record is corrected", "container", s.name,
		"recorded", set.String(), "cpus", now.OwnCPUs.String())
	err = w.out.do(Effect{Kind: Write, Path: s.path, Values: cgroup.Values{CPUs: cgroup.Only(now.OwnCPUs)}}).Err
	w.count(err)
	if err != nil && !errors.Is(err, cgroup.ErrGone) {
		w.c.o.Log.Error("systemd's record could not be corrected; its next reload may narrow the container until "+
			"the audit repairs it", "container", s.name, "err", err)
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

// startAudit queues every cgroup to be read. Failed writes are tried again.
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

// auditSome reads the next few cgroups and repairs what drifted.
func (w *writer) auditSome() bool {
	if len(w.audit.todo) == 0 {
		return false
	}
	n := min(auditBatch, len(w.audit.todo))
	found := 0
	var above []string // the slices and pods among them
	for _, id := range w.audit.todo[:n] {
		if s := w.ctrs[id]; s != nil && w.unanswered[cleanOf(s.path)] {
			continue // it may not exist, and is read again with what is uncertain
		}
		d, drifted := w.tree.Audit(id, w.audit.round, w.reader)
		w.keepCount(id, d, drifted)
		if !drifted {
			continue
		}
		found++
		if !d.Inherited && !consequence(d, above) {
			above = append(above, d.Path)
			source := w.drifted(id, d)
			level := slog.LevelWarn
			if !d.Trespass.IsEmpty() {
				level = slog.LevelError // tasks are on CPUs of others, and no write of ours helps
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

// drifted counts a mask that others have changed, and tells of a container that was moved through its runtime.
func (w *writer) drifted(id string, d cgroup.Drift) (source string) {
	source = w.sourceOf(d)
	w.c.o.Metrics.Drift(source)
	if s := w.ctrs[id]; s != nil && source == "runtime" {
		w.c.o.Moved(s.name, d.Own, d.Wrote)
	}
	return source
}

// consequence reports whether a cgroup drifted only because one above it did.
func consequence(d cgroup.Drift, above []string) bool {
	return d.Err == nil && d.Own == d.Wrote && slices.ContainsFunc(above, func(path string) bool {
		return strings.HasPrefix(d.Path, path+"/")
	})
}

// sourceOf is what changed a cgroup, as a label value of the metric: it is derived from the
// cgroup's mask and from what its manager has on record.
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

// sourceOfUnit is sourceOf under systemd. Every regular change goes through systemd: if it still
// has our mask on record, the file was written directly.
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
