package main

import (
	"strings"
	"testing"
)

func TestWhatTheCoreReports(t *testing.T) {
	const good = "--- PASS: TestParse (0.00s)\r\n--- SKIP: TestHwloc (0.00s)\r\n" +
		"--- PASS: TestScenariosPlay (2.00s)\r\n    --- PASS: TestScenariosPlay/a.yaml (1.00s)\r\n" +
		"    --- PASS: TestScenariosPlay/b.yaml (1.00s)\r\n" +
		"    --- PASS: TestOther/a.yaml (1.00s)\r\nPASS\r\nguest: done\r\n"
	if passed, skipped, err := coreResult(good, 2); passed != 2 || len(skipped) != 1 || skipped[0] != "TestHwloc" ||
		err != nil {
		t.Errorf("%d passed, %v skipped, %v", passed, skipped, err)
	}
	for console, want := range map[string]string{
		strings.Replace(good, "guest: done", "guest: failed: exit status 1", 1): "exit status 1",
		strings.Replace(good, "guest: done", "", 1):                             "without a word",
		strings.Replace(good, "TestScenariosPlay/b.yaml", "TestElse", 1):        "played 1 scenarios, there are 2",
	} {
		if _, _, err := coreResult(console, 2); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
