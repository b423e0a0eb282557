package world

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/quietcore/quietcore/internal/state"
)

// disk keeps the state file as text, so that nothing is shared with its writer. Its time stamps are
// written by production code.
type disk struct {
	text   []byte
	failed bool // the last save
}

// bootedBefore is how long before the start of a run the machine booted.
const bootedBefore = time.Minute

// save stores a snapshot at a wall-clock time; elapsed is since the start of the run.
func (d *disk) save(s state.Snapshot, wall time.Time, elapsed time.Duration) {
	text, err := json.Marshal(s.Stamped(wall, bootedBefore+elapsed))
	if err != nil {
		panic(err) // every snapshot has a text
	}
	d.text = text
}

// load is the state that a new daemon finds.
func (d *disk) load(wall time.Time, elapsed time.Duration) state.Snapshot {
	var s state.Snapshot
	if d.text == nil {
		return s
	}
	if err := json.Unmarshal(d.text, &s); err != nil {
		panic(err)
	}
	return s.Timed(wall, bootedBefore+elapsed)
}

// file is the pods in the state file; well is false while the file may be behind: a save is in flight,
// the last one failed, or the daemon has no machine to save from.
func (w *World) file() (saved map[string]state.Pod, well bool) {
	saves := slices.ContainsFunc(w.ops, func(o *Op) bool { return o.Kind == Save })
	if saves || w.disk.failed || w.shell.View().Frozen {
		return nil, false
	}
	found := w.disk.load(w.clock(), w.elapsed)
	return claimPlaces(found.Places(), &found), true
}

// checkAhead requires that the file does not contradict the grant of an owner when masks are written.
func (w *World) checkAhead(o *Op) {
	if o.Kind != Write || o.Values.CPUs.IsZero() || !w.alive {
		return
	}
	saved, well := w.file()
	if !well {
		return
	}
	grants := w.shell.View().Grants()
	for _, p := range w.owners() {
		place, named := saved[p.UID()]
		if grant := grants[p.UID()]; named && p.live() && w.owned(p, place.CPUs) != w.owned(p, grant) {
			w.violate(PropGrant, "%s is written while %s owns %s and the state file has %q", o.Path, p.Name, grant,
				place.CPUs)
		}
	}
}
