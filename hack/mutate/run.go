package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/build"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// verdict is what became of a mutant.
type verdict string

const (
	killed   verdict = "killed"
	slow     verdict = "killed by the time limit"
	survived verdict = "SURVIVED"
	broken   verdict = "does not compile"
)

// pkg is a package with its mutants.
type pkg struct {
	dir     string
	texts   map[string][]byte
	mutants []mutant
}

// load reads the package in dir as it is built here, without its tests. only chooses functions.
func load(dir string, only *regexp.Regexp) (*pkg, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	b, err := build.ImportDir(dir, 0)
	if err != nil {
		return nil, err
	}
	p := &pkg{dir: dir, texts: map[string][]byte{}}
	for _, name := range b.GoFiles {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		list, err := sites(name, text)
		if err != nil {
			return nil, err
		}
		p.texts[name] = text
		list = slices.DeleteFunc(list, func(m mutant) bool { return !only.MatchString(m.fn) })
		p.mutants = append(p.mutants, list...)
	}
	if len(p.mutants) == 0 {
		return nil, fmt.Errorf("%s has nothing to change in functions that match %q", dir, only)
	}
	return p, nil
}

// shuffled is an order of all mutants, the same for a seed.
func (p *pkg) shuffled(seed uint64) []mutant {
	list := slices.Clone(p.mutants)
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// tester runs the tests that are to notice a mutant.
type tester struct {
	p       *pkg
	scratch string   // a directory of its own
	args    []string // of go test: flags and packages
	limit   time.Duration
	quick   []string // flags of go test that leave out the tests that take most of the time; none: they are all quick
	// quickLimit is for the others what limit is for all.
	quickLimit time.Duration
}

const (
	// patience is how many times as long as without a change the tests may take.
	patience = 5
	// quickPart: the quick tests take one of so many parts of the time of all.
	quickPart = 10
)

// begin runs the tests without a change: a mutant is killed by tests that pass without it.
func (t *tester) begin(ctx context.Context) error {
	start := time.Now()
	out, err := t.test(ctx, "-v")
	if err != nil {
		return fmt.Errorf("without a change the tests fail: %w\n%s", err, out)
	}
	if slow, others := slowTests(out); len(slow) > 0 {
		t.quick = []string{"-skip", "^(" + strings.Join(slow, "|") + ")$"}
		t.quickLimit = max(t.limit, patience*others)
	}
	t.limit = max(t.limit, patience*time.Since(start))
	return nil
}

var passed = regexp.MustCompile(`(?m)^--- PASS: (\w+) \(([0-9.]+)s\)$`)

// slowTests names, from what go test -v printed, the tests that take longest: all but those that together take one of
// quickPart parts of the time. others is how long these take.
func slowTests(out []byte) (slow []string, others time.Duration) {
	took, total := map[string]time.Duration{}, time.Duration(0)
	for _, m := range passed.FindAllSubmatch(out, -1) {
		if d, err := time.ParseDuration(string(m[2]) + "s"); err == nil {
			took[string(m[1])] += d
			total += d
		}
	}
	names := slices.SortedFunc(maps.Keys(took), func(a, b string) int {
		return cmp.Or(cmp.Compare(took[a], took[b]), strings.Compare(a, b))
	})
	for i, name := range names {
		if others+took[name] > total/quickPart {
			return names[i:], others
		}
		others += took[name]
	}
	return nil, others
}

func (t *tester) test(ctx context.Context, more ...string) ([]byte, error) {
	args := slices.Concat([]string{"test", "-vet=off", "-count=1", "-failfast"}, more, t.args)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = t.p.dir
	cmd.WaitDelay = time.Second
	return cmd.CombinedOutput()
}

// judge tests a program with the mutant: most are killed by the quick tests, and only those that are not are shown all.
// The files on the disk stay what they are.
func (t *tester) judge(ctx context.Context, m *mutant) (verdict, error) {
	changed := filepath.Join(t.scratch, "changed.go")
	overlay := filepath.Join(t.scratch, "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(t.p.dir, m.file): changed}})
	if err := errors.Join(err, os.WriteFile(changed, m.applied(t.p.texts[m.file]), 0o600),
		os.WriteFile(overlay, replace, 0o600)); err != nil {
		return "", err
	}
	if len(t.quick) > 0 {
		if v, err := t.verdict(ctx, t.quickLimit, overlay, t.quick...); err != nil || v != survived {
			return v, err
		}
	}
	return t.verdict(ctx, t.limit, overlay)
}

func (t *tester) verdict(ctx context.Context, limit time.Duration, overlay string, more ...string) (verdict, error) {
	limited, cancel := context.WithTimeout(ctx, limit+time.Minute) // go test compiles, too
	defer cancel()
	out, err := t.test(limited, slices.Concat(more, []string{"-overlay", overlay, "-timeout", limit.String()})...)
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err == nil:
		return survived, nil
	case limited.Err() != nil, bytes.Contains(out, []byte("panic: test timed out")):
		return slow, nil
	case bytes.Contains(out, []byte("[build failed]")), bytes.Contains(out, []byte("[setup failed]")):
		return broken, nil
	}
	return killed, nil
}
