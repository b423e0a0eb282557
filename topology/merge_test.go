package topology

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/quietcore/quietcore/cpuset"
)

// shuffled is the machine with every number changed, as another boot or another
// set of online CPUs might number it.
func shuffled(t *rapid.T, cpus []CPU, label string) []CPU {
	renumber := func(kind string, of func(*CPU) *int) func(cpus []CPU) {
		return func(cpus []CPU) {
			offset := rapid.IntRange(0, 5).Draw(t, label+kind)
			for i := range cpus {
				*of(&cpus[i]) += offset
			}
		}
	}
	out := append([]CPU(nil), cpus...)
	renumber("core", func(c *CPU) *int { return &c.Core })(out)
	renumber("l2", func(c *CPU) *int { return &c.L2 })(out)
	renumber("l3", func(c *CPU) *int { return &c.L3 })(out)
	renumber("die", func(c *CPU) *int { return &c.Die })(out)
	renumber("socket", func(c *CPU) *int { return &c.Socket })(out)
	return out
}

func drawGrid(t *rapid.T) *Topology {
	n := func(name string, most int) int { return rapid.IntRange(1, most).Draw(t, name) }
	g := Grid{Sockets: n("sockets", 3), NodesPerSocket: n("nodes", 2), L3PerNode: n("l3s", 2),
		CoresPerL3: n("cores", 3), ThreadsPerCore: n("threads", 2),
		Numbering: rapid.SampledFrom([]Numbering{Adjacent, Split}).Draw(t, "numbering")}
	m, err := g.Build()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// seen is what /sys shows of the machine while only some CPUs are on.
func seen(t *rapid.T, m *Topology, label string) *Topology {
	var on []CPU
	for _, c := range m.cpus {
		if rapid.IntRange(0, 2).Draw(t, fmt.Sprintf("%s cpu%d", label, c.ID)) > 0 {
			on = append(on, c)
		}
	}
	if len(on) == 0 {
		on = m.cpus[:1]
	}
	on = shuffled(t, on, label)
	fresh, err := New(on, Options{Offline: m.Known().Minus(listed(on)), Distances: gridlike(m)})
	if err != nil {
		t.Fatal(err)
	}
	return fresh
}

func listed(cpus []CPU) (s cpuset.Set) {
	for _, c := range cpus {
		s.Add(c.ID)
	}
	return s
}

func gridlike(m *Topology) map[int]map[int]int {
	d := map[int]map[int]int{}
	for i, a := range m.nodes {
		d[a.ID] = map[int]int{}
		for j, b := range m.nodes {
			d[a.ID][b.ID] = m.distance[i][j]
		}
	}
	return d
}

// samePartitions fails unless two machines group the CPUs that both know alike.
func samePartitions(t *rapid.T, got, want *Topology) {
	for name, of := range map[string]func(CPU) int{
		"core": func(c CPU) int {
			return c.Core
		}, "l2": func(c CPU) int { return c.L2 }, "l3": func(c CPU) int { return c.L3 },
		"die": func(c CPU) int {
			return c.Die
		}, "node": func(c CPU) int { return c.Node }, "socket": func(c CPU) int { return c.Socket },
	} {
		for _, a := range got.cpus {
			for _, b := range got.cpus {
				wa, aok := want.CPU(a.ID)
				wb, bok := want.CPU(b.ID)
				if !aok || !bok {
					continue
				}
				if (of(a) == of(b)) != (of(wa) == of(wb)) {
					t.Fatalf("CPUs %d and %d: same %s is %v, want %v", a.ID, b.ID, name, of(a) == of(b),
						of(wa) == of(wb))
				}
			}
		}
	}
}

func TestRememberingKeepsThePartitions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := drawGrid(t)
		known := whole
		for step := range 3 {
			fresh := seen(t, whole, fmt.Sprint("step", step))
			merged, err := fresh.Remembering(known)
			if err != nil {
				t.Fatal(err)
			}
			if merged.Known() != whole.Known() {
				t.Fatalf("knows CPUs %s, want %s", merged.Known(), whole.Known())
			}
			if merged.Online() != fresh.Online() || merged.Offline() != whole.Known().Minus(fresh.Online()) {
				t.Fatalf("online %s, offline %s; fresh online %s", merged.Online(), merged.Offline(), fresh.Online())
			}
			for _, c := range fresh.cpus {
				if now, _ := merged.CPU(c.ID); now != c {
					t.Fatalf("CPU %d that is on moved from %+v to %+v", c.ID, c, now)
				}
			}
			samePartitions(t, merged, whole)
			for _, a := range merged.cpus {
				for _, b := range merged.cpus {
					if got, want := distanceOf(merged, a.ID, b.ID), distanceOf(whole, a.ID, b.ID); got != want {
						t.Fatalf("distance of CPUs %d and %d is %d, want %d", a.ID, b.ID, got, want)
					}
				}
			}
			known = merged
		}
	})
}

func distanceOf(m *Topology, a, b int) int {
	return m.Distance(m.cores[m.CoreOf(a)].Node, m.cores[m.CoreOf(b)].Node)
}

func TestRememberingAMachineThatChanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Two unrelated machines: whatever comes out is a machine whose CPUs
		// that are on are where fresh has them.
		fresh, old := seen(t, drawGrid(t), "fresh"), seen(t, drawGrid(t), "old")
		merged, err := fresh.Remembering(old)
		if err != nil {
			t.Fatal(err)
		}
		if merged.Online() != fresh.Online() || merged.Known() != fresh.Known().Or(old.Known()) {
			t.Fatalf("online %s, known %s", merged.Online(), merged.Known())
		}
		samePartitions(t, merged, fresh)
	})
}

func TestRememberingNothing(t *testing.T) {
	m, err := Grid{CoresPerL3: 2}.Build()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := m.Remembering(nil); err != nil || got != m {
		t.Errorf("without an old topology: %v, %v", got, err)
	}
	if got, err := m.Remembering(m); err != nil || got != m {
		t.Errorf("of the same machine: %v, %v", got, err)
	}
	var none *Topology
	if _, err := none.Remembering(m); err == nil {
		t.Error("remembering without a fresh topology was accepted")
	}
}
