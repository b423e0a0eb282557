package upgrade

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
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
	return v.made(ctx, root, strings.TrimSuffix("quietcore-"+v.Commit+"-"+tag, "-"),
		func(tree, out string) error { return compile(ctx, tree, out, tag, daemon) })
}

// Image makes the archive of a version's image as its release did, of a name without tag, for this
// architecture alone. The tag is the version.
func (v Version) Image(ctx context.Context, root, name string) (string, error) {
	as := "image-" + v.Commit + "-" + strings.NewReplacer("/", "+", ":", "+").Replace(name) + ".tar"
	return v.made(ctx, root, as, func(tree, out string) error {
		// The tree has no history: that of the repository around it is not its own.
		_, err := command(ctx, filepath.Join(tree, "hack", "image"), "env", "GIT_CEILING_DIRECTORIES="+
			filepath.Dir(tree), "go", "run", ".", "-platforms", "linux/"+runtime.GOARCH, "-name", name, "-version",
			v.Name, "-o", out)
		return err
	})
}

// KeepIncidents is a program that stands in for a daemon's detector: it keeps incidents as the tree does in which it is
// built.
const KeepIncidents = "./e2e/upgrade/testdata/keep-incidents"

// Program builds a program of this tree, of one file, with the packages of a version.
func (v Version) Program(ctx context.Context, root, program string) (string, error) {
	source, err := os.ReadFile(filepath.Join(root, program, "main.go"))
	if err != nil {
		return "", err
	}
	as := fmt.Sprintf("%s-%08x-%s", filepath.Base(program), crc32.ChecksumIEEE(source), v.Commit)
	return v.made(ctx, root, as, func(tree, out string) error {
		into := filepath.Join(tree, program)
		err := os.MkdirAll(into, 0o755)
		if err == nil {
			err = os.WriteFile(filepath.Join(into, "main.go"), source, 0o600)
		}
		if err != nil {
			return err
		}
		return compile(ctx, tree, out, "", program)
	})
}

// Extract puts those paths of a version, or all of it, into a folder that is there.
func (v Version) Extract(ctx context.Context, root, into string, paths ...string) error {
	if shallow, err := command(ctx, root, "git", "rev-parse", "--is-shallow-repository"); err != nil {
		return err
	} else if shallow == "true" {
		return fmt.Errorf("%s is built from history, and this clone is shallow: git fetch --unshallow", v.Name)
	}
	archive := filepath.Join(into, ".source.tar")
	defer os.Remove(archive)
	args := append([]string{"archive", "--output", archive, v.Commit}, paths...)
	if _, err := command(ctx, root, "git", args...); err != nil {
		return err
	}
	_, err := command(ctx, into, "tar", "-xf", archive)
	return err
}

// made is a file of that name in .cache, which a build makes of the version's tree where it is not there.
func (v Version) made(ctx context.Context, root, name string, build func(tree, out string) error) (string, error) {
	cache, err := filepath.Abs(filepath.Join(root, ".cache", "upgrade"))
	if err != nil {
		return "", err
	}
	file := filepath.Join(cache, name)
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	tree, err := os.MkdirTemp(cache, v.Name+"-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tree)
	if err := v.Extract(ctx, root, tree); err != nil {
		return "", err
	}
	built := filepath.Join(tree, ".built")
	if err := build(tree, built); err != nil {
		return "", err
	}
	// Another run may have been faster; both built the same.
	return file, os.Rename(built, file)
}

const daemon = "./cmd/quietcore"

// compile builds a program of a tree.
func compile(ctx context.Context, tree, binary, tag, program string) error {
	_, err := command(ctx, tree, "go", "build", "-tags", tag, "-o", binary, program)
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
