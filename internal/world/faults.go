package world

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/policy"
)

// How an op ends.
const (
	howOK      = "ok"
	howFails   = "fails"
	howLies    = "works and fails"
	howLate    = "times out and comes late"
	howDropped = "times out"
	howHangs   = "hangs"
)

var errInjected = errors.New("input/output error (injected)")

// lateWrite is a write that has timed out and takes effect later.
type lateWrite struct {
	of     *Op
	path   string
	values cgroup.Values
	until  time.Time // when it takes effect at the latest
}

// lateLimit is how long after its timeout a write takes effect at the latest.
const lateLimit = 10 * time.Second

// activeFaults are the faults that are active at the moment.
type activeFaults struct {
	late       []lateWrite
	blind      []string // cgroups that look gone, with their descendants; "/" is all of them
	unreadable []string // cgroups that cannot be read, with their descendants
	// panicking is how the next step panics: before or after it has changed the
	// machine; lasting: every later step of the same event panics, too.
	panicking string
	lasting   bool
	poisoned  map[string]string // how the step of an event panics, by the event's key
	defect    string            // one of Places where the daemon panics; empty: nowhere
	stays     bool              // defect stays active after a panic
}

// Places are where a defect may make the daemon panic: failpoints, log lines, and results of effects.
var Places = []string{
	"event.taken", "event.stepped", "event.handed", "cap.saved", "create.vacated", "update.vacated", "sync.begun",
	"sync.read", "sync.taken", "vanish.found", "log pool", "log container", "result of write", "result of save",
}

// Defect reports whether the daemon panics at a place.
func (w *World) Defect(place string) bool {
	if w.active.defect != place {
		return false
	}
	if !w.active.stays {
		w.active.defect = ""
	}
	w.note("defect at %s", place)
	return true
}

func covers(list []string, path string) bool {
	return slices.ContainsFunc(list, func(p string) bool {
		return p == "/" || path == p || strings.HasPrefix(path, p+"/")
	})
}

// Look reads at once, subject to the active faults. It is safe for concurrent use while the
// world waits for the shell.
func (w *World) Look(what, path string) Result {
	path = strings.Trim(path, "/")
	switch {
	case covers(w.active.unreadable, path):
		return Result{Err: fmt.Errorf("read %s: %w", path, errInjected)}
	case covers(w.active.blind, path):
		return Result{Err: fmt.Errorf("read %s: %w", path, cgroup.ErrGone)}
	}
	if path == "" {
		path = "/"
	}
	if what == "children" {
		names, err := w.kernel.Children(path)
		return Result{Names: names, Err: err}
	}
	e, err := w.kernel.Effective(path)
	return Result{Seen: e, Err: err}
}

// PanicIn is how the step of an event panics: "before" or "after" it has changed the machine; empty:
// it does not.
func (w *World) PanicIn(e policy.Event) string {
	key := eventKey(e)
	if how, ok := w.active.poisoned[key]; ok {
		return how
	}
	how := w.active.panicking
	if how == "" {
		return ""
	}
	w.active.panicking = ""
	w.note("panic %s %s", how, key)
	if w.active.lasting {
		w.active.poisoned[key] = how
	}
	return how
}

// eventKey names an event by its kind and subject.
func eventKey(e policy.Event) string {
	kind := strings.TrimPrefix(fmt.Sprintf("%T", e), "policy.")
	switch e := e.(type) {
	case policy.PodRun:
		return kind + " " + e.Pod.Sandbox
	case policy.PodRemoved:
		return kind + " " + e.Sandbox
	case policy.PodVanished:
		return kind + " " + e.UID
	case policy.ContainerCreate:
		return kind + " " + e.Container.ID
	case policy.ContainerStopped:
		return kind + " " + e.ID
	}
	return kind
}

// apply is a write that takes effect now. Late writes of the same cgroup take effect before it.
func (w *World) apply(path string, v cgroup.Values) error {
	w.landLate(func(l lateWrite) bool { return l.path == path })
	return w.kernel.Apply(context.Background(), path, v)
}

// landLate lets late writes take effect, in order.
func (w *World) landLate(which func(lateWrite) bool) {
	var rest, due []lateWrite
	for _, l := range w.active.late {
		if which(l) {
			due = append(due, l)
		} else {
			rest = append(rest, l)
		}
	}
	w.active.late = rest
	for _, l := range due {
		w.note("late write of %s", l.path)
		_ = w.kernel.Apply(context.Background(), l.path, l.values) // the cgroup may be gone by now
	}
}

// finish ends an op in one of the ways above.
func (w *World) finish(o *Op, how string) {
	w.ops = slices.DeleteFunc(w.ops, func(other *Op) bool { return other == o })
	var r Result
	switch o.Kind {
	case Write:
		r.Err = w.write(o, how)
	case Read:
		r = w.Look(o.What, o.Path)
		if how == howFails {
			r = Result{Err: fmt.Errorf("read %s: %w", o.Path, errInjected)}
		}
	case Save:
		if how != howFails {
			w.disk.save(o.State, w.clock().Add(w.jump), w.elapsed)
		}
		w.disk.failed = how != howOK || w.active.defect == "result of save"
		if how != howOK {
			r.Err = fmt.Errorf("save state: %w", errInjected)
		}
	}
	o.Finish(r)
}

func (w *World) write(o *Op, how string) error {
	switch how {
	case howFails:
		return fmt.Errorf("write %s: %w", o.Path, errInjected)
	case howLies:
		_ = w.apply(o.Path, o.Values)
		return fmt.Errorf("write %s: %w", o.Path, errInjected)
	case howLate:
		w.active.late = append(w.active.late, lateWrite{o, o.Path, o.Values, w.clock().Add(lateLimit)})
		return fmt.Errorf("write %s: %w", o.Path, cgroup.ErrInFlight)
	case howDropped:
		return fmt.Errorf("write %s: %w", o.Path, cgroup.ErrInFlight)
	}
	return w.apply(o.Path, o.Values)
}

// endings are the ways in which an op may end, after "ok".
func (w *World) endings(o *Op) []string {
	var all []string
	add := func(f Fault, hows ...string) {
		if w.has(f) {
			all = append(all, hows...)
		}
	}
	switch o.Kind {
	case Write:
		add(Errors, howFails)
		add(Lies, howLies)
		add(LateEffect, howLate, howDropped)
		add(Hangs, howHangs)
	case Read:
		add(Unreadable, howFails)
		add(Hangs, howHangs)
	case Save:
		add(Disk, howFails, howLies)
		add(Hangs, howHangs)
	}
	return all
}
