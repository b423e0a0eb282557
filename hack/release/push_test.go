package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/remote"
	"helm.sh/helm/v3/pkg/chart/loader"
	"sigs.k8s.io/yaml"
)

// withChart is a repository with the real chart.
func withChart(t *testing.T) string {
	t.Helper()
	source := small(t)
	chart := filepath.Join(source, "charts", "quietcore")
	if err := os.RemoveAll(chart); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(chart, os.DirFS("../../charts/quietcore")); err != nil {
		t.Fatal(err)
	}
	commit(t, source, "charts: the real one")
	return source
}

// published is a release with the real chart, built for a registry on loopback.
func published(t *testing.T) (p pusher, registry string) {
	t.Helper()
	source := withChart(t)
	registry = serveRegistry(t) + "/project"
	dist := filepath.Join(t.TempDir(), "dist")
	if _, err := (Release{Source: source, Commit: "HEAD", Version: "v1.2.3", Registry: registry,
		Lacks: Lacks{Bills: true}}).Build(t.Context(), dist); err != nil {
		t.Fatal(err)
	}
	if err := Check(t.Context(), dist, Lacks{Bills: true}, io.Discard); err != nil {
		t.Fatal(err)
	}
	var err error
	if p, err = newPusher(dist, "v1.2.3", filepath.Join(helm(t), "helm")); err != nil {
		t.Fatal(err)
	}
	if p.registry != registry || !p.http {
		t.Fatalf("it goes to %q, plain text %v, want %q", p.registry, p.http, registry)
	}
	return p, registry
}

// serveRegistry is a registry for a test.
func serveRegistry(t *testing.T) string {
	t.Helper()
	s, err := openStore()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	return s.address
}

// TestThePublishedChartRunsThePublishedImages, by the digests that the registry has; and where it does not, that is
// found.
func TestThePublishedChartRunsThePublishedImages(t *testing.T) {
	ctx := t.Context()
	p, registry := published(t)
	list, err := p.push(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.installs(ctx, list); err != nil {
		t.Error(err)
	}
	if len(list) != 3 {
		t.Errorf("%d artefacts were pushed, want two images and the chart", len(list))
	}
	for _, a := range list[:2] {
		top, err := topOf(filepath.Join(p.dist, a.program+imageSuffix))
		if err != nil {
			t.Fatal(err)
		}
		if head, err := remote.Head(a.tag); err != nil || head.Digest != top.Digest || a.digest.DigestStr() !=
			top.Digest.String() {
			t.Errorf("%s is %v in the registry (%v), and %s in the release", a.tag, head, err, top.Digest)
		}
		images, err := platforms(ctx, a)
		if err != nil || len(images) != 2 {
			t.Errorf("%s is for %d platforms: %v", a.tag, len(images), err)
		}
		for platform, img := range images {
			if bill, err := billOf(img, a.program); err != nil || !strings.Contains(string(bill), "SPDX-2.3") {
				t.Errorf("the bill of %s for %s: %v", a.program, platform, err)
			}
		}
	}

	wrong := list[0]
	wrong.digest = list[1].digest
	if err := p.installs(ctx, []artefact{wrong}); err == nil || !strings.Contains(err.Error(), "does not run") {
		t.Errorf("an image that the chart does not run is taken for its: %v", err)
	}
	// What a user sets goes before what was published.
	for set, want := range map[string]string{
		"image.tag=mine": registry + "/quietcore:mine\n",
		"image.digest=" + list[1].digest.DigestStr(): registry + "/quietcore@" + list[1].digest.DigestStr() + "\n",
		"image.repository=mirror/quietcore":          "mirror/quietcore:v1.2.3@" + list[0].digest.DigestStr() + "\n",
	} {
		text, err := output(ctx, "", nil, p.helm, "template", "oci://"+registry+"/charts/quietcore", "--plain-http",
			"--kube-version", "1.36", "--set", set)
		if err != nil || !strings.Contains(text, "image: "+want) {
			t.Errorf("with %s it does not run %q: %v", set, want, err)
		}
	}
}

// TestWhatArtifactHubReads: the metadata of the repository under its tag and types, and the chart's annotations, page
// and values.
func TestWhatArtifactHubReads(t *testing.T) {
	ctx := t.Context()
	p, registry := published(t)
	if err := p.pushHub(ctx, "../../charts/"+hubFile, "11111111-2222-3333-4444-555555555555"); err != nil {
		t.Fatal(err)
	}
	tag, err := p.tag("charts/quietcore", "artifacthub.io")
	if err != nil {
		t.Fatal(err)
	}
	img, err := remote.Image(tag)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := img.Manifest()
	if err != nil || manifest.Config.MediaType != hubType || len(manifest.Layers) != 1 ||
		manifest.Layers[0].MediaType != hubLayer {
		t.Fatalf("the manifest is %+v, %v", manifest, err)
	}
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	r, err := layers[0].Compressed()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	var hub struct {
		RepositoryID string                           `json:"repositoryID"`
		Ignore       []struct{ Name, Version string } `json:"ignore"`
	}
	if err := yaml.UnmarshalStrict(text, &hub); err != nil || hub.RepositoryID == "" || len(hub.Ignore) != 1 {
		t.Errorf("it reads %+v, %v", hub, err)
	}

	c, err := loader.LoadFile(filepath.Join(p.dist, chartArchive(p.version)))
	if err != nil {
		t.Fatal(err)
	}
	annotated := func(key string, to any) {
		if err := yaml.UnmarshalStrict([]byte(c.Metadata.Annotations["artifacthub.io/"+key]), to); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	type link struct{ Name, URL string }
	var images []struct{ Name, Image string }
	var changes []struct {
		Kind, Description string
		Links             []link
	}
	var links []link
	var crds []struct{ Kind, Version, Name, DisplayName, Description string }
	annotated("images", &images)
	annotated("changes", &changes)
	annotated("links", &links)
	annotated("crds", &crds)
	if len(images) != 2 || images[0].Image != registry+"/quietcore:v1.2.3" {
		t.Errorf("the images are %v", images)
	}
	if len(changes) != 1 || changes[0].Kind != "changed" || len(changes[0].Links) != 1 || len(links) == 0 ||
		len(crds) != 1 || c.Metadata.Annotations["artifacthub.io/license"] != "Apache-2.0" ||
		c.Metadata.Annotations["artifacthub.io/prerelease"] != "false" || c.Metadata.Home == "" ||
		len(c.Metadata.Sources) == 0 || len(c.Metadata.Maintainers) == 0 {
		t.Errorf("Artifact Hub would show %+v", c.Metadata)
	}
	crd, err := os.ReadFile("../../charts/quietcore/files/noderesourcetopologies.yaml")
	if err != nil || !strings.Contains(string(crd), "name: "+crds[0].Name+"\n") {
		t.Errorf("the chart has no CRD %s: %v", crds[0].Name, err)
	}
	for _, f := range c.Raw {
		if f.Name == readmeFile && (strings.Contains(string(f.Data), placeholder) ||
			!strings.Contains(string(f.Data), "oci://"+registry+"/charts/quietcore")) {
			t.Error("the page of the published chart does not name its registry")
		}
	}
}

// TestPushForTrials: what `make image` made and the working tree's chart are in the registry, and the chart runs it.
func TestPushForTrials(t *testing.T) {
	source := small(t)
	chart := filepath.Join(source, "charts", "quietcore")
	if err := os.RemoveAll(chart); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(chart, os.DirFS("../../charts/quietcore")); err != nil {
		t.Fatal(err)
	}
	image := filepath.Join(draft(t, small(t), "v1.2.3"), "quietcore"+imageSuffix)
	if err := os.Mkdir(filepath.Join(source, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	rename(t, image, filepath.Join(source, "bin", "quietcore"+imageSuffix))
	dir := t.TempDir()
	if err := collect(source, "v1.2.4", "127.0.0.1:1/project", dir); err == nil ||
		!strings.Contains(err.Error(), "make image VERSION=v1.2.4") {
		t.Errorf("an image of another version is pushed: %v", err)
	}
	if err := collect(source, "v1.2.3", serveRegistry(t)+"/project", dir); err != nil {
		t.Fatal(err)
	}
	p, err := newPusher(dir, "v1.2.3", filepath.Join(helm(t), "helm"))
	if err != nil {
		t.Fatal(err)
	}
	list, err := p.push(t.Context())
	if err != nil || len(list) != 2 {
		t.Fatalf("%d artefacts, want the daemon's image and the chart: %v", len(list), err)
	}
	if err := p.installs(t.Context(), list); err != nil {
		t.Error(err)
	}
	for tag, want := range map[string]string{"v1.2.3": "1.2.3", "0123456": "0.0.0-tag-0123456",
		"v0.1.0-3-gabc": "0.1.0-3-gabc", "dev": "0.0.0-tag-dev"} {
		if got := chartVersion(tag); got != want {
			t.Errorf("the chart of %s has version %s, want %s", tag, got, want)
		}
	}
}

// TestRegistries: a name without host would be another registry for each tool.
func TestRegistries(t *testing.T) {
	for registry, ok := range map[string]bool{
		"": true, "registry.example/project": true, "127.0.0.1:5000": true, "localhost:5000/a/b": true,
		"project": false, "https://registry.example": false, "registry.example/Project": false,
		"registry.example/p:v1": false, "registry.example/p; rm": false,
	} {
		if err := checkRegistry(registry); (err == nil) != ok {
			t.Errorf("%q: %v", registry, err)
		}
	}
	// A chart that names no registry cannot be published, and one that asks for another image is no release.
	dist := draft(t, small(t), "v1.2.3")
	if _, err := newPusher(dist, "v1.2.3", ""); err == nil || !strings.Contains(err.Error(), "build the release with "+
		"-registry") {
		t.Errorf("a release for no registry is published: %v", err)
	}
	top, err := topOf(filepath.Join(dist, "quietcore"+imageSuffix))
	if err != nil {
		t.Fatal(err)
	}
	for what, wrong := range map[string]func() error{
		"no digest": func() error { return checkPin(dist, "quietcore", "registry.example/quietcore:v1.2.3", "") },
		"a digest without a registry": func() error {
			return checkPin(dist, "quietcore", "quietcore:v1.2.3", top.Digest.String())
		},
		"another digest": func() error {
			return checkPin(dist, "quietcore", top.Annotations[nameOfImage], "sha256:"+strings.Repeat("0", 64))
		},
		"another name": func() error {
			return checkPin(dist, "quietcore", "registry.example/quietcore:v1.2.3", top.Digest.String())
		},
	} {
		if wrong() == nil {
			t.Errorf("%s is a release's chart", what)
		}
	}
	if err := checkPin(dist, "quietcore", top.Annotations[nameOfImage], top.Digest.String()); err != nil {
		t.Error(err)
	}
}
