package upgrade

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

func versions(t *testing.T) []Version {
	t.Helper()
	all, err := Versions()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestVersionsAreParsed(t *testing.T) {
	commit := strings.Repeat("0a", 20)
	got, err := parse("# why\n\nv1.2.3 " + commit + "\n")
	if err != nil || len(got) != 1 || got[0] != (Version{"v1.2.3", commit}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "# nothing\n", "v1.2.3\n", "v1.2.3 " + commit[1:], "1.2.3 " + commit} {
		if got, err := parse(bad); err == nil {
			t.Errorf("%q is taken as %v", bad, got)
		}
	}
}

// build makes the daemon of a version.
func (v Version) build(t *testing.T) string {
	t.Helper()
	binary, err := v.Build(t.Context(), root, "")
	if err != nil {
		t.Fatal(err)
	}
	return binary
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
	return currentProgram(t, daemon)
}

func currentProgram(t *testing.T, program string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), filepath.Base(program))
	if err := compile(t.Context(), root, binary, "", program); err != nil {
		t.Fatal(err)
	}
	return binary
}
