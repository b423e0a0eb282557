package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/e2e/bench/figures"
)

func good() *figures.Report {
	ops := []figures.Operations{{Writes: 3, Calls: 2}}
	return &figures.Report{
		Driver: "systemd", Ours: figures.Times{P50: 100, P99: 200}, Nothing: figures.Times{P50: 10, P99: 10},
		Answers: 10,
		Stages: []figures.Stage{{Containers: 5, Threads: 100, Enter: ops, Leave: ops},
			{Containers: 500, Threads: 10000, Enter: ops, Leave: ops}},
		Update: figures.Update{Sample: 2, Updates: 4, Mean: 300},
		Audit:  figures.Audit{Containers: 500, Audits: 5, CPUMillis: 30, PlainMillis: 10},
	}
}

func find(t *testing.T, r *figures.Report, what string) row {
	t.Helper()
	for _, row := range rowsOf(r) {
		if strings.Contains(row.What, what) {
			return row
		}
	}
	t.Fatalf("no row is about %q", what)
	return row{}
}

func overs(r *figures.Report) int {
	n := 0
	for _, row := range rowsOf(r) {
		if row.over() {
			n++
		}
	}
	return n
}

func TestBudgets(t *testing.T) {
	if n := overs(good()); n != 0 {
		t.Errorf("%d rows of a good report are over their budgets", n)
	}
	for name, spoil := range map[string]func(*figures.Report){
		"too many operations": func(r *figures.Report) {
			many := []figures.Operations{{Writes: 11, Calls: 2}}
			for i := range r.Stages {
				r.Stages[i].Enter = many
			}
		},
		"nothing was counted": func(r *figures.Report) {
			none := []figures.Operations{{}}
			for i := range r.Stages {
				r.Stages[i].Enter = none
			}
		},
		"operations grow": func(r *figures.Report) {
			r.Stages[1].Enter = []figures.Operations{{Writes: 4, Calls: 2}}
		},
		"an audit that writes": func(r *figures.Report) { r.Audit.Writes = 1 },
		"an audit that calls":  func(r *figures.Report) { r.Audit.Calls = 1 },
		"no audit":             func(r *figures.Report) { r.Audit.Audits = 0 },
	} {
		r := good()
		spoil(r)
		if n := overs(r); n != 1 {
			t.Errorf("%s: %d rows are over their budgets, want 1", name, n)
		}
	}
}

func TestComparisonWithUpdates(t *testing.T) {
	if got := find(t, good(), "runtime updates against our operations"); got.Measured != "167 x" || got.Ratio < 0.29 ||
		got.Ratio > 0.31 {
		t.Errorf("%+v", got)
	}
	if got := find(t, good(), "that against our median wait"); got.Measured != "1500 x" {
		t.Errorf("%+v", got)
	}
	if got := find(t, good(), "one by one"); got.Measured != "150.0 s" {
		t.Errorf("%+v", got)
	}
}

func TestOutput(t *testing.T) {
	var buf bytes.Buffer
	if err := table(&buf, good(), rowsOf(good())); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"systemd driver", "3+3 writes, 2+2 D-Bus calls", "50 x", "0.30"} {
		if !strings.Contains(buf.String(), want) {
			t.Errorf("no %q in\n%s", want, buf.String())
		}
	}
	if _, err := json.Marshal(rowsOf(good())); err != nil {
		t.Error(err)
	}
}
