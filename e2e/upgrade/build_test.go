package upgrade

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// version is a line of the file versions.
type version struct{ name, commit string }

var line = regexp.MustCompile(`^(v\d+\.\d+\.\d+) ([0-9a-f]{40})$`)

func parse(text string) ([]version, error) {
	var all []version
	for i, l := range strings.Split(text, "\n") {
		if l == "" || strings.HasPrefix(l, "#") {
			continue
		}
		m := line.FindStringSubmatch(l)
		if m == nil {
			return nil, fmt.Errorf("line %d is %q, must be a version and a commit of 40 digits", i+1, l)
		}
		all = append(all, version{m[1], m[2]})
	}
	if all == nil {
		return nil, fmt.Errorf("no version is listed")
	}
	return all, nil
}

func versions(t *testing.T) []version {
	t.Helper()
	text, err := os.ReadFile("versions")
	if err != nil {
		t.Fatal(err)
	}
	all, err := parse(string(text))
	if err != nil {
		t.Fatalf("versions: %v", err)
	}
	return all
}

func TestVersionsAreParsed(t *testing.T) {
	commit := strings.Repeat("0a", 20)
	got, err := parse("# why\n\nv1.2.3 " + commit + "\n")
	if err != nil || len(got) != 1 || got[0] != (version{"v1.2.3", commit}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "# nothing\n", "v1.2.3\n", "v1.2.3 " + commit[1:], "1.2.3 " + commit} {
		if got, err := parse(bad); err == nil {
			t.Errorf("%q is taken as %v", bad, got)
		}
	}
}

func command(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, &errs)
	}
	return strings.TrimSpace(string(out))
}

// build makes the daemon of a version, which later runs find in .cache.
func (v version) build(t *testing.T) string {
	t.Helper()
	cache, err := filepath.Abs(filepath.Join(root, ".cache", "upgrade"))
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(cache, "quietcore-"+v.commit)
	if _, err := os.Stat(binary); err == nil {
		return binary
	}
	if command(t, root, "git", "rev-parse", "--is-shallow-repository") == "true" {
		t.Fatalf("%s is built from history, and this clone is shallow: git fetch --unshallow", v.name)
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		t.Fatal(err)
	}
	source, err := os.MkdirTemp(cache, v.name+"-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(source) })
	archive := filepath.Join(source, "source.tar")
	command(t, root, "git", "archive", "--output", archive, v.commit)
	command(t, source, "tar", "-xf", archive)
	built := filepath.Join(source, ".built")
	compile(t, source, built)
	// Another run may have been faster; both built the same.
	if err := os.Rename(built, binary); err != nil {
		t.Fatal(err)
	}
	return binary
}

// compile builds the daemon of a tree.
func compile(t *testing.T, source, binary string) {
	t.Helper()
	command(t, source, "go", "build", "-o", binary, "./cmd/quietcore")
}

// current is the daemon of this tree.
func current(t *testing.T) string {
	t.Helper()
	// go test runs this again only where files have changed that the test itself looked at.
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
			_, err = os.Stat(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), "quietcore")
	compile(t, root, binary)
	return binary
}
