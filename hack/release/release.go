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

	"github.com/quietcore/quietcore/hack/image/build"
	"github.com/quietcore/quietcore/hack/image/licences"
)

// Release is what is made of a commit.
type Release struct {
	Source  string // the repository
	Commit  string // anything git understands
	Version string
	Image   string // its name
	Cache   string // of compiled packages; empty: Go's
	Draft   bool   // without bills of materials, for which syft must be compiled: no release yet
}

// Commands are the packages of which there are binaries.
func commands() []string { return []string{"quietcore", "kubectl-quietcore"} }

// binaryName is a binary's file in a release.
func binaryName(command, platform string) string {
	return command + "-" + strings.ReplaceAll(platform, "/", "-")
}

const (
	imageName     = "quietcore-image.tar"
	manualName    = "quietcore-man-completions.tar.gz"
	sumsName      = "SHA256SUMS"
	changelogName = "CHANGELOG.md"
)

// Build makes the release in dist, whole or not at all, and returns the digest of the
// image.
func (r Release) Build(ctx context.Context, dist string) (string, error) {
	if err := checkVersion(r.Version); err != nil {
		return "", err
	}
	if err := replaceable(dist); err != nil {
		return "", err
	}
	dist, err := filepath.Abs(dist)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(dist), 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(filepath.Dir(dist), ".release-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	made := filepath.Join(work, "dist")
	if err := os.Mkdir(made, 0o755); err != nil {
		return "", err
	}
	source, err := r.export(ctx, filepath.Join(work, "source"))
	if err != nil {
		return "", err
	}
	digest, err := r.fill(ctx, source, made)
	if err != nil {
		return "", err
	}
	if err := writeSums(made); err != nil {
		return "", err
	}
	if err := os.RemoveAll(dist); err != nil {
		return "", err
	}
	return digest, os.Rename(made, dist)
}

// checkVersion wants a version that git, Helm and a registry's tags have in common.
func checkVersion(version string) error {
	v, err := semver.StrictNewVersion(strings.TrimPrefix(version, "v"))
	if err != nil || !strings.HasPrefix(version, "v") || v.Metadata() != "" {
		return usage("version %q must be like v1.2.3 or v1.2.3-rc.1", version)
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
func (r Release) fill(ctx context.Context, source build.Source, dist string) (string, error) {
	var daemons []build.Binary
	for _, platform := range build.Platforms() {
		for _, c := range commands() {
			name := filepath.Join(dist, binaryName(c, platform))
			if err := source.Compile(ctx, platform, build.Program{Name: c}, name); err != nil {
				return "", err
			}
			if c == build.Daemon().Name {
				daemons = append(daemons, build.Binary{Platform: platform, Path: name})
			}
		}
	}
	parts, err := licences.Of(ctx, source.Dir)
	if err != nil {
		return "", err
	}
	texts, err := licences.Texts(source.Dir, parts)
	if err != nil {
		return "", err
	}
	for _, t := range texts {
		if err := os.WriteFile(filepath.Join(dist, t.Name), t.Data, 0o644); err != nil {
			return "", err
		}
	}
	img := build.Image{Source: source, Program: build.Daemon(), Name: r.Image, Binaries: daemons, Parts: parts,
		Texts: texts}
	digest, err := img.Write(filepath.Join(dist, imageName))
	if err != nil {
		return "", err
	}
	if err := writeManual(ctx, source, dist); err != nil {
		return "", err
	}
	if err := packChart(source, filepath.Join(source.Dir, "charts", "quietcore"), dist); err != nil {
		return "", err
	}
	if err := r.writeChangelog(ctx, source, filepath.Join(dist, changelogName)); err != nil {
		return "", err
	}
	if r.Draft {
		return digest, nil
	}
	for _, platform := range build.Platforms() {
		for _, c := range commands() {
			if err := writeBills(ctx, source, dist, binaryName(c, platform)); err != nil {
				return "", err
			}
		}
	}
	return digest, nil
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
