package export

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/quietcore/quietcore/internal/incidents"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func two() []*incidents.Incident {
	who := func(job string) incidents.Subject {
		return incidents.Subject{Namespace: "shop", Pod: job + "-1", Container: "main", Job: "Deployment/" + job,
			Class: "BE", CPUs: "0-3", Claims: "shop/cpus-of-" + job}
	}
	full := incidents.Bounded(incidents.Incident{
		At: noon, Node: "node-a", Victim: who("web"), CPI: 3.5, Threshold: 2.25,
		Spec: incidents.Spec{Mean: 1.75, StdDev: 0.25, Platform: "Intel", Band: 1, Samples: 900, Tasks: 7},
		Suspects: []incidents.Suspect{
			{Subject: who("video"), Score: 0.5, Contrast: 0.75, Confidence: 0.9, Usage: 4, Shares: "L3",
				Series: []incidents.Point{{Offset: -time.Minute, Value: 4}}},
			{Subject: who("cron"), Score: 0.25},
		},
		Verdict: incidents.Cap, Antagonists: []incidents.Subject{who("video")}, Why: "=cmd|'/c calc'!A0",
		Actions: []incidents.Action{{Kind: incidents.Cap, Subject: who("video"), Milli: 100, From: noon,
			Until: noon.Add(5 * time.Minute), Ended: noon.Add(time.Minute), EndedWhy: "it did not help"}},
		Outcome: incidents.Outcome{Result: "failure", Before: 3.5, After: 3.25, Samples: 3},
		Series:  []incidents.Point{{Offset: -time.Minute, Value: 3.5}, {Offset: 0, Value: 3.25}},
	})
	bare := incidents.Bounded(incidents.Incident{At: noon.Add(time.Hour), Victim: who("db"), CPI: 2})
	return []*incidents.Incident{&full, &bare}
}

func write(t interface{ Fatal(...any) }, format string, list ...*incidents.Incident) []byte {
	var b bytes.Buffer
	w, err := To(&b, format)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range list {
		if err := w.Write(i); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Lines have everything, and an end.
func TestLinesAreReadBack(t *testing.T) {
	decode := json.NewDecoder(bytes.NewReader(write(t, Lines, two()...)))
	for n, want := range append(two(), &incidents.Incident{}) {
		got := &incidents.Incident{}
		if err := decode.Decode(got); err != nil {
			t.Fatalf("%d: %v", n, err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%d, as written (-) and as read (+):\n%s", n, diff)
		}
	}
	if decode.More() {
		t.Error("more follows")
	}
}

// Lines of two daemons, one after the other, are read as one list; what was cut off at any byte is an error.
func TestRead(t *testing.T) {
	text := string(write(t, Lines, two()...)) + string(write(t, Lines)) + string(write(t, Lines, two()...))
	var ids []string
	if err := Read(strings.NewReader(text), func(i *incidents.Incident) error {
		ids = append(ids, i.ID)
		return nil
	}); err != nil || len(ids) != 4 || ids[0] != two()[0].ID || ids[1] != two()[1].ID || ids[2] != ids[0] {
		t.Fatalf("%q, %v", ids, err)
	}
	nothing := func(*incidents.Incident) error { return nil }
	one := string(write(t, Lines, two()...))
	for at := range len(one) - len("}\n") {
		if err := Read(strings.NewReader(one[:at]), nothing); err == nil {
			t.Fatalf("%q is whole", one[:at])
		}
	}
	for text, want := range map[string]string{
		strings.TrimSuffix(one, "{}\n"): "the end is missing", "at,node\n": "incident 1: ", "": "the end is missing",
		one + one[:9]: "incident 3: ",
	} {
		if err := Read(strings.NewReader(text), nothing); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q…: %v, want %q", text, err, want)
		}
	}
	full := errors.New("the disk is full")
	if err := Read(strings.NewReader(one), func(*incidents.Incident) error { return full }); !errors.Is(err, full) {
		t.Errorf("what takes them fails: %v", err)
	}
}

func TestCSV(t *testing.T) {
	lines, err := csv.NewReader(bytes.NewReader(write(t, CSV, two()...))).ReadAll()
	if err != nil || len(lines) != 4 { // head, two suspects, one without
		t.Fatalf("%q, %v", lines, err)
	}
	get := func(line int, column string) string { return lines[line][slices.Index(lines[0], column)] }
	for _, want := range []struct {
		line          int
		column, value string
	}{
		{1, "victim_job", "Deployment/web"}, {1, "cpi", "3.5"}, {1, "suspect_job", "Deployment/video"},
		{1, "antagonist", "true"}, {1, "capped_seconds", "60"},
		{1, "rank", "1"}, {2, "rank", "2"}, {2, "antagonist", "false"}, {2, "capped_seconds", "0"}, {3, "rank", ""},
		{3, "victim_job", "Deployment/db"},
		{1, "why", "'=cmd|'/c calc'!A0"}, {1, "time", "2026-11-21T12:00:00Z"}, {3, "verdict", "none"},
		{1, "victim_claims", "shop/cpus-of-web"}, {2, "suspect_claims", "shop/cpus-of-cron"},
		{3, "victim_claims", "shop/cpus-of-db"}, {3, "suspect_claims", ""},
	} {
		if got := get(want.line, want.column); got != want.value {
			t.Errorf("line %d, %s is %q, want %q", want.line, want.column, got, want.value)
		}
	}
}

// No text becomes a formula, moves a terminal's cursor or breaks the table.
func TestCSVOfAnyText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		i := *two()[0]
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[=+@-][a-z"',;\n\x1b]*`))
		i.Why, i.Victim.Pod, i.Node = text.Draw(t, "why"), text.Draw(t, "pod"), text.Draw(t, "node")
		i = incidents.Bounded(i)
		out := write(t, CSV, &i)
		lines, err := csv.NewReader(bytes.NewReader(out)).ReadAll()
		if err != nil || len(lines) != 3 {
			t.Fatalf("%q: %v", out, err)
		}
		for _, cell := range lines[1] {
			if cell != "" && strings.ContainsAny(cell[:1], "=+@\t\r") || strings.ContainsAny(cell, "\x1b\n\r\x00") {
				t.Fatalf("cell %q", cell)
			}
		}
	})
}

func TestAnUnknownFormat(t *testing.T) {
	if _, err := To(&bytes.Buffer{}, "xlsx"); err == nil || !strings.Contains(err.Error(), "csv and jsonl") {
		t.Errorf("error is %v", err)
	}
}
