package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/quietcore/quietcore/hack/image/build"
)

// other is a module that the scheduler of these tests has linked, since this module has it, too.
const other = "golang.org/x/sync"

// linked returns this module's sums, and the version of the other one.
func linked(t *testing.T) (sums, version string) {
	t.Helper()
	text, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^` + other + ` (\S+) `).FindSubmatch(text)
	if found == nil {
		t.Fatalf("go.sum has no %s: take another module", other)
	}
	return string(text), string(found[1])
}

// program is a small Go program with a go.mod, so that a test need not build the
// daemon.
func program(t *testing.T) string {
	t.Helper()
	sums, version := linked(t)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"LICENSE": "do as you like\n",
		"go.mod":  "module example.org/x\n\ngo 1.26\n",
		// As Kubernetes' modules are: each is asked for as v0.0.0, and replaced by a version.
		"scheduler/go.mod": "module example.org/x/scheduler\n\ngo 1.26.0\n\n" +
			"require (\n\texample.org/x v0.0.0\n\t" + other + " v0.0.0\n)\n\n" +
			"replace (\n\texample.org/x => ../\n" +
			"\t" + other + " => " + other + " " + version + "\n)\n",
		"scheduler/go.sum": sums,
		"scheduler/cmd/quietcore-scheduler/main.go": "package main\n\nimport (\n\t\"example.org/x/lib\"\n" +
			"\t\"" + other + "/semaphore\"\n)\n\nfunc main() { semaphore.NewWeighted(1); lib.Say() }\n",
		"lib/lib.go":            "package lib\n\nfunc Say() { println(1) }\n",
		"cmd/quietcore/main.go": "package main\n\nvar version string\n\nfunc main() { println(version) }\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func archive(t *testing.T, version string, more ...string) string {
	t.Helper()
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	name := filepath.Join(t.TempDir(), "q.tar")
	args := append([]string{"-source", program(t), "-version", version, "-o", name}, more...)
	if err := run(context.Background(), args); err != nil {
		t.Fatal(err)
	}
	return name
}

func unpack(t *testing.T, name string) layout.Path {
	t.Helper()
	dir := t.TempDir()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return layout.Path(dir)
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, h.Name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReproducible: twice the same bytes, in different folders.
func TestReproducible(t *testing.T) {
	sum := func() string {
		text, err := os.ReadFile(archive(t, "v1.2.3"))
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%x", sha256.Sum256(text))
	}
	if a, b := sum(), sum(); a != b {
		t.Errorf("two builds of the same source differ: %s and %s", a, b)
	}
}

func TestImage(t *testing.T) {
	index, err := unpack(t, archive(t, "v1.2.3", "-name", "localhost/quietcore")).ImageIndex()
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	outer, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(outer.Manifests) != 1 ||
		outer.Manifests[0].Annotations["io.containerd.image.name"] != "localhost/quietcore:v1.2.3" {
		t.Fatalf("the layout holds %+v", outer.Manifests)
	}
	inner, err := index.ImageIndex(outer.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := inner.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var platforms []string
	for _, m := range manifest.Manifests {
		platforms = append(platforms, m.Platform.String())
		img, err := inner.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		checkImage(t, img, m.Platform.Architecture, "quietcore", "0:0")
	}
	if want := []string{"linux/amd64", "linux/arm64"}; !slices.Equal(platforms, want) {
		t.Errorf("platforms are %v, want %v", platforms, want)
	}
}

// TestSchedulersImage: an image of its own, without the daemon and for nobody's rights.
func TestSchedulersImage(t *testing.T) {
	index, err := unpack(t, archive(t, "v1.2.3", "-scheduler", "-platforms", "linux/arm64")).ImageIndex()
	if err != nil {
		t.Fatal(err)
	}
	outer, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if got := outer.Manifests[0].Annotations["io.containerd.image.name"]; got !=
		"docker.io/library/quietcore-scheduler:v1.2.3" {
		t.Errorf("it is called %s", got)
	}
	inner, err := index.ImageIndex(outer.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := inner.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	img, err := inner.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	checkImage(t, img, "arm64", "quietcore-scheduler", "65532:65532")
}

func checkImage(t *testing.T, img v1.Image, arch, program, user string) {
	t.Helper()
	c, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if c.Architecture != arch || c.Config.User != user || !slices.Equal(c.Config.Entrypoint,
		[]string{"/" + program}) || c.Config.Labels["org.opencontainers.image.version"] != "v1.2.3" {
		t.Errorf("the configuration is %+v", c)
	}
	if !c.Created.Equal(time.Unix(1700000000, 0)) {
		t.Errorf("created %v, want SOURCE_DATE_EPOCH", c.Created)
	}
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	r, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var names []string
	contents := map[string][]byte{}
	for files := tar.NewReader(r); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
		if h.Uid != 0 || h.Gid != 0 || !h.ModTime.Equal(time.Unix(1700000000, 0)) {
			t.Errorf("%s belongs to %d:%d, is of %v", h.Name, h.Uid, h.Gid, h.ModTime)
		}
		if contents[h.Name], err = io.ReadAll(files); err != nil {
			t.Fatal(err)
		}
	}
	checkBill(t, contents["usr/share/sbom/"+program+".spdx.json"], checkBinary(t, contents[program], arch))
	want := []string{
		"etc/", "etc/group", "etc/passwd", program, "usr/", "usr/share/",
		"usr/share/licenses/", "usr/share/licenses/" + program + "/", "usr/share/licenses/" + program + "/LICENSE",
		"usr/share/licenses/" + program + "/THIRD_PARTY_NOTICES",
		"usr/share/sbom/", "usr/share/sbom/" + program + ".spdx.json",
	}
	if !slices.Equal(names, want) {
		t.Errorf("the image holds %v, want %v", names, want)
	}
}

func checkBinary(t *testing.T, data []byte, arch string) *debug.BuildInfo {
	t.Helper()
	name := filepath.Join(t.TempDir(), "quietcore")
	if err := os.WriteFile(name, data, 0o700); err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if settings["CGO_ENABLED"] != "0" || settings["GOARCH"] != arch || settings["-trimpath"] != "true" {
		t.Errorf("built with %v", settings)
	}
	if strings.Contains(string(data), os.Getenv("HOME")+"/") && os.Getenv("HOME") != "" {
		t.Error("a path of the building machine is in the binary")
	}
	return info
}

// checkBill: the bill of materials has what is linked, in the versions that replaced others, and under
// which licences; a bill with anything else is found to be wrong.
func checkBill(t *testing.T, text []byte, info *debug.BuildInfo) {
	t.Helper()
	if err := build.CheckBill(text, info, "v1.2.3"); err != nil {
		t.Error(err)
	}
	var bill struct {
		Packages []struct{ Name, VersionInfo, LicenseDeclared string }
	}
	if err := json.Unmarshal(text, &bill); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, p := range bill.Packages {
		got[p.Name+" "+p.VersionInfo] = p.LicenseDeclared
	}
	want := map[string]string{info.Main.Path + " v1.2.3": "Apache-2.0",
		"stdlib " + strings.TrimPrefix(runtime.Version(), "go"): "BSD-3-Clause"}
	if info.Main.Path == "example.org/x/scheduler" {
		_, version := linked(t)
		want[other+" "+version] = "BSD-3-Clause"
	}
	if !maps.Equal(got, want) {
		t.Errorf("the bill of materials has %v, want %v", got, want)
	}
	for was, is := range map[string]string{`"stdlib"`: `"stdlob"`, `"v1.2.3"`: `"v1.2.4"`,
		`"BSD-3-Clause"`: `"NOASSERTION"`, `"SPDX-2.3"`: `"SPDX-2.2"`, "{": ""} {
		if err := build.CheckBill(bytes.Replace(text, []byte(was), []byte(is), 1), info, "v1.2.3"); err == nil {
			t.Errorf("with %s in place of %s the bill of materials is taken", is, was)
		}
	}
}

func TestWrongPlatform(t *testing.T) {
	for _, p := range []string{"windows/amd64", "linux", "linux/pdp11"} {
		if err := run(context.Background(), []string{"-source", program(t), "-platforms", p, "-o",
			filepath.Join(t.TempDir(), "x")}); err == nil {
			t.Errorf("an image for %s", p)
		}
	}
}
