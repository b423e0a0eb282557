package world

import (
	"encoding/json"
	"time"

	"github.com/quietcore/quietcore/internal/state"
)

// disk keeps the state file as text, so that nothing is shared with its writer.
type disk struct {
	text  []byte
	saved time.Duration // since the machine started
	left  []time.Duration
}

// save is given the time by the wall and since the machine started.
func (d *disk) save(s state.Snapshot, wall time.Time, up time.Duration) {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // every snapshot has a text
	}
	d.text, d.saved, d.left = text, up, nil
	for _, c := range s.Caps {
		d.left = append(d.left, c.Until.Sub(wall))
	}
}

// load is what a new daemon finds; caps run for as long as they had left.
func (d *disk) load(wall time.Time, up time.Duration) state.Snapshot {
	var s state.Snapshot
	if d.text == nil {
		return s
	}
	if err := json.Unmarshal(d.text, &s); err != nil {
		panic(err)
	}
	for i := range s.Caps {
		s.Caps[i].Until = wall.Add(d.left[i] - (up - d.saved))
	}
	return s
}
