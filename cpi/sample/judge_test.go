package sample

import (
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quietcore/quietcore/cpi"
)

const window = 10 * time.Second

// edges are a window of 10 s on 4 CPUs in which one container ran for 20 s, at
// 2 GHz, with a CPI of 2.
func edges() (from, to *Edge) {
	counted := [NumEvents]bool{true, true, true, true}
	clock := [NumEvents]time.Duration{40 * time.Second, 40 * time.Second, 40 * time.Second, 40 * time.Second}
	from = &Edge{
		Wall: time.Unix(1000, 0), Monotonic: time.Hour, Boot: 2 * time.Hour, CPUs: 4, Present: counted, Waits: true,
		Enabled: clock, Running: clock,
		Groups: []Group{{Container: &cpi.Container{ID: "a"}, CgroupID: 1,
			Counts: Counts{Events: [NumEvents]uint64{7e9, 6e9, 5e9, 4e6},
				OnCPU: 3 * time.Second, Counted: 2 * time.Second, CountedRef: 2 * time.Second,
				CountedMisses: 2 * time.Second, Wait: time.Second, Switches: 9}}},
	}
	to = &Edge{
		Wall: time.Unix(1010, 0), Monotonic: time.Hour + window, Boot: 2*time.Hour + window, CPUs: 4, Present: counted,
		Waits: true,
		Groups: []Group{{Container: &cpi.Container{ID: "a"}, CgroupID: 1,
			Counts: Counts{Events: [NumEvents]uint64{7e9 + 50e9, 6e9 + 20e9,
				5e9 + 40e9, 4e6 + 60e6}, OnCPU: 23 * time.Second, Counted: 22 * time.Second,
				CountedRef: 22 * time.Second, CountedMisses: 22 * time.Second, Wait: 6 * time.Second,
				Switches: 109}}},
	}
	for e := range clock {
		to.Enabled[e], to.Running[e] = clock[e]+40*time.Second, clock[e]+40*time.Second
	}
	return from, to
}

func TestASampleIsUsageAndCPIOfTheSameInterval(t *testing.T) {
	from, to := edges()
	w := Judge(from, to, Hardware(window))
	want := Sample{
		End: to.Wall, Boot: to.Boot, Length: window, Usage: 2, CPI: 2, MPKI: 3, HasMPKI: true, Reference: true,
		Wait: 0.2, HasWait: true, Counted: 1, Speed: 1.25,
	}
	if w.Dropped != None || len(w.Containers) != 1 || w.Containers[0].Sample != want {
		t.Fatalf("got %+v\nwant %+v", w, want)
	}
	delta := Counts{Events: [NumEvents]uint64{50e9, 20e9, 40e9, 60e6}, OnCPU: 20 * time.Second,
		Counted: 20 * time.Second, CountedRef: 20 * time.Second, CountedMisses: 20 * time.Second,
		Wait: 5 * time.Second, Switches: 100}
	if w.Containers[0].Delta != delta {
		t.Errorf("counted %+v, want %+v", w.Containers[0].Delta, delta)
	}
	if w.Containers[0].Container != to.Groups[0].Container {
		t.Errorf("it is the sample of %p, and not of the view at the window's end", w.Containers[0].Container)
	}
	if w.Running != [NumEvents]float64{1, 1, 1, 1} {
		t.Errorf("running %v", w.Running)
	}
}

// Each case changes the good window in one way.
func TestWhatSpoilsASample(t *testing.T) {
	type change func(from, to *Edge)
	counts := func(to *Edge) *Counts { return &to.Groups[0].Counts }
	for name, c := range map[string]struct {
		change  change
		dropped Reason
		noCPI   Reason
		cpi     float64 // where it is not None
	}{
		"nothing":                      {func(*Edge, *Edge) {}, None, None, 2},
		"no reading before":            {func(from, _ *Edge) { from.Groups = nil }, First, None, 0},
		"no reading after":             {func(_, to *Edge) { to.Groups = nil }, Ended, None, 0},
		"another cgroup":               {func(_, to *Edge) { to.Groups[0].CgroupID++ }, Restarted, None, 0},
		"an event smaller than before": {func(_, to *Edge) { counts(to).Events[LLCMisses] = 1 }, Backwards, None, 0},
		"less CPU time than before":    {func(_, to *Edge) { counts(to).OnCPU = time.Second }, Backwards, None, 0},
		"less waiting than before":     {func(_, to *Edge) { counts(to).Wait = 0 }, Backwards, None, 0},
		"fewer switches than before":   {func(_, to *Edge) { counts(to).Switches = 0 }, Backwards, None, 0},
		"enabled for less than before": {func(_, to *Edge) { to.Enabled[Cycles] = 0 }, Backwards, None, 0},
		"counted for less than before": {func(_, to *Edge) { counts(to).Counted = 0 }, Backwards, None, 0},
		"missed less than before":      {func(from, _ *Edge) { from.Missed = 1 }, Backwards, None, 0},
		"uncharged time": {func(_, to *Edge) {
			to.Missed, to.Lost = 1, 210*time.Millisecond
		}, Missed, None, 0},
		"a hundredth uncharged": {func(_, to *Edge) {
			to.Missed, to.Lost = 1, 190*time.Millisecond
		}, None, None, 2},
		"lost, and the kernel agrees": {func(from, to *Edge) {
			agree(from, to, 20)
			to.Missed, to.Lost = 1, time.Minute
		}, None, None, 2},
		"the kernel says more":       {func(from, to *Edge) { agree(from, to, 20.7) }, None, Missed, 0},
		"the kernel says less":       {func(from, to *Edge) { agree(from, to, 19.3) }, None, Missed, 0},
		"the kernel says a bit more": {func(from, to *Edge) { agree(from, to, 20.5) }, None, None, 2},
		"between two readings": {func(from, to *Edge) {
			agree(from, to, 22)
			to.Groups[0].Account.Before -= 3 * time.Second
			to.Missed, to.Lost = 1, time.Minute
		}, None, None, 2},
		"beyond both readings": {func(from, to *Edge) {
			agree(from, to, 24)
			to.Groups[0].Account.Before -= 3 * time.Second
		}, None, Missed, 0},
		"too far between to tell": {func(from, to *Edge) {
			agree(from, to, 30)
			to.Groups[0].Account.Before -= 20 * time.Second
		}, None, None, 2},
		"too far, and time was lost": {func(from, to *Edge) {
			agree(from, to, 30)
			to.Groups[0].Account.Before -= 20 * time.Second
			to.Missed, to.Lost = 1, time.Minute
		}, Missed, None, 0},
		"an account that began anew": {func(from, to *Edge) { agree(from, to, -1) }, None, None, 2},
		// not counted for others' sake
		"lost without a miss":    {func(_, to *Edge) { to.Lost = time.Minute }, None, None, 2},
		"lost less than before":  {func(from, _ *Edge) { from.Lost = 1 }, Backwards, None, 0},
		"two clocks read apart":  {func(_, to *Edge) { to.Boot += 10 * time.Millisecond }, None, None, 2},
		"suspended for a moment": {func(_, to *Edge) { to.Boot += 11 * time.Millisecond }, Clock, None, 0},
		"suspended":              {func(_, to *Edge) { to.Boot += time.Minute }, Clock, None, 0},
		"the clock stood still": {func(from, to *Edge) {
			to.Monotonic, to.Boot = from.Monotonic, from.Boot
		}, Clock, None, 0},
		"the clock went back": {func(_, to *Edge) { to.Monotonic, to.Boot = 0, time.Hour }, Clock, None, 0},
		"half the window": {func(_, to *Edge) {
			to.Monotonic, to.Boot = to.Monotonic-5*time.Second, to.Boot-5*time.Second
		}, None, None, 2},
		"half the window less a bit": {func(_, to *Edge) {
			to.Monotonic, to.Boot = to.Monotonic-6*time.Second, to.Boot-6*time.Second
		}, Clock, None, 0},
		"ten seconds late and more": {func(_, to *Edge) {
			to.Monotonic, to.Boot = to.Monotonic+11*time.Second, to.Boot+11*time.Second
		}, Clock, None, 0},
		"a timer that is late": {func(_, to *Edge) {
			to.Monotonic, to.Boot = to.Monotonic+10*time.Second, to.Boot+10*time.Second
		}, None, None, 2},
		"the wall clock jumped": {func(_, to *Edge) { to.Wall = to.Wall.AddDate(-1, 0, 0) }, None, None, 2},
		"a CPU fewer":           {func(_, to *Edge) { to.CPUs = 3 }, CPUs, None, 0},
		"a CPU off and on":      {func(_, to *Edge) { to.Setup++ }, CPUs, None, 0},
		"a CPU fewer, usage is known": {func(from, to *Edge) {
			agree(from, to, 20)
			to.CPUs = 3
		}, None, CPUs, 0},
		"LLC misses lost": {func(_, to *Edge) { to.Present[LLCMisses] = false }, None, None, 2},
		"reference cycles lost": {func(_, to *Edge) {
			to.Present[RefCycles], to.Running[RefCycles], counts(to).CountedRef = false, 40*time.Second, 2*time.Second
		}, None, None, 2.5},
		"reference cycles for a tenth of the time": {func(_, to *Edge) {
			to.Running[RefCycles] = 44 * time.Second
			counts(to).CountedRef, counts(to).Events[RefCycles] = 4*time.Second, 5e9+4e9
		}, None, None, 2.5},
		"reference cycles for three quarters of the time": {func(_, to *Edge) {
			to.Running[RefCycles] = 70 * time.Second
			counts(to).CountedRef, counts(to).Events[RefCycles] = 17*time.Second, 5e9+30e9
		}, None, None, 2},
		"the same, after core cycles": {func(from, to *Edge) {
			from.Core, to.Running[RefCycles] = true, 70*time.Second
			counts(to).CountedRef, counts(to).Events[RefCycles] = 17*time.Second, 5e9+30e9
		}, None, None, 2.5},
		"reference cycles all the time, after core cycles": {func(from, _ *Edge) { from.Core = true }, None, None, 2},
		"reference cycles alone, for a tenth of the time": {func(from, to *Edge) {
			from.Present[Cycles], to.Running[RefCycles] = false, 44*time.Second
			counts(to).CountedRef, counts(to).Events[RefCycles] = 4*time.Second, 5e9+4e9
		}, None, None, 2},
		"not its turn": {func(_, to *Edge) { to.Groups[0].Left = Unwatched }, Unwatched, None, 0},
		"not its turn, usage is known": {func(from, to *Edge) {
			agree(from, to, 20)
			to.Groups[0].Left = Unwatched
		}, None, Unwatched, 0},
		"on CPUs that are left alone": {func(from, to *Edge) {
			agree(from, to, 20)
			to.Groups[0].Left = Skipped
		}, None, Skipped, 0},
		"more CPU time than CPUs have": {func(_, to *Edge) { counts(to).OnCPU = time.Minute }, Absurd, None, 0},
		"all that CPUs have, and a bit": {func(_, to *Edge) {
			counts(to).OnCPU, counts(to).Counted = 43300*time.Millisecond, 42300*time.Millisecond
			counts(to).CountedRef = counts(to).Counted
		}, None, None, 2},
		"more than all CPUs have": {func(_, to *Edge) {
			counts(to).OnCPU, counts(to).Counted = 43500*time.Millisecond, 42500*time.Millisecond
		}, Absurd, None, 0},
		"counted for more than it ran": {func(_, to *Edge) { counts(to).Counted = 24 * time.Second }, Absurd, None, 0},
		"counted for too little": {func(_, to *Edge) {
			counts(to).Counted = 3900 * time.Millisecond
		}, None, Partial, 0},
		"counted for a quarter": {func(_, to *Edge) {
			c := counts(to)
			c.Counted, c.CountedRef = 7*time.Second, 7*time.Second
			c.Events = [NumEvents]uint64{7e9 + 12.5e9, 6e9 + 5e9, 5e9 + 10e9, 4e6 + 15e6}
		}, None, None, 2},
		"never counted": {func(from, to *Edge) {
			counts(to).Counted = from.Groups[0].Counted
		}, None, Partial, 0},
		"waits no longer known": {func(_, to *Edge) { to.Waits = false }, CPUs, None, 0},
		"no instructions": {func(from, to *Edge) {
			counts(to).Events[Instructions] = from.Groups[0].Events[Instructions]
		}, None, Zero, 0},
		"no cycles": {func(from, to *Edge) {
			counts(to).Events[RefCycles] = from.Groups[0].Events[RefCycles]
		}, None, Zero, 0},
		"too many cycles a second": {func(_, to *Edge) { counts(to).Events[RefCycles] = 300e9 }, None, Absurd, 0},
		"too few cycles a second": {func(from, to *Edge) {
			counts(to).Events[RefCycles] = from.Groups[0].Events[RefCycles] + 9e6
		}, None, Absurd, 0},
		"a CPI that no CPU has": {func(from, to *Edge) {
			counts(to).Events[Instructions] = from.Groups[0].Events[Instructions] + 1e7
		}, None, Absurd, 0},
		"instructions that no CPU does": {func(_, to *Edge) {
			counts(to).Events[Instructions] = 1e12
		}, None, Absurd, 0},
		"the largest counts there are": {func(_, to *Edge) {
			for e := range NumEvents {
				counts(to).Events[e] = math.MaxUint64
			}
		}, None, Absurd, 0},
		"ran for half a millisecond": {func(from, to *Edge) {
			was := from.Groups[0].Counts
			*counts(to) = Counts{Events: counts(to).Events, OnCPU: was.OnCPU + time.Millisecond/2, Counted: was.Counted,
				CountedRef: was.CountedRef, CountedMisses: was.CountedMisses, Wait: was.Wait, Switches: was.Switches}
		}, None, Idle, 0},
		"no instructions on this PMU": {func(from, to *Edge) {
			from.Present[Instructions], to.Present[Instructions] = false, false
		}, None, Uncounted, 0},
		"core cycles only": {func(from, to *Edge) {
			from.Present[RefCycles], to.Present[RefCycles] = false, false
		}, None, None, 2.5},
	} {
		t.Run(name, func(t *testing.T) {
			from, to := edges()
			c.change(from, to)
			w := Judge(from, to, Hardware(window))
			if len(w.Containers) != 1 {
				t.Fatalf("%d containers", len(w.Containers))
			}
			r := w.Containers[0]
			if r.Dropped != c.dropped || r.NoCPI != c.noCPI || math.Abs(r.CPI-c.cpi) > 1e-9 {
				t.Errorf("dropped %q, no CPI %q, CPI %v; want %q, %q, %v", r.Dropped, r.NoCPI, r.CPI, c.dropped,
					c.noCPI, c.cpi)
			}
			if r.Dropped != None && (r.Sample != Sample{} || r.Delta != Counts{}) {
				t.Errorf("dropped, and holds numbers: %+v", r)
			}
			if r.Dropped == None && r.Usage == 0 {
				t.Error("the usage is lost with the CPI")
			}
			if r.Container == nil || r.ID != "a" {
				t.Errorf("it is of %+v", r.Container)
			}
		})
	}
}

// agree has the kernel account for so many seconds.
func agree(from, to *Edge, seconds float64) {
	from.Groups[0].Account = Account{Known: true, Before: time.Minute, After: time.Minute}
	now := time.Minute + time.Duration(seconds*1e9)
	to.Groups[0].Account = Account{Known: true, Before: now, After: now}
}

// A container that does nothing is idle, whatever else was lost on the machine, where the
// kernel says the same; and nothing over nothing is no number.
func TestNothingRanNothingWaited(t *testing.T) {
	from, to := edges()
	to.Groups[0].Counts = from.Groups[0].Counts
	agree(from, to, 0)
	to.Missed, to.Lost = 1, time.Minute
	r := Judge(from, to, Hardware(window)).Containers[0]
	if want := (Sample{End: to.Wall, Boot: to.Boot, Length: window, HasWait: true, NoCPI: Idle}); r.Dropped != None ||
		r.Sample != want {
		t.Errorf("%+v, want %+v", r, want)
	}
}

func TestWaitingThatIsNotCounted(t *testing.T) {
	from, to := edges()
	from.Waits, to.Waits = false, false
	if r := Judge(from, to, Hardware(window)).Containers[0]; r.Dropped != None || r.HasWait || r.Wait != 0 {
		t.Errorf("%+v", r)
	}
}

func TestSharesOfTheTimeThatEventsWereCounted(t *testing.T) {
	from, to := edges()
	to.Running[Cycles] -= 30 * time.Second
	to.Running[LLCMisses] = from.Running[LLCMisses]
	from.Present[RefCycles], to.Present[RefCycles] = false, false
	to.Running[RefCycles] = from.Running[RefCycles]
	if got, want := Judge(from, to, Hardware(window)).Running, ([NumEvents]float64{0.25, 1, 1, 0}); got != want {
		t.Errorf("%v, want %v: what is not present at all is not counted for too little", got, want)
	}
}

func TestMissesAreDroppedAlone(t *testing.T) {
	for name, change := range map[string]func(from, to *Edge){
		"not counted": func(from, to *Edge) { from.Present[LLCMisses], to.Present[LLCMisses] = false, false },
		"absurd":      func(_, to *Edge) { to.Groups[0].Events[LLCMisses] = 1e12 },
	} {
		from, to := edges()
		change(from, to)
		if r := Judge(from, to, Hardware(window)).Containers[0]; r.HasMPKI || r.MPKI != 0 || r.CPI != 2 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// What stands in for cycles and instructions may have any ratio.
func TestStandInsHaveNoBounds(t *testing.T) {
	from, to := edges()
	to.Groups[0].Events = from.Groups[0].Events
	to.Groups[0].Events[RefCycles] += 20e9 // nanoseconds
	to.Groups[0].Events[Instructions] += 5 // page faults
	if r := Judge(from, to, StandIn(window)).Containers[0]; r.CPI != 4e9 {
		t.Errorf("%+v", r)
	}
	if r := Judge(from, to, Hardware(window)).Containers[0]; r.NoCPI != Absurd {
		t.Errorf("%+v", r)
	}
}

// A cap that began or ended in the window held for a part of it.
func TestCappedAtEitherEdge(t *testing.T) {
	for _, c := range [][2]bool{{false, false}, {true, false}, {false, true}, {true, true}} {
		from, to := edges()
		from.Groups[0].Container, to.Groups[0].Container = &cpi.Container{ID: "a", Capped: c[0]},
			&cpi.Container{ID: "a", Capped: c[1]}
		r := Judge(from, to, Hardware(window)).Containers[0]
		if r.Capped != (c[0] || c[1]) || r.Container != to.Groups[0].Container {
			t.Errorf("%v: %+v", c, r)
		}
		to.Groups = nil
		if r := Judge(from, to, Hardware(window)).Containers[0]; r.Capped != c[0] ||
			r.Container != from.Groups[0].Container {
			t.Errorf("%v, and ended: %+v", c, r)
		}
	}
}

func TestEveryReasonHasAWordAndASentence(t *testing.T) {
	words := map[string]bool{}
	for _, r := range Reasons() {
		if r.String() == "" || r.Sentence() == "" || words[r.String()] {
			t.Errorf("%d: %q %q", r, r, r.Sentence())
		}
		words[r.String()] = true
	}
	if len(words) != int(NumReasons)-1 || None.String() != "" {
		t.Errorf("%d words for %d reasons", len(words), NumReasons-1)
	}
	for e := range Event(NumEvents) {
		if e.String() == "" {
			t.Errorf("event %d has no name", e)
		}
	}
}

// truth is what one container really did.
type truth struct {
	usage, hertz, cpi, refCPI, mpki, wait float64
}

func (m truth) counts(length time.Duration) Counts {
	ran := m.usage * length.Seconds()
	cycles := m.hertz * ran
	instructions := cycles / m.cpi
	return Counts{
		Events: [NumEvents]uint64{Cycles: uint64(cycles), Instructions: uint64(instructions),
			RefCycles: uint64(instructions * m.refCPI), LLCMisses: uint64(instructions * m.mpki / 1000)},
		OnCPU: time.Duration(ran * 1e9), Counted: time.Duration(ran * 1e9), CountedRef: time.Duration(ran * 1e9),
		CountedMisses: time.Duration(ran * 1e9), Wait: time.Duration(m.wait * 1e9), Switches: 5,
	}
}

func (c Counts) plus(d Counts) Counts {
	for e := range c.Events {
		c.Events[e] += d.Events[e]
	}
	c.OnCPU, c.Counted, c.Wait, c.Switches = c.OnCPU+d.OnCPU, c.Counted+d.Counted, c.Wait+d.Wait, c.Switches+d.Switches
	c.CountedRef, c.CountedMisses = c.CountedRef+d.CountedRef, c.CountedMisses+d.CountedMisses
	return c
}

// world is a window with everything known about it, into which faults are put.
type world struct {
	from, to *Edge
	truth    map[string]truth
	length   time.Duration
	lacking  bool // the counters lack some of what was done
}

func newWorld(t *rapid.T) *world {
	w := &world{truth: map[string]truth{}, length: time.Duration(rapid.Int64Range(int64(6*time.Second),
		int64(15*time.Second)).Draw(t, "length"))}
	if rapid.IntRange(0, 9).Draw(t, "odd") == 9 { // small numbers are drawn more often than others
		w.length = time.Duration(rapid.Int64Range(int64(time.Second), int64(25*time.Second)).Draw(t, "odd length"))
	}
	start := time.Duration(rapid.Int64Range(1, int64(1000*time.Hour)).Draw(t, "start"))
	cpus := rapid.IntRange(1, 64).Draw(t, "cpus")
	w.from = &Edge{Monotonic: start, Boot: start + time.Hour, CPUs: cpus, Waits: true,
		Present: [NumEvents]bool{true, true, true, true}, Missed: 3}
	to := *w.from
	to.Monotonic, to.Boot = to.Monotonic+w.length, to.Boot+w.length
	w.to = &to
	w.to.Groups = nil
	for e := range NumEvents {
		w.from.Enabled[e] = time.Duration(cpus) * time.Minute
		w.from.Running[e] = w.from.Enabled[e] / 2 // what was before does not matter
		w.to.Enabled[e] = w.from.Enabled[e] + time.Duration(cpus)*w.length
		w.to.Running[e] = w.from.Running[e] + time.Duration(cpus)*w.length
	}
	n := rapid.IntRange(1, 5).Draw(t, "containers")
	for i := range n {
		hertz := rapid.Float64Range(1e9, 5e9).Draw(t, "hertz")
		ratio := rapid.Float64Range(0.3, 20).Draw(t, "cpi")
		boost := rapid.Float64Range(0.8, 1.25).Draw(t, "boost")
		m := truth{
			usage: rapid.Float64Range(0.01, 1).Draw(t, "usage") * float64(cpus) / float64(n), hertz: hertz, cpi: ratio,
			refCPI: ratio * boost,
			mpki:   rapid.Float64Range(0.5, 50).Draw(t, "mpki"), wait: rapid.Float64Range(0, 5).Draw(t, "wait"),
		}
		id := fmt.Sprint("c", i)
		before := truth{usage: rapid.Float64Range(0, 1).Draw(t, "past"), hertz: 2e9, cpi: 1,
			refCPI: 1}.counts(time.Hour)
		g := Group{Container: &cpi.Container{ID: id}, CgroupID: 1, Counts: before}
		ran := func(what string) time.Duration {
			return time.Duration(m.usage * float64(rapid.Int64Range(0, 1e8).Draw(t, what)))
		}
		g.Account = Account{Known: rapid.Bool().Draw(t, "account"), Before: time.Hour - ran("read before"),
			After: time.Hour + ran("read after")}
		w.from.Groups = append(w.from.Groups, g)
		ended := time.Hour + time.Duration(m.usage*float64(w.length))
		g.Account.Before, g.Account.After = ended-ran("read again before"), ended+ran("read again after")
		g.Counts = before.plus(m.counts(w.length))
		w.to.Groups = append(w.to.Groups, g)
		w.truth[id] = m
	}
	return w
}

// fault spoils the readings the way machines do. The judge has no other source.
func (w *world) fault(t *rapid.T) {
	if len(w.to.Groups) == 0 || len(w.from.Groups) == 0 {
		return
	}
	at := rapid.IntRange(0, len(w.to.Groups)-1).Draw(t, "whose")
	e := rapid.IntRange(0, NumEvents-1).Draw(t, "event")
	part := rapid.Float64Range(0, 0.999).Draw(t, "part")
	group := &w.to.Groups[at]
	lose := func(g *Group, e int) {
		g.Events[e] = uint64(float64(g.Events[e]) * part)
	}
	switch kind := rapid.SampledFrom([]string{
		"suspend", "clock", "hotplug", "offline", "restart", "reset", "shrink", "begin", "end", "multiplex", "turns",
		"missed",
		"deep", "silent", "more", "cpu time", "uncounted", "nothing",
	}).Draw(t, "fault"); kind {
	case "suspend":
		w.to.Boot += time.Duration(rapid.Int64Range(int64(20*time.Millisecond), int64(time.Hour)).Draw(t, "asleep"))
	case "clock":
		w.to.Monotonic = time.Duration(rapid.Int64Range(0, int64(2000*time.Hour)).Draw(t, "now"))
		if off := w.to.Monotonic - w.from.Monotonic - w.length; off.Abs() <= slept {
			w.to.Monotonic += time.Minute
		}
	case "hotplug": // the CPU is back, and what was counted on it began anew
		w.to.Setup++
		lose(group, e)
	case "offline":
		w.to.CPUs--
		lose(group, e)
	case "restart":
		group.CgroupID++
		group.Counts = Counts{Events: [NumEvents]uint64{1, 2, 3, 4},
			OnCPU: time.Duration(part * float64(w.length))}.plus(Counts{OnCPU: group.OnCPU})
	case "reset":
		before := &w.from.Groups[min(at, len(w.from.Groups)-1)]
		if before.ID == group.ID && before.Events[e] > 0 {
			group.Events[e] = uint64(float64(before.Events[e]-1) * part)
		}
	case "shrink":
		w.to.Enabled[e], w.to.Running[e] = 0, 0
	case "begin":
		w.from.Groups = w.from.Groups[1:]
	case "end":
		w.to.Groups = w.to.Groups[1:]
	case "turns": // an event that is optional had its counter for a part of the time
		for k := range w.from.Groups {
			if before := &w.from.Groups[k]; before.ID == group.ID {
				group.Events[RefCycles] -= uint64(part * float64(group.Events[RefCycles]-min(group.Events[RefCycles],
					before.Events[RefCycles])))
				group.CountedRef -= time.Duration(part * float64(group.CountedRef-before.CountedRef))
			}
		}
	case "multiplex": // for the same part of the time all events stood still
		for k := range w.from.Groups {
			if before := &w.from.Groups[k]; before.ID == group.ID {
				for e := range group.Events {
					group.Events[e] -= min(group.Events[e],
						uint64(part*float64(group.Events[e]-min(group.Events[e], before.Events[e]))))
				}
				for of, was := range map[*time.Duration]time.Duration{&group.Counted: before.Counted,
					&group.CountedRef: before.CountedRef, &group.CountedMisses: before.CountedMisses} {
					*of -= time.Duration(part * float64(*of-was))
				}
			}
		}
	case "missed", "deep": // a part of its time was charged to no group
		for k := range w.from.Groups {
			before := &w.from.Groups[k]
			if before.ID != group.ID || kind == "deep" && !before.Account.Known {
				continue // not detectable
			}
			lost := max(time.Duration(part*part*float64(group.OnCPU-before.OnCPU)), 0)
			w.lacking = true
			if kind == "missed" {
				w.to.Missed++
				w.to.Lost += lost
			}
			group.OnCPU -= lost
			group.Counted -= min(lost, group.Counted)
			group.CountedRef -= min(lost, group.CountedRef)
			group.CountedMisses -= min(lost, group.CountedMisses)
			for e := range group.Events {
				group.Events[e] -= min(group.Events[e], uint64(part*part*float64(group.Events[e]-min(group.Events[e],
					before.Events[e]))))
			}
		}
	case "silent": // a counter that stood still; of misses there may really be none
		if e == int(LLCMisses) {
			return
		}
		for k := range w.from.Groups {
			if before := &w.from.Groups[k]; before.ID == group.ID {
				group.Events[e] = before.Events[e]
			}
		}
	case "more":
		group.Events[e] += 1e17
	case "cpu time":
		group.OnCPU += 100 * w.length * time.Duration(w.to.CPUs+1)
	case "uncounted":
		w.from.Present[e], w.to.Present[e] = false, false // and its numbers do not matter
		for i := range w.to.Groups {
			w.to.Groups[i].Events[e] = math.MaxUint64 / 2
		}
	}
}

// A sample is what really was, or it is dropped.
func TestNeverAWrongNumber(t *testing.T) {
	kept, dropped := 0, 0
	check := func(t *rapid.T) {
		w := newWorld(t)
		for range rapid.IntRange(0, 3).Draw(t, "faults") {
			w.fault(t)
		}
		got := Judge(w.from, w.to, Hardware(window))
		for _, r := range got.Containers {
			if r.Dropped == None {
				w.check(t, r, w.truth[r.ID])
				kept++
			} else {
				dropped++
			}
		}
	}
	// With -short a check is 20 worlds, too few to be sure of both.
	for round := 0; round == 0 || round < 20 && (kept < 30 || dropped < 30); round++ {
		rapid.Check(t, check)
	}
	if kept < 30 || dropped < 30 {
		t.Errorf("%d kept, %d dropped: the test tells nothing", kept, dropped)
	}
}

func (w *world) check(t *rapid.T, r Result, m truth) {
	share, least := 2e-3, 0.
	if w.lacking {
		// up to 0.2 s lay between two readings of the account, twice
		share, least = 0.031+2*0.2/w.length.Seconds(), 0.0101
	}
	if r.NoCPI == CPUs || r.NoCPI == Missed { // the middle of what the kernel's account may have been
		share, least = share+0.12, least+0.011
	}
	if off := math.Abs(r.Usage - m.usage); off > share*m.usage+least {
		t.Fatalf("%s: usage is %v, in truth it was %v", r.ID, r.Usage, m.usage)
	}
	tolerance := 2e-3 // of what is rounded
	if w.lacking {
		// Where all of it is little, the little that it lacks is much.
		if tolerance = 0.06 + 2*share; m.usage < 0.25 {
			return
		}
	}
	near := func(what string, got, want float64) {
		if math.Abs(got-want) > tolerance*want {
			t.Fatalf("%s: %s is %v, in truth it was %v", r.ID, what, got, want)
		}
	}
	if (r.CPI == 0) != (r.NoCPI != None) {
		t.Fatalf("%s: CPI %v and reason %q", r.ID, r.CPI, r.NoCPI)
	}
	if r.CPI != 0 && r.Reference {
		near("CPI", r.CPI, m.refCPI)
	} else if r.CPI != 0 {
		near("CPI", r.CPI, m.cpi)
	}
	if r.HasMPKI {
		if misses := float64(r.Delta.Events[LLCMisses]); misses > 0 { // half counts are not counted
			tolerance += 1 / misses
		}
		near("MPKI", r.MPKI, m.mpki)
	}
}

func TestHistoryKeepsTheNewest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		depth := rapid.IntRange(1, 8).Draw(t, "depth")
		h := NewHistory(depth)
		var want []Sample
		for _, at := range rapid.SliceOfN(rapid.Int64Range(1, 100), 0, 40).Draw(t, "times") {
			s := Sample{
				End: time.Unix(at, 1), Boot: time.Duration(at), Length: time.Duration(2 * at), Usage: float64(at),
				CPI: float64(3 * at), Counted: float64(at%4) / 4, MPKI: float64(4 * at), Wait: float64(5 * at),
				NoCPI: Idle, HasMPKI: at%2 == 0, HasWait: at%3 == 0, Reference: at%5 == 0,
			}
			later := len(want) == 0 || s.Boot > want[len(want)-1].Boot
			if h.Add(s) != later {
				t.Fatalf("%v after %v", s.Boot, want)
			}
			if later {
				want = append(want, s)
			}
			want = want[max(0, len(want)-depth):]
		}
		if got := h.AppendTo([]Sample{}); h.Len() != len(want) || !reflect.DeepEqual(got, append([]Sample{}, want...)) {
			t.Fatalf("got %v, want %v", got, want)
		}
		if last, ok := h.Last(); ok != (len(want) > 0) || ok && last != want[len(want)-1] {
			t.Fatalf("last is %v", last)
		}
	})
}
