package main

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/e2e/counters/report"
)

func TestReportIsUnderstood(t *testing.T) {
	var console bytes.Buffer
	console.WriteString("[    0.000000] a kernel's line\r\n")
	want := report.Group{Trigger: "sched_switch", Case: "a case", Group: "a/b", Known: 5, Programs: 1, Instructions: 6,
		Cycles: 7, OnCPU: 8, Counted: 8, Kernel: 8, Missed: 1}
	if err := report.Write(&console, want); err != nil {
		t.Fatal(err)
	}
	if _, err := report.Groups(console.String()); err == nil {
		t.Error("a guest that never ended was believed")
	}
	half := console.String()
	report.End(&console, nil)
	got, err := report.Groups(console.String())
	if err != nil || len(got) != 1 || got[0] != want {
		t.Errorf("%+v, %v", got, err)
	}
	var failed bytes.Buffer
	failed.WriteString(half)
	report.End(&failed, errors.New("no events"))
	if _, err := report.Groups(failed.String()); err == nil || !strings.Contains(err.Error(), "no events") {
		t.Errorf("the guest's error is %v", err)
	}
	if _, err := report.Groups("figure {"); err == nil {
		t.Error("half a line was understood")
	}
}

// Each case changes figures that are right in one way.
func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		change func(g, idle *report.Group)
		want   string // empty: it is right
	}{
		"right":                     {func(g, _ *report.Group) {}, ""},
		"the kernel's part":         {func(g, _ *report.Group) { g.Instructions += 4000 }, ""},
		"too many":                  {func(g, _ *report.Group) { g.Instructions += 6000 }, "1006000 instructions"},
		"one too few":               {func(g, _ *report.Group) { g.Instructions-- }, "999999 instructions"},
		"more time than the kernel": {func(g, _ *report.Group) { g.OnCPU, g.Counted = 1002000, 1002000 }, "1002000 ns"},
		"less time than the kernel": {func(g, _ *report.Group) { g.OnCPU, g.Counted = 998000, 998000 }, "998000 ns"},
		"a part of it counted":      {func(g, _ *report.Group) { g.Counted = 900000 }, "only 900000"},
		"cycles that wait": {func(_, idle *report.Group) {
			idle.Cycles = idle.Instructions
		}, "which is which"},
		"no idle CPU": {func(_, idle *report.Group) {
			*idle = report.Group{Known: 1, Instructions: 1, OnCPU: 1, Counted: 1, Kernel: 1}
		}, "only 2 figures"},
		"no figures of instructions": {func(g, _ *report.Group) { *g = report.Group{} }, "0 instructions"},
	} {
		g := report.Group{Known: 1e6, Instructions: 1e6, Cycles: 1e6, OnCPU: 1e6, Counted: 1e6, Kernel: 1e6}
		idle := report.Group{Case: report.Idle, Cycles: 1e6, Instructions: 1e3}
		c.change(&g, &idle)
		err := judge(io.Discard, []report.Group{g, idle})
		if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestTried(t *testing.T) {
	const report = "\r\nvictim's CPI while the antagonist rested: 1.200 (3 windows)\r\n        ran freely: 1.300 (2 " +
		"windows)\r\n     was capped: -\r\n"
	if err := tried(io.Discard, report); err != nil {
		t.Error(err)
	}
	for want, console := range map[string]string{
		"has not reported":              "pmucheck: it failed",
		"while the antagonist rested":   strings.Replace(report, "1.200 (3 windows)", "-", 1),
		"while the antagonist ran free": strings.Replace(report, "1.300 (2 windows)", "-", 1),
	} {
		if err := tried(io.Discard, console); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A table has a column for each kernel, and says below why something is not there; what the
// counter itself does not refuse is an error.
func TestTableOfKernels(t *testing.T) {
	kernel := func(release, why string, typed bool) []report.Ability {
		return []report.Ability{{Kernel: release, What: "waits"},
			{Kernel: release, What: "a trigger", Why: why, Typed: typed}}
	}
	older, newer := kernel("5.10", "Linux 5.13\nhas it", true), kernel("6.1", "", false)
	var text strings.Builder
	table(&text, [][]report.Ability{older, newer})
	const want = "| | 5.10 | 6.1 |\n|---|---|---|\n| waits | yes | yes |\n| a trigger | no (1) | yes |\n\n" +
		"1. Linux 5.13 has it\n"
	if text.String() != want {
		t.Errorf("%s\nwant\n%s", text.String(), want)
	}
	page := "before\n" + tableBegins + "old\n" + tableEnds + "after\n"
	if got, err := put(page, want); err != nil || got != strings.Replace(page, "old\n", want, 1) {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := put("a page without the lines", want); err == nil {
		t.Error("a page without the lines took a table")
	}
	for name, c := range map[string]struct {
		all   []report.Ability
		wrong bool
	}{
		"all":                    {newer, false},
		"refused by the counter": {older, false},
		"failed":                 {kernel("5.10", "device is busy", false), true},
		"nothing":                {nil, true},
	} {
		if err := typed(c.all); (err != nil) != c.wrong {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAbilitiesAreUnderstood(t *testing.T) {
	var console bytes.Buffer
	want := report.Ability{Kernel: "5.10", What: "a trigger", Why: "Linux 5.13 has it", Typed: true}
	if err := report.WriteAbility(&console, want); err != nil {
		t.Fatal(err)
	}
	got, err := report.Abilities("a kernel's line\r\n" + strings.ReplaceAll(console.String(), "\n", "\r\n"))
	if err != nil || len(got) != 1 || got[0] != want {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := report.Abilities("ability {"); err == nil {
		t.Error("half a line was understood")
	}
}
