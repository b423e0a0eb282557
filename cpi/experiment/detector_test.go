package experiment

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/quietcore/quietcore/cpi"
)

// found plays a guilty machine for so many minutes, and tells how each kind of event
// went.
func found(t *testing.T, cfg Config, minutes int, each func(w *innocents, n int)) map[Kind]int {
	t.Helper()
	w := newInnocents(t, cfg, rand.New(rand.NewPCG(3, 3)))
	kinds := map[Kind]int{}
	for n := range minutes {
		w.minute(guilty, n)
		for _, e := range w.d.work.events {
			kinds[e.Kind]++
			if (e.Kind == VerdictEvent || e.Kind == CapEvent) && e.Job != "job0" {
				t.Errorf("minute %d: %s of %s: %s", n, e.Kind, e.Job, e.Why)
			}
		}
		if each != nil {
			each(w, n)
		}
	}
	kinds["tests"], kinds["verdicts"] = int(w.d.Counters().Tests), int(w.d.Counters().Verdicts)
	kinds["anomalies"] = int(w.d.Counters().Anomalies)
	return kinds
}

func TestFindsTheGuilty(t *testing.T) {
	got := found(t, byMinute(), 240, nil)
	if got["verdicts"] != 1 || got[CapEvent] == 0 || got[UncapEvent] == 0 || got[ProbeEvent] == 0 {
		t.Errorf("%v", got)
	}
}

// TestNobodyIsTested where nothing is enforced or nothing may be spent.
func TestNobodyIsTested(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"observe": func(c *Config) { c.Enforce = false },
		"budget":  func(c *Config) { c.Budget = 0 },
		"starts":  func(c *Config) { c.Starts = 0 },
	} {
		cfg := byMinute()
		change(&cfg)
		got := found(t, cfg, 240, nil)
		if got["tests"] > 0 || got[ProbeEvent]+got[CapEvent] > 0 || got["anomalies"] == 0 {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestUnknownCoins: a coin that was not told, or of another window, suspect or
// probability, throttles nobody and is no evidence.
func TestUnknownCoins(t *testing.T) {
	for name, spoil := range map[string]func(*Thrown){
		"window":      func(c *Thrown) { c.Window++ },
		"suspect":     func(c *Thrown) { c.Pair.Suspect = "job1" },
		"victim":      func(c *Thrown) { c.Pair.Victim = "other" },
		"probability": func(c *Thrown) { c.P /= 2 },
	} {
		w := newInnocents(t, byMinute(), rand.New(rand.NewPCG(3, 3)))
		trials := 0
		for n := range 240 {
			w.window(guilty, n)
			var coins []Thrown
			for _, trial := range w.d.Trials() {
				c := Thrown{Trial: trial, On: true}
				spoil(&c)
				coins = append(coins, c)
				trials++
			}
			if events := w.d.Throw(coins); len(events) > 0 && events[0].Kind != UncapEvent {
				t.Fatalf("%s: %+v", name, events[0])
			}
		}
		for _, p := range w.d.order {
			if e := p.proc.e(w.d.bank); math.Abs(e-1) > 1e-9 {
				t.Errorf("%s: e-value %v of %v", name, e, p.key)
			}
		}
		if trials == 0 {
			t.Errorf("%s: no coin was wanted", name)
		}
	}
}

// TestAReleaseIsNoAnomaly for hours: the line moves.
func TestAReleaseIsNoAnomaly(t *testing.T) {
	for _, factor := range []float64{1.3, 2, 0.6} {
		w := newInnocents(t, byMinute(), rand.New(rand.NewPCG(4, 4)))
		late := uint64(0)
		for n := range 420 {
			if n == 120 {
				w.d.Forget("victim-0")
				ref, err := w.d.Put(&cpi.Container{ID: "victim-1", Job: "victim", Class: cpi.LS})
				if err != nil {
					t.Fatal(err)
				}
				w.victim = ref
			}
			cpi := math.Exp(0.06 * w.r.NormFloat64())
			if n >= 120 {
				cpi *= factor
			}
			w.d.Observe(epoch.Add(time.Duration(n)*time.Minute), []Sample{{Ref: w.victim, Usage: 1, CPI: cpi}})
			if n == 180 {
				late = w.d.Counters().Anomalies
			}
		}
		got := w.d.Counters().Anomalies
		if got > late {
			t.Errorf("×%.1f: %d anomalies later than an hour after it", factor, got-late)
		}
		if factor > 1 && (late == 0 || late > 2*8) {
			t.Errorf("×%.1f: %d anomalies in the first hour", factor, late)
		}
		// What is twice the new normal is seen again.
		for n := range 6 {
			w.d.Observe(epoch.Add(time.Duration(421+n)*time.Minute),
				[]Sample{{Ref: w.victim, Usage: 1, CPI: 2 * factor}})
		}
		if w.d.Counters().Anomalies == got {
			t.Errorf("×%.1f: twice the new normal is no anomaly", factor)
		}
	}
}

// TestStateGoesOn: with its state, a new daemon goes on with the evidence.
func TestStateGoesOn(t *testing.T) {
	var saved []byte
	var e float64
	var stage Stage
	found(t, byMinute(), 240, func(w *innocents, n int) {
		p := w.d.pairs[PairKey{Victim: "victim", Suspect: "job0"}]
		if p == nil || saved != nil || p.proc.e(w.d.bank) < 1000 {
			return
		}
		var err error
		if saved, err = json.Marshal(w.d.Save()); err != nil {
			t.Fatal(err)
		}
		e, stage = p.proc.e(w.d.bank), p.stage
	})
	var s State
	if err := json.Unmarshal(saved, &s); err != nil {
		t.Fatalf("%v: %s", err, saved)
	}
	d, err := New(byMinute())
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Restore(s.At.Add(10*time.Minute), s); err != nil {
		t.Fatal(err)
	}
	p := d.pairs[PairKey{Victim: "victim", Suspect: "job0"}]
	if p == nil || math.Abs(p.proc.e(d.bank)/e-1) > 1e-9 || p.stage != stage || d.window < s.Window+10 {
		t.Fatalf("restored %+v, was %v with an e-value of %v", p, stage, e)
	}
	again := d.Save()
	if len(again.Jobs) != len(s.Jobs) || len(again.Pairs) != len(s.Pairs) || !reflect.DeepEqual(again.Jobs, s.Jobs) {
		t.Errorf("saved again: %+v, was %+v", again, s)
	}
	if again.Accusers[0].Harm > s.Accusers[0].Harm {
		t.Errorf("a restart gave %+v, there was %+v", again.Accusers, s.Accusers)
	}
}

func TestRestoreRefuses(t *testing.T) {
	good := PairState{PairKey: PairKey{Victim: "v", Suspect: "s"}, Stage: Testing, Disturbed: 0.5, SD: 0.1}
	for name, c := range map[string]struct {
		spoil func(*State)
		want  string
	}{
		"version": {func(s *State) { s.Version = 9 }, "version 9"},
		"window":  {func(s *State) { s.Window = -1 }, "window -1"},
		"stage":   {func(s *State) { s.Pairs[0].Stage = "guilty" }, "v and s"},
		"e-value": {func(s *State) { s.Pairs[0].Process.Now[2] = 1e9 }, "v and s"},
		"term":    {func(s *State) { s.Pairs[0].Term = 4 }, "v and s"},
		"line":    {func(s *State) { s.Jobs = []JobState{{Job: "v"}} }, `job "v"`},
		"accuser": {func(s *State) { s.Accusers = []AccuserState{{Name: "n", Starts: -1}} }, `accuser "n"`},
	} {
		d, err := New(byMinute())
		if err != nil {
			t.Fatal(err)
		}
		s := State{Version: StateVersion, At: epoch, Pairs: []PairState{good}}
		c.spoil(&s)
		if err := d.Restore(epoch, s); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestMemoryIsBounded: containers, jobs and pairs that come and go leave nothing.
func TestMemoryIsBounded(t *testing.T) {
	cfg := byMinute()
	cfg.MaxContainers, cfg.MaxJobs, cfg.MaxPairs = 16, 20, 4
	d, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 500 {
		id := fmt.Sprint(i)
		class := cpi.Batch
		if i%2 == 0 {
			class = cpi.LS
		}
		ref, err := d.Put(&cpi.Container{ID: id, Job: "j" + id, Class: class})
		if err != nil {
			t.Fatal(err)
		}
		d.Observe(epoch.Add(time.Duration(i)*time.Minute), []Sample{{Ref: ref, Usage: 1, CPI: 1}})
		d.addPair(PairKey{Victim: "v" + id, Suspect: "s" + id})
		if i >= 10 {
			d.Forget(fmt.Sprint(i - 10))
		}
	}
	if len(d.all) > 16 || len(d.suspects) > 20 || len(d.listed) > 20 || len(d.jobs) > 20 || len(d.pairs) > 4 {
		t.Errorf("%d containers, %d suspects, %d jobs, %d pairs", len(d.all), len(d.suspects), len(d.jobs),
			len(d.pairs))
	}
	for i := range 16 {
		if _, err = d.Put(&cpi.Container{ID: fmt.Sprint("more", i)}); err != nil {
			break
		}
	}
	if err == nil || !strings.Contains(err.Error(), "16 containers are followed already") {
		t.Errorf("one more than the maximum: %v", err)
	}
}

// TestMemoryOfAContainer: evidence and detector share 16 KiB a container, also where each
// is a victim and a job of its own and has a pair under test.
func TestMemoryOfAContainer(t *testing.T) {
	size := unsafe.Sizeof(container{}) + unsafe.Sizeof(victim{}) + unsafe.Sizeof(workload{}) +
		maxPoints*unsafe.Sizeof(point{}) + unsafe.Sizeof(suspect{}) + unsafe.Sizeof(pair{}) +
		unsafe.Sizeof(accuser{}) + mostWitnesses*unsafe.Sizeof(witness{})
	t.Logf("%d bytes", size)
	if size > 8<<10 {
		t.Errorf("%d bytes; 8 KiB leave as much for the samples", size)
	}
}

func TestConfigRefuses(t *testing.T) {
	for _, change := range []func(*Config){
		func(c *Config) { c.Period = 0 }, func(c *Config) { c.Window = 0 },
		func(c *Config) { c.Window = 9 * time.Second }, func(c *Config) { c.Window = 3 * time.Minute },
		func(c *Config) { c.Threshold = 1 }, func(c *Config) { c.Budget = -1 },
		func(c *Config) { c.Starts = math.NaN() }, func(c *Config) { c.Tests = 0 },
		func(c *Config) { c.CapBatchMilli = 0 }, func(c *Config) { c.CapBEMilli = 0 },
		func(c *Config) { c.MaxContainers = 0 }, func(c *Config) { c.MaxJobs = 0 }, func(c *Config) { c.MaxPairs = 0 },
	} {
		c := DefaultConfig()
		change(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}
