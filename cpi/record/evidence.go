package record

import (
	"cmp"
	"math"

	"github.com/quietcore/quietcore/cpi/loop"
	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/internal/incidents"
)

// evidence is a finding's, with containers by their names; nil: there is none.
func evidence(f *loop.Finding) *incidents.Evidence {
	e := f.Evidence
	if e == nil {
		return nil
	}
	out := &incidents.Evidence{Resource: string(e.Resource), Waited: e.Waited, Before: figures(&e.Good),
		Now: figures(&e.Bad)}
	sum := 0.0
	for _, d := range e.By {
		sum += d.For.Seconds()
	}
	for _, d := range e.By {
		if sum > 0 {
			out.WaitedFor = append(out.WaitedFor, incidents.Part{Name: nameOf(f, d.By), Share: d.For.Seconds() / sum})
		}
	}
	if at := e.Beside; at != nil {
		out.Siblings, out.L3, out.Node = neighbours(f, &at.Sibling), neighbours(f, &at.L3), neighbours(f, &at.Node)
		out.Steal, out.Interrupts = at.Steal, at.Interrupts
	}
	return out
}

// nameOf is what a container is called; one that has ended by its ID, and empty what is none.
func nameOf(f *loop.Finding, id string) string { return cmp.Or(f.Names[id], id) }

func neighbours(f *loop.Finding, d *sample.Domain) (list []incidents.Neighbour) {
	for _, n := range d.Most {
		list = append(list, incidents.Neighbour{Name: nameOf(f, n.ID), CPUs: n.CPUs, Instructions: n.Instructions,
			Misses: n.Misses})
	}
	return list
}

// figures are those that are known; nil where there was no window.
func figures(m *sample.Means) *incidents.Figures {
	if m.Windows == 0 {
		return nil
	}
	known := func(v float64) *float64 {
		if math.IsNaN(v) {
			return nil
		}
		return &v
	}
	return &incidents.Figures{CPI: known(m.CPI), MPKI: known(m.MPKI), Wait: known(m.Wait), Speed: known(m.Speed),
		Queue: known(m.Queue), Pressure: known(m.Pressure)}
}
