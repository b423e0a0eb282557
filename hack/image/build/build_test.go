package build

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestReferences: the name under which a runtime finds an image that has no
// registry in its name.
func TestReferences(t *testing.T) {
	for name, want := range map[string]string{
		"quietcore":                    "docker.io/library/quietcore:v1",
		"quiet/core":                   "docker.io/quiet/core:v1",
		"localhost/quietcore":          "localhost/quietcore:v1",
		"registry.example:5000/x/core": "registry.example:5000/x/core:v1",
	} {
		if got := (&Image{Source: Source{Version: "v1"}, Name: name}).reference(); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

// repository is a folder with one commit of a known time.
func repository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"init", "-q"}, {"add", "file"},
		{"-c", "user.name=n", "-c", "user.email=e@example.org", "commit", "-q", "-m", "m"},
	} {
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_COMMITTER_DATE=1700000000 +0200", "GIT_AUTHOR_DATE=1600000000 +0200")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	return dir
}

func TestDescribe(t *testing.T) {
	ctx := context.Background()
	committed := time.Unix(1700000000, 0)
	dir := repository(t)

	t.Setenv("SOURCE_DATE_EPOCH", "")
	s, err := Describe(ctx, dir, "v1")
	if err != nil || len(s.Commit) != 40 || !s.Date.Equal(committed) {
		t.Errorf("a commit is %+v, %v", s, err)
	}
	if s, err := Describe(ctx, t.TempDir(), "v1"); err != nil || s.Commit != "" || s.Date.Unix() != 0 {
		t.Errorf("a source without history is %+v, %v", s, err)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "1800000000")
	if s, err := Describe(ctx, dir, "v1"); err != nil || len(s.Commit) != 40 || s.Date.Unix() != 1800000000 {
		t.Errorf("with SOURCE_DATE_EPOCH it is %+v, %v", s, err)
	}
	for _, wrong := range []string{"yesterday", "-1", "1e9"} {
		t.Setenv("SOURCE_DATE_EPOCH", wrong)
		if _, err := Describe(ctx, dir, "v1"); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%s is no time, got %v", wrong, err)
		}
	}
	t.Setenv("SOURCE_DATE_EPOCH", "")
	if err := os.WriteFile(filepath.Join(dir, "more"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := Describe(ctx, dir, "v1"); err != nil || s.Commit != "" || !s.Date.Equal(committed) {
		t.Errorf("a changed tree is %+v, %v: no commit is what it holds", s, err)
	}
}

// TestKubernetesProgram: one that is of Kubernetes says which, and which of ours.
func TestKubernetesProgram(t *testing.T) {
	dir := t.TempDir()
	const unset = "\n\nvar gitVersion, gitCommit = \"v0.0.0\", \"none\"\n\nfunc Get() string { " +
		"return gitVersion + \" \" + gitCommit }\n"
	for name, text := range map[string]string{
		"scheduler/go.mod": "module example.org/x\n\ngo 1.26\n\nrequire (\n\tk8s.io/client-go v0.37.2\n" +
			"\tk8s.io/component-base v0.37.2\n\tk8s.io/kubernetes v1.37.2\n)\n\nreplace (\n" +
			"\tk8s.io/client-go => ../client\n\tk8s.io/component-base => ../base\n" +
			"\tk8s.io/kubernetes => ../kubernetes\n)\n",
		"scheduler/cmd/quietcore-scheduler/main.go": "package main\n\nimport (\n" +
			"\tclient \"k8s.io/client-go/pkg/version\"\n\t\"k8s.io/component-base/version\"\n)\n\n" +
			"func main() { print(version.Get() + \", \" + client.Get()) }\n",
		"client/go.mod": "module k8s.io/client-go\n", "client/pkg/version/base.go": "package version" + unset,
		"base/go.mod": "module k8s.io/component-base\n", "base/version/base.go": "package version" + unset,
		"kubernetes/go.mod": "module k8s.io/kubernetes\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(dir, "program")
	s := Source{Dir: dir, Version: "v0.1.0", Commit: "abc", Date: time.Unix(0, 0)}
	if err := s.Compile(t.Context(), "linux/"+runtime.GOARCH, Scheduler(), program); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(program).CombinedOutput()
	if want := "v1.37.2+quietcore-v0.1.0 abc"; err != nil || string(out) != want+", "+want {
		t.Errorf("it says %q (%v), want %q twice", out, err, want)
	}
}

// TestEnvironment: what a user has set for other builds does not get into this one.
func TestEnvironment(t *testing.T) {
	t.Setenv("GOAMD64", "v4")
	t.Setenv("GOFLAGS", "-tags=other")
	t.Setenv("CGO_ENABLED", "1")
	env, err := Environment("linux/arm64")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "env", "GOARCH", "GOAMD64", "GOFLAGS", "CGO_ENABLED")
	cmd.Env = env
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(out), "arm64\nv1\n-mod=readonly\n0\n"; got != want {
		t.Errorf("Go sees %q, want %q", got, want)
	}
}
