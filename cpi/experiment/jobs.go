package experiment

import (
	"slices"

	"github.com/quietcore/quietcore/cpi"
)

// Learned is a window that shows what is normal for a job: no anomaly has covered it.
type Learned struct {
	Job, Platform string
	Usage, CPI    float64
}

// Learned lists those that the last Observe learned from; valid until the next one.
func (d *Detector) Learned() []Learned { return d.work.learned }

// MinWindows is how many undisturbed windows of a job are needed to judge it.
const MinWindows = minPoints

// JobInfo is what is known of a victim's job on a platform.
type JobInfo struct {
	Job, Platform string
	Containers    int // running
	// Windows that what is normal for it rests on, or that are there so far; of MinWindows.
	Windows int
	Judged  bool
	// FromOthers says that it is judged by a spec of other nodes, having too little of its
	// own.
	FromOthers bool
}

// Jobs lists the jobs of victims that have containers, or that could be judged, in no
// order.
func (d *Detector) Jobs() []JobInfo {
	list := make([]JobInfo, 0, len(d.jobs))
	for _, j := range d.jobs {
		l := &j.history.line
		if j.containers == 0 && l.N == 0 {
			continue
		}
		info := JobInfo{Job: j.name, Platform: j.platform, Containers: j.containers, Windows: l.N, Judged: l.N > 0,
			FromOthers: l.FromOthers}
		if l.N == 0 || l.FromOthers {
			info.Windows = len(j.history.points)
		}
		list = append(list, info)
	}
	return list
}

// Questions are the victims for which there is a test or a verdict, then those with an
// outlier in the last windows. Suspects are listed whatever their coins say: whether a window
// is known must not depend on them.
func (d *Detector) Questions() []cpi.Question {
	var list []cpi.Question
	for i := range d.all {
		c := &d.all[i]
		if c.Container == nil || c.victim == nil {
			continue
		}
		q := cpi.Question{Victim: c.ID}
		for _, p := range d.order {
			if p.victim != Ref(i) || p.workload() != c.victim.job.key() || p.stage != Testing && p.stage != Verdict {
				continue
			}
			q.Test = true
			for _, ref := range d.Containers(p.key.Suspect) {
				q.Suspects = append(q.Suspects, d.all[ref].ID)
			}
		}
		recent := c.victim.newest > d.window-outlierWindows && c.victim.bad&(1<<outlierWindows-1) != 0
		if q.Test || recent {
			list = append(list, q)
		}
	}
	slices.SortStableFunc(list, func(a, b cpi.Question) int {
		switch {
		case a.Test == b.Test:
			return compare(a.Victim, b.Victim)
		case a.Test:
			return -1
		}
		return 1
	})
	return list
}
