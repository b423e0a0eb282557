package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/internal/cli"
)

const recorded = `time,pod,class,request,usage
0,web,prod,6,2
0,batch,batch,4,3
300,web,prod,6,2
300,batch,batch,4,3
600,web,prod,14,2
600,batch,batch,4,3
`

// reclaimReplay runs `reclaim replay` with these arguments on the record.
func reclaimReplay(t *testing.T, in string, args ...string) (string, error) {
	t.Helper()
	out, errs, err := executed(newReclaimReplay(), in, args...)
	return out + errs, err
}

func TestReclaimReplay(t *testing.T) {
	out, err := reclaimReplay(t, recorded, "--capacity", "16", "-")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 4 {
		t.Fatalf("%d lines, want 3 and a summary:\n%s", len(lines), out)
	}
	var last struct {
		Time, Reclaimable, AllocationSlack float64
		IdlePods, Evict                    []string
		Overcommitted                      bool
	}
	if err := json.Unmarshal([]byte(lines[2]), &last); err != nil {
		t.Fatal(err)
	}
	if last.Time != 600 || last.Reclaimable != 2 || !last.Overcommitted || len(last.Evict) != 1 ||
		last.IdlePods == nil {
		t.Errorf("last line: %s", lines[2])
	}
	for _, key := range []string{`"meanReclaimable":7.333333`, `"violations":0`, `"violationRatio":0`} {
		if !strings.Contains(lines[3], key) {
			t.Errorf("summary %s lacks %s", lines[3], key)
		}
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("apiVersion: quietcore.dev/v1alpha1\nreclaim: {mode: observe, reserve: 2, idle: {window: 10m, sample: " +
		"5m}}\nsuppression: {mode: \"off\", threshold: 50}\n")
	out, err = reclaimReplay(t, recorded, "--capacity", "16", "--from", "usage", "--config", file, "-")
	if err != nil || !strings.HasPrefix(out, `{"time":0,"reclaimable":8,`) {
		t.Errorf("with a reserve of 2: %v\n%s", err, out)
	}
}

// What the caller got wrong exits with 2.
func TestReclaimReplayRefuses(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte("reclaim: {form: usage, idle: {threshold: 5}}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	high := filepath.Join(dir, "high.yaml")
	if err := os.WriteFile(high, []byte("reclaim: {idle: {threshold: 101}}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want string
		in   string
		args []string
	}{
		{"--capacity", recorded, []string{"-"}},
		{"--capacity", recorded, []string{"--capacity", "0", "-"}},
		{"--capacity", recorded, []string{"--capacity", "NaN", "-"}},
		{"slack", recorded, []string{"--capacity", "4", "--from", "all", "-"}},
		{"exactly one", recorded, []string{"--capacity", "4"}},
		{"no such file", recorded, []string{"--capacity", "4", filepath.Join(dir, "nothing.csv")}},
		{"no such file", recorded, []string{"--capacity", "4", "--config", filepath.Join(dir, "nothing.yaml"), "-"}},
		{`did you mean "from"`, recorded, []string{"--capacity", "4", "--config", bad, "-"}},
		{"101", recorded, []string{"--capacity", "4", "--config", high, "-"}},
		{"line 2", "time,pod,class,request,usage\n0,a,batch,4,-1\n", []string{"--capacity", "4", "-"}},
	} {
		_, err := reclaimReplay(t, c.in, c.args...)
		var wrong cli.UsageError
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want a usage error with %q", c.args, err, c.want)
		}
	}
}
