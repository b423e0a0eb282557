package detect

import (
	"fmt"
	"time"
)

// Source says where a spec comes from.
type Source string

const (
	NoSource    Source = ""
	FromHere    Source = "own"     // samples of this node
	FromCluster Source = "cluster" // what others saw, since too little was seen here
	FromBoth    Source = "merged"
)

// Learned is a sample that shows what is normal for its job: neither the victim
// nor the capped antagonist of anything.
type Learned struct {
	Job, Platform string
	Band          int
	Usage, CPI    float64
}

// Learned are those of the last Observe, in its order; valid until the next.
func (d *Detector) Learned() []Learned { return d.learned }

// JobInfo is a job on a platform, as far as it is known here.
type JobInfo struct {
	Job, Platform string
	Containers    int // that run
	Tasks         int // of those, the ones with enough samples for a spec
	Source        Source
	// Stale says that the cluster's word alone judges the job, and that nobody has
	// confirmed it for longer than it was good.
	Stale bool
}

// Jobs are those that have containers here or a spec, in no order.
func (d *Detector) Jobs() []JobInfo {
	list := make([]JobInfo, 0, len(d.jobs))
	for _, j := range d.jobs {
		if j.containers == 0 && !j.usable {
			continue
		}
		list = append(list, JobInfo{Job: j.name, Platform: j.platform, Containers: j.containers, Tasks: j.eligible,
			Source: j.source, Stale: j.stale(d.now)})
	}
	return list
}

// stale says that a job is judged by what the cluster said once.
func (j *job) stale(now int64) bool { return j.source == FromCluster && now >= j.foreignTill }

// Refuse says that a command was not carried out, and why. What it was for has not
// happened, so nothing is verified; the victim is analysed anew, and the one that
// could not be capped is left out for as long as a cap would have lasted.
func (d *Detector) Refuse(now time.Time, c Command, why string) []Event {
	d.begin(now)
	for i := range d.actions {
		a := &d.actions[i]
		if a.kind != c.Kind || a.kept || a.parties[0].victim != c.Victim || a.kind == DoCap &&
			a.antagonist != c.Container {
			continue
		}
		d.withdraw(a, why)
		d.actions = append(d.actions[:i], d.actions[i+1:]...)
		break
	}
	return d.events
}

// withdraw ends an action that never began.
func (d *Detector) withdraw(a *action, why string) {
	if who := &d.all[a.antagonist]; a.kind == DoCap {
		who.capped--
		who.caps = who.caps[:max(len(who.caps)-1, 0)]
		who.refused, who.refusal = d.now, fmt.Sprintf("%.200s", why)
	} else {
		d.all[a.parties[0].victim].unmoved = d.now
	}
	for i := range a.parties {
		d.conclude(a, &a.parties[i], Refused)
		d.work.outcomes[len(d.work.outcomes)-1].Why = why
		d.again(a.parties[i].victim)
	}
}

// again has a victim analysed anew if its anomaly is not over.
func (d *Detector) again(ref Ref) {
	c := &d.all[ref]
	if !c.live || c.gone > 0 || c.bad == 0 || d.now-c.worst > int64(d.cfg.OutlierWindow) {
		return
	}
	d.enqueue(waiting{victim: ref, at: c.worst, excess: 1})
}
