package detect

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpi"
)

func TestStateSurvives(t *testing.T) {
	b := newBench(t, nil)
	r := rand.New(rand.NewPCG(1, 1))
	teach(b, "web", "skylake", 6, 150, func(i, _ int) reading { return reading{0.4 * float64(i+1), gevDraw(r)} })
	b.put(cpi.Container{ID: "a", Job: "a", Class: cpi.Batch})
	b.refs["v"] = b.refs["web-skylake-0"]
	b.blame("v", map[string]float64{"a": 0.99})
	b.minute(map[string]reading{"v": {1, 1.5}})
	b.minute(map[string]reading{"v": {1, 1.5}})
	b.tick(10 * time.Minute)
	text, err := json.Marshal(b.d.Save())
	if err != nil {
		t.Fatal(err)
	}
	var state State
	if err := json.Unmarshal(text, &state); err != nil {
		t.Fatal(err)
	}
	again := newBench(t, nil)
	if err := again.d.Restore(b.now, state); err != nil {
		t.Fatal(err)
	}
	one, ok := b.d.SpecOf("web", "skylake")
	two, ok2 := again.d.SpecOf("web", "skylake")
	if !ok || !ok2 || !reflect.DeepEqual(one, two) {
		t.Errorf("specs %+v and %+v", one, two)
	}
	if p := again.d.pairs.known[PairKey{"web", "a"}]; p == nil || p.Success != 1 {
		t.Errorf("the pair is %+v", p)
	}
	if saved := again.d.Save(); !reflect.DeepEqual(saved, state) {
		t.Errorf("saved again it differs:\n%+v\n%+v", saved, state)
	}
}

// reborn is a detector that knows what another has saved, as edit left it.
func (b *bench) reborn(edit func(*JobState)) *bench {
	b.t.Helper()
	state := b.d.Save()
	for i := range state.Jobs {
		edit(&state.Jobs[i])
	}
	text, err := json.Marshal(state)
	if err != nil {
		b.t.Fatal(err)
	}
	var read State
	if err := json.Unmarshal(text, &read); err != nil {
		b.t.Fatal(err)
	}
	again := newBench(b.t, nil)
	again.now, again.d.cfg = b.now, b.d.cfg
	if err := again.d.Restore(b.now, read); err != nil {
		b.t.Fatal(err)
	}
	return again
}

// A restart changes neither where a spec comes from nor that the node's own samples can
// refute the cluster's: with Prometheus gone, and with one that still lies.
func TestLyingSpecsAreGivenUpAfterARestart(t *testing.T) {
	wrong := Spec{Job: "web", Platform: "skylake", Mean: 8, StdDev: 0.5, Samples: 1e6, Tasks: 1000}
	for name, edit := range map[string]func(*JobState){
		"of this version":     func(*JobState) {},
		"of one without it":   func(s *JobState) { s.Source, s.Good = "", time.Time{} },
		"of one that has new": func(s *JobState) { s.Source = "oracle" },
	} {
		for _, lies := range []bool{false, true} {
			b := newBench(t, nil)
			if err := b.d.SetSpec(b.now, wrong, b.now.Add(24*time.Hour)); err != nil {
				t.Fatal(err)
			}
			teach(b, "web", "skylake", 4, 20, even(1))
			b = b.reborn(edit)
			if jobs := b.d.Jobs(); len(jobs) != 1 || jobs[0].Source != FromCluster {
				t.Errorf("state %s: jobs %+v, want one that the cluster's spec judges", name, jobs)
			}
			for range 3 {
				teach(b, "web", "skylake", 4, 30, even(1))
				if lies {
					_ = b.d.SetSpec(b.now, wrong, b.now.Add(24*time.Hour)) // refused or not
				}
			}
			if spec, ok := b.d.SpecOf("web", "skylake"); ok {
				t.Errorf("state %s, still lying %t: 440 samples of CPI 1 are judged by %+v", name, lies, spec)
			}
		}
	}
}

func TestSourcesSurvive(t *testing.T) {
	foreign := Spec{Job: "web", Platform: "p", Mean: 1.2, StdDev: 0.1, Samples: 1e5, Tasks: 100}
	for _, want := range []Source{FromHere, FromCluster, FromBoth} {
		b := newBench(t, nil)
		tasks := 5
		if want == FromCluster {
			tasks = 4
		}
		if want != FromHere {
			if err := b.d.SetSpec(b.now, foreign, b.now.Add(24*time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		teach(b, "web", "p", tasks, 120, even(1))
		was := b.d.Jobs()[0].Source
		now := b.reborn(func(*JobState) {}).d.Jobs()[0].Source
		if was != want || now != want {
			t.Errorf("the spec comes from %q, after a restart from %q; want %q", was, now, want)
		}
	}
}

// A state from a clock that was ahead keeps no pair from being tried for longer than an
// hour, and no job from being forgotten.
func TestTimesOfAStateFromTheFuture(t *testing.T) {
	b := newBench(t, nil)
	ahead := epoch.Add(1000 * time.Hour)
	key := PairKey{Victim: "v", Antagonist: "a"}
	state := State{
		Version: StateVersion,
		Jobs:    []JobState{{Spec: Spec{Job: "web"}, Seen: ahead, N: 1, Mean: 1}},
		Pairs:   []Pair{{PairKey: key, Blocked: ahead, Failed: ahead, Moved: ahead, Seen: ahead}},
	}
	if err := b.d.Restore(epoch, state); err != nil {
		t.Fatal(err)
	}
	want := Pair{PairKey: key, Blocked: epoch.Add(blockFor), Failed: epoch, Moved: epoch, Seen: epoch}
	if p := b.d.pairs.known[key]; p == nil || *p != want {
		t.Errorf("the pair is %+v, want %+v", p, want)
	}
	if seen := stamp(b.d.jobOf("web", "").seen); !seen.Equal(epoch) {
		t.Errorf("the job was seen at %v", seen)
	}
	past := epoch.Add(-time.Hour)
	state.Pairs[0] = Pair{PairKey: key, Blocked: past, Failed: past, Moved: past, Seen: past}
	if err := b.d.Restore(epoch, state); err != nil || *b.d.pairs.known[key] != state.Pairs[0] {
		t.Errorf("of the past: %v, %+v", err, b.d.pairs.known[key])
	}
}

// A state that does not say where a spec came from: enough samples say that it is from
// here.
func TestSourcesOfAStateWithoutThem(t *testing.T) {
	for tasks, want := range map[int]Source{5: FromHere, 4: FromCluster} {
		b := newBench(t, nil)
		if tasks < 5 {
			b.spec("web", 1, 0.1)
		}
		teach(b, "web", "", tasks, 120, even(1))
		again := b.reborn(func(s *JobState) { s.Source = "" })
		if got := again.d.Jobs()[0].Source; got != want {
			t.Errorf("%d tasks: %q, want %q", tasks, got, want)
		}
	}
}

func TestStateThatCannotBe(t *testing.T) {
	for text, want := range map[string]string{
		`{"version":2}`: "state of version 2; this detector reads version 1",
		`{"version":1,"jobs":[{"spec":{"job":"web"},"n":-1}]}`:                    "samples is -1",
		`{"version":1,"jobs":[{"spec":{"job":"web"},"bands":{"9":{}}}]}`:          "usage band 9",
		`{"version":1,"jobs":[{"spec":{"job":"web"},"tasks":-1}]}`:                "-1 tasks",
		`{"version":1,"jobs":[{"spec":{"job":"web"},"used":[{"logMedian":99}]}]}`: "band 0 is judged with median 99",
		`{"version":1,"jobs":[{"spec":{"job":"web"},"mean":1e15}]}`:               "mean is 1e+15",
		`{"version":1,"jobs":[{"spec":{"job":"web"},"m2":-1}]}`:                   "sum of squares is -1",
		`{"version":1,"jobs":[{"spec":{"job":"web"},"usage":-1}]}`:                "usage is -1",
		`{"version":1,"jobs":[{"spec":{"job":"web"},"tasks":1000000001}]}`:        "1000000001 tasks",
		`{"version":1,"jobs":[{"spec":{"job":"web"},"bands":{"-1":{}}}]}`:         "usage band -1",
		`{"version":1,"jobs":[{"spec":{"job":"web"},"bands":{"1":null}}]}`:        "usage band 1",
		`{"version":1,"jobs":[{"spec":{"job":"web"},"used":[{"logSD":0}]}]}`: "band 0 is judged with median 0 " +
			"and deviation 0",
		`{"version":1,"jobs":[{"spec":{"job":"web"},"used":[{"logSD":3}]}]}`: "band 0 is judged with median 0 " +
			"and deviation 3",
		`{"version":1,"pairs":[{"victim":"v","antagonist":"a","success":-1}]}`:    "pair v and a",
		`{"version":1,"pairs":[{"victim":"v","antagonist":"a","partial":-1}]}`:    "pair v and a",
		`{"version":1,"pairs":[{"victim":"v","antagonist":"a","failure":-1}]}`:    "pair v and a",
		`{"version":1,"pairs":[{"victim":"v","antagonist":"a","harm":-1}]}`:       "pair v and a",
		`{"version":1,"pairs":[{"victim":"v","antagonist":"a","level":-1}]}`:      "pair v and a",
		`{"version":1,"pairs":[{"victim":"v","antagonist":"a","level":1000001}]}`: "pair v and a",
	} {
		var s State
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatal(err)
		}
		d, err := New(DefaultConfig())
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Restore(epoch, s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
		if len(d.pairs.known) > 0 || len(d.jobs) > 0 {
			t.Errorf("%s: something of it is used", text)
		}
	}
}

// A tenant that invents pods invents jobs: what is remembered of pairs is bounded, and what was
// seen last stays.
func TestPairsAreBounded(t *testing.T) {
	b := newBench(t, nil)
	state := State{Version: StateVersion}
	for i := range maxPairs + 10 {
		state.Pairs = append(state.Pairs, Pair{PairKey: PairKey{Victim: "v", Antagonist: fmt.Sprintf("a%04d", i)},
			Seen: epoch.Add(time.Duration(i-maxPairs-10) * time.Second)})
	}
	state.Pairs[7].Seen = epoch.Add(-24 * time.Hour)
	if err := b.d.Restore(epoch, state); err != nil || len(b.d.pairs.known) != maxPairs {
		t.Fatalf("%v; %d pairs are read, want %d", err, len(b.d.pairs.known), maxPairs)
	}
	if n := len(b.d.Save().Pairs); n != maxPairs {
		t.Fatalf("%d pairs are saved", n)
	}
	b.d.pairs.learn(epoch.UnixNano(), &cpi.Container{Job: "v"}, &cpi.Container{Job: "new"})
	for antagonist, want := range map[string]bool{"new": true, "a0007": false, "a0000": true, "a4095": true} {
		if _, known := b.d.pairs.known[PairKey{Victim: "v", Antagonist: antagonist}]; known != want {
			t.Errorf("%s is known: %t, want %t", antagonist, known, want)
		}
	}
	if len(b.d.pairs.known) != maxPairs {
		t.Errorf("%d pairs", len(b.d.pairs.known))
	}
}

func FuzzRestore(f *testing.F) {
	f.Add(
		[]byte(
			`{"version":1,"jobs":[{"spec":{"job":"web","mean":1,"stddev":0.1,"tasks":5,"samples":500},"n":500,` +
				`"mean":1,"used":[{"logMedian":0,"logSD":0.1},{"logMedian":0,"logSD":0.1},{"logMedian":0,` +
				`"logSD":0.1},{"logMedian":0,"logSD":0.1},{"logMedian":0,"logSD":0.1}],"bands":{"1":{"60":500}}}],` +
				`"pairs":[{"victim":"v","antagonist":"a","success":1}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var s State
		if json.Unmarshal(text, &s) != nil {
			return
		}
		d, err := New(DefaultConfig())
		if err != nil {
			t.Fatal(err)
		}
		_ = d.Restore(epoch, s) // whatever it refuses, the rest works
		ref, err := d.Put(epoch, &cpi.Container{ID: "v", Job: "web", Class: cpi.LS})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			now := epoch.Add(time.Duration(i) * time.Minute)
			d.Observe(now, []Sample{{Ref: ref, At: now, Usage: 1, CPI: 3}})
		}
		if _, err := json.Marshal(d.Save()); err != nil {
			t.Fatal(err)
		}
	})
}
