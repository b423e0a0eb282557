package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// outcome of a test or a proof; empty: it was not played.
type outcome string

const (
	held    outcome = "pass"
	failed  outcome = "fail"
	skipped outcome = "skip"
)

// byPackage lists the top-level tests of each directory.
func byPackage(list []scenario) map[string][]string {
	names := map[string][]string{}
	for _, s := range list {
		for _, t := range s.tests {
			dir, test, _ := strings.Cut(t, " ")
			test, _, _ = strings.Cut(test, "/")
			if !slices.Contains(names[dir], test) {
				names[dir] = append(names[dir], test)
			}
		}
	}
	return names
}

// play runs tests of a directory and notes the outcome of each, by "directory Test/subtest".
func play(ctx context.Context, dir string, tests []string, outcomes map[string]outcome) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-timeout=30m", "-json",
		"-run=^("+strings.Join(tests, "|")+")$", "./"+dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	// A test that fails is an outcome; a package that does not build has none.
	if n := readEvents(bytes.NewReader(text), dir, outcomes); n == 0 {
		return fmt.Errorf("%s: no test has ended: %w\n%s%s", dir, cmp.Or(err, io.ErrUnexpectedEOF), text, &stderr)
	}
	return nil
}

// readEvents reads what go test -json prints, and says how many tests have ended.
func readEvents(r io.Reader, dir string, outcomes map[string]outcome) (ended int) {
	for lines := json.NewDecoder(r); ; {
		var e struct{ Action, Test string }
		if lines.Decode(&e) != nil {
			return ended
		}
		switch o := outcome(e.Action); o {
		case held, failed, skipped:
			if e.Test != "" {
				outcomes[dir+" "+e.Test] = o
				ended++
			}
		}
	}
}

// proofLine is how e2e/proof and e2e/kubernetes say what came of a proof.
var proofLine = regexp.MustCompile(`^([a-z-]+) +(holds|FAILS)\b`)

// readProofs takes the outcomes of proofs. One that failed once has failed.
func readProofs(outcomes map[string]outcome, text string) {
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		m := proofLine.FindStringSubmatch(lines.Text())
		switch {
		case m == nil:
		case m[2] != "holds":
			outcomes[m[1]] = failed
		case outcomes[m[1]] == "":
			outcomes[m[1]] = held
		}
	}
}
