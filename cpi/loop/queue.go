package loop

import (
	"github.com/quietcore/quietcore/cpi/sample"
)

// queue is what the last window said of waits in the run queue. It belongs to Run.
type queue struct {
	judges bool                      // there is no CPI: waits judge
	names  map[string]string         // namespace/pod/container, by ID
	delays map[string][]sample.Delay // of protected containers, by ID
}

// take returns the window as the detector judges it.
func (q *queue) take(w *queued) *queued {
	q.judges, q.names, q.delays = w.ByQueue, map[string]string{}, map[string][]sample.Delay{}
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

// blame says which resource the victim of an analysis lacked.
func (q *queue) blame(f *Finding, history []sample.Sample, sibling bool) sample.Evidence {
	by := q.delays[f.Victim.ID]
	if q.judges {
		return sample.BlameQueue(history, f.Threshold, by)
	}
	e := sample.Blame(history, f.Threshold, sibling)
	e.By = by
	return e
}
