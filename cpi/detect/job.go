package detect

import (
	"fmt"
	"slices"
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

// Lack is what a job with containers lacks to be judged.
type Lack string

const (
	NoLack Lack = "" // it is judged
	// LacksTasks: fewer containers than a spec needs. It is judged when more come, or by the cluster's spec.
	LacksTasks Lack = "tasks"
	// LacksSamples: too few of its containers have enough samples yet.
	LacksSamples Lack = "samples"
)

// JobInfo is what is known of a job on a platform.
type JobInfo struct {
	Job, Platform string
	Containers    int // running
	Tasks         int // containers with enough samples for a spec
	Source        Source
	// Stale says that the spec is the cluster's alone and has expired.
	Stale bool
	Lack  Lack
	// From is when a job that lacks samples is judged at the earliest: when its containers
	// are busy in every window until then.
	From time.Time
}

// Jobs lists the jobs that have containers or a spec, in no order.
func (d *Detector) Jobs() []JobInfo {
	list, coming := make([]JobInfo, 0, len(d.jobs)), d.coming()
	for _, j := range d.jobs {
		if j.containers == 0 && !j.usable {
			continue
		}
		info := JobInfo{Job: j.name, Platform: j.platform, Containers: j.containers, Tasks: j.eligible,
			Source: j.source, Stale: j.stale(d.now)}
		if !j.usable {
			info.Lack, info.From = d.lack(j, coming[j])
		}
		list = append(list, info)
	}
	return list
}

// coming lists how many samples the containers have that do not count as tasks of their job yet.
func (d *Detector) coming() map[*job][]int {
	coming := map[*job][]int{}
	for i := range d.all {
		c := &d.all[i]
		if c.live && c.gone == 0 && !c.job.usable && c.learned < d.cfg.MinTaskSamples {
			coming[c.job] = append(coming[c.job], c.learned)
		}
	}
	return coming
}

// lack says what a job without a spec lacks; coming are the samples of the containers that may become
// its tasks.
func (d *Detector) lack(j *job, coming []int) (Lack, time.Time) {
	missing := d.cfg.MinTasks - j.tasks
	switch {
	case d.cfg.GivenSpecs, missing > len(coming):
		return LacksTasks, time.Time{}
	case missing <= 0:
		return LacksSamples, stamp(d.now).Add(d.cfg.Period)
	}
	slices.Sort(coming)
	last := coming[len(coming)-missing]
	return LacksSamples, stamp(d.now).Add(time.Duration(d.cfg.MinTaskSamples-last) * d.cfg.Period)
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
