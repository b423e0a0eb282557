// Package build makes static binaries and the container image of one. The same source,
// version and Go give the same bytes: nothing of the build machine, its settings and
// its clock is included.
package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Source is what is built.
type Source struct {
	Dir, Version string
	Commit       string    // empty where no commit is what lies in Dir
	Date         time.Time // of everything that has a time
	Cache        string    // of what was compiled before; empty: Go's
}

// Describe finds out the commit and the time of a directory: the time is
// SOURCE_DATE_EPOCH, else the commit's, else 1970.
func Describe(ctx context.Context, dir, version string) (Source, error) {
	s := Source{Dir: dir, Version: version, Date: time.Unix(0, 0).UTC()}
	head, known, err := git(ctx, dir, "log", "-1", "--format=%H %ct")
	if err != nil {
		return s, err
	}
	if commit, seconds, ok := strings.Cut(head, " "); known && ok {
		changed, _, err := git(ctx, dir, "status", "--porcelain")
		if err != nil {
			return s, err
		}
		if changed == "" {
			s.Commit = commit
		}
		if s.Date, err = epoch("the commit's time", seconds); err != nil {
			return s, err
		}
	}
	if text := os.Getenv("SOURCE_DATE_EPOCH"); text != "" {
		s.Date, err = epoch("SOURCE_DATE_EPOCH", text)
	}
	return s, err
}

func epoch(name, text string) (time.Time, error) {
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seconds < 0 {
		return time.Time{}, fmt.Errorf("%s is %q, must be seconds since 1970", name, text)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// git is not known where there is no git, or no history in dir.
func git(ctx context.Context, dir string, args ...string) (text string, known bool, err error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	var missing *exec.Error
	var failed *exec.ExitError
	if ctx.Err() == nil && (errors.As(err, &missing) || errors.As(err, &failed)) {
		return "", false, nil
	}
	return strings.TrimSpace(string(out)), err == nil, err
}

// Platforms are what releases are built for.
func Platforms() []string { return []string{"linux/amd64", "linux/arm64"} }

// Compile makes the static binary of a program for a platform.
func (s Source) Compile(ctx context.Context, platform string, p Program, out string) error {
	env, err := Environment(platform)
	if err != nil {
		return err
	}
	if s.Cache != "" {
		env = append(env, "GOCACHE="+s.Cache)
	}
	flags := []string{"-s", "-w", "-buildid=", "-X main.version=" + s.Version}
	if s.Commit != "" {
		flags = append(flags, "-X main.commit="+s.Commit, "-X main.date="+s.Date.Format(time.RFC3339))
	}
	if flags, err = s.stamp(ctx, filepath.Join(s.Dir, p.Module), env, flags); err != nil {
		return fmt.Errorf("build %s for %s: %w", p.Name, platform, err)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags",
		strings.Join(flags, " "), "-o", out, "./cmd/"+p.Name)
	cmd.Dir, cmd.Env = filepath.Join(s.Dir, p.Module), env
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build %s for %s: %w", p.Name, platform, err)
	}
	return nil
}

// stamp adds what makes a program of Kubernetes' know its version, which it shows with --version, in its metrics
// and to the API server: that of Kubernetes with ours. Else all of them are v0.0.0.
func (s Source) stamp(ctx context.Context, dir string, env, flags []string) ([]string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-e", "-f", "{{.Version}}", "k8s.io/kubernetes")
	cmd.Dir, cmd.Env, cmd.Stderr = dir, env, os.Stderr
	out, err := cmd.Output()
	kubernetes := strings.TrimSpace(string(out))
	if err != nil || kubernetes == "" {
		return flags, err
	}
	version := kubernetes + "+quietcore-" + strings.ReplaceAll(s.Version, "+", "-")
	for _, pkg := range []string{"component-base/version", "client-go/pkg/version"} {
		flags = append(flags, "-X k8s.io/"+pkg+".gitVersion="+version)
		if s.Commit != "" {
			flags = append(flags, "-X k8s.io/"+pkg+".gitCommit="+s.Commit)
		}
	}
	return flags, nil
}

// Environment is this process's, less what would change a binary.
func Environment(platform string) ([]string, error) {
	if !slices.Contains(Platforms(), platform) {
		return nil, fmt.Errorf("platform %q must be one of %s", platform, strings.Join(Platforms(), ", "))
	}
	system, arch, _ := strings.Cut(platform, "/")
	return append(os.Environ(),
		"GOOS="+system, "GOARCH="+arch, "GOAMD64=v1", "GOARM64=v8.0", "CGO_ENABLED=0",
		"GOFLAGS=-mod=readonly", "GOWORK=off", "GOEXPERIMENT=", "GODEBUG="), nil
}
