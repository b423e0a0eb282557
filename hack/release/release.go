package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"
	"github.com/google/go-containerregistry/pkg/name"

	"github.com/quietcore/quietcore/hack/image/build"
	"github.com/quietcore/quietcore/hack/image/licences"
)

// Release is what is made of a commit.
type Release struct {
	Source   string // the repository
	Commit   string // anything git understands
	Version  string
	Registry string // where images and chart will be, such as REGISTRY/PROJECT; empty: nowhere
	Cache    string // of compiled packages; empty: Go's
	Lacks    Lacks  // what makes it none yet
}

// made is an image of a release: its name without tag, and the digest of its index.
type made struct{ program, name, digest string }

// Lacks are what a trial leaves out, since much has to be compiled for it.
type Lacks struct {
	Bills     bool // of materials, for which that is syft
	Scheduler bool // for which that is Kubernetes' scheduler, for both platforms
}

// product is an image and the binaries that go with it.
type product struct {
	build.Program
	commands []string // the packages of which there are binaries
	image    string   // the archive of one of them
	notices  string   // what is linked into them, and under which licences
}

func (l Lacks) products() []product {
	daemon := product{build.Daemon(), []string{"quietcore", "kubectl-quietcore"}, "quietcore" + imageSuffix,
		licences.Notice}
	if l.Scheduler {
		return []product{daemon}
	}
	s := build.Scheduler()
	return []product{daemon, {s, []string{s.Name}, s.Name + imageSuffix, s.Name + "-" + licences.Notice}}
}

// binaryName is a binary's file in a release.
func binaryName(command, platform string) string {
	return command + "-" + strings.ReplaceAll(platform, "/", "-")
}

const (
	manualName    = "quietcore-man-completions.tar.gz"
	imageSuffix   = "-image.tar"
	sumsName      = "SHA256SUMS"
	changelogName = "CHANGELOG.md"
)

// Build makes the release in dist, whole or not at all, and returns the digests of the
// images with their names.
func (r Release) Build(ctx context.Context, dist string) ([]string, error) {
	if err := checkVersion(r.Version); err != nil {
		return nil, err
	}
	if err := checkRegistry(r.Registry); err != nil {
		return nil, err
	}
	if err := replaceable(dist); err != nil {
		return nil, err
	}
	dist, err := filepath.Abs(dist)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(dist), 0o755); err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp(filepath.Dir(dist), ".release-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	whole := filepath.Join(work, "dist")
	if err := os.Mkdir(whole, 0o755); err != nil {
		return nil, err
	}
	source, err := r.export(ctx, filepath.Join(work, "source"))
	if err != nil {
		return nil, err
	}
	images, err := r.fill(ctx, source, whole)
	if err != nil {
		return nil, err
	}
	if err := writeSums(whole); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(dist); err != nil {
		return nil, err
	}
	return images, os.Rename(whole, dist)
}

// checkVersion wants a version that git, Helm and a registry's tags have in common.
func checkVersion(version string) error {
	v, err := semver.StrictNewVersion(strings.TrimPrefix(version, "v"))
	if err != nil || !strings.HasPrefix(version, "v") || v.Metadata() != "" {
		return usage("version %q must be like v1.2.3 or v1.2.3-rc.1", version)
	}
	return nil
}

// checkRegistry wants what an image's name and a chart's reference begin with, or nothing.
func checkRegistry(registry string) error {
	if registry == "" {
		return nil
	}
	host, _, _ := strings.Cut(registry, "/")
	_, err := name.NewRepository(registry+"/quietcore", name.StrictValidation)
	if err != nil || strings.Contains(registry, "://") || host != "localhost" && !strings.ContainsAny(host, ".:") {
		return usage("registry %q must be HOST or HOST/PATH, without scheme and tag", registry)
	}
	return nil
}

// replaceable keeps from removing what is no release.
func replaceable(dist string) error {
	files, err := os.ReadDir(dist)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, f := range files {
		if f.Name() == sumsName {
			return nil
		}
	}
	if len(files) > 0 {
		return usage("%s holds %d files and no %s, so it is no release that could be replaced; name another folder",
			dist, len(files), sumsName)
	}
	return nil
}

// export writes the commit's files into dir.
func (r Release) export(ctx context.Context, dir string) (build.Source, error) {
	s := build.Source{Dir: dir, Version: r.Version, Cache: r.Cache}
	commit, err := git(ctx, r.Source, "rev-parse", "--verify", "--end-of-options", r.Commit+"^{commit}")
	if err != nil {
		return s, fmt.Errorf("commit %q: %w", r.Commit, err)
	}
	seconds, err := git(ctx, r.Source, "log", "-1", "--format=%ct", commit, "--")
	if err != nil {
		return s, err
	}
	at, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return s, fmt.Errorf("time of commit %s: %w", commit, err)
	}
	s.Commit, s.Date = commit, time.Unix(at, 0).UTC()
	if tagged, err := git(ctx, r.Source, "rev-parse", "--verify", "--quiet", "refs/tags/"+r.Version+
		"^{commit}"); err == nil && tagged != commit {
		return s,
			fmt.Errorf("tag %s is commit %s, and %s is to be released as it: name another version, or -commit %s",
				r.Version, tagged, commit, r.Version)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return s, err
	}
	archive := dir + ".tar"
	top, err := git(ctx, r.Source, "rev-parse", "--show-toplevel")
	if err != nil {
		return s, err
	}
	if _, err := git(ctx, top, "archive", "--format=tar", "-o", archive, commit); err != nil {
		return s, err
	}
	return s, command(ctx, "", nil, "tar", "-C", dir, "-xf", archive)
}

// fill makes everything but the checksums.
func (r Release) fill(ctx context.Context, source build.Source, dist string) (images []string, err error) {
	pins := pins{registry: r.Registry}
	for _, p := range r.Lacks.products() {
		image, err := r.make(ctx, source, p, dist)
		if err != nil {
			return nil, err
		}
		pins.images = append(pins.images, image)
		images = append(images, image.digest+" "+image.name+":"+r.Version)
	}
	if err := writeManual(ctx, source, dist); err != nil {
		return nil, err
	}
	if err := writeKrew(source, dist); err != nil {
		return nil, err
	}
	if err := packChart(source, filepath.Join(source.Dir, "charts", "quietcore"), dist, pins); err != nil {
		return nil, err
	}
	return images, r.writeChangelog(ctx, source, filepath.Join(dist, changelogName))
}

// make makes the binaries and the image of a product, and says what the image is called.
func (r Release) make(ctx context.Context, source build.Source, p product, dist string) (made, error) {
	name := p.Name
	if r.Registry != "" {
		name = r.Registry + "/" + p.Name
	}
	img := build.Image{Source: source, Program: p.Program, Name: name}
	for _, platform := range build.Platforms() {
		for _, c := range p.commands {
			binary := binaryName(c, platform)
			path := filepath.Join(dist, binary)
			if err := source.Compile(ctx, platform, build.Program{Name: c, Module: p.Module}, path); err != nil {
				return made{}, err
			}
			if c == p.Name {
				img.Binaries = append(img.Binaries, build.Binary{Platform: platform, Path: path})
			}
			if r.Lacks.Bills {
				continue
			}
			if err := writeBills(ctx, source, dist, binary); err != nil {
				return made{}, err
			}
		}
	}
	var err error
	if img.Parts, err = licences.Of(ctx, filepath.Join(source.Dir, p.Module)); err != nil {
		return made{}, err
	}
	if img.Texts, err = licences.Texts(source.Dir, img.Parts); err != nil {
		return made{}, err
	}
	for _, t := range img.Texts {
		to := t.Name
		if to == licences.Notice {
			to = p.notices
		}
		if err := os.WriteFile(filepath.Join(dist, to), t.Data, 0o644); err != nil {
			return made{}, err
		}
	}
	digest, err := img.Write(filepath.Join(dist, p.image))
	return made{p.Name, name, digest}, err
}

// hostBinary is the one of this machine's architecture, which says what the others say.
func hostBinary(dist, command string) (string, error) {
	for _, platform := range build.Platforms() {
		if platform == runtime.GOOS+"/"+runtime.GOARCH {
			return filepath.Join(dist, binaryName(command, platform)), nil
		}
	}
	return "", fmt.Errorf("releases are made on one of %v, since binaries are run for what they say; this is %s/%s",
		build.Platforms(), runtime.GOOS, runtime.GOARCH)
}

func git(ctx context.Context, dir string, args ...string) (string, error) {
	out, err := output(ctx, dir, nil, "git", args...)
	return strings.TrimSpace(out), err
}

// output runs a program and returns what it printed.
func output(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err,
			strings.TrimSpace(string(failed.Stderr)))
	}
	return string(out), err
}

func command(ctx context.Context, dir string, env []string, name string, args ...string) error {
	_, err := output(ctx, dir, env, name, args...)
	return err
}

// toolEnv is for tools that are compiled to be run here, whatever else is compiled.
func toolEnv() []string {
	return []string{"GOOS=", "GOARCH=", "GOAMD64=", "GOARM64=", "GOFLAGS=", "CGO_ENABLED="}
}
