package detect

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestStateSurvives(t *testing.T) {
	b := newBench(t, nil)
	r := rand.New(rand.NewPCG(1, 1))
	teach(b, "web", "skylake", 6, 150, func(i, _ int) reading { return reading{0.4 * float64(i+1), gevDraw(r)} })
	b.put(Container{ID: "a", Job: "a", Class: Batch})
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

func TestStateThatCannotBe(t *testing.T) {
	for text, want := range map[string]string{
		`{"version":2}`: "state of version 2; this detector reads version 1",
		`{"version":1,"jobs":[{"spec":{"job":"web"},"n":-1}]}`:                    "samples is -1",
		`{"version":1,"jobs":[{"spec":{"job":"web"},"bands":{"9":{}}}]}`:          "usage band 9",
		`{"version":1,"jobs":[{"spec":{"job":"web"},"tasks":-1}]}`:                "-1 tasks",
		`{"version":1,"jobs":[{"spec":{"job":"web"},"used":[{"logMedian":99}]}]}`: "band 0 is judged with median 99",
		`{"version":1,"pairs":[{"victim":"v","antagonist":"a","success":-1}]}`:    "pair v and a",
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

func FuzzRestore(f *testing.F) {
	f.Add([]byte(`{"version":1,"jobs":[{"spec":{"job":"web","mean":1,"stddev":0.1,"tasks":5,"samples":500},"n":500,"mean":1,"used":[{"logMedian":0,"logSD":0.1},{"logMedian":0,"logSD":0.1},{"logMedian":0,"logSD":0.1},{"logMedian":0,"logSD":0.1},{"logMedian":0,"logSD":0.1}],"bands":{"1":{"60":500}}}],"pairs":[{"victim":"v","antagonist":"a","success":1}]}`))
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
		ref, err := d.Put(epoch, Container{ID: "v", Job: "web", Class: LS})
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
