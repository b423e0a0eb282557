// Command cast records docs/cast.svg, the terminal session of the README. It builds quietcore, runs each command of the
// session in the root of the repository, and draws what was printed as an SVG that CSS moves: nothing is written by
// hand, and nothing is loaded when it is shown.
//
//	go run ./hack/cast -o docs/cast.svg        in the root of the repository
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:generate go run . -root ../.. -o ../../docs/cast.svg

// scene is a command with a remark above it, and how many seconds it is shown.
type scene struct {
	remark, command string
	seconds         float64
}

// session takes 20 seconds. The commands are those of the tutorials.
var session = []scene{
	{"a database wants four CPUs of its own, another pod two and a half; then the daemon restarts",
		"quietcore simulate docs/tutorials/isolate.yaml | sed -n '/^3/,$p'", 8},
	{"samples of a real kernel: which neighbour makes the web servers slow?",
		`quietcore cpi replay --config docs/tutorials/neighbour.yaml docs/tutorials/neighbour.csv | ` +
			`jq -r 'select(.event == "cap") | "\(.time) s: \(.why)"'`, 6},
	{"production requests 12 of 16 CPUs and uses 5 at most: what can be lent?",
		`quietcore reclaim replay --capacity 16 --from usage docs/tutorials/lending.csv | ` +
			`jq -r 'select(.time and .time % 10800 == 0) | "\(.time / 3600) h: production uses \(.prodUsage), ` +
			`\(.offer) are offered"'`, 6},
}

func main() {
	root := flag.String("root", ".", "the repository")
	to := flag.String("o", "docs/cast.svg", "file to write")
	flag.Parse()
	svg, err := record(*root)
	if err == nil {
		err = os.WriteFile(*to, svg, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cast:", err)
		os.Exit(1)
	}
}

// record builds quietcore, runs the session and draws it.
func record(root string) ([]byte, error) {
	bin, err := os.MkdirTemp("", "quietcore-cast-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(bin)
	build := exec.Command("go", "build", "-o", bin, "./cmd/quietcore")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build quietcore: %w\n%s", err, out)
	}
	var screens []screen
	for _, s := range session {
		printed, err := run(root, bin, s.command)
		if err != nil {
			return nil, err
		}
		screens = append(screens, screen{s, strings.Split(strings.TrimRight(printed, "\n"), "\n")})
	}
	return draw(screens)
}

// run is what a command prints.
func run(root, bin, command string) (string, error) {
	c := exec.Command("sh", "-c", command)
	c.Dir = root
	c.Env = append(os.Environ(), "PATH="+bin+string(filepath.ListSeparator)+os.Getenv("PATH"), "NO_COLOR=1")
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil || errs.Len() > 0 || out.Len() == 0 {
		return "", fmt.Errorf("%s: %v, and prints %q\n%s", command, err, out.String(), errs.String())
	}
	return out.String(), nil
}
