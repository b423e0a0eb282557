package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/build"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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
}

// patience is how many times as long as without a change the tests may take.
const patience = 5

// begin runs the tests without a change: a mutant is killed by tests that pass without it.
func (t *tester) begin(ctx context.Context) error {
	start := time.Now()
	if out, err := t.test(ctx); err != nil {
		return fmt.Errorf("without a change the tests fail: %w\n%s", err, out)
	}
	t.limit = max(t.limit, patience*time.Since(start))
	return nil
}

func (t *tester) test(ctx context.Context, more ...string) ([]byte, error) {
	args := slices.Concat([]string{"test", "-vet=off", "-count=1", "-failfast"}, more, t.args)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = t.p.dir
	cmd.WaitDelay = time.Second
	return cmd.CombinedOutput()
}

// judge tests a program with the mutant. The files on the disk stay what they are.
func (t *tester) judge(ctx context.Context, m *mutant) (verdict, error) {
	changed := filepath.Join(t.scratch, "changed.go")
	overlay := filepath.Join(t.scratch, "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(t.p.dir, m.file): changed}})
	if err := errors.Join(err, os.WriteFile(changed, m.applied(t.p.texts[m.file]), 0o600),
		os.WriteFile(overlay, replace, 0o600)); err != nil {
		return "", err
	}
	limited, cancel := context.WithTimeout(ctx, t.limit+time.Minute) // go test compiles, too
	defer cancel()
	out, err := t.test(limited, "-overlay", overlay, "-timeout", t.limit.String())
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
