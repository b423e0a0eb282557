package sample

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/quietcore/quietcore/cpi"
)

// Delay is how long tasks of a container waited until they followed another one on a CPU.
type Delay struct {
	By  string // container ID; empty: what is neither a container nor a unit of the host
	For time.Duration
	// Host says that By is a unit of the host's services.
	Host bool
}

// Wait is a Delay of a window, with whose it was.
type Wait struct {
	Victim string
	Delay
}

// maxDelays bounds what is kept of a container: the longest.
const maxDelays = 8

// The second signal, for machines without cycles and instructions: how much longer work takes
// since other containers have the CPU. Queue is 1 plus the time that a container waited behind
// other containers over the time that it ran: a ratio of time as CPI is one, which grows as CPI
// does, and is 2 where every second of work takes two. What it waits for itself, as when it has
// more threads than CPUs, and for the host is not in it.
const (
	// Below it a container is well: it waits for others less than a quarter of what it runs.
	leastQueue = 1.25
	mostQueue  = 1000
	// The kernel's own account of a wait (PSI) has to agree: some task of the container waited
	// in so much of the window.
	leastPressure = 0.05
	// A container that its own quota stopped for more of the window waited for that, too.
	mostStopped = 0.01
)

// QueuePlatform ends the platform of containers that are judged by Queue. What is normal for a job
// by it is learned apart from what is by CPI.
const QueuePlatform = " (run queue)"

// delayed fills in who delayed each container, and Queue.
func (j *judge) delayed(w *Window) {
	w.ByQueue = j.to.Causes && !(j.present[j.base] && j.present[Instructions])
	if !j.to.Causes {
		return
	}
	caused := map[string]time.Duration{}
	index := map[string]*Result{}
	for i := range w.Containers {
		index[w.Containers[i].ID] = &w.Containers[i]
	}
	for _, d := range j.to.Delays {
		r := index[d.Victim]
		if r == nil || r.Dropped != None || !r.HasWait || d.By == d.Victim {
			continue
		}
		by := index[d.By]
		d.Host = by != nil && by.Class == cpi.Host
		r.Delays = append(r.Delays, d.Delay)
		if d.By != "" && r.Class.LatencySensitive() {
			caused[d.By] += d.For
		}
	}
	before := make(map[string]*Group, len(j.from.Groups))
	for i := range j.from.Groups {
		before[j.from.Groups[i].ID] = &j.from.Groups[i]
	}
	for i := range j.to.Groups {
		g := &j.to.Groups[i]
		r := index[g.ID]
		if r.Dropped == None && r.HasWait {
			r.Caused = caused[g.ID].Seconds() / j.length.Seconds()
			r.Queue = j.queue(r, before[g.ID], g)
		}
		slices.SortFunc(r.Delays, func(a, b Delay) int {
			return cmp.Or(cmp.Compare(b.For, a.For), cmp.Compare(a.By, b.By))
		})
		r.Delays = slices.Clip(r.Delays[:min(len(r.Delays), maxDelays)])
	}
}

// queue is a container's Queue; 0: it is not known.
func (j *judge) queue(r *Result, before, now *Group) float64 {
	a, b := &before.Account, &now.Account
	length := j.length.Seconds()
	if r.Delta.OnCPU < j.rules.MinOnCPU || (b.Stopped-a.Stopped).Seconds() > mostStopped*length {
		return 0
	}
	var behind time.Duration
	for _, d := range r.Delays {
		if d.By != "" && !d.Host {
			behind += d.For
		}
	}
	if a.Pressure && b.Pressure {
		if r.Pressure = (b.Waiting - a.Waiting).Seconds() / length; r.Pressure < leastPressure {
			behind = 0
		}
	}
	return min(1+behind.Seconds()/r.Delta.OnCPU.Seconds(), mostQueue)
}

// ByQueue returns the containers of a window as a detector judges them that has no CPI: Queue
// stands for the CPI of those that are protected; the others, that may be suspects, did as much
// as they used.
func ByQueue(all []Result) []Result {
	out := slices.Clone(all)
	for i := range out {
		r := &out[i]
		c := *r.Container
		c.Platform += QueuePlatform
		r.Container = &c
		if r.Dropped != None || r.NoCPI != Uncounted || r.Queue == 0 {
			continue
		}
		r.NoCPI, r.CPI, r.Counted, r.Reference = None, 1, 1, true
		if c.Class.LatencySensitive() {
			r.CPI = max(r.Queue, leastQueue)
		}
	}
	return out
}

// BlameQueue is Blame where Queue judges: the resource is the run queue, whose figures are those
// of the windows within and above the threshold, and by is who delayed the victim in the last one.
func BlameQueue(history []Sample, threshold float64, by []Delay) Evidence {
	var good, bad []*Sample
	for i := range history {
		switch s := &history[i]; {
		case s.Queue == 0:
		case s.Queue <= threshold:
			good = append(good, s)
		default:
			bad = append(bad, s)
		}
	}
	return Evidence{Resource: Queue, Waited: true, Good: means(good), Bad: means(bad), By: by}
}

// blamed lists who delayed a victim, by their part of the time; name returns what a container
// is called.
func blamed(by []Delay, name func(id string) string) string {
	var sum time.Duration
	for _, d := range by {
		sum += d.For
	}
	if sum == 0 {
		return ""
	}
	var parts []string
	for _, d := range by {
		share := math.Round(100 * d.For.Seconds() / sum.Seconds())
		if share < 1 || len(parts) == mostNamed {
			break
		}
		who := "what is no container"
		if d.By != "" {
			who = name(d.By)
		}
		parts = append(parts, fmt.Sprintf("%s %.0f %%", who, share))
	}
	return "waited for " + strings.Join(parts, ", ")
}

const mostNamed = 3
