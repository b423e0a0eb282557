package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"helm.sh/helm/v3/pkg/chart/loader"

	"github.com/quietcore/quietcore/hack/image/build"
	"github.com/quietcore/quietcore/hack/image/licences"
)

// Check judges a release by nothing but its files, and prints what it found. A trial
// may lack something.
func Check(ctx context.Context, dist string, lacks Lacks, out io.Writer) error {
	if err := checkSums(dist); err != nil {
		return err
	}
	said, err := whatItSays(ctx, dist)
	if err != nil {
		return err
	}
	if err := checkVersion(said.Version); err != nil {
		return fmt.Errorf("the daemon's %w", err)
	}
	if len(said.Commit) != 40 || said.Date == "" {
		return fmt.Errorf("the daemon names commit %q and date %q: a release is of a commit", said.Commit, said.Date)
	}
	for _, p := range lacks.products() {
		if err := p.check(dist, said.Version, lacks); err != nil {
			return err
		}
	}
	for name, check := range map[string]func(dist, version string) error{
		manualName: checkManual, chartArchive(said.Version): checkChart, changelogName: checkChangelog,
		krewManifest: checkKrew,
	} {
		if err := check(dist, said.Version); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	_, err = fmt.Fprintf(out, "%s of commit %s, %s, %s: whole\n", said.Version, said.Commit, said.Date, said.Go)
	return err
}

// check judges a product's binaries, notices and image.
func (p product) check(dist, version string, lacks Lacks) error {
	notices, err := os.ReadFile(filepath.Join(dist, p.notices))
	if err != nil {
		return err
	}
	for _, platform := range build.Platforms() {
		for _, c := range p.commands {
			name := binaryName(c, platform)
			modules, err := checkBinary(filepath.Join(dist, name), platform)
			if err == nil {
				err = checkNotices(notices, modules)
			}
			if err == nil && !lacks.Bills {
				err = errors.Join(checkBill(filepath.Join(dist, name+spdxSuffix), modules),
					checkBill(filepath.Join(dist, name+cyclonedxSuffix), modules))
			}
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	if err := p.checkImage(dist, version); err != nil {
		return fmt.Errorf("%s: %w", p.image, err)
	}
	return nil
}

// checkSums requires every file of the directory in the list, and nothing else.
func checkSums(dist string) error {
	text, err := os.ReadFile(filepath.Join(dist, sumsName))
	if err != nil {
		return err
	}
	sums, err := readSums(string(text))
	if err != nil {
		return err
	}
	files, err := os.ReadDir(dist)
	if err != nil {
		return err
	}
	for _, f := range files {
		if f.Name() == sumsName {
			continue
		}
		sum, err := sumOf(filepath.Join(dist, f.Name()))
		if err != nil {
			return err
		}
		switch want := sums[f.Name()]; {
		case want == "":
			return fmt.Errorf("%s is not in %s", f.Name(), sumsName)
		case want != sum:
			return fmt.Errorf("%s has checksum %s, %s says %s", f.Name(), sum, sumsName, want)
		}
		delete(sums, f.Name())
	}
	for name := range sums {
		return fmt.Errorf("%s is in %s, and missing", name, sumsName)
	}
	return nil
}

type version struct{ Version, Commit, Date, Go string }

// whatItSays runs the daemon's binary.
func whatItSays(ctx context.Context, dist string) (version, error) {
	var v version
	name, err := hostBinary(dist, "quietcore")
	if err != nil {
		return v, err
	}
	copied, err := executable(name)
	if err != nil {
		return v, err
	}
	defer os.RemoveAll(filepath.Dir(copied))
	text, err := output(ctx, "", nil, copied, "version", "-o", "json")
	if err != nil {
		return v, err
	}
	return v, json.Unmarshal([]byte(text), &v)
}

// executable is a copy that may be run: what was downloaded has lost its mode.
func executable(name string) (string, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "quietcore-check-")
	if err != nil {
		return "", err
	}
	copied := filepath.Join(dir, filepath.Base(name))
	if err := os.WriteFile(copied, data, 0o700); err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return copied, nil
}

// checkBinary: static, and for the platform it is named after. It returns what is linked
// into it.
func checkBinary(file, platform string) ([]*debug.Module, error) {
	f, err := elf.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	want := map[string]elf.Machine{"linux/amd64": elf.EM_X86_64, "linux/arm64": elf.EM_AARCH64}[platform]
	if f.Machine != want {
		return nil, fmt.Errorf("it is for %v, want %v", f.Machine, want)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			return nil, fmt.Errorf("it is not static: it has a %v", p.Type)
		}
	}
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return nil, err
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if settings["-trimpath"] != "true" || settings["CGO_ENABLED"] != "0" || settings["vcs"] != "" {
		return nil, fmt.Errorf("it was not built as a release: %v", settings)
	}
	return build.Modules(info), nil
}

// checkNotices requires a line for each module.
func checkNotices(notices []byte, modules []*debug.Module) error {
	for _, m := range modules {
		if !bytes.Contains(notices, []byte("\n"+m.Path+" "+m.Version+" ")) {
			return fmt.Errorf("%s %s is in it, and not in the notices", m.Path, m.Version)
		}
	}
	return nil
}

// checkBill requires the modules in a bill of either format.
func checkBill(name string, modules []*debug.Module) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var bill struct {
		SPDXVersion string
		Packages    []struct{ Name, VersionInfo string }
		BOMFormat   string
		Components  []struct{ Name, Version string }
	}
	if err := json.Unmarshal(text, &bill); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(name), err)
	}
	if bill.SPDXVersion == "" && bill.BOMFormat != "CycloneDX" {
		return fmt.Errorf("%s is neither SPDX nor CycloneDX", filepath.Base(name))
	}
	has := map[string]bool{}
	for _, p := range bill.Packages {
		has[p.Name+" "+p.VersionInfo] = true
	}
	for _, c := range bill.Components {
		has[c.Name+" "+c.Version] = true
	}
	for _, m := range modules {
		if !has[m.Path+" "+m.Version] {
			return fmt.Errorf("%s lacks %s %s", filepath.Base(name), m.Path, m.Version)
		}
	}
	return nil
}

// checkImage: the archive holds one index with one image per platform. Its only layer
// holds exactly the binary and texts next to it.
func (p product) checkImage(dist, version string) error {
	dir, err := os.MkdirTemp("", "quietcore-check-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := command(context.Background(), "", nil, "tar", "-C", dir, "-xf",
		filepath.Join(dist, p.image)); err != nil {
		return err
	}
	outer, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return err
	}
	if err := validate.Index(outer); err != nil {
		return err
	}
	top, err := outer.IndexManifest()
	if err != nil {
		return err
	}
	if len(top.Manifests) != 1 || !strings.HasSuffix(top.Manifests[0].Annotations[nameOfImage], ":"+
		version) {
		return fmt.Errorf("it holds %d images, want one with the tag %s", len(top.Manifests), version)
	}
	index, err := outer.ImageIndex(top.Manifests[0].Digest)
	if err != nil {
		return err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	var platforms []string
	for _, m := range manifest.Manifests {
		platforms = append(platforms, m.Platform.String())
		img, err := index.Image(m.Digest)
		if err != nil {
			return err
		}
		if err := p.checkLayer(img, dist, version, m.Platform.String()); err != nil {
			return fmt.Errorf("%s: %w", m.Platform, err)
		}
	}
	if !slices.Equal(platforms, build.Platforms()) {
		return fmt.Errorf("it is for %v, want %v", platforms, build.Platforms())
	}
	return nil
}

// checkLayer: it has what lies next to it, and a bill of materials of the binary.
func (p product) checkLayer(img v1.Image, dist, version, platform string) error {
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		return fmt.Errorf("%d layers, want 1 (%v)", len(layers), err)
	}
	r, err := layers[0].Uncompressed()
	if err != nil {
		return err
	}
	defer r.Close()
	files, err := untar(r)
	if err != nil {
		return err
	}
	texts, binary := "usr/share/licenses/"+p.Name+"/", filepath.Join(dist, binaryName(p.Name, platform))
	for inside, outside := range map[string]string{
		p.Name: binary, texts + "LICENSE": filepath.Join(dist, "LICENSE"),
		texts + licences.Notice: filepath.Join(dist, p.notices),
	} {
		want, err := sumOf(outside)
		if err != nil {
			return err
		}
		if got, there := files[inside]; !there || checksum(got) != want {
			return fmt.Errorf("%s in the image has checksum %s, %s next to it %s", inside, checksum(got),
				filepath.Base(outside), want)
		}
	}
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	return build.CheckBill(files[build.BillName(p.Program)], info, version)
}

func checksum(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }

// untar returns an archive's files by name.
func untar(r io.Reader) (map[string][]byte, error) {
	out := map[string][]byte{}
	for files := tar.NewReader(r); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		if out[h.Name], err = io.ReadAll(files); err != nil {
			return nil, err
		}
	}
}

// unpack returns the files of a tar.gz by name.
func unpack(name string) (map[string][]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	zipped, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(name), err)
	}
	return untar(zipped)
}

func checkManual(dist, _ string) error {
	files, err := unpack(filepath.Join(dist, manualName))
	if err != nil {
		return err
	}
	for _, want := range []string{
		"bin/kubectl_complete-quietcore", "share/bash-completion/completions/quietcore",
		"share/fish/vendor_completions.d/quietcore.fish",
		"share/man/man1/quietcore.1", "share/man/man1/quietcore-version.1", "share/zsh/site-functions/_quietcore",
	} {
		if len(files[want]) == 0 {
			return fmt.Errorf("it lacks %s", want)
		}
	}
	return nil
}

// checkChart: its images are this release's by default. Where it names a registry, the archives have the same name, and
// it asks for their digests.
func checkChart(dist, version string) error {
	c, err := loader.LoadFile(filepath.Join(dist, chartArchive(version)))
	if err != nil {
		return err
	}
	if err := c.Validate(); err != nil {
		return err
	}
	if c.Metadata.Version != strings.TrimPrefix(version, "v") || c.Metadata.AppVersion != version {
		return fmt.Errorf("it is version %s of %s, want %s", c.Metadata.Version, c.Metadata.AppVersion, version)
	}
	scheduler, _ := c.Values["scheduler"].(map[string]any)
	for program, values := range map[string]any{
		build.Daemon().Name: c.Values["image"], build.Scheduler().Name: scheduler["image"],
	} {
		image, _ := values.(map[string]any)
		if tag, _ := image["tag"].(string); tag != "" {
			return fmt.Errorf("values.yaml sets the tag of %s to %q, so that the chart would not run %s", program, tag,
				version)
		}
		repository, _ := image["repository"].(string)
		pin := c.Metadata.Annotations[pinPrefix+program]
		if err := checkPin(dist, program, repository+":"+version, pin); err != nil {
			return err
		}
	}
	return nil
}

// checkPin: what the chart asks for is in the archive.
func checkPin(dist, program, reference, pin string) error {
	named := strings.Contains(reference, "/")
	switch {
	case !named && pin == "":
		return nil // no registry
	case named != (pin != ""):
		return fmt.Errorf("it runs %s and asks for digest %q: a name with a registry has one, and no other",
			reference, pin)
	}
	top, err := topOf(filepath.Join(dist, program+imageSuffix))
	if err != nil {
		return err
	}
	if pin != top.Digest.String() || reference != top.Annotations[nameOfImage] {
		return fmt.Errorf("it runs %s@%s, and %s is %s@%s", reference, pin, program+imageSuffix,
			top.Annotations[nameOfImage], top.Digest)
	}
	return nil
}

// nameOfImage is where containerd reads the whole name of an image in an archive.
const nameOfImage = "io.containerd.image.name"

// topOf is what an archive of an image says of it, with its digest.
func topOf(archive string) (v1.Descriptor, error) {
	f, err := os.Open(archive)
	if err != nil {
		return v1.Descriptor{}, err
	}
	defer f.Close()
	for files := tar.NewReader(f); ; {
		h, err := files.Next()
		if err != nil {
			return v1.Descriptor{}, fmt.Errorf("%s: index.json: %w", filepath.Base(archive), err)
		}
		if h.Name != "index.json" {
			continue
		}
		index, err := v1.ParseIndexManifest(files)
		if err == nil && len(index.Manifests) != 1 {
			err = fmt.Errorf("it has %d images, want one", len(index.Manifests))
		}
		if err != nil {
			return v1.Descriptor{}, fmt.Errorf("%s: %w", filepath.Base(archive), err)
		}
		return index.Manifests[0], nil
	}
}

func checkChangelog(dist, version string) error {
	text, err := os.ReadFile(filepath.Join(dist, changelogName))
	if err != nil {
		return err
	}
	if !hasVersion(string(text), version) {
		return fmt.Errorf("it has no section of %s", version)
	}
	return nil
}
