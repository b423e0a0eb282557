package upgrade

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

//go:embed versions
var listed string

// Version is a line of the file versions.
type Version struct{ Name, Commit string }

var line = regexp.MustCompile(`^(v\d+\.\d+\.\d+) ([0-9a-f]{40})$`)

// Versions are all that are listed, the oldest first.
func Versions() ([]Version, error) { return parse(listed) }

func parse(text string) ([]Version, error) {
	var all []Version
	for i, l := range strings.Split(text, "\n") {
		if l == "" || strings.HasPrefix(l, "#") {
			continue
		}
		m := line.FindStringSubmatch(l)
		if m == nil {
			return nil, fmt.Errorf("versions: line %d is %q, must be a version and a commit of 40 digits", i+1, l)
		}
		all = append(all, Version{m[1], m[2]})
	}
	if all == nil {
		return nil, errors.New("versions: no version is listed")
	}
	return all, nil
}

// Build makes the static daemon of a version with a tag of the Go tool's; empty: none. root is this
// repository's top. Later calls find it in .cache.
func (v Version) Build(ctx context.Context, root, tag string) (string, error) {
	cache, err := filepath.Abs(filepath.Join(root, ".cache", "upgrade"))
	if err != nil {
		return "", err
	}
	binary := filepath.Join(cache, strings.TrimSuffix("quietcore-"+v.Commit+"-"+tag, "-"))
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	if shallow, err := command(ctx, root, "git", "rev-parse", "--is-shallow-repository"); err != nil {
		return "", err
	} else if shallow == "true" {
		return "", fmt.Errorf("%s is built from history, and this clone is shallow: git fetch --unshallow", v.Name)
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	source, err := os.MkdirTemp(cache, v.Name+"-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(source)
	archive, built := filepath.Join(source, "source.tar"), filepath.Join(source, ".built")
	if _, err := command(ctx, root, "git", "archive", "--output", archive, v.Commit); err != nil {
		return "", err
	}
	if _, err := command(ctx, source, "tar", "-xf", archive); err != nil {
		return "", err
	}
	if err := compile(ctx, source, built, tag); err != nil {
		return "", err
	}
	// Another run may have been faster; both built the same.
	return binary, os.Rename(built, binary)
}

// compile builds the daemon of a tree.
func compile(ctx context.Context, source, binary, tag string) error {
	_, err := command(ctx, source, "go", "build", "-tags", tag, "-o", binary, "./cmd/quietcore")
	return err
}

func command(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, &errs)
	}
	return strings.TrimSpace(string(out)), nil
}
