package hub

import (
	"cmp"
	"slices"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/printable"
)

// heat is what a node's CPUs are used for. Nil is not known.
type heat struct {
	CPUs      int      `json:"cpus"`
	Used      *float64 `json:"used"`
	Exclusive *float64 `json:"exclusive"` // owned by one pod or claim
	Lent      *float64 `json:"lent"`      // offered to batch pods
	Withheld  *float64 `json:"withheld"`  // that best effort is kept off
}

// heatOf is a node's. used is what its containers use, where the node itself does not measure more.
func heatOf(s *control.Summary, used *float64) heat {
	h := heat{CPUs: max(s.CPUs, 0), Used: used, Lent: amount(s.Lent), Withheld: amount(s.Withheld)}
	if u := s.Used; u != nil {
		sum := u.Production + u.Batch + u.Outside
		h.Used = amount(&sum)
	}
	if own, err := cpuset.Parse(s.Pools.Exclusive); err == nil {
		n := float64(own.Count())
		h.Exclusive = &n
	}
	return h
}

// amount is one of CPUs, which a daemon that was tampered with may say to be less than none.
func amount(cpus *float64) *float64 {
	if cpus == nil {
		return nil
	}
	n := max(*cpus, 0)
	return &n
}

// nodeView is a node on the page. Times are Unix milliseconds; 0: never.
type nodeView struct {
	Name string `json:"name"`
	Pod  string `json:"pod,omitempty"`
	heat
	Heard int64 `json:"heard"`
	// Measured is when Prometheus scraped what heat is; 0: heat is the node's own answer.
	Measured int64 `json:"measured,omitempty"`
	// Wrong is why it did not answer the last time; the rest is as it was when it did.
	Wrong      string   `json:"wrong,omitempty"`
	Mode       string   `json:"mode,omitempty"`
	Version    string   `json:"version,omitempty"`
	Owners     int      `json:"owners"`
	Idle       *float64 `json:"idle"` // of owned CPUs; nil: not known yet
	Containers int      `json:"containers"`
	Waiting    int      `json:"waiting"`
	Capped     int      `json:"capped"`
	Problems   []string `json:"problems,omitempty"`
}

func (n *node) view(m *measured, now time.Time) nodeView {
	v := nodeView{Name: printable.Clip(n.name, maxName), Pod: printable.Clip(n.pod, maxName), Heard: millis(n.heard),
		Wrong: n.wrong}
	s := n.summary
	if s != nil {
		v.heat = heatOf(s, n.inUse)
	}
	var is bool
	if v.heat, is = m.over(n, v.heat, now); is {
		v.Measured = millis(m.at)
	}
	if s == nil {
		return v
	}
	v.Version, v.Owners, v.Containers = printable.Clip(s.Version, maxName), s.Owners, s.Containers
	v.Waiting, v.Capped, v.Idle = s.Waiting, s.Capped, n.idle()
	if s.Mode != nil {
		v.Mode = printable.Clip(s.Mode.Mode, maxName)
	}
	const most = 10
	for _, p := range s.Problems[:min(len(s.Problems), most)] {
		v.Problems = append(v.Problems, printable.Clip(p, maxText))
	}
	return v
}

func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// sums are over all nodes that ever answered; those that do not now count as they did then.
type sums struct {
	Nodes  int `json:"nodes"`
	Silent int `json:"silent"` // did not answer the last time
	Unwell int `json:"unwell"` // answered, with problems
	heat
	Idle float64 `json:"idle"`
}

func sumOf(nodes []nodeView) sums {
	var s sums
	var used, exclusive, lent, withheld float64
	for i := range nodes {
		n := &nodes[i]
		s.Nodes++
		switch {
		case n.Wrong != "":
			s.Silent++
		case len(n.Problems) > 0:
			s.Unwell++
		}
		s.CPUs += n.CPUs
		for to, from := range map[*float64]*float64{&used: n.Used, &exclusive: n.Exclusive, &lent: n.Lent,
			&withheld: n.Withheld, &s.Idle: n.Idle} {
			if from != nil {
				*to += *from
			}
		}
	}
	s.Used, s.Exclusive, s.Lent, s.Withheld = &used, &exclusive, &lent, &withheld
	return s
}

// fleetView is the body of /api/fleet.
type fleetView struct {
	Now    int64   `json:"now"`
	Every  int64   `json:"every"`  // a round, in milliseconds
	Window float64 `json:"window"` // in which incidents are kept, in hours
	// Namespace is where the daemons' pods are.
	Namespace string     `json:"namespace"`
	Rounds    int        `json:"rounds"`
	Problem   string     `json:"problem,omitempty"`
	Version   string     `json:"version"`
	Assets    string     `json:"assets"`
	Sums      sums       `json:"sums"`
	Nodes     []nodeView `json:"nodes"`
	// Prometheus is nil where none is asked.
	Prometheus *prometheusView `json:"prometheus,omitempty"`
}

func (h *Hub) fleet() fleetView {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.o.Now()
	v := fleetView{Now: now.UnixMilli(), Prometheus: h.prometheusView(now), Every: h.o.Every.Milliseconds(),
		Rounds: h.rounds, Problem: h.problem,
		Window: h.o.Window.Hours(), Namespace: h.o.Namespace, Version: h.o.Version, Assets: h.files.Tag(),
		Nodes: make([]nodeView, 0, len(h.nodes))}
	for _, n := range h.nodes {
		v.Nodes = append(v.Nodes, n.view(h.measured[n.name], now))
	}
	slices.SortFunc(v.Nodes, func(a, b nodeView) int { return cmp.Compare(a.Name, b.Name) })
	v.Sums = sumOf(v.Nodes)
	return v
}
