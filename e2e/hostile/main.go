// Command hostile plays attacks on Quietcore, and writes what came of each: held or broken, by what, and what it cost
// the attacker.
//
//	go run ./e2e/hostile -write docs/security/attacks.md
//
// Attacks on the API server are played by this package's TestAttacks, with real tokens, against a real one that has the
// chart's rights and policies. Those on a node and on its listeners are tests of the packages that hold them; this
// command runs these tests and believes nothing else. What was skipped was not played, and is a failure.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	page := flag.String("write", "", "the page to write the table into")
	flag.Parse()
	rows, err := play(os.Stderr)
	if err == nil {
		err = report(os.Stdout, rows)
	}
	if err == nil && *page != "" {
		err = os.WriteFile(*page, []byte(pageOf(rows)), 0o644)
	}
	if err == nil && !allHeld(rows) {
		err = errors.New("not every attack was held")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "hostile:", err)
		os.Exit(1)
	}
}

// play runs the tests of every attack.
func play(log io.Writer) ([]row, error) {
	bin, err := filepath.Abs(os.Getenv(binariesEnv))
	if err != nil || os.Getenv(binariesEnv) == "" {
		return nil, errors.Join(err, fmt.Errorf("%s names no folder with kube-apiserver and etcd", binariesEnv))
	}
	var rows []row
	results, err := tests(log, bin, ".", "./e2e/hostile", "TestAttacks")
	if err != nil {
		return nil, err
	}
	for i, a := range attacks() {
		r := results[fmt.Sprintf("TestAttacks/%d", i)]
		rows = append(rows, row{a.who, a.what, r.held, r.by, "1 request"})
	}
	if whole := results["TestAttacks"]; whole.held != held {
		rows = append(rows, row{"all of them", "nothing of the others changed", whole.held, "", ""})
	}
	for _, p := range plays() {
		results, err := tests(log, bin, p.module, p.pkg, p.test)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row{p.who, p.what, results[p.test].held, p.by, p.cost})
	}
	return rows, nil
}

// tests runs one test of a package, and says what became of it and of its parts.
func tests(log io.Writer, bin, module, pkg, name string) (map[string]result, error) {
	fmt.Fprintf(log, "%s %s %s\n", module, pkg, name)
	first, rest, deeper := strings.Cut(name, "/")
	pattern := "^" + first + "$"
	if deeper {
		pattern += "/^" + rest + "$"
	}
	cmd := exec.Command("go", "test", "-json", "-count=1", "-vet=off", "-timeout=30m", "-run", pattern, pkg)
	cmd.Dir, cmd.Stderr = module, log
	cmd.Env = append(os.Environ(), binariesEnv+"="+bin, "QUIETCORE_CI=1")
	out, err := cmd.Output()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		return nil, err
	}
	return resultsOf(log, bytes.NewReader(out))
}

// line is a line of go test -json.
type line struct{ Action, Test, Output string }

func resultsOf(log io.Writer, in io.Reader) (map[string]result, error) {
	results := map[string]result{}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e line
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("%.200s: %w", lines.Text(), err)
		}
		r := results[e.Test]
		switch e.Action {
		case "pass":
			r.held = held
		case "fail":
			r.held = broken
		case "output":
			if _, by, ok := strings.Cut(e.Output, heldBy); ok {
				r.by = strings.TrimSpace(by)
			}
			if strings.Contains(e.Output, "FAIL") || strings.Contains(e.Output, "_test.go:") && !strings.Contains(
				e.Output, heldBy) {
				fmt.Fprint(log, e.Output)
			}
		}
		results[e.Test] = r
	}
	return results, lines.Err()
}
