package sample

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// layout is of two sockets with two L3 domains each, of two cores with two threads: CPUs 0 and 1
// are siblings, 0 to 3 share an L3 domain, 0 to 7 a node.
func layout() *Layout {
	l := &Layout{}
	for cpu := range int32(16) {
		l.Core, l.L3, l.Node = append(l.Core, cpu/2), append(l.L3, cpu/4), append(l.Node, cpu/8)
	}
	return l
}

// table of a window of 10 s.
func table(ids []string, rows []Row, taken []Taken) *ByCPU {
	return NewByCPU(10, ids, len(rows), func(i int) Row { return rows[i] }, taken)
}

func close(a, b float64) bool { return math.Abs(a-b) <= 1e-5*(1+math.Abs(b)) }

// The victim ran for 6 s on CPU 0 and for 2 s on CPU 4, in a window of 10 s.
func TestWhatRanBesideAVictim(t *testing.T) {
	ids := []string{"batch", "far", "other", "victim"}
	const batch, far, other, victim = 0, 1, 2, 3
	rows := []Row{
		{CPU: 4, Who: victim, OnCPU: 2}, {CPU: 0, Who: victim, OnCPU: 6, Instructions: 9e9},
		{CPU: 1, Who: batch, OnCPU: 8, Instructions: 4e9, Misses: 1e6}, // its sibling for three quarters of its time
		{CPU: 0, Who: other, OnCPU: 2, Misses: 3e6},                    // in its L3 domain, and never at its side
		{CPU: 5, Who: other, OnCPU: 4},                                 // its sibling for the rest
		{CPU: 2, Who: batch, OnCPU: 10, Misses: 5e6},
		{CPU: 12, Who: far, OnCPU: 10, Misses: 9e9}, // on another node
	}
	taken := make([]Taken, 16)
	taken[0], taken[12] = Taken{Steal: 2, Interrupts: 1}, Taken{Steal: 9, Interrupts: 9}
	b := table(ids, rows, taken).Beside("victim", layout())
	names := func(d *Domain) (list []string) {
		for i := range d.Most {
			list = append(list, d.Most[i].ID)
		}
		return list
	}
	for _, c := range []struct {
		what      string
		got, want float64
	}{
		{"batch on its siblings", b.Sibling.Most[0].CPUs, 0.75 * 0.8},
		{"its instructions there", b.Sibling.Most[0].Instructions, 0.75 * 4e8},
		{"other on its siblings", b.Sibling.Most[1].CPUs, 0.25 * 0.4},
		{"all on its siblings", b.Sibling.All.CPUs, 0.6 + 0.1},
		{"all in its L3 domain", b.L3.All.CPUs, 0.75*2 + 0.25*0.4},
		{"misses in it", b.L3.All.Misses, 0.75 * 9e5},
		{"all on its node", b.Node.All.CPUs, 2.4},
		{"the hypervisor's", b.Steal, 0.75 * 0.2}, {"interrupts'", b.Interrupts, 0.75 * 0.1},
	} {
		if !close(c.got, c.want) {
			t.Errorf("%s: %v, want %v", c.what, c.got, c.want)
		}
	}
	if got := names(&b.L3); !slices.Equal(got, []string{"batch", "other"}) {
		t.Errorf("in its L3 domain: %v", got)
	}
	if table(ids, rows, nil).Beside("nobody", layout()) != nil {
		t.Error("who did not run has neighbours")
	}
	e := Evidence{Resource: Cache, Beside: b, Good: Means{Windows: 1, MPKI: 2}, Bad: Means{Windows: 1, MPKI: 6}}
	const want = "resource: L3 (in its L3 domain: batch 1.35 CPUs (3e+08 instructions/s, 4.5e+05 misses/s), " +
		"other 0.25 CPUs, the hypervisor took 15 % of its CPUs, interrupts took 8 % of its CPUs, "
	if text := e.String(); !strings.HasPrefix(text, want) {
		t.Errorf("%s\nwant\n%s", text, want)
	}
}

// Nobody takes the cache of a victim beside which nobody ran.
func TestAloneNobodyIsToBlame(t *testing.T) {
	good := Sample{CPI: 1, MPKI: 2, HasMPKI: true, Reference: true}
	for _, c := range []struct {
		mpki        float64
		with, alone Resource
	}{{6, Cache, Memory}, {2, Memory, Unknown}} {
		bad := Sample{CPI: 2, MPKI: c.mpki, HasMPKI: true, Reference: true}
		list := windows(good, bad, 3)
		busy := Domain{All: Neighbour{CPUs: 1}}
		e := Blame(list, 1.5, Near{Beside: &Beside{L3: busy, Node: busy}})
		far := Blame(list, 1.5, Near{Beside: &Beside{Node: Domain{All: Neighbour{CPUs: c.mpki - 2}}}})
		if e.Resource != c.with || far.Resource != c.alone {
			t.Errorf("%v misses: %s with a neighbour and %s without, want %s and %s", c.mpki, e.Resource, far.Resource,
				c.with, c.alone)
		}
	}
}

// Whatever ran where: siblings are part of the L3 domain and that of the node, nobody is its own
// neighbour, and together they had no more than the window's CPUs.
func TestDomainsContainOneAnother(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := []string{"a", "b", "c", "d", "e"}
		left := [16]float32{}
		for i := range left {
			left[i] = 10
		}
		var rows []Row
		for range rapid.IntRange(0, 60).Draw(t, "rows") {
			cpu := rapid.IntRange(0, 15).Draw(t, "CPU")
			ran := left[cpu] * float32(rapid.Float64Range(0, 1).Draw(t, "share"))
			left[cpu] -= ran
			rows = append(rows, Row{CPU: cpu, Who: rapid.IntRange(0, 4).Draw(t, "who"), OnCPU: ran,
				Instructions: ran * 1e9, Misses: ran * 1e6})
		}
		all := table(ids, rows, nil)
		for _, id := range ids {
			b := all.Beside(id, layout())
			if b == nil {
				continue
			}
			s, l3, n := &b.Sibling.All, &b.L3.All, &b.Node.All
			const off = 1e-6
			if !(s.CPUs >= 0 && s.CPUs <= l3.CPUs+off && l3.CPUs <= n.CPUs+off && s.CPUs <= 1+off && n.CPUs <= 8+off) {
				t.Fatalf("%s: %v CPUs of siblings, %v of the L3 domain, %v of the node", id, s.CPUs, l3.CPUs, n.CPUs)
			}
			for _, d := range []*Domain{&b.Sibling, &b.L3, &b.Node} {
				if len(d.Most) > mostBeside || !close(d.All.Instructions, 1e9*d.All.CPUs) {
					t.Fatalf("%s: %+v", id, d)
				}
				for i := range d.Most {
					if d.Most[i].ID == id || i > 0 && d.Most[i].CPUs > d.Most[i-1].CPUs+1e-6 {
						t.Fatalf("%s: %+v", id, d)
					}
				}
			}
		}
	})
}

// A pod of two containers ran for 6 s on the core of CPUs 0 and 1, and for 2 s on that of 4 and 5. What others had of
// the first counts for three quarters, on the same CPU as on its sibling.
func TestWhatOthersHadOfAPodsCores(t *testing.T) {
	ids := []string{"db-a", "db-b", "batch", "web", "kernel"}
	rows := []Row{{CPU: 0, Who: 0, OnCPU: 4}, {CPU: 1, Who: 1, OnCPU: 2}, {CPU: 4, Who: 0, OnCPU: 2},
		{CPU: 0, Who: 2, OnCPU: 3}, {CPU: 1, Who: 2, OnCPU: 1}, {CPU: 5, Who: 3, OnCPU: 8}, {CPU: 2, Who: 3, OnCPU: 9},
		{CPU: 0, Who: 4, OnCPU: 1}, {CPU: 40, Who: 2, OnCPU: 9}}
	group := func(id string) string {
		return map[string]string{"db-a": "db", "db-b": "db", "batch": "batch", "web": "web"}[id]
	}
	for _, c := range []struct {
		of   string
		want map[string]float64
	}{
		{"db", map[string]float64{"batch": 0.75 * 0.4, "web": 0.25 * 0.8}},
		{"batch", map[string]float64{"db": 0.6}},
		{"web", map[string]float64{"db": 8.0 / 17 * 0.2}},
		{"nobody", map[string]float64{}},
	} {
		got := table(ids, rows, nil).OnCores(layout().Core, group, c.of)
		for other, want := range c.want {
			if !close(got[other], want) {
				t.Errorf("of %s: %s had %v, want %v", c.of, other, got[other], want)
			}
		}
		if len(got) != len(c.want) {
			t.Errorf("of %s: %v, want %v", c.of, got, c.want)
		}
	}
}
