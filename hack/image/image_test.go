package main

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// program is a small Go program with a go.mod, so that a test need not build the
// daemon.
func program(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"LICENSE": "do as you like\n",
		"go.mod":  "module example.org/x\n\ngo 1.26\n",
		"scheduler/go.mod": "module example.org/x/scheduler\n\ngo 1.26\n\nrequire example.org/x v0.0.0\n\n" +
			"replace example.org/x => ../\n",
		"scheduler/cmd/quietcore-scheduler/main.go": "package main\n\nimport \"example.org/x/lib\"\n\nfunc main() { " +
			"lib.Say() }\n",
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
		switch h.Name {
		case program:
			checkBinary(t, files, arch)
		case "usr/share/sbom/" + program + ".spdx.json":
			var bill struct{ Packages []struct{ Name string } }
			if err := json.NewDecoder(files).Decode(&bill); err != nil || len(bill.Packages) != 2 ||
				!strings.HasPrefix(bill.Packages[0].Name, "example.org/x") {
				t.Errorf("the bill of materials has %v, %v", bill, err)
			}
		}
	}
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

func checkBinary(t *testing.T, r io.Reader, arch string) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "quietcore")
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
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
}

func TestWrongPlatform(t *testing.T) {
	for _, p := range []string{"windows/amd64", "linux", "linux/pdp11"} {
		if err := run(context.Background(), []string{"-source", program(t), "-platforms", p, "-o",
			filepath.Join(t.TempDir(), "x")}); err == nil {
			t.Errorf("an image for %s", p)
		}
	}
}
