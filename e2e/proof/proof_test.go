package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/e2e/sampler/sweep"
	"github.com/quietcore/quietcore/e2e/scenario"
	"github.com/quietcore/quietcore/internal/script"
	"github.com/quietcore/quietcore/policy"
)

func TestAProofThatSawTooLittleFails(t *testing.T) {
	enough := sweep.Report{Near: 100000, Owners: 8, Contested: 6}
	for want, change := range map[string]func(*sweep.Report){
		"":                               func(*sweep.Report) {},
		"violations":                     func(r *sweep.Report) { r.Violations = 1 },
		"samples of busy threads":        func(r *sweep.Report) { r.Near = 10 },
		"came onto CPUs that others use": func(r *sweep.Report) { r.Contested = 2 },
	} {
		r := enough
		change(&r)
		err := judge(r)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func TestWorkloadsAreStepsOfAScript(t *testing.T) {
	list := neighbours()
	for i := range 6 {
		list = append(list, visitor(i))
	}
	qos := map[policy.QoS]bool{}
	for _, w := range list {
		step, err := w.step()
		if err != nil {
			t.Fatal(err)
		}
		s, err := scenario.Parse("step", []byte("topology: {grid: {}}\nsteps:\n  - "+step+"\n"))
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		c := s.File.Steps[0].Create
		if p, ok := sweep.ParseDir("pod" + c.UID); !ok || p != w.Pod {
			t.Errorf("%s reads back as %+v, %t", c.UID, p, ok)
		}
		if w.Class.Exclusive() && c.Containers[0].LimitMilli != int64(w.Size)*1000 {
			t.Errorf("%s: limit %d", step, c.Containers[0].LimitMilli)
		}
		qos[c.KubernetesQoS] = true
	}
	if !qos["Burstable"] || len(qos) < 2 {
		t.Errorf("owners are of the QoS classes %v only", qos)
	}
}

func TestDisjoint(t *testing.T) {
	line := func(class policy.Class, cpus string) *script.Line {
		return &script.Line{Containers: []script.State{
			{Pod: "db", Class: policy.LSR, Pool: policy.PoolExclusive, CPUs: "0-1"},
			{Pod: "web", Class: class, Pool: policy.PoolShared, CPUs: cpus},
		}}
	}
	if err := disjoint(line(policy.LS, "2-7")); err != nil {
		t.Error(err)
	}
	if err := disjoint(line(policy.BE, "0-7")); err != nil {
		t.Errorf("best effort runs next to LSR: %v", err)
	}
	if err := disjoint(line(policy.LS, "1-7")); err == nil || !strings.Contains(err.Error(), "both on CPUs 1") {
		t.Errorf("CPU 1 is in both: %v", err)
	}
}

func TestOwns(t *testing.T) {
	w := owner(sweep.LSR, 2, "db")
	for cpus, ok := range map[string]bool{"0-1": true, "0-2": false, "": false} {
		err := owns(&script.Line{Containers: []script.State{{Pod: "db", Pool: policy.PoolExclusive, CPUs: cpus}}}, w)
		if (err == nil) != ok {
			t.Errorf("%q: %v", cpus, err)
		}
	}
	if owns(&script.Line{}, w) == nil {
		t.Error("nobody is there")
	}
	if owns(&script.Line{Containers: []script.State{{Pod: "db", Pool: policy.PoolShared, CPUs: "0-1"}}}, w) == nil {
		t.Error("it shares them")
	}
}

func TestDifferenceIsShort(t *testing.T) {
	want := map[string]string{"a": "1", "b": "2", "c": "3", "d": "4", "e": "5", "f": "6"}
	if d := difference(want, want); d != "" {
		t.Error(d)
	}
	if d := difference(map[string]string{"z": ""}, want); !strings.Contains(d, `a is "", was "1"`) ||
		!strings.Contains(d, "and 3 more") {
		t.Error(d)
	}
}

func TestDriftsAreReadFromTheMetrics(t *testing.T) {
	const text = `# HELP quietcore_cpuset_drift_total Cpusets
quietcore_cpuset_drift_total{source="runtime"} 3
quietcore_quota_drift_total{source="other"} 1
quietcore_cpuset_writes_total{result="ok"} 7
`
	if got := driftLine.FindAllStringSubmatch(text, -1); len(got) != 2 || got[0][1] != "cpuset_drift" ||
		got[1][3] != "1" {
		t.Errorf("%q", got)
	}
	if got := counts(map[string]float64{"a": 1, "b": 1}, map[string]float64{"a": 3, "b": 1}); got != "a 2" {
		t.Errorf("%q", got)
	}
}

func TestOptions(t *testing.T) {
	for _, args := range [][]string{{"-o", "xml"}, {"-driver", "cgroupsfs"}, {"-only", "windows"}} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("%v is taken", args)
		}
	}
	o, err := parse([]string{"-only", "drift,window"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if list, err := o.chosen(); err != nil || len(list) != 2 || list[0].Name != "drift" {
		t.Errorf("%v, %v", list, err)
	}
}

func TestNoiseOfTheHost(t *testing.T) {
	windows := func(n int, l look) []look { return slices.Repeat([]look{l}, n) }
	calm, loud := look{victim: 1.2}, look{victim: 5, batch: 4}
	for name, c := range map[string]struct {
		looks []look
		noisy bool
	}{
		"calm":                    {windows(30, calm), false},
		"the antagonist at work":  {append(windows(5, calm), windows(25, loud)...), false},
		"a third stolen":          {append(windows(20, calm), windows(10, look{taken: taken{stolen: 0.1}})...), false},
		"more":                    {append(windows(19, calm), windows(10, look{taken: taken{stolen: 0.1}})...), true},
		"a third used by others":  {append(windows(20, calm), windows(10, look{taken: taken{others: 0.2}})...), false},
		"more of it":              {append(windows(19, calm), windows(10, look{taken: taken{others: 0.2}})...), true},
		"slow alone in a fifth":   {append(windows(20, calm), windows(5, look{victim: 2.1})...), false},
		"in more":                 {append(windows(20, calm), windows(6, look{victim: 2.1})...), true},
		"slow alone, else loud":   {append(windows(25, loud), look{victim: 2.1}), true},
		"a cap that leaves a CPU": {append(windows(9, calm), windows(6, look{victim: 3, batch: 1})...), false},
		"nothing was seen":        {append(windows(4, calm), windows(6, look{})...), false},
	} {
		if err := noisy(c.looks, 1); errors.Is(err, errNoisy) != c.noisy {
			t.Errorf("%s: %v, want noisy: %v", name, err, c.noisy)
		}
	}
}

func TestSpreadOfWhatWasLearned(t *testing.T) {
	of := func(ratios ...float64) (looks []look) {
		for _, r := range ratios {
			looks = append(looks, look{victim: r})
		}
		return looks
	}
	for name, c := range map[string]struct {
		looks []look
		noisy bool
	}{
		"nothing was seen":   {nil, false},
		"steady":             {of(30, 31, 29, 30, 33, 30, 31, 30, 29, 32), false},
		"one outlier":        {of(30, 31, 29, 30, 90, 30, 31, 30, 29, 32), false},
		"twice as slow":      {of(30, 31, 29, 30, 60, 62, 61, 30, 29, 32), false},
		"slow, then fast":    {of(88, 86, 68, 40, 30, 22, 22, 21, 22, 20), true},
		"in disturbed looks": {append(of(30, 30, 30), look{victim: 99, taken: taken{stolen: 0.1}}), false},
	} {
		if err := unsteady(c.looks); errors.Is(err, errNoisy) != c.noisy {
			t.Errorf("%s: %v, want noisy: %v", name, err, c.noisy)
		}
	}
}

func TestHostIsReadFromTheKernelsLine(t *testing.T) {
	h, err := hostOf("cpu  10 1 20 300 40 5 6 7 1000 0")
	if want := (host{stolen: 7, busy: 42, total: 389}); err != nil || h != want {
		t.Errorf("%+v, %v, want %+v: guest time is in user time already", h, err, want)
	}
	if _, err := hostOf("cpu 10 x"); err == nil {
		t.Error("x is taken for a number of jiffies")
	}
}

func TestAFailureThatMayBeTheHostsIsTriedOnceMore(t *testing.T) {
	for err, want := range map[error][2]bool{ // a first failure is free, or not
		fmt.Errorf("40 of 60: %w", errNoisy):                   {true, true},
		fmt.Errorf("a cap: %w", errUnseen):                     {true, false},
		fmt.Errorf("pod steady is %w at 10m", errInnocent):     {true, false},
		errors.Join(fmt.Errorf("x %w", errInnocent), errNoisy): {true, true},
		errors.New("cpu.max is max 100000, want 1000 100000"):  {false, false},
	} {
		if got := [2]bool{anew(err, true), anew(err, false)}; got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
	if anew(nil, true) {
		t.Error("what holds is not played again")
	}
}

func TestAHostThatIsFasterSinceWasNoisy(t *testing.T) {
	looks := func(alone ...float64) (list []look) {
		for _, v := range alone {
			list = append(list, look{victim: v, batch: 5}, look{victim: v})
		}
		return list
	}
	for _, c := range []struct {
		looks []look
		want  bool
	}{
		{looks(100, 90, 110, 95), false}, {looks(100, 60, 60, 110), false}, {looks(50, 60, 60, 110), true},
		{looks(100, 100, 100, 250), true}, {nil, false},
	} {
		if err := noisy(c.looks, 100); errors.Is(err, errNoisy) != c.want {
			t.Errorf("%v: %v", c.looks, err)
		}
	}
}
