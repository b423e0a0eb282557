package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"helm.sh/helm/v3/pkg/chart/loader"

	"github.com/quietcore/quietcore/hack/image/build"
)

const (
	helmProgram = "helm.sh/helm/v3/cmd/helm@v3.22.0"

	// hubFile is what Artifact Hub reads of a repository of charts: it is pushed next to them.
	hubFile  = "artifacthub-repo.yml"
	hubTag   = "artifacthub.io"
	hubType  = types.MediaType("application/vnd.cncf.artifacthub.config.v1+yaml")
	hubLayer = types.MediaType("application/vnd.cncf.artifacthub.repository-metadata.layer.v1.yaml")
)

// artefact is what lies in the registry.
type artefact struct {
	program string // whose image it is; empty: the chart
	tag     name.Tag
	digest  name.Digest
}

// pusher puts the files of a release into the registry that its chart names.
type pusher struct {
	dist, version, registry string

	helm string // the program
	http bool   // in plain text, on loopback
}

// newPusher goes to where the chart says that the release belongs.
func newPusher(dist, version, helm string) (pusher, error) {
	p := pusher{dist: dist, version: version, helm: helm}
	var err error
	if p.registry, err = registryOf(dist, version); err != nil {
		return p, err
	}
	if p.registry == "" {
		return p, usage("the chart runs an image of no registry: build the release with -registry")
	}
	host, _, _ := strings.Cut(p.registry, "/")
	p.http = strings.HasPrefix(host, "127.0.0.1:") || strings.HasPrefix(host, "localhost:")
	return p, nil
}

// registryOf reads out of the chart where the release belongs. It is empty where that is nowhere.
func registryOf(dist, version string) (string, error) {
	c, err := loader.LoadFile(filepath.Join(dist, chartArchive(version)))
	if err != nil {
		return "", err
	}
	image, _ := c.Values["image"].(map[string]any)
	repository, _ := image["repository"].(string)
	registry, ok := strings.CutSuffix(repository, "/"+build.Daemon().Name)
	if !ok && repository != build.Daemon().Name {
		return "", fmt.Errorf("the chart runs %q, want an image with the name %s", repository, build.Daemon().Name)
	}
	if !ok {
		return "", nil
	}
	return registry, nil
}

// tag is a reference in the registry.
func (p pusher) tag(path, tag string) (name.Tag, error) {
	var options []name.Option
	if p.http {
		options = append(options, name.Insecure)
	}
	return name.NewTag(p.registry+"/"+path+":"+tag, options...)
}

func options(ctx context.Context) []remote.Option {
	return []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
}

// programs are those whose images lie in the folder.
func (p pusher) programs() ([]string, error) {
	archives, err := filepath.Glob(filepath.Join(p.dist, "*"+imageSuffix))
	if err == nil && len(archives) == 0 {
		err = fmt.Errorf("%s has no image", p.dist)
	}
	for i, a := range archives {
		archives[i] = strings.TrimSuffix(filepath.Base(a), imageSuffix)
	}
	return archives, err
}

// push pushes images first, and the chart that names them last.
func (p pusher) push(ctx context.Context) ([]artefact, error) {
	programs, err := p.programs()
	if err != nil {
		return nil, err
	}
	var list []artefact
	for _, program := range programs {
		a, err := p.pushImage(ctx, program)
		if err != nil {
			return nil, fmt.Errorf("push the image of %s: %w", program, err)
		}
		list = append(list, a)
	}
	chart, err := p.pushChart(ctx, filepath.Join(p.dist, chartArchive(p.version)))
	if err != nil {
		return nil, err
	}
	return append(list, chart), nil
}

func (p pusher) pushImage(ctx context.Context, program string) (artefact, error) {
	a := artefact{program: program}
	dir, err := os.MkdirTemp("", "quietcore-push-")
	if err != nil {
		return a, err
	}
	defer os.RemoveAll(dir)
	archive := filepath.Join(p.dist, program+imageSuffix)
	if err := command(ctx, "", nil, "tar", "-C", dir, "-xf", archive); err != nil {
		return a, err
	}
	outer, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return a, err
	}
	top, err := topOf(archive)
	if err != nil {
		return a, err
	}
	index, err := outer.ImageIndex(top.Digest)
	if err != nil {
		return a, err
	}
	if a.tag, err = p.tag(program, p.version); err != nil {
		return a, err
	}
	a.digest = a.tag.Digest(top.Digest.String())
	return a, remote.WriteIndex(a.tag, index, options(ctx)...)
}

// pushChart is Helm's work.
func (p pusher) pushChart(ctx context.Context, archive string) (artefact, error) {
	var a artefact
	if err := command(ctx, "", nil, p.helm, p.helmArgs("push", archive, "oci://"+p.registry+"/charts")...); err != nil {
		return a, err
	}
	var err error
	if a.tag, err = p.tag("charts/quietcore", chartVersion(p.version)); err != nil {
		return a, err
	}
	head, err := remote.Head(a.tag, options(ctx)...)
	if err != nil {
		return a, err
	}
	a.digest = a.tag.Digest(head.Digest.String())
	return a, nil
}

func (p pusher) helmArgs(args ...string) []string {
	if p.http {
		args = append(args, "--plain-http")
	}
	return args
}

// pushHub says whose charts these are; id is Artifact Hub's name of the repository, empty until it has one.
func (p pusher) pushHub(ctx context.Context, file, id string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if id != "" {
		text = append(text, "repositoryID: "+id+"\n"...)
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), hubType)
	img, err = mutate.Append(img, mutate.Addendum{
		Layer: static.NewLayer(text, hubLayer), MediaType: hubLayer,
		Annotations: map[string]string{"org.opencontainers.image.title": hubFile},
	})
	if err != nil {
		return err
	}
	tag, err := p.tag("charts/quietcore", hubTag)
	if err != nil {
		return err
	}
	return remote.Write(tag, img, options(ctx)...)
}

// installs renders the published chart as a user who has no checkout, and requires that it runs what was published.
func (p pusher) installs(ctx context.Context, list []artefact) error {
	args := p.helmArgs("template", "quietcore", "oci://"+p.registry+"/charts/quietcore", "--version",
		chartVersion(p.version), "--kube-version", "1.36", "--set", "scheduler.enabled=true")
	text, err := output(ctx, "", nil, p.helm, args...)
	if err != nil {
		return err
	}
	return p.runs(text, list)
}

// installsIn does the same with a cluster: what Helm keeps there of an installation runs what was published. It is
// uninstalled again.
func (p pusher) installsIn(ctx context.Context, kubeconfig string, list []artefact) error {
	in := []string{"--kubeconfig", kubeconfig, "--namespace", "quietcore-trust"}
	install := p.helmArgs("install", "quietcore", "oci://"+p.registry+"/charts/quietcore", "--version",
		chartVersion(p.version), "--create-namespace", "--set", "scheduler.enabled=true")
	if err := command(ctx, "", nil, p.helm, append(install, in...)...); err != nil {
		return err
	}
	text, err := output(ctx, "", nil, p.helm, append([]string{"get", "manifest", "quietcore"}, in...)...)
	if err == nil {
		err = p.runs(text, list)
	}
	return errors.Join(err, command(ctx, "", nil, p.helm, append([]string{"uninstall", "quietcore"}, in...)...))
}

// runs requires of a rendered chart that it runs the images that were published, by their digests.
func (p pusher) runs(manifests string, list []artefact) error {
	var errs []error
	for _, a := range list {
		want := "image: " + a.tag.Name() + "@" + a.digest.DigestStr() + "\n"
		if a.program != "" && !strings.Contains(manifests, want) {
			errs = append(errs, fmt.Errorf("the chart of %s does not run %q", p.registry, strings.TrimSpace(want)))
		}
	}
	return errors.Join(errs...)
}

// platforms are the images of an index, by platform.
func platforms(ctx context.Context, a artefact) (map[string]v1.Image, error) {
	index, err := remote.Index(a.digest, options(ctx)...)
	if err != nil {
		return nil, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	images := map[string]v1.Image{}
	for _, m := range manifest.Manifests {
		if images[m.Platform.String()], err = index.Image(m.Digest); err != nil {
			return nil, err
		}
	}
	return images, nil
}

// billOf is the bill of materials in an image.
func billOf(img v1.Image, program string) ([]byte, error) {
	layers, err := img.Layers()
	if err == nil && len(layers) != 1 {
		err = fmt.Errorf("%d layers, want 1", len(layers))
	}
	if err != nil {
		return nil, err
	}
	r, err := layers[0].Uncompressed()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	files, err := untar(r)
	if err == nil {
		// The digest is compared at the end, which lies behind that of the files.
		_, err = io.Copy(io.Discard, r)
	}
	if err != nil {
		return nil, err
	}
	name := build.BillName(build.Program{Name: program})
	if len(files[name]) == 0 {
		return nil, fmt.Errorf("the image lacks %s", name)
	}
	return files[name], nil
}

// pushCommand pushes what `make image` made, and the chart of the working tree, which names it there: unsigned, for
// trials with a registry of one's own.
func pushCommand(ctx context.Context, args []string, out io.Writer) error {
	flags, source := flagsOf("push")
	version := flags.String("version", "", "the image's tag")
	hubID := flags.String("artifacthub-id", "", "Artifact Hub's name of the chart's repository, where it has one")
	registry := flags.String("registry", "", "where, such as 127.0.0.1:5000/quietcore")
	if err := parse(flags, args); err != nil {
		return err
	}
	if err := checkRegistry(*registry); err != nil || *registry == "" {
		return cmp.Or(err, usage("say where with -registry, such as 127.0.0.1:5000/quietcore"))
	}
	work, err := os.MkdirTemp("", "quietcore-push-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := collect(*source, *version, *registry, work); err != nil {
		return err
	}
	tools, err := install(ctx, filepath.Join(work, "tools"), helmProgram)
	if err != nil {
		return err
	}
	p, err := newPusher(work, *version, tools["helm"])
	if err != nil {
		return err
	}
	list, err := p.push(ctx)
	if err != nil {
		return err
	}
	if err := p.pushHub(ctx, filepath.Join(*source, "charts", hubFile), *hubID); err != nil {
		return fmt.Errorf("push %s: %w", hubFile, err)
	}
	if err := p.installs(ctx, list); err != nil {
		return err
	}
	fmt.Fprintf(out, "helm install quietcore oci://%s/charts/quietcore --version %s%s\n", *registry,
		chartVersion(*version), strings.Join(p.helmArgs(""), " "))
	return nil
}

// install compiles programs into a folder, and returns them by name.
func install(ctx context.Context, dir string, programs ...string) (map[string]string, error) {
	tools := map[string]string{}
	for _, p := range programs {
		if err := command(ctx, "", append(toolEnv(), "GOBIN="+dir), "go", "install", p); err != nil {
			return nil, err
		}
	}
	files, err := os.ReadDir(dir)
	for _, f := range files {
		tools[f.Name()] = filepath.Join(dir, f.Name())
	}
	return tools, err
}

// collect puts the images of a version and the chart that runs them into a folder.
func collect(source, version, registry, dir string) error {
	pins := pins{registry: registry}
	for _, program := range []string{build.Daemon().Name, build.Scheduler().Name} {
		archive, err := filepath.Abs(filepath.Join(source, "bin", program+imageSuffix))
		if err != nil {
			return err
		}
		top, err := topOf(archive)
		isDaemon := program == build.Daemon().Name
		if err == nil && !strings.HasSuffix(top.Annotations[nameOfImage], ":"+version) {
			err = fmt.Errorf("it is %s, want the tag %s", top.Annotations[nameOfImage], version)
		}
		if err != nil && isDaemon {
			return fmt.Errorf("%s: make image VERSION=%s: %w", archive, version, err)
		}
		if err != nil {
			continue // the scheduler is optional, and takes minutes
		}
		if err := os.Symlink(archive, filepath.Join(dir, program+imageSuffix)); err != nil {
			return err
		}
		pins.images = append(pins.images, made{program, registry + "/" + program, top.Digest.String()})
	}
	chart := filepath.Join(source, "charts", "quietcore")
	return packChart(build.Source{Version: version, Date: time.Unix(0, 0)}, chart, dir, pins)
}
