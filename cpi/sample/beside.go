package sample

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Row is what a container did on a CPU in a window.
type Row struct {
	CPU, Who             int     // an index of the IDs
	OnCPU                float32 // seconds
	Instructions, Misses float32
}

// ByCPU says what ran on each CPU in a window, and is immutable.
type ByCPU struct {
	length float64 // of the window, in seconds
	ids    []string
	rows   []ran
	from   []int32 // where the rows of each CPU begin, and the end
	taken  []Taken // by CPU; empty: it is not known
}

// ran is a Row of a known CPU.
type ran struct {
	who                         int32
	onCPU, instructions, misses float32
}

// NewByCPU sorts n rows by their CPU. Those of a counter nearly always are.
func NewByCPU(length float64, ids []string, n int, row func(i int) Row, taken []Taken) *ByCPU {
	t := &ByCPU{length: length, ids: ids, rows: make([]ran, n), taken: taken}
	on := make([]uint16, n)
	cpus, sorted := 0, true
	for i := range n {
		r := row(i)
		t.rows[i] = ran{int32(r.Who), r.OnCPU, r.Instructions, r.Misses}
		on[i] = uint16(r.CPU)
		sorted = sorted && r.CPU+1 >= cpus
		cpus = max(cpus, r.CPU+1)
	}
	t.from = make([]int32, cpus+1)
	for _, cpu := range on {
		t.from[cpu+1]++
	}
	for cpu := range cpus {
		t.from[cpu+1] += t.from[cpu]
	}
	if sorted {
		return t
	}
	next, rows := slices.Clone(t.from), make([]ran, n)
	for i, cpu := range on {
		rows[next[cpu]] = t.rows[i]
		next[cpu]++
	}
	t.rows = rows
	return t
}

// of returns what ran on a CPU.
func (t *ByCPU) of(cpu int) []ran {
	if cpu+1 >= len(t.from) {
		return nil
	}
	return t.rows[t.from[cpu]:t.from[cpu+1]]
}

// Layout says which core, L3 domain and NUMA node each CPU belongs to; -1: it is not there.
type Layout struct{ Core, L3, Node []int32 }

// Neighbour is what a container, or all of them, did beside another one: the CPUs that it had in
// the domain where that one ran, on average over that one's CPU time, and its events a second.
type Neighbour struct {
	ID                         string
	CPUs, Instructions, Misses float64
}

// Domain is what ran in a part of the machine: all together, and who had most.
type Domain struct {
	All  Neighbour
	Most []Neighbour
}

// Beside is what ran beside a container in a window.
type Beside struct {
	Sibling, L3, Node Domain
	// Steal and Interrupts are the shares of the time of its CPUs that nobody had.
	Steal, Interrupts float64
}

// Beside returns what ran beside a container; nil: that did not run, or it is not known where.
func (t *ByCPU) Beside(id string, l *Layout) *Beside {
	who := int32(slices.Index(t.ids, id))
	had := make([]float64, len(t.from)) // the share of its CPU time that it had on each CPU
	sum := 0.0
	for cpu := range had {
		for _, r := range t.of(cpu) {
			if r.who == who {
				had[cpu] += float64(r.onCPU)
				sum += float64(r.onCPU)
			}
		}
	}
	if sum == 0 || t.length <= 0 {
		return nil
	}
	b := &Beside{}
	for cpu := range had {
		had[cpu] /= sum
		if cpu < len(t.taken) {
			b.Steal += had[cpu] * t.taken[cpu].Steal / t.length
			b.Interrupts += had[cpu] * t.taken[cpu].Interrupts / t.length
		}
	}
	t.sum(b, who, had, l)
	return b
}

// OnCores is what others had of the cores that a group of containers ran on: the CPUs of each other group, on average
// over the CPU time of this one. group is the one of a container; empty: it belongs to none, and is not asked about.
func (t *ByCPU) OnCores(core []int32, group func(id string) string, of string) map[string]float64 {
	groups := make([]string, len(t.ids))
	for i, id := range t.ids {
		groups[i] = group(id)
	}
	had, others := map[int32]float64{}, map[int32]map[string]float64{} // seconds, by core
	sum := 0.0
	for cpu := range max(len(t.from)-1, 0) {
		at := domainOf(core, cpu)
		if at < 0 {
			continue
		}
		for _, r := range t.of(cpu) {
			switch g := groups[r.who]; g {
			case "":
			case of:
				had[at] += float64(r.onCPU)
				sum += float64(r.onCPU)
			default:
				if others[at] == nil {
					others[at] = map[string]float64{}
				}
				others[at][g] += float64(r.onCPU)
			}
		}
	}
	out := map[string]float64{}
	if sum == 0 || t.length <= 0 {
		return out
	}
	for at, seconds := range had {
		for g, theirs := range others[at] {
			out[g] += seconds / sum * theirs / t.length
		}
	}
	return out
}

// mostBeside bounds who is named of a domain.
const mostBeside = 3

// sums are what a container did in a domain.
type sums struct{ cpus, instructions, misses float64 }

// sum adds up what others did in the domains where who ran, each as much as who was there: on the
// CPUs that share a core with its own, in its L3 domains and on its nodes.
func (t *ByCPU) sum(b *Beside, who int32, had []float64, l *Layout) {
	cores, l3s, nodes := weightsOf(had, l.Core), weightsOf(had, l.L3), weightsOf(had, l.Node)
	all := make([]sums, 3*len(t.ids))
	for cpu := range had {
		weights := [3]float64{cores[domainOf(l.Core, cpu)], l3s[domainOf(l.L3, cpu)], nodes[domainOf(l.Node, cpu)]}
		weights[0] -= had[cpu] // what ran on its own CPU was no sibling
		for d, weight := range weights {
			if weight <= 0 {
				continue
			}
			weight /= t.length
			to := all[d*len(t.ids) : (d+1)*len(t.ids)]
			rows := t.of(cpu)
			for i := range rows {
				r := &rows[i]
				s := &to[r.who]
				s.cpus += weight * float64(r.onCPU)
				s.instructions += weight * float64(r.instructions)
				s.misses += weight * float64(r.misses)
			}
		}
	}
	for d, to := range []*Domain{&b.Sibling, &b.L3, &b.Node} {
		part := all[d*len(t.ids) : (d+1)*len(t.ids)]
		part[who] = sums{}
		*to = t.domain(part, d > 0)
	}
}

// weightsOf says how much of its CPU time a container had in each domain.
func weightsOf(had []float64, of []int32) map[int32]float64 {
	weights := map[int32]float64{}
	for cpu, share := range had {
		if at := domainOf(of, cpu); at >= 0 && share > 0 {
			weights[at] += share
		}
	}
	return weights
}

// domain names who had most: by misses, if they are known and count.
func (t *ByCPU) domain(all []sums, byMisses bool) (d Domain) {
	for i := range all {
		s := &all[i]
		if s.cpus == 0 {
			continue
		}
		d.All.CPUs, d.All.Instructions = d.All.CPUs+s.cpus, d.All.Instructions+s.instructions
		d.All.Misses += s.misses
		d.Most = append(d.Most, Neighbour{t.ids[i], s.cpus, s.instructions, s.misses})
	}
	slices.SortFunc(d.Most, func(a, b Neighbour) int {
		if d.All.Misses > 0 && byMisses {
			return cmp.Or(cmp.Compare(b.Misses, a.Misses), cmp.Compare(a.ID, b.ID))
		}
		return cmp.Or(cmp.Compare(b.CPUs, a.CPUs), cmp.Compare(a.ID, b.ID))
	})
	d.Most = slices.Clone(d.Most[:min(len(d.Most), mostBeside)])
	return d
}

func domainOf(of []int32, cpu int) int32 {
	if cpu >= len(of) {
		return -1
	}
	return of[cpu]
}

// text names who had most of a domain; name returns what a container is called.
func (d *Domain) text(where string, name func(id string) string) string {
	var parts []string
	for i := range d.Most {
		if n := &d.Most[i]; n.CPUs >= leastNamed {
			parts = append(parts, n.text(name))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return where + ": " + strings.Join(parts, ", ")
}

// leastNamed is how many CPUs somebody has to have had beside a victim to be named.
const leastNamed = 0.05

func (n *Neighbour) text(name func(id string) string) string {
	text := fmt.Sprintf("%s %.2f CPUs", name(n.ID), n.CPUs)
	if n.Instructions > 0 {
		text += fmt.Sprintf(" (%.3g instructions/s", n.Instructions)
		if n.Misses > 0 {
			text += fmt.Sprintf(", %.3g misses/s", n.Misses)
		}
		text += ")"
	}
	return text
}
