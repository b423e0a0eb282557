package placement

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// This file has the rules by which Koordinator's scheduler takes CPUs, for the comparison, and the cases of
// its plugin's own tests that are about them.

// koordinator does as its scheduler: it knows what CPUs it told pods, not what nodes keep for others.
func (c *paper) koordinator(p *policy.Pod, most bool) (*paperNode, string) {
	list := c.byRoom(p)
	if most {
		slices.Reverse(list)
	}
	for _, n := range list {
		if p.Labels[policy.LabelClass] == "LS" {
			return n, ""
		}
		t := n.machine.Topology()
		free := t.Online().Minus(n.machine.Snapshot().Ledger.Rules.Kubelet.Reserved)
		for _, cpus := range n.told {
			free.RemoveSet(&cpus)
		}
		a := accumulator{t: t, n: int(p.Resources.RequestMilli / 1000), most: most,
			full: !strings.Contains(p.Annotations[policy.AnnSpec], "Spread")}
		if cpus, ok := a.place(free, p.Annotations[policy.AnnNUMASpec] != ""); ok {
			o := policy.Offer{CPUs: cpus}
			return n, o.Status()
		}
	}
	return nil, ""
}

// accumulator takes CPUs by Koordinator's rules: first fit, level by level.
type accumulator struct {
	t    *topology.Topology
	n    int
	full bool // whole cores before others
	most bool // of places with room for all, the fullest
}

// place takes CPUs of one NUMA node, if it has to be one: the first that has enough by the strategy.
func (a *accumulator) place(free cpuset.Set, single bool) (cpuset.Set, bool) {
	if !single {
		return a.take(free)
	}
	for _, part := range a.nodes(free, free) {
		if cpus, ok := a.take(part); ok {
			return cpus, true
		}
	}
	return cpuset.Set{}, false
}

// take looks for a NUMA node that has all, for a socket that has all, and then takes what there is.
func (a *accumulator) take(free cpuset.Set) (cpuset.Set, bool) {
	if free.Count() < a.n {
		return cpuset.Set{}, false
	}
	var got cpuset.Set
	if a.full || a.t.ThreadsPerCore() == 1 {
		whole := a.wholeCores(free)
		for _, part := range append(a.nodes(whole, free), a.sockets(whole)...) {
			if part.Count() >= a.n {
				return first(a.byCore(part), a.n), true
			}
		}
		got = a.greedy(whole)
	} else if list := a.spreadIn(free); list != nil {
		return first(list, a.n), true
	}
	for _, cpu := range a.spread(a.rest(free.Minus(got), got)) {
		if got.Count() < a.n {
			got.Add(cpu)
		}
	}
	return got, true
}

// nodes are the parts of a set in NUMA nodes, in the strategy's order: by their CPUs, then by what is free in
// their socket.
func (a *accumulator) nodes(of, free cpuset.Set) (parts []cpuset.Set) {
	socket := map[int]int{} // free CPUs of a NUMA node's socket
	for i, n := range a.t.Nodes() {
		parts = append(parts, n.CPUs.And(of))
		for _, s := range a.t.Sockets() {
			if n.CPUs.Intersects(&s.CPUs) {
				socket[i] = s.CPUs.CountAnd(&free)
			}
		}
	}
	order := indexes(len(parts))
	slices.SortStableFunc(order, func(i, j int) int {
		return cmp.Or(a.by(parts[i].Count(), parts[j].Count()), a.by(socket[i], socket[j]))
	})
	return arranged(parts, order)
}

// sockets are the parts of a set in sockets, in the strategy's order.
func (a *accumulator) sockets(of cpuset.Set) (parts []cpuset.Set) {
	for _, s := range a.t.Sockets() {
		parts = append(parts, s.CPUs.And(of))
	}
	slices.SortStableFunc(parts, func(x, y cpuset.Set) int { return a.by(x.Count(), y.Count()) })
	return parts
}

// by compares numbers of CPUs as the strategy does: fewest first, or most.
func (a *accumulator) by(x, y int) int {
	if a.most {
		return cmp.Compare(x, y)
	}
	return cmp.Compare(y, x)
}

func indexes(n int) (list []int) {
	for i := range n {
		list = append(list, i)
	}
	return list
}

func arranged(parts []cpuset.Set, order []int) (list []cpuset.Set) {
	for _, i := range order {
		list = append(list, parts[i])
	}
	return list
}

func first(list []int, n int) cpuset.Set { return cpuset.Of(list[:n]...) }

// greedy takes all of the sockets that have not enough, those with most whole cores first, whatever the
// strategy; then cores one by one of the one with fewest.
func (a *accumulator) greedy(whole cpuset.Set) (got cpuset.Set) {
	parts := a.sockets(whole)
	slices.SortStableFunc(parts, func(x, y cpuset.Set) int { return cmp.Compare(y.Count(), x.Count()) })
	var enough []cpuset.Set
	for _, part := range parts {
		if part.Count() > a.n-got.Count() {
			enough = append(enough, part)
			continue
		}
		got.AddSet(&part)
	}
	slices.SortStableFunc(enough, func(x, y cpuset.Set) int { return cmp.Compare(x.Count(), y.Count()) })
	for _, part := range enough {
		for _, core := range a.t.Cores() {
			cpus := cpuset.Of(core.CPUs...)
			if cpus.SubsetOf(&part) && got.Count()+cpus.Count() <= a.n {
				got.AddSet(&cpus)
			}
		}
	}
	return got
}

func (a *accumulator) wholeCores(free cpuset.Set) (whole cpuset.Set) {
	for _, core := range a.t.Cores() {
		if cpus := cpuset.Of(core.CPUs...); cpus.SubsetOf(&free) {
			whole.AddSet(&cpus)
		}
	}
	return whole
}

// byCore are the CPUs of a part, core by core.
func (a *accumulator) byCore(part cpuset.Set) (list []int) {
	for _, core := range a.t.Cores() {
		for _, cpu := range core.CPUs {
			if part.Has(cpu) {
				list = append(list, cpu)
			}
		}
	}
	return list
}

// spreadIn looks for a NUMA node with enough cores that have a free thread, then for one with enough CPUs, and
// then for a socket; nil: there is none.
func (a *accumulator) spreadIn(free cpuset.Set) []int {
	var once []cpuset.Set // one thread of each core
	for _, part := range a.nodes(free, free) {
		if once = append(once, a.oneEach(part)); once[len(once)-1].Count() >= a.n {
			return a.spread(slices.Collect(part.All()))
		}
	}
	for _, part := range append(a.nodes(free, free), a.sockets(free)...) {
		if part.Count() >= a.n {
			return a.spread(slices.Collect(part.All()))
		}
	}
	return nil
}

// oneEach is the first free thread of each core.
func (a *accumulator) oneEach(part cpuset.Set) (list cpuset.Set) {
	for _, core := range a.t.Cores() {
		if i := slices.IndexFunc(core.CPUs, part.Has); i >= 0 {
			list.Add(core.CPUs[i])
		}
	}
	return list
}

// spread puts a thread of each core first, in the order of the list, then another of each.
func (a *accumulator) spread(list []int) (out []int) {
	for len(list) > 0 {
		var later []int
		seen := map[int]bool{}
		for _, cpu := range list {
			if core := a.t.CoreOf(cpu); seen[core] {
				later = append(later, cpu)
			} else {
				seen[core] = true
				out = append(out, cpu)
			}
		}
		list = later
	}
	return out
}

// rest are the CPUs that are left: those of the socket with most of what was taken first, then by what is free
// in socket and NUMA node as the strategy has it, and cores with fewer free threads before others.
func (a *accumulator) rest(free, got cpuset.Set) (list []int) {
	type part struct {
		core                       *topology.Core
		cpus                       []int
		taken, inSocket, inNode, n int
	}
	var parts []part
	for i := range a.t.Cores() {
		core := &a.t.Cores()[i]
		cpus := slices.DeleteFunc(slices.Clone(core.CPUs), func(cpu int) bool { return !free.Has(cpu) })
		socket, node := a.t.Sockets()[core.Socket].CPUs, a.t.Nodes()[core.Node].CPUs
		parts = append(parts, part{core, cpus, socket.CountAnd(&got), socket.CountAnd(&free), node.CountAnd(&free),
			len(cpus)})
	}
	slices.SortStableFunc(parts, func(x, y part) int {
		return cmp.Or(cmp.Compare(y.taken, x.taken), a.by(x.inSocket, y.inSocket), a.by(x.inNode, y.inNode),
			cmp.Compare(x.n, y.n), cmp.Compare(x.core.Socket, y.core.Socket))
	})
	for _, p := range parts {
		list = append(list, p.cpus...)
	}
	return list
}

// TestKoordinatorsRules has the cases of Koordinator's tests of the search for CPUs, as of 08ce5939
// (pkg/scheduler/plugins/nodenumaresource/cpu_accumulator_test.go), but for those of exclusive policies, which
// no pod of the comparison asks for. A machine is sockets, NUMA nodes a socket and cores a node, of two threads.
func TestKoordinatorsRules(t *testing.T) {
	const full, spread = true, false
	const most, least = true, false
	for _, c := range []struct {
		full, most               bool
		sockets, nodes, cores, n int
		taken, want              string
	}{
		{full, most, 1, 1, 4, 2, "", "0-1"},
		{full, most, 1, 1, 4, 2, "0-1", "2-3"},
		{full, most, 2, 1, 4, 8, "", "0-7"},
		{full, most, 2, 1, 4, 12, "", "0-11"},
		{full, most, 2, 1, 4, 8, "0-1", "8-15"},
		{full, most, 2, 2, 4, 6, "0-5,16-23", "24-29"},
		{full, most, 2, 2, 4, 12, "0-5,16-23", "6-15,24-25"},
		{full, most, 2, 2, 4, 4, "0-3,8-11", "4-7"},
		{full, most, 2, 2, 2, 4, "0,2,4,8,12", "10-11,14-15"},
		{full, most, 2, 2, 2, 6, "0,2,4,8,10,12", "5-7,13-15"},
		{full, most, 2, 2, 2, 6, "0,2,4,8-10,12", "6-7,11,13-15"},

		{full, least, 1, 1, 4, 2, "", "0-1"},
		{full, least, 1, 1, 4, 2, "0-1", "2-3"},
		{full, least, 2, 1, 4, 8, "", "0-7"},
		{full, least, 2, 1, 4, 12, "", "0-11"},
		{full, least, 2, 1, 4, 8, "0-1", "8-15"},
		{full, least, 2, 2, 4, 6, "0-5,16-23", "8-13"},
		{full, least, 2, 2, 4, 12, "0-5,16-23", "6-15,24-25"},
		{full, least, 2, 2, 4, 4, "0-3,8-11", "16-19"},
		{full, least, 2, 2, 2, 4, "0,2,4,8,12", "10-11,14-15"},
		{full, least, 2, 2, 2, 6, "0,2,4,8,10,12", "1,3,6-7,14-15"},
		{full, least, 2, 2, 4, 6, "0,2,4,8-10,12", "16-21"},

		{spread, most, 1, 1, 4, 4, "", "0,2,4,6"},
		{spread, most, 2, 1, 4, 4, "0,2", "1,3-4,6"},
		{spread, most, 2, 1, 4, 4, "0-3", "8,10,12,14"},
		{spread, most, 2, 1, 4, 6, "0,2", "1,3-7"},

		{spread, least, 1, 1, 4, 4, "", "0,2,4,6"},
		{spread, least, 2, 1, 4, 4, "0,2", "8,10,12,14"},
		{spread, least, 2, 1, 4, 4, "0-3", "8,10,12,14"},
		{spread, least, 2, 1, 4, 6, "0,2", "8-12,14"},
	} {
		topo, err := topology.Grid{Sockets: c.sockets, NodesPerSocket: c.nodes, L3PerNode: 1, CoresPerL3: c.cores,
			ThreadsPerCore: 2}.Build()
		if err != nil {
			t.Fatal(err)
		}
		taken, err := cpuset.Parse(c.taken)
		if err != nil {
			t.Fatal(err)
		}
		a := accumulator{t: topo, n: c.n, full: c.full, most: c.most}
		if got, ok := a.take(topo.Online().Minus(taken)); !ok || got.String() != c.want {
			t.Errorf("%+v: got %s, %t", c, got, ok)
		}
	}
}
