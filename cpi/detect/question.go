package detect

import (
	"cmp"
	"slices"

	"github.com/quietcore/quietcore/cpi"
)

// Questions lists the victims that had an outlier within OutlierWindow, or that an action is
// to help: their next samples decide what follows. Those that are protected come first, then
// the newest outlier.
func (d *Detector) Questions() []cpi.Question {
	type question struct {
		ref      Ref
		newest   int64 // outlier, or beginning of an action
		suspects []string
	}
	var open []question
	for i := range d.all {
		c := &d.all[i]
		if !c.live || c.gone != 0 {
			continue
		}
		q := question{ref: Ref(i)}
		for k := c.window.n - 1; k >= 0 && c.window.at(k).at > d.now-int64(d.cfg.OutlierWindow); k-- {
			if e := c.window.at(k); e.outlier {
				q.newest = e.at
				break
			}
		}
		for k := range d.actions {
			a := &d.actions[k]
			if slices.ContainsFunc(a.parties, func(p party) bool { return p.victim == q.ref }) {
				q.newest = max(q.newest, a.start)
				q.suspects = append(q.suspects, d.all[a.antagonist].ID)
			}
		}
		if q.newest != 0 {
			open = append(open, q)
		}
	}
	slices.SortFunc(open, func(a, b question) int {
		x, y := &d.all[a.ref], &d.all[b.ref]
		if x.Class.LatencySensitive() != y.Class.LatencySensitive() {
			if x.Class.LatencySensitive() {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(b.newest, a.newest), cmp.Compare(x.ID, y.ID))
	})
	list := make([]cpi.Question, len(open))
	for i := range open {
		list[i] = cpi.Question{Victim: d.all[open[i].ref].ID, Suspects: open[i].suspects}
	}
	return list
}
