package hub

import (
	"cmp"
	"slices"
	"time"

	"github.com/quietcore/quietcore/internal/incidents"
	"github.com/quietcore/quietcore/internal/printable"
)

// happening is an incident and where it was.
type happening struct {
	node string
	*incidents.Summary
}

// incidentView is an incident on the page.
type incidentView struct {
	ID         string  `json:"id"`
	At         int64   `json:"at"` // Unix milliseconds
	Node       string  `json:"node"`
	Victim     string  `json:"victim"`
	Job        string  `json:"job"`
	CPI        float64 `json:"cpi"`
	Mean       float64 `json:"mean"`
	Resource   string  `json:"resource,omitempty"`
	Verdict    string  `json:"verdict"`
	Antagonist string  `json:"antagonist,omitempty"`
	Others     int     `json:"others,omitempty"`
	Result     string  `json:"result,omitempty"`
	Active     bool    `json:"active,omitempty"`
}

func (one *happening) view() incidentView {
	v := incidentView{ID: printable.Clip(one.ID, maxName), At: millis(one.At), Node: printable.Clip(one.node, maxName),
		Victim: printable.Clip(one.Victim.Name(), maxName), Job: printable.Clip(one.Victim.JobName(), maxName),
		CPI: one.CPI, Mean: one.Mean, Resource: printable.Clip(one.Resource, maxName),
		Verdict: printable.Clip(one.Verdict, maxName), Result: printable.Clip(one.Result, maxName), Active: one.Active}
	if n := len(one.Antagonists); n > 0 {
		v.Antagonist, v.Others = printable.Clip(one.Antagonists[0].Name(), maxName), n-1
	}
	return v
}

// disturbed is a job and what was done to it, over all nodes.
type disturbed struct {
	Job       string `json:"job"`
	Incidents int    `json:"incidents"`
	Nodes     int    `json:"nodes"`
	// Excess is the sum of (CPI - normal) / normal.
	Excess float64 `json:"excess"`
	// Worst is who was blamed most often for it, Blamed how often; empty: nobody.
	Worst  string `json:"worst,omitempty"`
	Blamed int    `json:"blamed,omitempty"`
	Last   int64  `json:"last"` // Unix milliseconds

	nodes map[string]bool
	by    map[string]int
}

// disturbedOf ranks jobs by how often they were disturbed, and then by how much.
func disturbedOf(list []happening) []*disturbed {
	by := map[string]*disturbed{}
	for i := range list {
		one := &list[i]
		job := one.Victim.JobName()
		d := by[job]
		if d == nil {
			d = &disturbed{Job: printable.Clip(job, maxName), nodes: map[string]bool{}, by: map[string]int{}}
			by[job] = d
		}
		d.Incidents++
		d.nodes[one.node] = true
		d.Last = max(d.Last, millis(one.At))
		if normal := cmp.Or(one.Mean, one.Threshold); normal > 0 {
			d.Excess += max(0, one.CPI/normal-1)
		}
		blamed := map[string]bool{} // a job with two containers in an incident is blamed for one
		for k := range one.Antagonists {
			blamed[one.Antagonists[k].JobName()] = true
		}
		for who := range blamed {
			d.by[who]++
		}
	}
	out := make([]*disturbed, 0, len(by))
	for _, d := range by {
		d.Nodes = len(d.nodes)
		for who, n := range d.by {
			if n > d.Blamed || n == d.Blamed && who < d.Worst {
				d.Worst, d.Blamed = who, n
			}
		}
		d.Worst = printable.Clip(d.Worst, maxName)
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b *disturbed) int {
		return cmp.Or(cmp.Compare(b.Incidents, a.Incidents), cmp.Compare(b.Excess, a.Excess), cmp.Compare(a.Job, b.Job))
	})
	return out
}

// query is what the page asks about incidents.
type query struct {
	victim, antagonist string
	hours              float64
	by                 string
	limit              int
}

// incidentsView is the body of /api/incidents.
type incidentsView struct {
	// Hurt ranks who hurt the victim most; with an antagonist, whom it hurt.
	Hurt      *incidents.Top `json:"hurt"`
	Disturbed []*disturbed   `json:"disturbed"`
	Incidents []incidentView `json:"incidents"` // the newest first
	All       int            `json:"all"`
	// Jobs are all victims in the window, for whoever searches one.
	Jobs []string `json:"jobs"`
	// Of so many nodes the incidents are there, without those that keep none, were never read, or of which older ones
	// are missing.
	Nodes  int `json:"nodes"`
	Off    int `json:"off"`
	Unread int `json:"unread"`
	Cut    int `json:"cut"`
}

// maxRows bounds each list of an answer.
const maxRows = 200

// incidents answers a query.
func (h *Hub) incidents(q query) incidentsView {
	since := h.o.Now().Add(-time.Duration(q.hours * float64(time.Hour)))
	v := incidentsView{Incidents: []incidentView{}, Jobs: []string{}}
	filter := incidents.Filter{Since: since, Victim: q.victim, Antagonist: q.antagonist}
	jobs := map[string]bool{}
	var list []happening
	var flat []incidents.Summary
	for name, p := range h.pasts(&v, since) {
		for i := range p {
			if !p[i].At.Before(since) {
				jobs[printable.Clip(p[i].Victim.JobName(), maxName)] = true
			}
		}
		for _, one := range filter.Select(p) {
			flat = append(flat, one)
			list = append(list, happening{name, &one})
		}
	}
	top := incidents.TopQuery{Victim: q.victim, Antagonist: q.antagonist, Since: since, By: q.by, Limit: q.limit}
	v.Hurt = top.Of(flat)
	for i := range v.Hurt.Ranks {
		v.Hurt.Ranks[i].Name = printable.Clip(v.Hurt.Ranks[i].Name, maxName)
	}
	v.Disturbed = disturbedOf(list)
	v.Disturbed = v.Disturbed[:min(len(v.Disturbed), q.limit)]
	slices.SortFunc(list, func(a, b happening) int {
		return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.node, b.node), cmp.Compare(a.ID, b.ID))
	})
	v.All = len(list)
	for i := range list[:min(len(list), q.limit)] {
		v.Incidents = append(v.Incidents, list[i].view())
	}
	for job := range jobs {
		v.Jobs = append(v.Jobs, job)
	}
	slices.Sort(v.Jobs)
	v.Jobs = v.Jobs[:min(len(v.Jobs), maxRows)]
	return v
}

// pasts are the nodes' incidents, which nobody changes, and in v how many nodes have them since then.
func (h *Hub) pasts(v *incidentsView, since time.Time) map[string][]incidents.Summary {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make(map[string][]incidents.Summary, len(h.nodes))
	for name, n := range h.nodes {
		switch {
		case n.summary != nil && n.summary.CPI == "off":
			v.Off++
		case n.asked.IsZero():
			v.Unread++
		default:
			v.Nodes++
			if n.whole.After(since) {
				v.Cut++
			}
			out[name] = n.past.incidents
		}
	}
	return out
}
