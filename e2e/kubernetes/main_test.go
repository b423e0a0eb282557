package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/e2e/kubernetes/cluster"
	"github.com/quietcore/quietcore/e2e/scenario"
)

func TestFlags(t *testing.T) {
	for _, args := range [][]string{{"-only", "nothing"}, {"-driver", "both"}, {"-o", "xml"}, {"-pods", "1"},
		{"-crowd", "1"}, {"-random", "9"}, {"-operations", "9"}, {"-soak", "23"}, {"-minutes", "0"}, {"-nonsense"},
		{"-runtime", "rkt"}, {"-runtime", "crio"}, {"-parts", "alone,nothing"}} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
	o, err := parse([]string{"-only", "static,none"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	chosen, err := o.chosen()
	if err != nil || len(chosen) != 2 || chosen[0].Name != "static" {
		t.Errorf("chosen %v, %v", chosen, err)
	}
	for only, want := range map[string]bool{"": true, "none": false, "none,report": true} {
		if o.only = only; o.chart() != want {
			t.Errorf("-only %s installs the chart: %t", only, o.chart())
		}
	}
}

// A part of the proof claims runs after those that it needs.
func TestParts(t *testing.T) {
	for named, want := range map[string]string{"crashes": "owners alone given-back crashes",
		"another,health": "owners alone health given-back another"} {
		parts, err := partsNamed(named)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range parts {
			got = append(got, p.name)
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("-parts %s runs %s, want %s", named, s, want)
		}
	}
	if parts, err := partsNamed(""); err != nil || len(parts) != len(claimParts) {
		t.Errorf("without -parts %d run, %v", len(parts), err)
	}
}

// The list of pods that is compared with simulate has to be about the guest's machine,
// refuse no pod, and have every kind of pod in it.
func TestNoneScriptIsTheGuests(t *testing.T) {
	s, err := scenario.Parse("none.yaml", noneScript)
	if err != nil {
		t.Fatal(err)
	}
	g, err := s.Grid()
	if err != nil {
		t.Fatal(err)
	}
	if g.Key() != grid.Key() {
		t.Errorf("the script is about %s, the guest is %s", g, grid)
	}
	lines, err := s.Simulate()
	if err != nil {
		t.Fatal(err)
	}
	classes := map[string]bool{}
	for _, l := range lines {
		if l.Error != nil {
			t.Errorf("step %d: %s: %s", l.Step, l.Error.Code, l.Error.Message)
		}
		for _, c := range l.Containers {
			classes[string(c.Class)] = true
			if c.Namespace != namespace {
				t.Errorf("pod %s is in namespace %s, which is not emptied after the proof", c.Pod, c.Namespace)
			}
		}
	}
	if len(classes) < 4 {
		t.Errorf("classes %v, want LSE, LSR, LS and BE", classes)
	}
}

func TestDifference(t *testing.T) {
	got := difference(cluster.Placement{"a": "0", "b": "1"}, cluster.Placement{"b": "2", "c": "3"})
	for _, want := range []string{`a: simulate "0", kernel ""`, `b: simulate "1", kernel "2"`,
		`c: simulate "", kernel "3"`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in %s", want, got)
		}
	}
}

func TestWholeCore(t *testing.T) {
	for list, want := range map[string]bool{"0-1": true, "6-7": true, "1-2": false, "0": false, "0-3": false,
		"": false, "x": false} {
		if wholeCore(list) != want {
			t.Errorf("%q: %t", list, wholeCore(list))
		}
	}
}

func TestApart(t *testing.T) {
	pod := func(name string) *cluster.Pod {
		p := &cluster.Pod{}
		p.Metadata.Name, p.Metadata.Namespace = name, "n"
		return p
	}
	a, b := pod("a"), pod("b")
	for cpus, want := range map[[2]string]bool{{"0-1", "2-3"}: true, {"0-1", "1-2"}: false, {"", "1"}: false,
		{"x", "1"}: false} {
		err := apart(cluster.Placement{"n/a/main": cpus[0], "n/b/main": cpus[1]}, [2]*cluster.Pod{a, b})
		if (err == nil) != want {
			t.Errorf("%v: %v", cpus, err)
		}
	}
}

// An object of the shape that the daemon writes, as the proof reads it.
func TestTopologyObject(t *testing.T) {
	var o topologyObject
	o.Metadata.Annotations = map[string]string{
		sharedKey: `[{"socket":0,"node":0,"cpuset":"2-3"},{"socket":1,"node":1,"cpuset":"4-7"}]`,
		allocsKey: `[{"namespace":"proof","name":"lsr","uid":"u","cpuset":"0-1"}]`,
	}
	if pool, err := o.pool(sharedKey); err != nil || pool != "2-7" {
		t.Errorf("pool %q, %v", pool, err)
	}
	if _, err := o.pool(bePoolsKey); err == nil {
		t.Error("a pool that nobody wrote has been read")
	}
	allocs, err := o.allocs()
	if err != nil || len(allocs) != 1 || allocs[0].UID != "u" || allocs[0].CPUSet != "0-1" {
		t.Errorf("allocs %+v, %v", allocs, err)
	}
}

func TestMedian(t *testing.T) {
	if m := median([]time.Duration{3, 1, 2}); m != 2 {
		t.Errorf("median %d", m)
	}
	if m := median(nil); m != 0 {
		t.Errorf("median of nothing %d", m)
	}
}

func TestAskedCountsOneUsersRequests(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.log")
	lines := `{"verb":"patch","user":{"username":"old"},"objectRef":{"resource":"events"}}
`
	since := int64(len(lines))
	lines += `{"verb":"patch","user":{"username":"me"},"objectRef":{"resource":"events"}}
{"verb":"patch","user":{"username":"me"},"objectRef":{"resource":"events"}}
{"verb":"get","user":{"username":"other"},"objectRef":{"resource":"pods"}}
{"verb":"get","user":{"username":"me"}}
`
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := asked(file, "me", since)
	if err != nil || len(got) != 2 || got["patch events"] != 2 || got["get"] != 1 {
		t.Errorf("got %v, %v", got, err)
	}
}

// Writes of one pod, and what was denied, as the proof of the chart's scheduler reads them.
func TestRequestsOfTheScheduler(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.log")
	const lines = `{"verb":"list","user":{"username":"s"},"objectRef":{"resource":"pods"},"responseStatus":{"code":200}}
{"verb":"create","user":{"username":"s"},"objectRef":{"resource":"pods","name":"a","subresource":"binding"}}
{"verb":"patch","user":{"username":"other"},"objectRef":{"resource":"pods","namespace":"proof","name":"a"}}
{"verb":"list","user":{"username":"s"},"objectRef":{"resource":"csinodes"},"responseStatus":{"code":403}}
`
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := requestsOf(file, "s", 0)
	if err != nil || len(list) != 3 {
		t.Fatalf("%+v, %v", list, err)
	}
	for i, want := range []string{"list pods", "create pods/binding", "list csinodes"} {
		if list[i].String() != want || list[i].writes() != (i == 1) {
			t.Errorf("request %d is %s and writes: %t", i, &list[i], list[i].writes())
		}
	}
	if list[1].ObjectRef.Name != "a" || list[2].ResponseStatus.Code != 403 {
		t.Errorf("%+v", list)
	}
}

func TestAnswersAreReadFromTheMetrics(t *testing.T) {
	before, err := parseAnswers("")
	if err != nil || len(before) != 0 {
		t.Errorf("%v, %v", before, err)
	}
	const text = `# TYPE quietcore_nri_request_duration_seconds histogram
quietcore_nri_request_duration_seconds_bucket{event="CreateContainer",le="0.1"} 2
quietcore_nri_request_duration_seconds_sum{event="CreateContainer"} 0.5
quietcore_nri_request_duration_seconds_count{event="CreateContainer"} 2
quietcore_nri_request_duration_seconds_sum{event="StopContainer"} 1e-05
`
	got, err := parseAnswers(text)
	if err != nil || got["CreateContainer"] != 0.5 || len(got) != 2 {
		t.Errorf("%v, %v", got, err)
	}
	if f := perPod(got, 2); f.Value != "CreateContainer 250 ms" {
		t.Errorf("%v", f.Value)
	}
	if _, err := parseAnswers(`quietcore_nri_request_duration_seconds_sum{event="X"} much`); err == nil {
		t.Error("much is taken for a number")
	}
}
