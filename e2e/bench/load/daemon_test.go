package main

import (
	"testing"

	"github.com/quietcore/quietcore/e2e/bench/figures"
)

func TestParseMetrics(t *testing.T) {
	got, err := parseMetrics([]byte(`# HELP quietcore_cpuset_writes_total Writes of cpusets.
# TYPE quietcore_cpuset_writes_total counter
quietcore_cpuset_writes_total{result="ok"} 12
quietcore_cpuset_writes_total{result="gone"} 3
quietcore_cpuset_writes_total{result="mismatch"} 2
quietcore_systemd_calls_total{result="ok"} 1e+03
quietcore_systemd_calls_total{result="timeout"} 4
quietcore_systemd_calls_total{result="error"} 5
quietcore_nri_connected 1
`))
	want := counted{Operations: figures.Operations{Writes: 15, Calls: 1009}, timeouts: 4, errors: 5}
	if err != nil || got != want {
		t.Errorf("got %+v (%v), want %+v", got, err, want)
	}
	if got.minus(counted{Operations: figures.Operations{Writes: 10, Calls: 9}}) != (figures.Operations{Writes: 5,
		Calls: 1000}) {
		t.Error("the difference is wrong")
	}
	for name, text := range map[string]string{
		"no metrics of ours": "go_goroutines 7\n",
		"no number":          "quietcore_cpuset_writes_total{result=\"ok\"} many\n",
	} {
		if got, err := parseMetrics([]byte(text)); err == nil {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

func TestIDsDiffer(t *testing.T) {
	seen := map[string]bool{}
	for kind := range 6 {
		for i := range 600 {
			for _, id := range []string{hex64(kind, i), uid(kind, i)} {
				if seen[id] {
					t.Fatalf("%s is there twice", id)
				}
				seen[id] = true
			}
		}
	}
	if id := hex64(5, 599); len(id) != 64 {
		t.Errorf("%s has %d digits", id, len(id))
	}
	if id := uid(2, 599); len(id) != 36 {
		t.Errorf("%s has %d characters", id, len(id))
	}
}
