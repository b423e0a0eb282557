// Command corpus keeps what fuzzing has found: of the inputs in Go's fuzz cache and in the repository it writes the
// fewest that reach all code which all of them reach, to testdata/fuzz of each package, where every `go test` plays
// them. It runs in the root of the repository, after `make fuzz`.
//
//	go run ./hack/corpus                     every package
//	go run ./hack/corpus ./internal/strict   one
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// mostBytes of an input that is kept.
const mostBytes = 4 << 10

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "corpus:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dirs []string) error {
	cache, err := output(ctx, "go", "env", "GOCACHE")
	if err != nil {
		return err
	}
	if len(dirs) == 0 {
		dirs = []string{"./..."}
	}
	list, err := output(ctx, "go", append([]string{"list", "-f", "{{.ImportPath}}\t{{.Dir}}"}, dirs...)...)
	if err != nil {
		return err
	}
	for line := range strings.Lines(list) {
		path, dir, _ := strings.Cut(strings.TrimSpace(line), "\t")
		p := pkg{path: path, dir: dir, cache: filepath.Join(strings.TrimSpace(cache), "fuzz", path)}
		if err := p.keep(ctx); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// pkg is a package with fuzz targets.
type pkg struct{ path, dir, cache string }

var targetLine = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)

// keep the inputs of all targets of the package.
func (p *pkg) keep(ctx context.Context) error {
	tests, err := filepath.Glob(filepath.Join(p.dir, "*_test.go"))
	if err != nil {
		return err
	}
	var targets []string
	for _, file := range tests {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, m := range targetLine.FindAllSubmatch(text, -1) {
			targets = append(targets, string(m[1]))
		}
	}
	if len(targets) == 0 {
		return nil
	}
	work, err := os.MkdirTemp("", "corpus")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	test := filepath.Join(work, "test")
	if _, err := output(ctx, "go", "test", "-c", "-cover", "-coverpkg", p.path, "-o", test, p.path); err != nil {
		return err
	}
	for _, name := range targets {
		t := target{pkg: p, name: name, test: test, work: work}
		if err := t.keep(ctx); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

type target struct {
	*pkg
	name       string
	test, work string
}

// input is one of a target's, and the blocks of code that it and the seeds reach.
type input struct {
	name   string
	text   []byte
	blocks []string
}

// keep the fewest inputs. The test's own seeds are there anyway.
func (t *target) keep(ctx context.Context) error {
	all, err := read(t.folder(), filepath.Join(t.cache, t.name))
	if err != nil || len(all) == 0 {
		return err
	}
	old, err := os.ReadDir(t.folder())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	seeds, err := t.play(ctx, nil)
	if err != nil {
		return err
	}
	covered := map[string]bool{}
	for _, b := range seeds {
		covered[b] = true
	}
	adding, err := t.adding(ctx, all, covered)
	if err != nil {
		return err
	}
	chosen := fewest(adding, seeds)
	if err := t.write(chosen); err != nil {
		return err
	}
	fmt.Printf("%s %s: %d of %d inputs kept, %d were\n", t.path, t.name, len(chosen), len(all), len(old))
	return nil
}

func (t *target) folder() string { return filepath.Join(t.dir, "testdata", "fuzz", t.name) }

// write inputs in place of those that are there.
func (t *target) write(inputs []input) error {
	if err := os.RemoveAll(t.folder()); err != nil || len(inputs) == 0 {
		return err
	}
	if err := os.MkdirAll(t.folder(), 0o755); err != nil {
		return err
	}
	for _, in := range inputs {
		if err := os.WriteFile(filepath.Join(t.folder(), in.name), in.text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// play the test with its own seeds and some inputs: the blocks that they reach.
func (t *target) play(ctx context.Context, inputs []input) ([]string, error) {
	if err := t.write(inputs); err != nil {
		return nil, err
	}
	return t.blocks(ctx, "^"+t.name+"$")
}

// adding are inputs that reach blocks which are not covered, and covers them. Most add nothing, and so many are played
// at once.
func (t *target) adding(ctx context.Context, inputs []input, covered map[string]bool) ([]input, error) {
	blocks, err := t.play(ctx, inputs)
	if err != nil || !slices.ContainsFunc(blocks, func(b string) bool { return !covered[b] }) {
		return nil, err
	}
	if len(inputs) == 1 {
		for _, b := range blocks {
			covered[b] = true
		}
		inputs[0].blocks = blocks
		return inputs, nil
	}
	half := len(inputs) / 2
	first, err := t.adding(ctx, inputs[:half], covered)
	if err != nil {
		return nil, err
	}
	second, err := t.adding(ctx, inputs[half:], covered)
	return slices.Concat(first, second), err
}

// read the inputs of folders, the shortest first; one of a name is the same in all, since the name is its digest.
func read(folders ...string) (all []input, err error) {
	seen := map[string]bool{}
	for _, dir := range folders {
		files, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		for _, f := range files {
			if seen[f.Name()] {
				continue
			}
			seen[f.Name()] = true
			text, err := os.ReadFile(filepath.Join(dir, f.Name()))
			if err != nil {
				return nil, err
			}
			if len(text) <= mostBytes {
				all = append(all, input{name: f.Name(), text: text})
			}
		}
	}
	slices.SortFunc(all, func(a, b input) int {
		return cmp.Or(len(a.text)-len(b.text), strings.Compare(a.name, b.name))
	})
	return all, nil
}

// blocks that tests reach.
func (t *target) blocks(ctx context.Context, tests string) ([]string, error) {
	profile := filepath.Join(t.work, "profile")
	cmd := exec.CommandContext(ctx, t.test, "-test.run", tests, "-test.coverprofile", profile)
	cmd.Dir = t.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))
	}
	text, err := os.ReadFile(profile)
	if err != nil {
		return nil, err
	}
	return reachedIn(string(text)), nil
}

// reachedIn a profile: its lines end with how often the block was reached.
func reachedIn(profile string) (blocks []string) {
	for line := range strings.Lines(profile) {
		block, count, ok := cutLast(strings.TrimSpace(line), " ")
		if ok && count != "0" && !strings.HasPrefix(line, "mode:") {
			blocks = append(blocks, block)
		}
	}
	return blocks
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// fewest inputs that reach every block which one of them reaches and nothing else has: each time the one that adds
// most, and of equals the shortest.
func fewest(all []input, reached []string) (chosen []input) {
	missing := map[string]bool{}
	for _, in := range all {
		for _, b := range in.blocks {
			missing[b] = true
		}
	}
	for _, b := range reached {
		delete(missing, b)
	}
	for len(missing) > 0 {
		best, most := -1, 0
		for i := range all {
			n := 0
			for _, b := range all[i].blocks {
				if missing[b] {
					n++
				}
			}
			if n > most || n > 0 && n == most && shorter(&all[i], &all[best]) {
				best, most = i, n
			}
		}
		for _, b := range all[best].blocks {
			delete(missing, b)
		}
		chosen = append(chosen, all[best])
	}
	slices.SortFunc(chosen, func(a, b input) int { return strings.Compare(a.name, b.name) })
	return chosen
}

func shorter(a, b *input) bool {
	if len(a.text) != len(b.text) {
		return len(a.text) < len(b.text)
	}
	return a.name < b.name
}

func output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return string(out), nil
}
