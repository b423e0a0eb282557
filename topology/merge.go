package topology

import (
	"fmt"

	"github.com/quietcore/quietcore/cpuset"
)

// Remembering returns the fresh machine with the places that offline CPUs had in
// old: /sys shows no place of an offline CPU. Online CPUs always have their places
// in fresh. The numbers of the others are chosen such that two CPUs share a core,
// L3, node or socket exactly when the numbers are equal; they are old's numbers
// unless fresh uses those for something else.
//
//	fresh: CPUs 0-2 online; old: 0,1 and 2,3 are cores -> CPU 3 shares the core of CPU 2
func (fresh *Topology) Remembering(old *Topology) (*Topology, error) {
	if fresh == nil {
		return nil, fmt.Errorf("topology: remember: no fresh topology is given")
	}
	if old == nil {
		return fresh, nil
	}
	merged := append([]CPU(nil), fresh.cpus...)
	m := newMemory(fresh)
	var lost cpuset.Set
	for _, c := range old.cpus {
		if _, known := fresh.CPU(c.ID); known {
			m.learn(c, fresh)
		} else {
			lost.Add(c.ID)
		}
	}
	if lost.IsEmpty() {
		return fresh, nil
	}
	for _, c := range old.cpus {
		if lost.Has(c.ID) {
			merged = append(merged, m.place(c))
		}
	}
	o := Options{
		Offline:   fresh.offline.Or(lost),
		Isolated:  fresh.isolated.Or(old.isolated.And(lost)),
		Memory:    map[int]uint64{},
		Distances: m.distances(old, fresh),
	}
	for _, n := range fresh.nodes {
		o.Memory[n.ID] = n.MemoryBytes
	}
	t, err := New(merged, o)
	if err != nil {
		return nil, fmt.Errorf("topology: remember CPUs %s that are off: %w", lost, err)
	}
	return t, nil
}

// level translates the numbers of one kind of thing from old to fresh.
type level struct {
	to   map[int]int // old number -> number in the result
	used map[int]bool
}

func (l *level) learn(old, fresh int) {
	if _, known := l.to[old]; !known {
		l.to[old] = fresh
	}
}

// of translates a number. If fresh has no CPU of that thing, it keeps its number, if free.
func (l *level) of(old int) int {
	if n, known := l.to[old]; known {
		return n
	}
	n := old
	for free := 0; l.used[n]; free++ {
		n = free
	}
	l.used[n], l.to[old] = true, n
	return n
}

// memory is what the online CPUs show about old's numbers.
type memory struct {
	core, l2, l3, die, node, socket level
	mate                            map[int]CPU // old core -> fresh place of one of its CPUs
	placed                          map[int]CPU // old core -> place given to a core without an online CPU
}

func newMemory(fresh *Topology) *memory {
	m := &memory{mate: map[int]CPU{}, placed: map[int]CPU{}}
	for _, l := range m.levels() {
		*l = level{to: map[int]int{}, used: map[int]bool{}}
	}
	for _, c := range fresh.cpus {
		m.core.used[c.Core], m.l2.used[c.L2], m.l3.used[c.L3] = true, true, true
		m.die.used[c.Die], m.node.used[c.Node], m.socket.used[c.Socket] = true, true, true
	}
	return m
}

func (m *memory) levels() []*level {
	return []*level{&m.core, &m.l2, &m.l3, &m.die, &m.node, &m.socket}
}

// learn records a CPU that is in both machines. Old's CPUs come in ascending order, so that
// the lowest one decides if the machines disagree.
func (m *memory) learn(old CPU, fresh *Topology) {
	now, _ := fresh.CPU(old.ID)
	m.l2.learn(old.L2, now.L2)
	m.l3.learn(old.L3, now.L3)
	m.die.learn(old.Die, now.Die)
	m.node.learn(old.Node, now.Node)
	m.socket.learn(old.Socket, now.Socket)
	if _, known := m.mate[old.Core]; !known {
		m.mate[old.Core] = now
	}
}

// place is the place of an offline CPU. A core lies within one L3, node and socket, so
// all its CPUs follow the first.
func (m *memory) place(old CPU) CPU {
	c, known := m.mate[old.Core]
	if !known {
		c, known = m.placed[old.Core]
	}
	if !known {
		c = CPU{Core: m.core.of(old.Core), L2: m.l2.of(old.L2), L3: m.l3.of(old.L3), Die: m.die.of(old.Die),
			Node: m.node.of(old.Node), Socket: m.socket.of(old.Socket)}
		m.placed[old.Core] = c
	}
	c.ID, c.Kind = old.ID, old.Kind
	return c
}

// distances are fresh's, and old's for nodes that fresh does not have.
func (m *memory) distances(old, fresh *Topology) map[int]map[int]int {
	d := map[int]map[int]int{}
	set := func(t *Topology, number func(int) int) {
		for i, a := range t.nodes {
			from := number(a.ID)
			if d[from] == nil {
				d[from] = map[int]int{}
			}
			for j, b := range t.nodes {
				d[from][number(b.ID)] = t.distance[i][j]
			}
		}
	}
	set(old, m.node.of)
	set(fresh, func(id int) int { return id })
	return d
}
