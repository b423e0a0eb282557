package world

import (
	"encoding/json"
	"time"

	"github.com/quietcore/quietcore/internal/state"
)

// disk keeps the state file as text, so that nothing is shared with its writer. What the
// file says of time is production's.
type disk struct{ text []byte }

// bootedBefore is how long the machine has been up when the world begins.
const bootedBefore = time.Minute

// save is given the time by the wall and since the world began.
func (d *disk) save(s state.Snapshot, wall time.Time, elapsed time.Duration) {
	text, err := json.Marshal(s.Stamped(wall, bootedBefore+elapsed))
	if err != nil {
		panic(err) // every snapshot has a text
	}
	d.text = text
}

// load is what a new daemon finds.
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
