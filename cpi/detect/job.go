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
	FromCluster Source = "cluster" // samples of other nodes, since there are too few here
	FromBoth    Source = "merged"
)

// Learned is a sample that is normal for its job: the container was neither a victim
// nor capped.
type Learned struct {
	Job, Platform string
	Band          int
	Usage, CPI    float64
}

// Learned returns those of the last Observe, in its order; valid until the next one.
func (d *Detector) Learned() []Learned { return d.learned }

// JobInfo is what is known of a job on a platform.
type JobInfo struct {
	Job, Platform string
	Containers    int // running
	Tasks         int // containers with enough samples for a spec
	Source        Source
	// Stale says that the spec is the cluster's alone and has expired.
	Stale bool
}

// Jobs lists the jobs that have containers or a spec, in no order.
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

// stale says that a job is judged by an expired spec of the cluster.
func (j *job) stale(now int64) bool { return j.source == FromCluster && now >= j.foreignUntil }

// Refuse says that a command was refused, and why. The action never happened, so it is
// not verified. The victim is analysed again, and the refused antagonist is excluded
// for as long as a cap lasts.
func (d *Detector) Refuse(now time.Time, c Command, why string) []Event {
	d.begin(now)
	for i := range d.actions {
		a := &d.actions[i]
		if a.kind != c.Kind || a.verified || a.parties[0].victim != c.Victim || a.kind == DoCap &&
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
	if antagonist := &d.all[a.antagonist]; a.kind == DoCap {
		antagonist.capped--
		antagonist.caps = antagonist.caps[:max(len(antagonist.caps)-1, 0)]
		antagonist.refused, antagonist.refusal = d.now, fmt.Sprintf("%.200s", why)
	} else {
		d.all[a.parties[0].victim].moveRefused = d.now
	}
	for i := range a.parties {
		d.conclude(a, &a.parties[i], Refused)
		d.work.outcomes[len(d.work.outcomes)-1].Why = why
		d.reanalyse(a.parties[i].victim)
	}
}

// reanalyse queues a victim again if its anomaly is still in progress.
func (d *Detector) reanalyse(ref Ref) {
	c := &d.all[ref]
	if !c.live || c.gone > 0 || c.bad == 0 || d.now-c.lastAnomaly > int64(d.cfg.OutlierWindow) {
		return
	}
	d.enqueue(queuedAnomaly{victim: ref, at: c.lastAnomaly, excess: 1})
}
