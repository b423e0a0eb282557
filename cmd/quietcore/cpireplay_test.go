package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/cpi/detect/replay"
	"github.com/quietcore/quietcore/internal/cli"
)

// executed runs a command of its own with this standard input.
func executed(cmd *cobra.Command, in string, args ...string) (out, errs string, err error) {
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(in))
	var o, e bytes.Buffer
	cmd.SetOut(&o)
	cmd.SetErr(&e)
	err = cmd.Execute()
	return o.String(), e.String(), err
}

// cpiReplay runs `cpi replay` with these arguments on the record.
func cpiReplay(t *testing.T, in string, args ...string) (lines []replay.Line, said string, err error) {
	t.Helper()
	out, errs, err := executed(newCPIReplay(), in, args...)
	for line := range strings.Lines(out) {
		var l replay.Line
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		lines = append(lines, l)
	}
	return lines, out + errs, err
}

// disturbed is a record of a victim whose CPI doubles while a batch container is busy,
// beside one that is steady.
func disturbed() string {
	var b strings.Builder
	b.WriteString("time,container,job,class,usage,cpi\n")
	for i, minute := range []struct{ cpi, busy float64 }{
		{1.8, 0.2}, {1.7, 0.1}, {1.9, 0.2}, {1.8, 0.2}, {3.6, 3}, {3.9, 3.2}, {3.7, 3.1}, {4, 3.3}, {3.8, 3},
		{1.8, 0.2},
	} {
		fmt.Fprintf(&b, "%[1]d,v,web,LS,1,%[2]v\n%[1]d,a,crunch,BATCH,%[3]v,\n%[1]d,b,even,BE,1,\n", 60*(i+1),
			minute.cpi, minute.busy)
	}
	b.WriteString("1200,v,web,LS,1,1.8\n")
	return b.String()
}

func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

const webSpec = `{"job":"web","platform":"","mean":1.8,"stddev":0.16,"samples":1000,"tasks":10}` + "\n"

func TestCPIReplay(t *testing.T) {
	for _, detector := range []string{"classic", "contrast"} {
		lines, out, err := cpiReplay(t, disturbed(), "--detector", detector, "--specs", file(t, webSpec), "-")
		if err != nil {
			t.Fatal(err)
		}
		var events []string
		last := 0.0
		for _, l := range lines[:len(lines)-1] {
			if l.Time < last {
				t.Errorf("%s at %v comes after %v", l.Event, l.Time, last)
			}
			last = l.Time
			if l.Event != "outlier" && l.Event != "anomaly" && l.Event != "analysis" {
				events = append(events, l.Event)
			}
			if l.Event == "cap" && (l.Antagonist != "a" || l.CapMilli != 100 || l.Until != l.Time+300 ||
				l.Container != "v") {
				t.Errorf("%s: %+v", detector, l)
			}
		}
		if got := strings.Join(events, " "); got != "cap uncap" {
			t.Errorf("%s: %s\n%s", detector, got, out)
		}
		if !strings.Contains(out, `{"event":"summary","samples":31,"outliers":5,"anomalies":3,"analyses":3,"caps":1}`) {
			t.Errorf("%s: %s", detector, out)
		}
	}
}

// TestCPIReplayTalks: the answer to an interval is complete before the next one.
func TestCPIReplayTalks(t *testing.T) {
	in := strings.ReplaceAll(disturbed(), ",even,BE,1,\n", ",even,BE,1,\n\n")
	lines, out, err := cpiReplay(t, in, "--interactive", "--seed", "3", "--specs", file(t, webSpec), "-")
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	last := 0.0
	for _, l := range lines {
		count[l.Event]++
		if l.Event == "probe" && (l.Antagonist != "a" || l.CapMilli < 100 || l.CapMilli > 224 || l.Until != l.Time+60 ||
			l.Container != "v") {
			t.Errorf("%+v", l)
		}
		if l.Event != "summary" && l.Time < last {
			t.Errorf("%s of %v after the tick of %v", l.Event, l.Time, last)
		}
		if l.Event == "tick" {
			last = l.Time
		}
	}
	if count["tick"] != 11 || count["outlier"] != 5 || count["probe"] == 0 || lines[len(lines)-1].Event != "summary" {
		t.Errorf("%v\n%s", count, out)
	}
	lines, out, err = cpiReplay(t, in, "--interactive", "--probe", "0", "--specs", file(t, webSpec), "-")
	if err != nil || !strings.Contains(out, `"caps":0}`) || strings.Contains(out, `"probe"`) {
		t.Errorf("%v\n%s\n%d lines", err, out, len(lines))
	}
}

func TestCPIReplayRefuses(t *testing.T) {
	for _, c := range []struct {
		args []string
		in   string
		want string
	}{
		{[]string{"-"}, "time,job\n",
			"line 1: the columns container, class, usage, cpi (or cycles and instructions) are missing"},
		{[]string{"-"}, strings.Replace(disturbed(), "120,v,web,LS,1,1.7", "120,v,web,LS,1,NaN", 1),
			`line 5: cpi is "NaN"`},
		{[]string{"--detector", "best", "-"}, disturbed(),
			`detector "best" is not known; there are classic, contrast and default`},
		{[]string{"--probe", "-1", "-"}, disturbed(), "the budget of probes is -1; it must lie between 0 and 60"},
		{[]string{"--probe", "61", "-"}, disturbed(), "the budget of probes is 61; it must lie between 0 and 60"},
		{[]string{"--interactive", "-"}, "time,job\n", "line 1: the columns container"},
		{[]string{"-"}, "time,jobs\n", `column "jobs" is not known`},
		{[]string{"--specs", "/nonexistent", "-"}, disturbed(), "/nonexistent"},
		{[]string{"--specs", file(t, `{"jobs":"web"}`), "-"}, disturbed(), `unknown key "jobs"; did you mean "job"?`},
		{[]string{"--specs", file(t, `{"mean":1}`), "-"}, disturbed(), "line 1: a spec without a job"},
		{[]string{"--config", file(t, "cpi: {detectr: classic}"), "-"}, disturbed(), `did you mean "detector"?`},
		{[]string{"--config", file(t, "cpi: {minScore: 7}"), "-"}, disturbed(), "cpi.minScore: is 7, must be 0 to 1"},
		{[]string{"--period", "48h", "-"}, disturbed(), "the sampling period is 48h"},
		{[]string{"/nonexistent.csv"}, "", "/nonexistent.csv"},
	} {
		_, out, err := cpiReplay(t, c.in, c.args...)
		var wrong cli.UsageError
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v; want %q", c.args, err, c.want)
		}
		if strings.Contains(out, "{") {
			t.Errorf("%q prints %q", c.args, out)
		}
	}
}

func TestCPIReplayConfiguration(t *testing.T) {
	name := file(t,
		"apiVersion: quietcore.dev/v1alpha1\nkind: Configuration\ncpi: {mode: observe, detector: classic, minScore: "+
			"0.9}\n")
	lines, _, err := cpiReplay(t, disturbed(), "--config", name, "--specs", file(t, webSpec), "-")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lines {
		if l.Event == "cap" {
			t.Errorf("a cap although a score of 0.9 is wanted: %+v", l)
		}
	}
	name = file(t, "apiVersion: quietcore.dev/v1alpha1\nkind: Configuration\ncpi: {probe: {budget: 0}}\n")
	in := strings.ReplaceAll(disturbed(), ",even,BE,1,\n", ",even,BE,1,\n\n")
	for _, c := range []struct {
		args   []string
		probed bool
	}{{nil, false}, {[]string{"--probe", "5"}, true}} {
		_, out, err := cpiReplay(t, in, append([]string{"--detector", "default", "--config", name, "--interactive",
			"--seed", "3", "--specs", file(t, webSpec), "-"}, c.args...)...)
		if err != nil || strings.Contains(out, `"event":"probe"`) != c.probed {
			t.Errorf("a budget of 0 in the configuration, and %q: %v\n%s", c.args, err, out)
		}
	}
	weak := strings.Replace(webSpec, `"tasks":10`, `"tasks":4`, 1)
	_, out, err := cpiReplay(t, disturbed(), "--specs", file(t, weak), "-")
	if err != nil || !strings.Contains(out, "4 tasks and 1000 samples; at least 5 tasks") ||
		!strings.Contains(out, `"outliers":0`) {
		t.Errorf("%v\n%s", err, out)
	}
}
