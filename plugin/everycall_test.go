package plugin

import (
	"flag"
	"slices"
	"testing"

	sim "github.com/quietcore/quietcore/internal/world"
)

var callLives = flag.Int("world.calls", 2, "in how many lives every call of the daemon endsBad in every way")

// How a call ends, in the words of the world's traces.
const (
	endsBad   = "fails"
	endsLying = "works and fails" // of a save: half of it is done
	endsLate  = "times out and comes late"
	endsLost  = "times out"
	endsNever = "hangs"
)

// endingsOf a call: of itself, and then of the next one of the same kind on the same cgroup.
func endingsOf(c sim.Choice) [][]string {
	all := [][]string{{endsNever}, {endsNever, endsBad}, {endsBad, endsNever}, {endsBad}, {endsBad, endsBad}}
	switch c.Do {
	case string(sim.Write):
		return append(all, []string{endsLying}, []string{endsLate}, []string{endsLost}, []string{endsLate, endsBad},
			[]string{endsLying, endsLost})
	case string(sim.Save):
		return append(all, []string{endsLying})
	case string(sim.Read):
		return all
	}
	return nil
}

// with is a trace in which a call, and the next one of its key, end in such ways; dies: then the daemon is killed, and
// another one starts.
func with(trace []sim.Choice, at int, ways []string, dies bool) []sim.Choice {
	all := slices.Clone(trace[:at])
	key := trace[at]
	for i, c := range trace[at:] {
		if len(ways) > 0 && c.Do == key.Do && c.What == key.What {
			c.How = ways[0]
			all = append(all, c)
			if c.How == endsNever {
				all = append(all, sim.Choice{Do: "wait", What: "1.1s"}, sim.Choice{Do: "release", What: keyOf(c)})
				if len(ways) > 1 {
					all = append(all, sim.Choice{Do: c.Do, What: c.What, How: ways[1]})
					ways = nil
				} else {
					all = append(all, sim.Choice{Do: c.Do, What: c.What, How: key.How})
				}
			}
			if len(ways) > 0 {
				ways = ways[1:]
			}
			if i == 0 && dies {
				all = append(all, sim.Choice{Do: "kill"}, sim.Choice{Do: "start"}, sim.Choice{Do: "connect"})
			}
			continue
		}
		all = append(all, c)
	}
	return all
}

func keyOf(c sim.Choice) string {
	if c.What == "" {
		return c.Do
	}
	return c.Do + " " + c.What
}

// TestAFaultAtEveryCall: whatever becomes of one call of a life in which nothing else goes wrong, and of the one that
// is tried in its place, the promises are kept, and a daemon that is killed then leaves what its successor needs.
func TestAFaultAtEveryCall(t *testing.T) {
	runs, calls := 0, 0
	for seed := range uint64(*callLives) {
		life := sim.Play(sim.Config{Seed: seed, Claims: seed%2 == 0, Steps: 90, Gates: sim.Gates{Reads: true}},
			newSimulated)
		if life.Violation != nil {
			t.Fatal(life)
		}
		type doom struct {
			at   int
			ways []string
			dies bool
		}
		var dooms []doom
		for i, c := range life.Trace {
			ways := endingsOf(c)
			if len(ways) > 0 {
				calls++
			}
			for _, w := range ways {
				dooms = append(dooms, doom{i, w, false}, doom{i, w, true})
			}
		}
		index := make([]uint64, len(dooms))
		for i := range index {
			index[i] = uint64(i)
		}
		inOrder(index, func(i uint64) *sim.Report {
			d := dooms[i]
			return sim.Play(sim.Config{Seed: seed, Faults: sim.AllFaults, Claims: seed%2 == 0,
				Gates: sim.Gates{Reads: true}, Trace: with(life.Trace, d.at, d.ways, d.dies)}, newSimulated)
		}, func(r *sim.Report) {
			if runs++; r.Violation != nil && !t.Failed() {
				t.Error(r)
			}
		})
	}
	t.Logf("%d calls of %d lives, %d ways", calls, *callLives, runs)
	if calls < 20**callLives {
		t.Errorf("%d calls are few", calls)
	}
}
