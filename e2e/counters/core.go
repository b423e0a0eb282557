package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/quietcore/quietcore/e2e/counters/report"
	"github.com/quietcore/quietcore/e2e/machine"
)

// core are the packages that decide, from the words of a CPU list to the answer to an event, and the player of
// scenarios.
var core = []string{"cpuset", "topology", "sysfs", "cpuallocator", "policy", "internal/script"}

// coreReads is what their tests read of this repository beside their own testdata.
var coreReads = []string{"docs", "e2e/scenarios"}

// coreTest is the line of a test that has ended without a failure.
var coreTest = regexp.MustCompile(`(?m)^ *--- (PASS|SKIP): (Test\w+)(/\S+)? \(`)

// onCore runs the tests of the core, which play all scenarios on paper, as programs of the guest's architecture.
func onCore(ctx context.Context, r *run) error {
	files := map[string]string{}
	for _, pkg := range core {
		name := "core-" + filepath.Base(pkg) + "-" + r.arch
		test, err := machine.GoBinary{Package: "./" + pkg, Name: name, Arch: r.arch, Test: true}.Build(ctx, r.cache)
		if err != nil {
			return err
		}
		files[filepath.Join(report.CoreTree, pkg, report.CoreTest)] = test
		if err := addTree(files, filepath.Join(pkg, "testdata")); err != nil {
			return err
		}
	}
	for _, dir := range coreReads {
		if err := addTree(files, dir); err != nil {
			return err
		}
	}
	if err := r.boot(ctx, files, report.Core); err != nil {
		return err
	}
	scenarios, err := filepath.Glob("e2e/scenarios/*.yaml")
	if err != nil {
		return err
	}
	passed, skipped, err := coreResult(r.console.String(), len(scenarios))
	if err != nil {
		return err
	}
	fmt.Printf("%s: %d tests of %s, %d scenarios; skipped: %s\n", r.arch, passed, strings.Join(core, ", "),
		len(scenarios), strings.Join(skipped, ", "))
	return nil
}

// coreResult is how many tests passed and which were skipped, if none failed and all scenarios were played.
func coreResult(console string, scenarios int) (passed int, skipped []string, err error) {
	const play = "TestScenariosPlay"
	played := 0
	for _, m := range coreTest.FindAllStringSubmatch(console, -1) {
		switch {
		case m[1] == "SKIP":
			skipped = append(skipped, m[2]+m[3])
		case m[3] == "":
			passed++
		case m[2] == play:
			played++
		}
	}
	if _, err := report.Groups(console); err != nil {
		return 0, nil, err
	}
	if played < max(scenarios, 1) {
		return 0, nil, fmt.Errorf("%s has played %d scenarios, there are %d", play, played, scenarios)
	}
	return passed, skipped, nil
}

// addTree adds the files below dir, where it is there.
func addTree(files map[string]string, dir string) error {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files[filepath.Join(report.CoreTree, path)] = path
		}
		return err
	})
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
