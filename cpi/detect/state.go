package detect

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// StateVersion is raised when an older reader could misinterpret a newer State.
const StateVersion = 1

// State is what a Detector has learned and keeps over a restart. It holds neither
// windows nor actions: the enforcer of a cap keeps its deadline. Versions with fewer or
// more fields can read it.
type State struct {
	Version int        `json:"version"`
	Jobs    []JobState `json:"jobs"`
	Pairs   []Pair     `json:"pairs"`
}

// JobState is what was learned of a job on a platform.
type JobState struct {
	Spec  Spec               `json:"spec"`
	Seen  time.Time          `json:"seen"`
	Tasks int                `json:"tasks"`
	N     float64            `json:"n"`
	Mean  float64            `json:"mean"`
	M2    float64            `json:"m2"`
	Usage float64            `json:"usage"`
	Bands map[int]*Histogram `json:"bands,omitempty"`
	Used  *[Bands]UsedBand   `json:"used,omitempty"` // nil: the job has no spec yet
	// Source of the spec in use; older detectors omit it.
	Source Source `json:"source,omitempty"`
	// Good is when the cluster's spec expires.
	Good time.Time `json:"good,omitzero"`
}

// UsedBand is the basis of the threshold in a band; the next spec moves from here.
type UsedBand struct {
	LogMedian float64 `json:"logMedian"`
	LogSD     float64 `json:"logSD"`
}

// Save returns what was learned.
func (d *Detector) Save() State {
	s := State{Version: StateVersion, Jobs: []JobState{}, Pairs: []Pair{}}
	for _, j := range d.jobs {
		if j.all.n == 0 && !j.usable {
			continue
		}
		job := JobState{
			Spec: j.spec, Seen: stamp(j.seen), Tasks: j.tasks, Bands: map[int]*Histogram{},
			N: j.all.n, Mean: j.all.mean, M2: j.all.m2, Usage: j.all.usage,
		}
		job.Spec.Job, job.Spec.Platform = j.name, j.platform
		for i, h := range j.bands {
			if h != nil {
				copied := *h
				job.Bands[i] = &copied
			}
		}
		if j.usable {
			job.Used, job.Source = new([Bands]UsedBand), j.source
			if j.source == FromCluster {
				job.Good = stamp(j.foreignUntil)
			}
			for i, b := range j.robust {
				job.Used[i] = UsedBand{LogMedian: b.logMedian, LogSD: b.logSD}
			}
		}
		s.Jobs = append(s.Jobs, job)
	}
	slices.SortFunc(s.Jobs, func(a, b JobState) int {
		return cmp.Or(cmp.Compare(a.Spec.Job, b.Spec.Job), cmp.Compare(a.Spec.Platform, b.Spec.Platform))
	})
	for _, p := range d.pairs.sorted() {
		s.Pairs = append(s.Pairs, *p)
	}
	return s
}

// Restore loads a State into a Detector without samples. It skips implausible parts and
// names them in the error.
func (d *Detector) Restore(now time.Time, s State) error {
	if s.Version != StateVersion {
		return fmt.Errorf("state of version %d; this detector reads version %d", s.Version, StateVersion)
	}
	var errs []error
	for i := range s.Jobs {
		job := &s.Jobs[i]
		if err := job.check(&d.cfg); err != nil {
			errs = append(errs, err)
			continue
		}
		j := d.jobOf(job.Spec.Job, job.Spec.Platform)
		j.spec, j.tasks = job.Spec, job.Tasks
		j.seen = min(job.Seen.UnixNano(), now.UnixNano())
		j.day = j.seen / int64(24*time.Hour)
		j.all = moments{n: job.N, mean: job.Mean, m2: job.M2, usage: job.Usage}
		for b, h := range job.Bands {
			j.bands[b] = h
		}
		if job.Used != nil {
			j.usable, j.classic = true, j.spec.Mean+d.cfg.Sigmas*j.spec.StdDev
			j.source = j.sourceOf(job, &d.cfg)
			if !job.Good.IsZero() {
				j.foreignUntil = job.Good.UnixNano()
			}
			for b, u := range job.Used {
				j.robust[b] = band{logMedian: u.LogMedian, logSD: u.LogSD,
					threshold: math.Exp(u.LogMedian + d.cfg.RobustSigmas*u.LogSD)}
			}
		}
	}
	for _, p := range s.Pairs {
		if len(d.pairs.known) >= maxPairs {
			break
		}
		if p.Success < 0 || p.Partial < 0 || p.Failure < 0 || p.Harm < 0 || p.Level < 0 || p.Level > 1e6 {
			errs = append(errs, fmt.Errorf("pair %s and %s: %+v holds a negative or huge number", p.Victim,
				p.Antagonist, p))
			continue
		}
		p.Blocked = earlier(p.Blocked, now.Add(blockFor))
		p.Failed, p.Moved, p.Seen = earlier(p.Failed, now), earlier(p.Moved, now), earlier(p.Seen, now)
		d.pairs.known[p.PairKey] = &p
	}
	return errors.Join(errs...)
}

// sourceOf is the source of a restored spec. If the state does not say, a job with
// enough samples of its own uses those; any other can only have the cluster's.
func (j *job) sourceOf(s *JobState, c *Config) Source {
	switch s.Source {
	case FromHere, FromCluster, FromBoth:
		return s.Source
	}
	if own := j.own(); own.check(c) != nil {
		return FromCluster
	}
	return FromHere
}

func earlier(a, b time.Time) time.Time {
	if a.After(b) {
		return b
	}
	return a
}

func (s *JobState) check(c *Config) error {
	name := fmt.Sprintf("state of job %q on platform %q", s.Spec.Job, s.Spec.Platform)
	for what, v := range map[string]float64{"samples": s.N, "mean": s.Mean, "sum of squares": s.M2, "usage": s.Usage} {
		if !(v >= 0 && v < 1e15) {
			return fmt.Errorf("%s: %s is %v; it must lie between 0 and 1e15", name, what, v)
		}
	}
	if s.Tasks < 0 || s.Tasks > 1e9 {
		return fmt.Errorf("%s: %d tasks; they must lie between 0 and 1e9", name, s.Tasks)
	}
	for b, h := range s.Bands {
		if b < 0 || b >= Bands || h == nil {
			return fmt.Errorf("%s: usage band %d; there are 0 to %d", name, b, Bands-1)
		}
	}
	if s.Used == nil {
		return nil
	}
	for b, u := range s.Used {
		if !(math.Abs(u.LogMedian) < 7) || !(u.LogSD >= leastLogSD/2 && u.LogSD < 3) {
			return fmt.Errorf("%s: band %d is judged with median %v and deviation %v, as logarithms", name, b,
				u.LogMedian, u.LogSD)
		}
	}
	return s.Spec.check(c)
}
