package policy

import (
	"fmt"
	"testing"
	"time"
)

// A recorder reads the whole machine when Turn allows it, and otherwise only where
// it would grow without bound; what it holds always replays to where the machine is.
func TestTheRecorderWaitsForAMomentToReadTheMachine(t *testing.T) {
	const most = 4
	for _, c := range []struct {
		name    string
		turns   bool // whether a moment comes after every event
		longest int  // events after a checkpoint
	}{
		{"a moment after every event", true, most},
		{"no moment at all", false, 2 * most},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, r, at := small(t, Config{}), NewRecorder(most), time.Unix(1e9, 0)
			longest := 0
			for i := range 10 * most {
				e := PodRun{Pod: ls(fmt.Sprint("p", i), 100, nil)}
				r.Add(m, at, e)
				told(t, m, e)
				longest = max(longest, len(r.new.events))
				if c.turns {
					r.Turn(m, at)
				}
				records, latest := r.Records(), r.Latest()
				if n := len(r.old.events) + len(r.new.events); i >= most && n < most {
					t.Errorf("after %d events %d are kept, fewer than %d", i+1, n, most)
				}
				for _, list := range [][]Record{records, latest} {
					again := small(t, Config{})
					for _, record := range list {
						if _, err := again.Step(record.At, record.Event()); err != nil {
							t.Fatal(err)
						}
					}
					if got, want := describe(again.Snapshot()), describe(m.Snapshot()); got != want {
						t.Fatalf("after %d events the replay ends with\n%s, was\n%s", i+1, got, want)
					}
				}
			}
			if longest != c.longest {
				t.Errorf("up to %d events came after a checkpoint, want %d", longest, c.longest)
			}
		})
	}
}
