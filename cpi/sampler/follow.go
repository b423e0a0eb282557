package sampler

import (
	"slices"
	"time"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/counter"
	"github.com/quietcore/quietcore/cpi/sample"
)

// plan is what a window counts.
type plan struct {
	governor  *governor
	questions []cpi.Question
	pair      int           // containers of running tests, which are counted alone; 0: everybody is
	length    time.Duration // of a further window; 0: it is an interval's
}

// testsAlone is the plan of a further window: the containers of all running tests, and the same
// events as ever.
func (s *Sampler) testsAlone(length time.Duration) plan {
	p := plan{governor: &s.governor, length: length}
	for _, q := range s.o.Questions() {
		if q.Test {
			p.questions, p.pair = append(p.questions, q), p.pair+1+len(q.Suspects)
		}
	}
	return p
}

// plan asks who is in question. Where the budget would shorten a window or leave it out, a
// running test has one of its own, which its pair shares with nobody but whose turn it is.
func (s *Sampler) plan() plan {
	all := s.o.Questions()
	p := plan{governor: &s.governor, questions: all}
	if s.governor.step <= Eighth {
		return p
	}
	tests := slices.DeleteFunc(slices.Clone(all), func(q cpi.Question) bool { return !q.Test })
	if len(tests) == 0 {
		return p
	}
	return plan{governor: &s.tests, questions: tests[:1], pair: 1 + len(tests[0].Suspects)}
}

// places is how many of n containers have a place in this window.
func (p *plan) places(n int) int {
	if p.pair == 0 {
		return p.governor.step.places(n)
	}
	places := p.pair + 1
	for places-sample.Turns(places) < p.pair {
		places++
	}
	return min(n, places)
}

// follow makes the counter follow those of the containers that run now who have a place.
// why is the reason for one that has none, if that is not the plan.
func (s *Sampler) follow(e *edge, p *plan) (why error) {
	s.snapshot(e)
	there := s.currentIDs(e)
	clear(s.left)
	list := s.candidates(e, there)
	most := min(s.o.Most, p.places(len(list)))
	chosen := sample.Choose(list, sample.Watchlist{Questions: p.questions, Salt: s.number}, most)
	s.number++
	clear(s.roles)
	for i := range chosen {
		s.roles[chosen[i].ID] = chosen[i].Role
	}
	for i := range list {
		if id := list[i].ID; s.roles[id] == sample.NoPlace {
			s.left[id] = left{there[id], sample.Unwatched}
			if most == s.o.Most {
				why = &counter.FullError{ID: id, MaxGroups: most}
			}
		}
	}
	for id := range s.cgroupIDs {
		_, still := there[id]
		if _, out := s.left[id]; !still || out {
			s.forget(id)
		}
	}
	for i := range chosen {
		c := &chosen[i]
		if c.Counted {
			continue
		}
		err := s.o.Counter.Follow(c.ID, c.Cgroup)
		if err == nil {
			s.cgroupIDs[c.ID] = there[c.ID]
			continue
		}
		s.forget(c.ID)
		delete(s.roles, c.ID)
		if _, gone := s.o.CgroupID(c.Cgroup); gone == nil {
			s.left[c.ID], why = left{there[c.ID], sample.Unwatched}, err
		}
	}
	return why
}

// candidates are the containers that could be counted; those on CPUs that are left alone
// cannot.
func (s *Sampler) candidates(e *edge, there map[string]uint64) []sample.Candidate {
	list := make([]sample.Candidate, 0, len(there))
	waits := make(map[string]int, len(there))
	for _, c := range e.node.Containers {
		life, is := there[c.ID]
		if !is {
			continue
		}
		if c.Cgroup == wholeHost {
			s.left[c.ID] = left{life, sample.Skipped}
			continue
		}
		if cpus := c.Place.CPUs; cpus != nil && !cpus.IsEmpty() && cpus.SubsetOf(&e.node.Skip) {
			s.left[c.ID] = left{life, sample.Skipped}
			continue
		}
		known, counted := s.cgroupIDs[c.ID]
		waits[c.ID] = s.waits[c.ID]
		list = append(list, sample.Candidate{Container: c, Use: s.used[c.ID], Counted: counted && known == life,
			Waits: waits[c.ID]})
	}
	s.waits = waits
	return list
}

// wholeHost is the root of the cgroups, which cannot be counted by itself: all CPUs idle there. Of
// what runs in it, the kernel's threads, the usage is known by Options.Accounts.
const wholeHost = "/"

// turned notes whose turn it was. A window that was dropped was nobody's.
func (s *Sampler) turned(w *Window) {
	for i := range w.Containers {
		w.Containers[i].Role = s.roles[w.Containers[i].ID]
	}
	if w.Dropped != sample.None {
		return
	}
	for id := range s.waits {
		if s.waits[id]++; s.roles[id] != sample.NoPlace {
			s.waits[id] = 0
		}
	}
}

func (s *Sampler) forget(id string) {
	s.o.Counter.Forget(id)
	delete(s.cgroupIDs, id)
}
