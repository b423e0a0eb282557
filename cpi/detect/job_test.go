package detect

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpi"
)

// What was refused is not verified, and the next suspect comes at once.
func TestRefusedCapsGiveWayToTheNextSuspect(t *testing.T) {
	b := cast(t, classic, cpi.Container{ID: "a", Job: "a", Class: cpi.BE},
		cpi.Container{ID: "b", Job: "b", Class: cpi.BE})
	for _, used := range []bool{true, false, true, false, true, false, true} {
		r := reading{usage: 0.1}
		if used {
			r.usage = 2
		}
		b.minute(map[string]reading{"v": {1, map[bool]float64{true: 4, false: 1}[used]}, "a": r,
			"b": {usage: r.usage + 0.3}})
	}
	b.want("cap a 10m")
	cmd := *lastOf(b, CommandEvent).Command
	events := b.note(b.d.Refuse(b.now, cmd, "its namespace exempts it"))
	if len(events) != 1 || events[0].Outcome == nil || events[0].Outcome.Result != Refused ||
		events[0].Outcome.Why != "its namespace exempts it" {
		t.Fatalf("events %+v", events)
	}
	if len(b.d.InForce()) != 0 {
		t.Errorf("in force: %+v", b.d.InForce())
	}
	if again := b.d.Refuse(b.now, cmd, "once more"); len(again) != 0 {
		t.Errorf("refused twice: %+v", again)
	}
	if at, ok := b.d.Next(); !ok || at.Sub(b.now) > time.Second {
		t.Fatalf("the next analysis is at %v, %v", at, ok)
	}
	b.tick(time.Second)
	b.want("cap a 10m", "cap of a for v: refused", "cap b 10m")
	if v := lastOf(b, AnalysisEvent).Verdict; !strings.Contains(v.Why,
		"not a (a) is not capped: its namespace exempts it") {
		t.Errorf("why: %s", v.Why)
	}
	b.d.Refuse(b.now, *lastOf(b, CommandEvent).Command, "it is gone")
	b.tick(time.Second)
	if v := lastOf(b, AnalysisEvent).Verdict; v.Kind != Observe ||
		!strings.Contains(v.Why, "b (b) is not capped: it is gone") {
		t.Errorf("no antagonist is left: %+v", v)
	}
	if p := b.d.pairs.of(b.d.Container(b.refs["v"]), b.d.Container(b.refs["a"])); p != nil {
		t.Errorf("a refusal is remembered of the pair: %+v", p)
	}
}

// A refusal ends what was asked for, and nothing else that is in force.
func TestARefusalMeansOneCommand(t *testing.T) {
	b := cast(t, classic, cpi.Container{ID: "a", Job: "a", Class: cpi.BE},
		cpi.Container{ID: "b", Job: "b", Class: cpi.BE},
		cpi.Container{ID: "w", Job: "victim", Class: cpi.LS})
	b.blame("v", map[string]float64{"a": 0.5})
	first := *lastOf(b, CommandEvent).Command
	b.blame("w", map[string]float64{"b": 0.5})
	second := *lastOf(b, CommandEvent).Command
	for name, edit := range map[string]func(*Command){
		"kind":      func(c *Command) { c.Kind = DoMove },
		"victim":    func(c *Command) { c.Victim = b.refs["w"] },
		"container": func(c *Command) { c.Container = b.refs["b"] },
	} {
		other := first
		edit(&other)
		if events := b.d.Refuse(b.now, other, "no"); len(events) > 0 || len(b.d.InForce()) != 2 {
			t.Errorf("another %s: %+v, in force %+v", name, events, b.d.InForce())
		}
	}
	b.d.Refuse(b.now, second, "no")
	if force := b.d.InForce(); len(force) != 1 || force[0].Container != b.refs["a"] || force[0].Victim != b.refs["v"] {
		t.Errorf("in force after the other's refusal: %+v", force)
	}
}

// A suspect whose cap was refused is skipped for as long as a cap lasts.
func TestRefusedCapsAreTriedAgain(t *testing.T) {
	b := cast(t, classic, cpi.Container{ID: "a", Job: "a", Class: cpi.BE})
	b.blame("v", map[string]float64{"a": 0.5})
	b.d.Refuse(b.now, *lastOf(b, CommandEvent).Command, "no")
	b.now = b.now.Add(5*time.Minute - time.Nanosecond)
	b.blame("v", map[string]float64{"a": 0.5})
	b.want("cap a 10m")
	b.now = b.now.Add(time.Nanosecond)
	b.blame("v", map[string]float64{"a": 0.5})
	b.want("cap a 10m", "cap a 10m")
}

// A victim that is normal again is not analysed again, nor one without new samples.
func TestRefusalsForVictimsThatAreWellAgain(t *testing.T) {
	for name, after := range map[string]func(b *bench){
		"well again": func(b *bench) {
			for range 3 { // in the third fewer than three outliers are left of the last five minutes
				b.minute(map[string]reading{"v": {1, 1}})
			}
		},
		"silent": func(b *bench) { b.tick(5*time.Minute + time.Second) },
	} {
		b := cast(t, func(c *Config) {
			c.Mode, c.CapFor = Classic, 10*time.Minute
		}, cpi.Container{ID: "a", Job: "a", Class: cpi.BE}, cpi.Container{ID: "b", Job: "b", Class: cpi.BE})
		for range 3 {
			b.minute(map[string]reading{"v": {1, 3}, "a": {usage: 1}})
		}
		b.tick(time.Second)
		b.blame("v", map[string]float64{"a": 0.5})
		b.want("cap a 10m")
		after(b)
		b.d.Refuse(b.now, Command{Kind: DoCap, Container: b.refs["a"], Victim: b.refs["v"]}, "no")
		if next, ok := b.d.Next(); ok || len(b.d.InForce()) > 0 {
			t.Errorf("%s: something follows at %v", name, next)
		}
	}
}

func TestRefusedMovesGiveWayToCaps(t *testing.T) {
	b := newBench(t, nil)
	var one cpi.Domains
	one.Add(0)
	b.put(cpi.Container{ID: "v", Job: "victim", Class: cpi.LS, MovablePool: true,
		Place: cpi.Place{Cores: one, L3s: one, Nodes: one}})
	b.spec("victim", 1, 0.1)
	b.put(cpi.Container{ID: "a", Job: "a", Class: cpi.BE, Place: cpi.Place{Cores: one, L3s: one, Nodes: one}})
	b.blame("v", map[string]float64{"a": 0.99})
	b.want("move-pool v")
	b.d.Refuse(b.now, *lastOf(b, CommandEvent).Command, "the pool has nowhere to go")
	b.blame("v", map[string]float64{"a": 0.99})
	b.want("move-pool v", "cap a 10m")
}

// The same samples shape a spec here and in the cluster, and others neither.
func TestNormalSamplesAreReported(t *testing.T) {
	for _, mode := range []Mode{Contrast, Classic} {
		b := cast(t, func(c *Config) { c.Mode = mode })
		known := map[string]int{}
		minute := func(cpi float64) {
			b.minute(map[string]reading{"v": {1, cpi}})
			for _, l := range b.d.Learned() {
				known[fmt.Sprintf("%s/%s/%d %v", l.Job, l.Platform, l.Band, l.CPI)]++
			}
		}
		for range 4 {
			minute(1)
		}
		for range 4 {
			minute(3) // from the third on it is an anomaly
		}
		for range 4 {
			minute(1) // in the first two there are still three outliers in five minutes
		}
		b.now = b.now.Add(time.Hour)
		b.d.Observe(b.now, []Sample{{Ref: b.refs["v"], At: b.now, Usage: 1, CPI: 1, Capped: true}})
		if l := b.d.Learned(); len(l) != 0 {
			t.Errorf("%v: what it did under a cap is learned: %+v", mode, l)
		}
		if len(known) != 2 || known["victim//2 1"] != 4+2 || known["victim//2 3"] != 2 {
			t.Errorf("%v: told %v", mode, known)
		}
	}
}

// A job that has been different for an hour on end has changed: that is normal now.
func TestWhatStaysBecomesNormal(t *testing.T) {
	b := cast(t, nil)
	var known []int
	for minute := 1; minute <= 65; minute++ {
		b.minute(map[string]reading{"v": {1, 3}})
		if len(b.d.Learned()) > 0 {
			known = append(known, minute)
		}
	}
	if want := []int{1, 2, 64, 65}; !slices.Equal(known, want) { // the anomaly began in the third
		t.Errorf("told in the minutes %v, want %v", known, want)
	}
}

func TestTasksOfAJobAreThoseThatRun(t *testing.T) {
	b := newBench(t, func(c *Config) { c.MinTaskSamples = 10 })
	teach(b, "web", "skylake", 6, 10, func(i, k int) reading { return reading{1, 1 + float64(k)/100} })
	jobs := b.d.Jobs()
	if len(jobs) != 1 || jobs[0] != (JobInfo{Job: "web", Platform: "skylake", Containers: 6, Tasks: 6,
		Source: FromHere}) {
		t.Fatalf("jobs %+v", jobs)
	}
	b.d.Forget(b.now, "web-skylake-0")
	moved := *b.d.all[b.refs["web-skylake-1"]].Container
	moved.Job = "other"
	b.put(moved)
	for _, j := range b.d.Jobs() {
		want := map[string]JobInfo{
			"web":   {Job: "web", Platform: "skylake", Containers: 4, Tasks: 4, Source: FromHere},
			"other": {Job: "other", Platform: "skylake", Containers: 1, Lack: LacksTasks},
		}[j.Job]
		if j != want {
			t.Errorf("job %+v, want %+v", j, want)
		}
	}
}

// A spec that was believed and that the node's own samples contradict is given up,
// and those samples judge alone from then on.
func TestForeignSpecsThatTurnOutWrong(t *testing.T) {
	b := newBench(t, func(c *Config) { c.MinTaskSamples = 50 })
	wrong := Spec{Job: "web", Platform: "skylake", Mean: 8, StdDev: 0.5, Samples: 1e6, Tasks: 1000}
	if err := b.d.SetSpec(b.now, wrong, b.now.Add(100*time.Hour)); err != nil {
		t.Fatal(err)
	}
	teach(b, "web", "skylake", 4, 120, func(i, k int) reading { return reading{1, 1 + float64(k%10)/100} })
	if spec, ok := b.d.SpecOf("web", "skylake"); ok {
		t.Errorf("four tasks are too few, yet the spec is %+v", spec)
	}
	if err := b.d.SetSpec(b.now, wrong, b.now.Add(100*time.Hour)); err == nil {
		t.Error("it is believed again")
	}
	teach(b, "web", "skylake", 5, 60, func(i, k int) reading { return reading{1, 1 + float64(k%10)/100} })
	if spec, ok := b.d.SpecOf("web", "skylake"); !ok || spec.Mean > 1.1 || b.d.Jobs()[0].Source != FromHere {
		t.Errorf("the spec is %+v, %v", spec, ok)
	}
}

// The cluster's word runs out: of a job that the node cannot judge itself it judges on,
// and says so; with what the node learned it is merged no more.
func TestSpecsThatRunOut(t *testing.T) {
	foreign := Spec{Job: "web", Platform: "p", Mean: 1.5, StdDev: 0.05, Samples: 1e6, Tasks: 100}
	for _, c := range []struct {
		tasks  int
		before Source
		after  Source
		stale  bool
		mean   float64 // in use at the end
	}{
		{4, FromCluster, FromCluster, true, 1.5},
		{5, FromBoth, FromHere, false, 1},
	} {
		b := newBench(t, func(c *Config) { c.RespecEvery = 10 * time.Minute })
		good := b.now.Add(3 * time.Hour)
		if err := b.d.SetSpec(b.now, foreign, good); err != nil {
			t.Fatal(err)
		}
		state := func() JobInfo {
			t.Helper()
			return b.d.Jobs()[0]
		}
		teach(b, "web", "p", c.tasks, 170, even(1))
		if j := state(); j.Source != c.before || j.Stale {
			t.Errorf("%d tasks: ten minutes before its end: %+v, want %s", c.tasks, j, c.before)
		}
		teach(b, "web", "p", c.tasks, 25, even(1))
		j := state()
		if j.Source != c.after || j.Stale != c.stale {
			t.Errorf("%d tasks: after its end: %+v, want %s, stale %t", c.tasks, j, c.after, c.stale)
		}
		if spec, ok := b.d.SpecOf("web", "p"); !ok || math.Abs(spec.Mean-c.mean) > 0.05 {
			t.Errorf("%d tasks: judged by %+v, %t", c.tasks, spec, ok)
		}
		b.put(cpi.Container{ID: "a", Job: "a", Class: cpi.Batch})
		for range 3 {
			b.minute(map[string]reading{"web-p-0": {1, 4}, "a": {usage: 1}})
		}
		named := strings.Contains(lastOf(b, AnalysisEvent).Verdict.Why,
			"; its spec is the cluster's, and expired at "+good.Format(time.RFC3339))
		if named != c.stale {
			t.Errorf("%d tasks: the verdict says %q", c.tasks, lastOf(b, AnalysisEvent).Verdict.Why)
		}
		if again := b.reborn(func(*JobState) {}); c.stale {
			again.tick(0)
			if j := again.d.Jobs()[0]; !j.Stale || j.Source != FromCluster {
				t.Errorf("after a restart: %+v", j)
			}
			b = again
		}
		if err := b.d.SetSpec(b.now, foreign, b.now.Add(time.Hour)); err != nil || state().Stale {
			t.Errorf("%d tasks: confirmed again: %v, %+v", c.tasks, err, state())
		}
	}
}
