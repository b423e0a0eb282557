// Command mutate changes a package in small ways, one at a time, and runs its tests: a change that no test notices is
// something that the tests do not hold. `make mutate PKG=./policy` calls it.
//
// What is changed: operators, constants, conditions, and statements that are left out. Calls of a log stay, and so does
// what would not compile. Nothing is written into the package: the compiler sees the changed file in place of the real
// one. The same seed draws the same changes of the same text.
package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

type options struct {
	dir, only, reasons string
	n                  int
	seed               uint64
	least              float64
	limit              time.Duration
	args               []string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "mutate: %v\n", err)
		stop()
		os.Exit(1)
	}
}

func parse(args []string, stderr io.Writer) (*options, error) {
	var o options
	f := flag.NewFlagSet("mutate", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.dir, "pkg", ".", "`directory` of the package to change")
	f.StringVar(&o.only, "func", "", "change functions that match this `expression` only")
	f.StringVar(&o.reasons, "reasons", "hack/mutate/reasons.txt", "`file` that says why a change may go unnoticed")
	f.IntVar(&o.n, "n", 400, "changes to judge")
	f.Uint64Var(&o.seed, "seed", 1, "which changes are drawn")
	f.Float64Var(&o.least, "least", 0.9, "fail if a smaller share is noticed")
	f.DurationVar(&o.limit, "limit", time.Minute, "how long the tests may take at least, before they are ended")
	f.Usage = func() {
		fmt.Fprint(stderr, "usage: mutate [flags] [-- flags and packages of go test]\n")
		f.PrintDefaults()
	}
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	o.args = f.Args()
	if o.n < 1 || o.least < 0 || o.least > 1 {
		return nil, fmt.Errorf("-n is %d and -least %v; they must be 1 or more, and 0 to 1", o.n, o.least)
	}
	return &o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	only, err := regexp.Compile(o.only)
	if err != nil {
		return err
	}
	reasons, err := readReasons(o.reasons)
	if err != nil {
		return err
	}
	p, err := load(o.dir, only)
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "mutate-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	t := &tester{p: p, scratch: scratch, args: o.args, limit: o.limit}
	if err := t.begin(ctx); err != nil {
		return err
	}
	fmt.Fprintf(stderr, "%d changes are possible; %d are judged, by seed %d\n", len(p.mutants),
		min(o.n, len(p.mutants)), o.seed)
	counts := map[verdict]int{}
	var left []mutant
	for _, m := range p.shuffled(o.seed) {
		if counts[killed]+counts[slow]+counts[survived] == o.n {
			break
		}
		v, err := t.judge(ctx, &m)
		if err != nil {
			return err
		}
		if counts[v]++; v == survived {
			left = append(left, m)
		}
		if v != broken {
			fmt.Fprintf(stderr, "%3d %s:%d %s\n", counts[killed]+counts[slow]+counts[survived], m.file, m.line, v)
		}
	}
	report(stdout, o, counts, left, reasons)
	if judged := counts[killed] + counts[slow] + counts[survived]; judged == 0 {
		return errors.New("none of the changes compiles")
	} else if share := float64(judged-counts[survived]) / float64(judged); share < o.least {
		return fmt.Errorf("%.1f %% were noticed, must be %.1f %%", 100*share, 100*o.least)
	}
	return nil
}

// report is Markdown, for docs/evidence.
func report(w io.Writer, o *options, counts map[verdict]int, left []mutant, reasons map[string]string) {
	dead := counts[killed] + counts[slow]
	fmt.Fprintf(w, "%s, seed %d: %d of %d changes were noticed (%d by the time limit); %d more did not compile.\n",
		filepath.ToSlash(filepath.Clean(o.dir)), o.seed, dead, dead+counts[survived], counts[slow], counts[broken])
	if len(left) == 0 {
		return
	}
	slices.SortFunc(left, func(a, b mutant) int {
		return cmp.Or(strings.Compare(a.file, b.file), cmp.Compare(a.offset, b.offset))
	})
	fmt.Fprint(w, "\n| not noticed | in | reason |\n|---|---|---|\n")
	cell := strings.NewReplacer("|", `\|`)
	for _, m := range left {
		key := filepath.ToSlash(filepath.Clean(o.dir)) + "/" + m.key()
		_, change, _ := strings.Cut(key, ": ")
		fmt.Fprintf(w, "| `%s` | %s:%d %s | %s |\n", cell.Replace(change), m.file, m.line, m.fn,
			cell.Replace(cmp.Or(reasons[key], "**a test is missing**")))
	}
}

// readReasons reads lines of a package's directory with a mutant's key, two colons, and why no test can or need notice
// it.
func readReasons(file string) (map[string]string, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer f.Close()
	reasons := map[string]string{}
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, reason, ok := strings.Cut(line, " :: ")
		if !ok {
			return nil, fmt.Errorf("%s:%d: %q has no \" :: \" between a change and its reason", file, n, line)
		}
		reasons[key] = reason
	}
	return reasons, lines.Err()
}
