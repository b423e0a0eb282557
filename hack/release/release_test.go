package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/quietcore/quietcore/hack/image/build"
	"github.com/quietcore/quietcore/hack/image/licences"
)

// values are those of its chart.
const values = "image:\n  repository: quietcore # without tag\n  tag: \"\"\n"

// small is a repository with what a release is made of, which compiles in a second.
func small(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"LICENSE":      "do as you like\n",
		"go.mod":       "module example.org/x\n\ngo 1.26\n",
		"CHANGELOG.md": "# Changelog\n\n## Unreleased\n\nWords for people.\n",
		"cmd/quietcore/main.go": `package main

import (
	"fmt"
	"os"
	"runtime"
)

var version, commit, date string

func main() {
	switch os.Args[1] {
	case "man":
		for _, name := range []string{"quietcore.1", "quietcore-version.1"} {
			text := os.Getenv("SOURCE_DATE_EPOCH") + os.Getenv("TZ")
			if err := os.WriteFile(os.Args[2]+"/"+name, []byte(text), 0o600); err != nil {
				panic(err)
			}
		}
	case "completion":
		fmt.Println("complete for", os.Args[2])
	case "version":
		fmt.Printf("{\"version\":%q,\"commit\":%q,\"date\":%q,\"go\":%q}\n", version, commit, date, runtime.Version())
	}
}
`,
		"scheduler/go.mod": "module example.org/x/scheduler\n\ngo 1.26\n\nrequire example.org/x v0.0.0\n\n" +
			"replace example.org/x => ../\n",
		"scheduler/cmd/quietcore-scheduler/main.go": "package main\n\nimport \"example.org/x/lib\"\n\nfunc main() { " +
			"lib.Say() }\n",
		"lib/lib.go": "package lib\n\nfunc Say() { println(1) }\n",
		"cmd/kubectl-quietcore/main.go": "package main\n\nvar version string\n\nfunc main() { " +
			"println(version) }\n",
		"charts/quietcore/Chart.yaml": "apiVersion: v2\nname: quietcore\nversion: 0.0.1\nappVersion: " +
			"0.0.1\ndescription: a chart\n",
		"charts/quietcore/values.yaml":           values,
		"charts/quietcore/.helmignore":           "*.bak\n",
		"charts/quietcore/old.bak":               "not packed\n",
		"charts/quietcore/templates/object.yaml": "kind: ConfigMap\n",
	} {
		write(t, filepath.Join(dir, name), text)
	}
	commit(t, dir, "cmd/quietcore: the first")
	return dir
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func gitIn(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=n", "-c", "user.email=e@example.org", "-c",
		"init.defaultBranch=main"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_COMMITTER_DATE=1700000000 +0200", "GIT_AUTHOR_DATE=1700000000 +0200")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

func commit(t *testing.T, dir, subject string) {
	t.Helper()
	gitIn(t, dir, "init", "-q")
	gitIn(t, dir, "add", "-A")
	gitIn(t, dir, "commit", "-q", "--allow-empty", "-m", subject)
}

func draft(t *testing.T, source, version string) string {
	t.Helper()
	dist := filepath.Join(t.TempDir(), "dist")
	if _, err := (Release{Source: source, Commit: "HEAD", Version: version,
		Lacks: Lacks{Bills: true}}).Build(context.Background(), dist); err != nil {
		t.Fatal(err)
	}
	return dist
}

func TestRelease(t *testing.T) {
	source := small(t)
	dist := draft(t, source, "v1.2.3")
	var said bytes.Buffer
	if err := Check(context.Background(), dist, Lacks{Bills: true}, &said); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(said.String(), "v1.2.3 of commit ") ||
		!strings.Contains(said.String(), ", 2023-11-14T22:13:20Z, go1.") {
		t.Errorf("check says %q", &said)
	}
	if err := Check(context.Background(), dist, Lacks{}, io.Discard); err == nil ||
		!strings.Contains(err.Error(), spdxSuffix) {
		t.Errorf("a draft is taken for a release: %v", err)
	}
	if out, err := exec.Command("sh", "-c", `cd "$1" && sha256sum -c --strict `+sumsName, "sh",
		dist).CombinedOutput(); err != nil {
		t.Errorf("sha256sum: %v\n%s", err, out)
	}
	manual := contents(t, filepath.Join(dist, manualName))
	if got := manual["share/man/man1/quietcore.1"]; got != "1700000000UTC" {
		t.Errorf("the man page was made with %q, want the commit's time and UTC", got)
	}
	chart := contents(t, filepath.Join(dist, "quietcore-1.2.3.tgz"))
	if _, ok := chart["quietcore/old.bak"]; ok ||
		chart["quietcore/values.yaml"] != values || len(chart) != 4 {
		t.Errorf("the chart holds %q", chart)
	}
	log, err := os.ReadFile(filepath.Join(dist, changelogName))
	if err != nil {
		t.Fatal(err)
	}
	if text := string(log); !strings.Contains(text, "## v1.2.3 - 2023-11-14\n\nWords for people.\n\n### Commands") ||
		strings.Contains(text, "Unreleased") {
		t.Errorf("the changelog is %q", text)
	}

	// Once more, in other surroundings, with changes that were not committed, over the first.
	t.Setenv("TZ", "Pacific/Kiritimati")
	t.Setenv("GOAMD64", "v3")
	t.Setenv("GOFLAGS", "-buildvcs=true")
	t.Setenv("SOURCE_DATE_EPOCH", "1")
	t.Setenv("TMPDIR", t.TempDir())
	write(t, filepath.Join(source, "cmd/quietcore/more.go"), "package main\n\nfunc init() { panic(1) }\n")
	again := draft(t, source, "v1.2.3")
	if err := same(dist, again, io.Discard); err != nil {
		t.Error(err)
	}
	if err := same(dist, draft(t, source, "v1.2.4"), io.Discard); err == nil {
		t.Error("two versions are the same")
	}
}

// TestStepsOfThePage: what docs/releasing.md wants to be looked at in dist/ is there and
// does what a user hopes for. The chart is the real one, and Helm that of hack/chart.
func TestStepsOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/releasing.md")
	if err != nil {
		t.Fatal(err)
	}
	const version = "v0.1.0" // the page's
	dist := draft(t, small(t), version)
	if err := packChart(build.Source{Version: version, Date: time.Unix(1700000000, 0)}, "../../charts/quietcore",
		dist, pins{}); err != nil {
		t.Fatal(err)
	}
	sumsAgain(t, dist)
	bin := helm(t)
	says := map[string]string{"sha256sum": "quietcore-image.tar: OK", "./quietcore-linux-amd64": version,
		"helm": "image: quietcore:" + version + "\n"}
	seen := map[string]bool{}
	for _, m := range regexp.MustCompile("`((?:sha256sum|\\./|helm template)[^`]*)`").FindAllStringSubmatch(
		string(page), -1) {
		program := strings.Fields(m[1])[0]
		want := says[program]
		seen[program] = true
		cmd := exec.Command("sh", "-c", m[1])
		cmd.Dir, cmd.Env = dist, append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if program == "./quietcore-linux-amd64" && runtime.GOARCH != "amd64" {
			t.Logf("%s on %s: %v", m[1], runtime.GOARCH, err)
			continue
		}
		if err != nil || want == "" || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, wants %q, and prints\n%s", m[1], err, want, out)
		}
	}
	if len(seen) < len(says) {
		t.Errorf("the page has the commands of %v alone, no longer those of %v", seen, says)
	}
}

// helm is a folder with Helm as it is published: it renders for a Kubernetes of its time.
func helm(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	const of = "-X helm.sh/helm/v3/pkg/chartutil.k8sVersion"
	cmd := exec.Command("go", "build", "-ldflags", of+"Major=1 "+of+"Minor=36", "-o", dir, "helm.sh/helm/v3/cmd/helm")
	cmd.Dir = "../chart"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build Helm: %v\n%s", err, out)
	}
	return dir
}

// contents is a tar.gz's files.
func contents(t *testing.T, name string) map[string]string {
	t.Helper()
	files, err := unpack(name)
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for name, data := range files {
		texts[name] = string(data)
	}
	return texts
}

// TestCheck: each thing that can be wrong with a release is found.
func TestCheck(t *testing.T) {
	whole := draft(t, small(t), "v1.2.3")
	for name, test := range map[string]struct {
		spoil func(t *testing.T, dist string)
		says  string
	}{
		"a byte of a file": {func(t *testing.T, dist string) {
			write(t, filepath.Join(dist, "LICENSE"), "do as you like?\n")
		}, "LICENSE has checksum"},
		"a file more": {func(t *testing.T, dist string) {
			write(t, filepath.Join(dist, "x"), "")
		}, "x is not in SHA256SUMS"},
		"a file missing": {func(t *testing.T, dist string) {
			remove(t, filepath.Join(dist, "quietcore-image.tar"))
		}, "missing"},
		"two binaries changed round": {func(t *testing.T, dist string) {
			a, b := filepath.Join(dist, "kubectl-quietcore-linux-amd64"), filepath.Join(dist,
				"kubectl-quietcore-linux-arm64")
			rename(t, a, a+"x")
			rename(t, b, a)
			rename(t, a+"x", b)
			sumsAgain(t, dist)
		}, "it is for EM_AARCH64, want EM_X86_64"},
		"texts that are not the image's": {func(t *testing.T, dist string) {
			write(t, filepath.Join(dist, "LICENSE"), "do as I like\n")
			sumsAgain(t, dist)
		}, "usr/share/licenses/quietcore/LICENSE in the image has checksum"},
		"no image": {func(t *testing.T, dist string) {
			write(t, filepath.Join(dist, "quietcore-image.tar"), "")
			sumsAgain(t, dist)
		}, "quietcore-image.tar"},
		"no image of the scheduler": {func(t *testing.T, dist string) {
			remove(t, filepath.Join(dist, "quietcore-scheduler-image.tar"))
			sumsAgain(t, dist)
		}, "quietcore-scheduler-image.tar"},
		"no scheduler": {func(t *testing.T, dist string) {
			remove(t, filepath.Join(dist, "quietcore-scheduler-linux-arm64"))
			sumsAgain(t, dist)
		}, "quietcore-scheduler-linux-arm64"},
		"notices that are not the scheduler's image's": {func(t *testing.T, dist string) {
			write(t, filepath.Join(dist, "quietcore-scheduler-THIRD_PARTY_NOTICES"), "")
			sumsAgain(t, dist)
		}, "usr/share/licenses/quietcore-scheduler/THIRD_PARTY_NOTICES in the image has checksum"},
		"an image whose bill of materials has no licences": {func(t *testing.T, dist string) {
			withoutLicences(t, dist)
			sumsAgain(t, dist)
		}, "the bill of materials has no licence of stdlib"},
		"a plugin for krew that is not the binary": {func(t *testing.T, dist string) {
			binary := []packed{{plugin, 0o755, []byte("another")}, {"LICENSE", 0o644, []byte("do as you like\n")}}
			if err := pack(filepath.Join(dist, krewArchive("linux/arm64")), time.Unix(0, 0), binary); err != nil {
				t.Fatal(err)
			}
			manifest, err := manifestOfKrew(dist, "v1.2.3")
			if err != nil {
				t.Fatal(err)
			}
			text, err := yaml.Marshal(manifest)
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dist, krewManifest), string(text))
			sumsAgain(t, dist)
		}, "kubectl-quietcore in kubectl-quietcore-linux-arm64.tar.gz is not kubectl-quietcore-linux-arm64"},
		"krew's manifest of another archive": {func(t *testing.T, dist string) {
			text := contents(t, filepath.Join(dist, krewArchive("linux/amd64")))
			if err := pack(filepath.Join(dist, krewArchive("linux/amd64")), time.Unix(0, 0), []packed{
				{plugin, 0o755, []byte(text[plugin])}, {"LICENSE", 0o644, []byte(text["LICENSE"])}}); err != nil {
				t.Fatal(err)
			}
			sumsAgain(t, dist)
		}, "quietcore.yaml: it is not the manifest of the archives"},
		"another version's changelog": {func(t *testing.T, dist string) {
			write(t, filepath.Join(dist, changelogName), "## v1.2.4 - 2026-01-01\n")
			sumsAgain(t, dist)
		}, "no section of v1.2.3"},
		"a name that leads out": {func(t *testing.T, dist string) {
			write(t, filepath.Join(dist, sumsName), strings.Repeat("0", 64)+"  ../x\n")
		}, "no checksum and name"},
		"no release at all": {func(t *testing.T, dist string) { remove(t, filepath.Join(dist, sumsName)) }, sumsName},
	} {
		t.Run(name, func(t *testing.T) {
			dist := filepath.Join(t.TempDir(), "dist")
			if err := os.CopyFS(dist, os.DirFS(whole)); err != nil {
				t.Fatal(err)
			}
			test.spoil(t, dist)
			if err := Check(context.Background(), dist, Lacks{Bills: true}, io.Discard); err == nil ||
				!strings.Contains(err.Error(), test.says) {
				t.Errorf("check says %v, want %q", err, test.says)
			}
		})
	}
}

// withoutLicences makes the scheduler's image anew, without what its parts are licensed under.
func withoutLicences(t *testing.T, dist string) {
	t.Helper()
	p := Lacks{}.products()[1]
	img := build.Image{Source: build.Source{Version: "v1.2.3"}, Program: p.Program, Name: p.Name}
	for _, platform := range build.Platforms() {
		img.Binaries = append(img.Binaries, build.Binary{Platform: platform,
			Path: filepath.Join(dist, binaryName(p.Name, platform))})
	}
	for inside, outside := range map[string]string{"LICENSE": "LICENSE", licences.Notice: p.notices} {
		data, err := os.ReadFile(filepath.Join(dist, outside))
		if err != nil {
			t.Fatal(err)
		}
		img.Texts = append(img.Texts, build.File{Name: inside, Data: data})
	}
	if _, err := img.Write(filepath.Join(dist, p.image)); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, name string) {
	t.Helper()
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func sumsAgain(t *testing.T, dist string) {
	t.Helper()
	remove(t, filepath.Join(dist, sumsName))
	if err := writeSums(dist); err != nil {
		t.Fatal(err)
	}
}

// TestRefused: what must not be released, or be written over.
func TestRefused(t *testing.T) {
	source := small(t)
	gitIn(t, source, "tag", "v1.0.0")
	commit(t, source, "docs: more")
	full := t.TempDir()
	write(t, filepath.Join(full, "thesis.tex"), "years of work")
	for name, test := range map[string]struct{ version, commit, dist, says string }{
		"no v":               {version: "1.2.3", says: "must be like v1.2.3"},
		"two numbers":        {version: "v1.2", says: "must be like v1.2.3"},
		"metadata":           {version: "v1.2.3+x", says: "must be like v1.2.3"}, // no tag of an image
		"not a version":      {version: "v1.2.3; rm -rf /", says: "must be like v1.2.3"},
		"no commit":          {version: "v1.2.3", commit: "nothing", says: `commit "nothing"`},
		"an option":          {version: "v1.2.3", commit: "--all", says: "commit"},
		"tagged otherwise":   {version: "v1.0.0", says: "tag v1.0.0 is commit"},
		"a folder of others": {version: "v1.2.3", dist: full, says: "no release that could be replaced"},
	} {
		t.Run(name, func(t *testing.T) {
			r := Release{Source: source, Commit: test.commit, Version: test.version,
				Lacks: Lacks{Bills: true}}
			if r.Commit == "" {
				r.Commit = "HEAD"
			}
			dist := test.dist
			if dist == "" {
				dist = filepath.Join(t.TempDir(), "dist")
			}
			if _, err := r.Build(context.Background(), dist); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want %q", err, test.says)
			}
			if left, _ := filepath.Glob(filepath.Join(filepath.Dir(dist), ".release-*")); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
	if _, err := os.Stat(filepath.Join(full, "thesis.tex")); err != nil {
		t.Error(err)
	}
}

// TestBills: what is drawn anew each time is set, and a bill that lacks a module is found.
func TestBills(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x"+spdxSuffix)
	write(t, name,
		`{"spdxVersion":"SPDX-2.3","documentNamespace":"random","creationInfo":{"created":"now"},`+
			`"packages":[{"name":"example.org/a","versionInfo":"v1.0.0"}]}`)
	if err := settle(name, map[string]string{"documentNamespace": "n", "creationInfo.created": "then"}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(name)
	if err != nil || strings.Contains(string(text), "random") || strings.Contains(string(text), "now") ||
		!strings.Contains(string(text), "then") {
		t.Errorf("settled it is %s, %v", text, err)
	}
	dir := filepath.Dir(name)
	write(t, filepath.Join(dir, "y"), `{"name":"`+dir+`/binary","other":"/elsewhere"}`)
	if err := forget(dir, "y"); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "y")); err != nil ||
		string(text) != `{"name":"binary","other":"/elsewhere"}` {
		t.Errorf("without the folder it is %s, %v", text, err)
	}
	for _, key := range []string{"serialNumber", "metadata.timestamp", "creationInfo.by"} {
		if err := settle(name, map[string]string{key: "x"}); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("without %s: %v", key, err)
		}
	}
	a, b := &debug.Module{Path: "example.org/a", Version: "v1.0.0"}, &debug.Module{Path: "example.org/a",
		Version: "v1.0.1"}
	if err := checkBill(name, []*debug.Module{a}); err != nil {
		t.Error(err)
	}
	if err := checkBill(name, []*debug.Module{a, b}); err == nil || !strings.Contains(err.Error(), "v1.0.1") {
		t.Errorf("another version of a module is in it: %v", err)
	}
	for _, wrong := range []string{"", "{}", "[]", `{"packages":1}`} {
		write(t, name, wrong)
		if err := checkBill(name, nil); err == nil {
			t.Errorf("%q is a bill", wrong)
		}
	}
}
