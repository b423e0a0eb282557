package control

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/script"
	"github.com/quietcore/quietcore/policy"
)

// Performance is the state of the CPU performance counters.
type Performance struct {
	CPI     CPI
	Samples map[string]Sample // by container id, of the last window
	// Throttled are the containers that are throttled for a victim now, by id.
	Throttled map[string]Throttled
	// Lacks are the resources that victims lacked lately, by id.
	Lacks map[string]string
}

// Throttled says why a container is throttled now.
type Throttled struct {
	Victim string `json:"victim,omitempty"` // namespace/pod/container; empty: it has ended
	// Verdict says that the container was found to disturb the victim; else that is tested.
	Verdict bool `json:"verdict"`
	// MovedOff are the CPUs around the victim that it is moved off, IdleOnly says that it runs on otherwise idle CPUs
	// alone, and LeastBandwidth that it is held back from memory. None: a quota throttles it.
	MovedOff       string `json:"movedOff,omitempty"`
	IdleOnly       bool   `json:"idleOnly,omitempty"`
	LeastBandwidth bool   `json:"leastBandwidth,omitempty"`
	// Until is when that ends, unless it is renewed.
	Until time.Time `json:"until,omitzero"`
	Why   string    `json:"why"`
}

// CPI is the state of counting. Durations are in seconds.
type CPI struct {
	Mode     string `json:"mode"`
	Counting bool   `json:"counting"`
	// Why is what is not counted and why, or what is wrong; empty: all is well.
	Why      string            `json:"why,omitempty"`
	Events   map[string]string `json:"events,omitempty"` // the counter used for each event
	Interval float64           `json:"interval,omitempty"`
	Window   float64           `json:"window,omitempty"`
	// Next is the time until the next window's samples are available.
	Next float64 `json:"next,omitempty"`
	// Age is the time since the last window ended, nil before the first.
	Age *float64 `json:"age,omitempty"`
	// Specs is what is wrong with the cluster's specs, if they are in use.
	Specs string `json:"specs,omitempty"`
	// Dropped is why the last window has no samples.
	Dropped   string `json:"dropped,omitempty"`
	Reference bool   `json:"referenceCycles,omitempty"`
	// Watchlist says who was counted in the last window; nil: everybody.
	Watchlist *Watchlist `json:"watchlist,omitempty"`
	// Jobs are the jobs that can be judged; nil if interference detection is off.
	Jobs *Jobs `json:"jobs,omitempty"`
}

// Watchlist counts the containers that had a place in the last window, where there were more
// than places.
type Watchlist struct {
	Counted    int `json:"counted"`
	Containers int `json:"containers"`
	Victims    int `json:"victims"`  // in question
	Suspects   int `json:"suspects"` // of those
	Turns      int `json:"turns"`    // that had waited longest; the rest is counted for what it uses
}

// String describes it in a sentence.
func (w *Watchlist) String() string {
	return fmt.Sprintf("%d of %d containers were counted in the last window: %d as victims, %d as suspects, "+
		"%d because they had waited longest, %d because they use most", w.Counted, w.Containers, w.Victims,
		w.Suspects, w.Turns, w.Counted-w.Victims-w.Suspects-w.Turns)
}

// Jobs counts the jobs with containers on this node by what they lack to be judged.
type Jobs struct {
	Judged         int `json:"judged"`
	LackTasks      int `json:"lackTasks"`   // fewer containers than MinTasks
	LackSamples    int `json:"lackSamples"` // too few of MinTasks containers have MinTaskSamples samples
	MinTasks       int `json:"minTasks"`
	MinTaskSamples int `json:"minTaskSamples"`
	// Next is the number of seconds until the first job that lacks samples can be judged at the
	// earliest.
	Next *float64 `json:"next,omitempty"`
	// ByQueue says that no CPI is counted, and that waits in the run queue judge; Blind that these are
	// not known either, so that nobody can be judged.
	ByQueue bool `json:"byQueue,omitempty"`
	Blind   bool `json:"blind,omitempty"`
	// Uncounted are containers that had no place in the last window.
	Uncounted int `json:"uncounted,omitempty"`
}

// Whole says that every job is judged, on all of its containers.
func (j *Jobs) Whole() bool { return !j.Blind && j.LackTasks+j.LackSamples+j.Uncounted == 0 }

// String describes it in a sentence.
func (j *Jobs) String() string {
	all := j.Judged + j.LackTasks + j.LackSamples
	if j.Blind {
		return fmt.Sprintf("none of %d jobs can be judged: no CPI is counted here", all)
	}
	parts := []string{fmt.Sprintf("%d of %d jobs are judged", j.Judged, all)}
	if j.ByQueue {
		parts[0] += " by how long they wait in the run queue, since no CPI is counted here"
	}
	if n := j.LackTasks; n > 0 {
		parts = append(parts, fmt.Sprintf("%d with fewer than %d containers are not", n, j.MinTasks))
	}
	if n := j.LackSamples; n > 0 {
		text, whose := fmt.Sprintf("%d lack samples", n), "their"
		if n == 1 {
			text, whose = "1 lacks samples", "its"
		}
		if j.MinTasks == 1 {
			text += fmt.Sprintf(" (%d of all %s containers)", j.MinTaskSamples, whose)
		} else {
			text += fmt.Sprintf(" (%d in each of %d containers)", j.MinTaskSamples, j.MinTasks)
		}
		if j.Next != nil {
			text += fmt.Sprintf(", the first for %s at least", config.Duration(time.Duration(*j.Next)*time.Second))
		}
		parts = append(parts, text)
	}
	if n := j.Uncounted; n > 0 {
		parts = append(parts, fmt.Sprintf("%d containers were not counted in the last window", n))
	}
	return strings.Join(parts, "; ")
}

// Sample is a container in the last window. Nil values are unknown.
type Sample struct {
	Usage *float64 `json:"windowUsage"` // CPUs
	CPI   *float64 `json:"cpi"`
	MPKI  *float64 `json:"mpki"` // LLC misses per thousand instructions
	Wait  *float64 `json:"wait"` // share of the time in which it was runnable
	Why   string   `json:"why,omitempty"`
	// Queue says how many times as long its work took, since others had the CPU, as alone: what
	// judges where no CPI is counted.
	Queue *float64 `json:"queue,omitempty"`
	// Counted is why it had a place where not all have one: victim, suspect, turn or use.
	Counted string `json:"counted,omitempty"`
}

// Used is the CPU time that a container has used since its cgroup was created, and when it was
// read, on a monotonic clock.
type Used struct{ CPU, At time.Duration }

// Top is the body of /v1/top.
type Top struct {
	At         time.Time      `json:"at"`
	Connected  bool           `json:"connected"`
	CPUs       int            `json:"cpus"` // online
	Pools      script.Pools   `json:"pools"`
	CPI        CPI            `json:"cpi"`
	Containers []TopContainer `json:"containers"`
}

// TopContainer is a container with its usage.
type TopContainer struct {
	ID        string          `json:"id"`
	Namespace string          `json:"namespace"`
	Pod       string          `json:"pod"`
	Container string          `json:"container"`
	Class     policy.Class    `json:"class"`
	Pool      policy.PoolKind `json:"pool"`
	CPUs      string          `json:"cpus"`
	CapMilli  int64           `json:"capMilli,omitempty"`
	// UsageSeconds is the CPU time that it has used, read UsageAt seconds after a point in time
	// that is the same for all answers of one daemon; nil: unknown.
	UsageSeconds *float64 `json:"usageSeconds,omitempty"`
	UsageAt      float64  `json:"usageAt,omitempty"`
	Sample
	Throttled *Throttled `json:"throttled,omitempty"`
	// Lacks is the resource that it lacked when it was last found to be disturbed, in the last ten
	// minutes.
	Lacks string `json:"lacks,omitempty"`
}

// performance is what is known if no counter runs.
func (s *Server) performance() Performance {
	if s.Performance == nil {
		return Performance{CPI: CPI{Mode: "off", Why: "this daemon does not count CPU performance"}}
	}
	return s.Performance()
}

func (s *Server) top(w http.ResponseWriter, _ *http.Request) {
	view, performance := s.Plugin.Snapshot(), s.performance()
	states, pools := script.StateOf(view)
	out := Top{
		At: time.Now(), Connected: s.Plugin.Connected() && s.Plugin.Synchronised(),
		CPUs:  view.Topology.Online().Count(),
		Pools: pools, CPI: performance.CPI, Containers: make([]TopContainer, 0, len(states)),
	}
	var used map[string]Used
	if s.Usage != nil {
		used = s.Usage(view)
	}
	for i, c := range view.Containers {
		row := TopContainer{
			ID: c.ID, Namespace: c.Namespace, Pod: c.Pod, Container: c.Name, Class: c.Class, Pool: c.Pool,
			CPUs: states[i].CPUs, CapMilli: c.CapMilli, Sample: performance.Samples[c.ID],
			Lacks: performance.Lacks[c.ID],
		}
		if why, is := performance.Throttled[c.ID]; is {
			row.Throttled = &why
		}
		if u, known := used[c.ID]; known {
			seconds := u.CPU.Seconds()
			row.UsageSeconds, row.UsageAt = &seconds, u.At.Seconds()
		}
		out.Containers = append(out.Containers, row)
	}
	reply(w, http.StatusOK, out)
}
