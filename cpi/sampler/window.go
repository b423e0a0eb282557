package sampler

import (
	"cmp"
	"slices"
	"time"

	"github.com/quietcore/quietcore/cpi/counter"
	"github.com/quietcore/quietcore/cpi/sample"
)

// Window is what came out of a window. Nobody writes to it any more.
type Window struct {
	End    time.Time
	Boot   time.Duration // of the end, on the clock that neither stops nor jumps
	Length time.Duration
	// Failed is why nothing at all is known; the rest is empty then.
	Failed error
	// Dropped is why no container has a sample.
	Dropped    sample.Reason
	Containers []Observed // in the order of Node
	Pods       []sample.Result
	Running    [sample.NumEvents]float64
	Reference  bool           // CPIs here are in reference cycles
	Faults     counter.Faults // so far
	Followed   int
	// Unfollowed containers run and are not counted; Unfollowable is why, for one of them.
	Unfollowed   int
	Unfollowable error
}

// Observed is a container in a window.
type Observed struct {
	Container
	Dropped sample.Reason // not None: there is no sample
	sample.Sample
	Delta sample.Counts
	// Threads at the window's end, of what may be capped; 0: not known.
	Threads int32
}

// edge is one end of a window.
type edge struct {
	node     Node
	reading  counter.Reading
	accounts [2]map[string]time.Duration // before the reading and after
	sample   sample.Edge
	capped   map[string]bool // by ID; of those that are
	worth    [sample.NumEvents]uint64
}

// fill makes the edge of what was read. lives are the cgroups that are there.
func (e *edge) fill(lives map[string]uint64, setup uint64, present [sample.NumEvents]bool, waits bool) {
	r := &e.reading
	s := &e.sample
	s.Setup, s.CPUs, s.Missed = setup+r.Faults.Reopened, r.CPUs, r.Faults.Missed
	s.Lost = time.Duration(r.Other.OnCPU - min(r.Other.Counted, r.Other.OnCPU))
	s.Present, s.Waits = present, waits
	for i := range sample.NumEvents {
		s.Enabled[i], s.Running[i] = time.Duration(r.Enabled[i]), time.Duration(r.Running[i])
	}
	s.Groups = s.Groups[:0]
	clear(e.capped)
	for i := range e.node.Containers {
		c := &e.node.Containers[i]
		life, there := lives[c.ID]
		if !there {
			continue
		}
		g := sample.Group{ID: c.ID, Pod: c.PodUID, Life: life, Account: e.account(c.ID)}
		if at, found := slices.BinarySearchFunc(r.Groups, c.ID, func(g counter.Group, id string) int {
			return cmp.Compare(g.ID, id)
		}); found {
			g.Counts = e.countsOf(&r.Groups[at].Counts)
		}
		s.Groups = append(s.Groups, g)
		if c.Capped {
			e.capped[c.ID] = true
		}
	}
}

func (e *edge) account(id string) (a sample.Account) {
	var earlier, later bool
	a.Before, earlier = e.accounts[0][id]
	a.After, later = e.accounts[1][id]
	a.Known = earlier && later
	return a
}

func (e *edge) countsOf(c *counter.Counts) sample.Counts {
	events := c.Events
	for i, worth := range e.worth {
		events[i] *= max(worth, 1)
	}
	return sample.Counts{
		Events: events, OnCPU: time.Duration(c.OnCPU), Counted: time.Duration(c.Counted),
		Wait: time.Duration(c.RunQueueWait), Switches: c.Switches,
	}
}

// windowOf names the results of a judged window.
func windowOf(from, to *edge, rules sample.Rules) *Window {
	judged := sample.Judge(&from.sample, &to.sample, rules)
	w := &Window{
		End: judged.End, Boot: judged.Boot, Length: judged.Length, Dropped: judged.Dropped,
		Containers: make([]Observed, 0, len(judged.Containers)), Pods: judged.Pods, Running: judged.Running,
		Reference: judged.Reference, Faults: to.reading.Faults,
	}
	names := make(map[string]*Container, len(judged.Containers))
	for _, e := range []*edge{from, to} { // the later one's word counts
		for i := range e.node.Containers {
			c := &e.node.Containers[i]
			names[c.ID] = c
		}
	}
	for _, r := range judged.Containers {
		o := Observed{Container: *names[r.ID], Dropped: r.Dropped, Sample: r.Sample, Delta: r.Delta}
		o.Capped = from.capped[r.ID] || to.capped[r.ID]
		w.Containers = append(w.Containers, o)
	}
	return w
}
