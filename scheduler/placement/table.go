package placement

import (
	"maps"
	"sync/atomic"
)

// table finds the present state of a node. It is never changed, so that those who look, which each pod
// does hundreds of times, hold nothing: a node that was never seen makes another table.
type table struct {
	// settled has nearly all nodes, recent those that have come since it was made: at most its square
	// root, so that n new nodes cost n·√n copied entries, where a copy of all for each would cost n².
	settled, recent map[string]*slot
}

// slot holds nil for a node that is forgotten, and beside its state what most look for in it.
type slot struct {
	state  atomic.Pointer[State]
	glance atomic.Uint64
}

func (s *slot) store(state *State) {
	s.state.Store(state)
	s.glance.Store(uint64(state.Glance()))
}

// state of a node; nil: nothing is known of it.
func (t *table) state(name string) *State {
	if s := t.slot(name); s != nil {
		return s.state.Load()
	}
	return nil
}

// glance at a node; 0: nothing is known of it.
func (t *table) glance(name string) Glance {
	if s := t.slot(name); s != nil {
		return Glance(s.glance.Load())
	}
	return 0
}

func (t *table) slot(name string) *slot {
	if s := t.settled[name]; s != nil {
		return s
	}
	return t.recent[name]
}

// with has one more node. Those that are forgotten leave when recent nodes settle.
func (t *table) with(name string, s *State) *table {
	fresh := &slot{}
	fresh.store(s)
	if n := len(t.recent); n*n < len(t.settled) {
		next := &table{settled: t.settled, recent: maps.Clone(t.recent)}
		if next.recent == nil {
			next.recent = map[string]*slot{}
		}
		next.recent[name] = fresh
		return next
	}
	next := &table{settled: make(map[string]*slot, len(t.settled)+len(t.recent)+1)}
	for _, from := range []map[string]*slot{t.settled, t.recent} {
		for name, s := range from {
			if s.state.Load() != nil {
				next.settled[name] = s
			}
		}
	}
	next.settled[name] = fresh
	return next
}
