package loop

import (
	"slices"

	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/topology"
)

// queue is what the last window said of waits in the run queue, and of who ran where. It belongs
// to Run.
type queue struct {
	judges bool                      // there is no CPI: waits judge
	names  map[string]string         // namespace/pod/container, by ID
	delays map[string][]sample.Delay // of protected containers, by ID
	byCPU  *sample.ByCPU
}

// take returns the window as the detector judges it.
func (q *queue) take(w *queued) *queued {
	q.judges, q.names, q.delays = w.ByQueue, map[string]string{}, map[string][]sample.Delay{}
	q.byCPU = w.ByCPU
	for i := range w.Containers {
		r := &w.Containers[i]
		q.names[r.ID] = r.Container.String()
		if r.Class.LatencySensitive() {
			q.delays[r.ID] = r.Delays
		}
	}
	if !q.judges {
		return w
	}
	judged := *w.Window
	judged.Containers, judged.Reference = sample.ByQueue(w.Containers), true
	return &queued{&judged, w.began}
}

// name is what a container is called; one that has ended by its ID.
func (q *queue) name(id string) string {
	if name := q.names[id]; name != "" {
		return name
	}
	return id
}

// blame says which resource the victim of an analysis lacked. Suspects come first who are accused.
func (q *queue) blame(f *Finding, history []sample.Sample, t *topology.Topology) sample.Evidence {
	accused := f.Suspects[:min(len(f.Suspects), max(len(f.Antagonists), 1))]
	near := sample.Near{Sibling: slices.ContainsFunc(accused, func(s Suspect) bool { return s.Shares == "core" })}
	if q.byCPU != nil && t != nil {
		near.Beside = q.byCPU.Beside(f.Victim.ID, layoutOf(t))
	}
	if near.Beside != nil {
		near.Sibling = slices.ContainsFunc(near.Beside.Sibling.Most, func(n sample.Neighbour) bool {
			return slices.ContainsFunc(accused, func(s Suspect) bool { return s.ID == n.ID })
		})
	}
	by := q.delays[f.Victim.ID]
	if q.judges {
		e := sample.BlameQueue(history, f.Threshold, by)
		e.Beside = near.Beside
		return e
	}
	e := sample.Blame(history, f.Threshold, near)
	e.By = by
	return e
}

// layoutOf a machine, for what ran beside whom.
func layoutOf(t *topology.Topology) *sample.Layout {
	l := &sample.Layout{}
	put := func(list *[]int32, cpu, domain int) {
		for len(*list) <= cpu {
			*list = append(*list, -1)
		}
		(*list)[cpu] = int32(domain)
	}
	for _, c := range t.CPUs() {
		put(&l.Core, c.ID, t.CoreOf(c.ID))
	}
	for i := range t.L3s() {
		for cpu := range t.L3s()[i].CPUs.All() {
			put(&l.L3, cpu, i)
		}
	}
	for i := range t.Nodes() {
		for cpu := range t.Nodes()[i].CPUs.All() {
			put(&l.Node, cpu, i)
		}
	}
	return l
}
