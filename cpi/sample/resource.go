package sample

import (
	"fmt"
	"math"
	"slices"
)

// Resource is what a victim had too little of, as far as its own figures tell.
type Resource string

// The resources.
const (
	Unknown   Resource = "unknown"
	Queue     Resource = "queue"            // it waited for a CPU
	Frequency Resource = "frequency"        // its CPUs were slower
	Cache     Resource = "L3"               // it misses what it had in the cache before
	Memory    Resource = "memory bandwidth" // its misses take longer
	Sibling   Resource = "SMT sibling"      // neither, and a suspect may run on its cores
)

// Means are the medians of a victim's figures over some windows. What was not measured is NaN.
type Means struct {
	Windows             int
	CPI, MPKI, Wait     float64
	Speed               float64 // core cycles per reference cycle
	Queue, Pressure     float64 // as in a Sample
	countedInCoreCycles bool
}

// Evidence says which resource it was, and by which figures.
type Evidence struct {
	Resource  Resource
	Waited    bool    // it waited for CPUs longer than before, too
	Good, Bad Means   // windows within the threshold, and beyond
	By        []Delay // what had the CPU while it waited, in the last window, the longest first
}

// A change below these is none: windows of an undisturbed job differ as much.
const (
	waits      = 0.05 // of the time in which it could run, more than before
	slower     = 0.95 // of its former frequency
	moreMisses = 1.25 // times its former misses
	someMisses = 1.0  // in a thousand instructions: fewer explain no CPI
)

// Blame tells from a victim's own history, oldest first, which resource it lacked in the last
// windows in which its CPI was above the threshold. sibling says that a suspect may run on its
// cores. Waiting is no part of CPI, and is what was lacking only where nothing else explains
// that; frequency explains a CPI in reference cycles only.
func Blame(history []Sample, threshold float64, sibling bool) Evidence {
	const most = 5 // windows that count as the present
	var good, bad []*Sample
	for i := range slices.Backward(history) {
		s := &history[i]
		switch {
		case s.NoCPI != None || s.Reference != history[len(history)-1].Reference:
		case s.CPI <= threshold:
			good = append(good, s)
		case len(bad) < most && len(history)-i <= 2*most:
			bad = append(bad, s)
		}
	}
	e := Evidence{Good: means(good), Bad: means(bad)}
	e.Resource, e.Waited = e.resource(sibling), e.Bad.Wait > e.Good.Wait+waits
	if e.Resource == Unknown && e.Waited {
		e.Resource = Queue
	}
	return e
}

func (e *Evidence) resource(sibling bool) Resource {
	g, b := &e.Good, &e.Bad
	if g.Windows == 0 || b.Windows == 0 {
		return Unknown
	}
	misses := b.MPKI / g.MPKI // of NaN every comparison is false
	switch {
	case !b.countedInCoreCycles && b.Speed < slower*g.Speed && g.Speed/b.Speed >= math.Sqrt(b.CPI/g.CPI):
		return Frequency
	case b.MPKI >= someMisses && misses >= moreMisses:
		return Cache
	case b.MPKI >= someMisses && misses > 1/moreMisses:
		return Memory
	case sibling && (math.IsNaN(b.MPKI) || b.MPKI < someMisses):
		return Sibling
	}
	return Unknown
}

// String is Text with containers called by their ID.
func (e *Evidence) String() string { return e.Text(func(id string) string { return id }) }

// Text gives the figures that are known, before and now; name returns what a container is called.
func (e *Evidence) Text(name func(id string) string) string {
	text := "resource: " + string(e.Resource)
	if e.Waited && e.Resource != Queue {
		text += " and " + string(Queue)
	}
	sep := " ("
	if by := blamed(e.By, name); by != "" && e.Waited {
		text += sep + by
		sep = ", "
	}
	if e.Good.Windows == 0 || e.Bad.Windows == 0 {
		return text + sep + "no window to compare with)"
	}
	say := func(format string, good, bad float64) {
		if !math.IsNaN(good) && !math.IsNaN(bad) {
			text += sep + fmt.Sprintf(format, good, bad)
			sep = ", "
		}
	}
	say("CPI %.2f, now %.2f", e.Good.CPI, e.Bad.CPI)
	say("misses in 1,000 instructions %.2f, now %.2f", e.Good.MPKI, e.Bad.MPKI)
	say("waited %.0f %% of its time, now %.0f %%", 100*e.Good.Wait, 100*e.Bad.Wait)
	say("core cycles a reference cycle %.2f, now %.2f", e.Good.Speed, e.Bad.Speed)
	say("work took %.2f times as long as alone, now %.2f", e.Good.Queue, e.Bad.Queue)
	say("CPU pressure %.0f %%, now %.0f %%", 100*e.Good.Pressure, 100*e.Bad.Pressure)
	return text + ")"
}

func means(of []*Sample) Means {
	m := Means{Windows: len(of)}
	median := func(value func(*Sample) (float64, bool)) float64 {
		var all []float64
		for _, s := range of {
			if v, has := value(s); has {
				all = append(all, v)
			}
		}
		if len(all) == 0 {
			return math.NaN()
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	m.CPI = median(func(s *Sample) (float64, bool) { return s.CPI, s.CPI > 0 })
	m.MPKI = median(func(s *Sample) (float64, bool) { return s.MPKI, s.HasMPKI })
	m.Wait = median(func(s *Sample) (float64, bool) { return s.Wait, s.HasWait })
	m.Speed = median(func(s *Sample) (float64, bool) { return s.Speed, s.Speed > 0 })
	m.Queue = median(func(s *Sample) (float64, bool) { return s.Queue, s.Queue > 0 })
	m.Pressure = median(func(s *Sample) (float64, bool) { return s.Pressure, s.Pressure > 0 })
	m.countedInCoreCycles = len(of) > 0 && !of[0].Reference
	return m
}
