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
	Beside    *Beside // what ran beside it in the last window; nil: it is not known
}

// Near is what may have disturbed a victim from beside it.
type Near struct {
	// Sibling says that a suspect ran on its cores, or may have where that is not known.
	Sibling bool
	Beside  *Beside // nil: it is not known
}

// A change below these is none: windows of an undisturbed job differ as much.
const (
	waits      = 0.05 // of the time in which it could run, more than before
	slower     = 0.95 // of its former frequency
	moreMisses = 1.25 // times its former misses
	someMisses = 1.0  // in a thousand instructions: fewer explain no CPI
)

// Blame tells from a victim's own history, oldest first, which resource it lacked in the last
// windows in which its CPI was above the threshold. Waiting is no part of CPI, and is what was
// lacking only where nothing else explains that; frequency explains a CPI in reference cycles only.
func Blame(history []Sample, threshold float64, near Near) Evidence {
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
	e := Evidence{Good: means(good), Bad: means(bad), Beside: near.Beside}
	e.Resource, e.Waited = e.resource(&near), e.Bad.Wait > e.Good.Wait+waits
	if e.Resource == Unknown && e.Waited {
		e.Resource = Queue
	}
	return e
}

// resource is what explains the CPI. Nobody has taken the cache or the memory of a victim beside
// which nobody ran: it does something else than before.
func (e *Evidence) resource(near *Near) Resource {
	g, b := &e.Good, &e.Bad
	inL3, onNode := true, true
	if at := near.Beside; at != nil {
		inL3, onNode = at.L3.All.CPUs >= leastNamed, at.Node.All.CPUs >= leastNamed
	}
	if g.Windows == 0 || b.Windows == 0 {
		return Unknown
	}
	misses := b.MPKI / g.MPKI // of NaN every comparison is false
	switch {
	case !b.countedInCoreCycles && b.Speed < slower*g.Speed && g.Speed/b.Speed >= math.Sqrt(b.CPI/g.CPI):
		return Frequency
	case b.MPKI >= someMisses && misses >= moreMisses && inL3:
		return Cache
	case b.MPKI >= someMisses && misses > 1/moreMisses && onNode:
		return Memory
	case near.Sibling && (math.IsNaN(b.MPKI) || b.MPKI < someMisses):
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
	if beside := e.beside(name); beside != "" {
		text += sep + beside
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

// beside says who ran where the resource is, and what nobody had.
func (e *Evidence) beside(name func(id string) string) string {
	at := e.Beside
	if at == nil {
		return ""
	}
	text := ""
	switch e.Resource {
	case Sibling:
		text = at.Sibling.text("on its SMT siblings", name)
	case Cache, Unknown:
		text = at.L3.text("in its L3 domain", name)
	case Memory:
		text = at.Node.text("on its NUMA node", name)
	case Queue, Frequency:
	}
	const least = 0.01
	for _, t := range []struct {
		what  string
		share float64
	}{{"the hypervisor took", at.Steal}, {"interrupts took", at.Interrupts}} {
		if t.share < least {
			continue
		}
		if text != "" {
			text += ", "
		}
		text += fmt.Sprintf("%s %.0f %% of its CPUs", t.what, 100*t.share)
	}
	return text
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
