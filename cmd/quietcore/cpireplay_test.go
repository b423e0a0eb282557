package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/cpi/detect/replay"
)

// cpiReplay runs `cpi replay` with these arguments on the record.
func cpiReplay(t *testing.T, in string, args ...string) (lines []replay.Line, out string, err error) {
	t.Helper()
	cmd := newCPI()
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetArgs(append([]string{"replay"}, args...))
	cmd.SetIn(strings.NewReader(in))
	var stdout, stderr bytes.Buffer
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	err = cmd.Execute()
	for line := range strings.Lines(stdout.String()) {
		var l replay.Line
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		lines = append(lines, l)
	}
	return lines, stdout.String() + stderr.String(), err
}

// disturbed is a victim whose CPI doubles while a batch container is busy.
const disturbed = `time,container,job,class,usage,cpi
60,v,web,LS,1,1.8
60,a,crunch,BATCH,0.2,
60,b,even,BE,1,
120,v,web,LS,1,1.7
120,a,crunch,BATCH,0.1,
120,b,even,BE,1,
180,v,web,LS,1,1.9
180,a,crunch,BATCH,0.2,
180,b,even,BE,1,
240,v,web,LS,1,1.8
240,a,crunch,BATCH,0.2,
240,b,even,BE,1,
300,v,web,LS,1,3.6
300,a,crunch,BATCH,3.0,
300,b,even,BE,1,
360,v,web,LS,1,3.9
360,a,crunch,BATCH,3.2,
360,b,even,BE,1,
420,v,web,LS,1,3.7
420,a,crunch,BATCH,3.1,
420,b,even,BE,1,
480,v,web,LS,1,4.0
480,a,crunch,BATCH,3.3,
480,b,even,BE,1,
540,v,web,LS,1,3.8
540,a,crunch,BATCH,3.0,
540,b,even,BE,1,
600,v,web,LS,1,1.8
600,a,crunch,BATCH,0.2,
600,b,even,BE,1,
1200,v,web,LS,1,1.8
`

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
	for _, detector := range []string{"classic", "default"} {
		lines, out, err := cpiReplay(t, disturbed, "--detector", detector, "--specs", file(t, webSpec), "-")
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
			if l.Event == "cap" && (l.Antagonist != "a" || l.CapMilli != 100 || l.Until != l.Time+300 || l.Container != "v") {
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

func TestCPIReplayRefuses(t *testing.T) {
	for _, c := range []struct {
		args []string
		in   string
		want string
	}{
		{[]string{"-"}, "time,job\n", "line 1: the columns container, class, usage, cpi (or cycles and instructions) are missing"},
		{[]string{"-"}, strings.Replace(disturbed, "120,v,web,LS,1,1.7", "120,v,web,LS,1,NaN", 1), `line 5: cpi is "NaN"`},
		{[]string{"--detector", "best", "-"}, disturbed, `detector "best" is not known; there are classic and default`},
		{[]string{"--specs", "/nonexistent", "-"}, disturbed, "/nonexistent"},
		{[]string{"--specs", file(t, `{"jobs":"web"}`), "-"}, disturbed, `unknown key "jobs"; did you mean "job"?`},
		{[]string{"--specs", file(t, `{"mean":1}`), "-"}, disturbed, "line 1: a spec without a job"},
		{[]string{"--config", file(t, "cpi: {detectr: classic}"), "-"}, disturbed, `did you mean "detector"?`},
		{[]string{"--config", file(t, "cpi: {minScore: 7}"), "-"}, disturbed, "the least score is 7"},
		{[]string{"--period", "48h", "-"}, disturbed, "the sampling period is 48h"},
		{[]string{"/nonexistent.csv"}, "", "/nonexistent.csv"},
	} {
		_, out, err := cpiReplay(t, c.in, c.args...)
		var wrong usageError
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v; want %q", c.args, err, c.want)
		}
		if strings.Contains(out, "{") {
			t.Errorf("%q prints %q", c.args, out)
		}
	}
}

func TestCPIReplayConfiguration(t *testing.T) {
	name := file(t, "apiVersion: quietcore.dev/v1alpha1\nkind: Configuration\ncpi: {mode: observe, detector: classic, minScore: 0.9}\n")
	lines, _, err := cpiReplay(t, disturbed, "--config", name, "--specs", file(t, webSpec), "-")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lines {
		if l.Event == "cap" {
			t.Errorf("a cap although a score of 0.9 is wanted: %+v", l)
		}
	}
	weak := strings.Replace(webSpec, `"tasks":10`, `"tasks":4`, 1)
	_, out, err := cpiReplay(t, disturbed, "--specs", file(t, weak), "-")
	if err != nil || !strings.Contains(out, "4 tasks and 1000 samples; at least 5 tasks") || !strings.Contains(out, `"outliers":0`) {
		t.Errorf("%v\n%s", err, out)
	}
}
