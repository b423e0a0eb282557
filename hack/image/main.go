// Command image builds the daemon's container image without a registry and
// without a container engine: static binaries for every platform, an image of
// nothing but one of them, and an OCI archive that
// `ctr -n k8s.io images import --local` takes.
//
//	go run . -version v0.1.0 -o quietcore.tar            all platforms
//	go run . -platforms linux/amd64 -name localhost/quietcore -o quietcore.tar
//
// The same source, version and Go give the same digest: times are SOURCE_DATE_EPOCH
// (the commit's, without it 0), owners are root, and nothing of the building
// machine gets in. The digest is printed.
//
// It is a module of its own, so that the libraries for images are no dependencies
// of the daemon.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	source := flags.String("source", "../..", "the repository")
	version := flags.String("version", "dev", "version in the binary and tag of the image")
	name := flags.String("name", "quietcore", "name of the image, without tag")
	platforms := flags.String("platforms", "linux/amd64,linux/arm64", "platforms, with commas")
	out := flags.String("o", "quietcore.tar", "the archive")
	ldflags := flags.String("ldflags", "-s -w", "flags for the linker, besides the version")
	if err := flags.Parse(args); err != nil {
		return err
	}
	created, err := epoch(ctx, *source)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "quietcore-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	spec := Spec{Name: *name, Version: *version, Created: created}
	for _, p := range strings.Split(*platforms, ",") {
		b := Binary{Platform: p, Path: filepath.Join(work, strings.ReplaceAll(p, "/", "-"))}
		if err := compile(ctx, *source, b, *ldflags+" -X main.version="+*version); err != nil {
			return err
		}
		spec.Binaries = append(spec.Binaries, b)
	}
	digest, err := spec.Write(*out)
	if err != nil {
		return err
	}
	fmt.Printf("%s %s %s:%s\n", digest, *out, *name, *version)
	return nil
}

// compile makes one static binary that holds no path and no time of this machine.
func compile(ctx context.Context, source string, b Binary, ldflags string) error {
	system, arch, ok := strings.Cut(b.Platform, "/")
	if !ok || system != "linux" {
		return fmt.Errorf("platform %q must be linux/ARCH", b.Platform)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", ldflags+" -buildid=", "-o", b.Path, "./cmd/quietcore")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+arch, "GOWORK=off")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build for %s: %w", b.Platform, err)
	}
	return nil
}

// epoch is the time that every file and the image have.
func epoch(ctx context.Context, source string) (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		cmd := exec.CommandContext(ctx, "git", "log", "-1", "--format=%ct")
		cmd.Dir = source
		out, err := cmd.Output()
		var missing *exec.Error
		var failed *exec.ExitError
		if errors.As(err, &missing) || errors.As(err, &failed) { // a copy of the source without its history
			return time.Unix(0, 0).UTC(), nil
		}
		if err != nil {
			return time.Time{}, err
		}
		text = strings.TrimSpace(string(out))
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seconds < 0 {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH is %q, must be seconds since 1970", text)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// modulesOf lists what is in a binary, as its linker wrote it down.
func modulesOf(info *debug.BuildInfo) []*debug.Module {
	list := []*debug.Module{}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		list = append(list, m)
	}
	return list
}
