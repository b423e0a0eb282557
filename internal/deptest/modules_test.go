package deptest

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/mod/modfile"
)

// runtimes are built with the versions that they require themselves.
var runtimes = []string{"hack/tools/containerd17", "hack/tools/crio"}

// TestModulesAgree wants one version of each dependency in all modules of the repository: Go compiles a package anew,
// and all that import it, for each version. With two of logr it compiles Kubernetes twice.
func TestModulesAgree(t *testing.T) {
	files := map[string]*modfile.File{}
	for _, pattern := range []string{"go.mod", "*/go.mod", "*/*/go.mod", "*/*/*/go.mod"} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			files[filepath.ToSlash(filepath.Dir(path))] = parseModule(t, path)
		}
	}
	for _, dir := range runtimes {
		path := filepath.ToSlash(filepath.Join(root, dir))
		if files[path] == nil {
			t.Errorf("%s is no module", dir)
		}
		delete(files, path)
	}
	if len(files) < 7 {
		t.Errorf("only %d modules were found", len(files))
	}
	for _, d := range disagreements(files) {
		t.Error(d)
	}
}

func parseModule(t *testing.T, path string) *modfile.File {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := modfile.Parse(path, text, nil)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// disagreements names each dependency that modules, by folder, have in several versions.
func disagreements(files map[string]*modfile.File) (list []finding) {
	type choice struct{ dir, version string }
	first := map[string]choice{}
	var dirs []string
	for dir := range files {
		dirs = append(dirs, dir)
	}
	slices.Sort(dirs)
	for _, dir := range dirs {
		for _, r := range files[dir].Require {
			version := replaced(files[dir], r.Mod.Path, r.Mod.Version)
			switch f, seen := first[r.Mod.Path]; {
			case !seen:
				first[r.Mod.Path] = choice{dir, version}
			case f.version != version:
				list = append(list, found(dir, "%s has %s %s, and %s has %s: go get %[2]s@VERSION in the older",
					dir, r.Mod.Path, version, f.dir, f.version))
			}
		}
	}
	return list
}

// replaced is the version that is really used; a module that is replaced by a folder has none that could differ.
func replaced(f *modfile.File, path, version string) string {
	for _, r := range f.Replace {
		if r.Old.Path != path || r.Old.Version != "" && r.Old.Version != version {
			continue
		}
		return r.New.Version
	}
	return version
}

func TestDisagreeingModulesAreFound(t *testing.T) {
	files := map[string]*modfile.File{}
	for dir, text := range map[string]string{
		"a": "module a\nrequire (\n\tx v1.0.0\n\ty v1.1.0\n\tz v0.0.0\n)\n",
		"b": "module b\nrequire (\n\tx v1.0.1\n\ty v1.1.0\n\tz v1.0.0\n)\nreplace z => z v0.0.0\n",
	} {
		f, err := modfile.Parse(dir, []byte(text), nil)
		if err != nil {
			t.Fatal(err)
		}
		files[dir] = f
	}
	want := "b has x v1.0.1, and a has v1.0.0: go get x@VERSION in the older"
	if got := disagreements(files); len(got) != 1 || got[0].text != want {
		t.Errorf("%v, want only %q", got, want)
	}
}
