// Command image builds the daemon's container image, or the scheduler's, without a registry and
// without a container engine: static binaries for every platform, an image of
// nothing but one of them, and an OCI archive that
// `ctr -n k8s.io images import --local` takes.
//
//	go run . -version v0.1.0 -o quietcore.tar            all platforms
//	go run . -platforms linux/amd64 -name localhost/quietcore -o quietcore.tar
//	go run . -weights                                what the daemon's dependencies weigh, into their page
//	go run . -scheduler -version v0.1.0 -o quietcore-scheduler.tar
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
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/quietcore/quietcore/hack/image/build"
	"github.com/quietcore/quietcore/hack/image/licences"
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
	dir := flags.String("source", "../..", "the repository")
	version := flags.String("version", "dev", "version in the binary and tag of the image")
	scheduler := flags.Bool("scheduler", false, "the scheduler's image, not the daemon's")
	name := flags.String("name", "", "name of the image, without tag; empty: that of the program")
	platforms := flags.String("platforms", strings.Join(build.Platforms(), ","), "platforms, with commas")
	out := flags.String("o", "quietcore.tar", "the archive")
	weigh := flags.Bool("weights", false, "no image: write what dependencies take into "+build.WeightsPage)
	if err := flags.Parse(args); err != nil {
		return err
	}
	program := build.Daemon()
	if *scheduler {
		program = build.Scheduler()
	}
	if *name == "" {
		*name = program.Name
	}
	source, err := build.Describe(ctx, *dir, *version)
	if err != nil {
		return err
	}
	if *weigh {
		*platforms = "linux/amd64"
	}
	work, err := os.MkdirTemp("", "quietcore-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	var binaries []build.Binary
	for _, p := range strings.Split(*platforms, ",") {
		b := build.Binary{Platform: p, Path: filepath.Join(work, strings.ReplaceAll(p, "/", "-"))}
		if err := source.Compile(ctx, p, program, b.Path); err != nil {
			return err
		}
		if !*scheduler {
			if err := justified(*dir, b.Path, *weigh); err != nil {
				return err
			}
		}
		binaries = append(binaries, b)
	}
	if *weigh {
		return nil
	}
	parts, err := licences.Of(ctx, filepath.Join(*dir, program.Module))
	if err != nil {
		return err
	}
	texts, err := licences.Texts(*dir, parts)
	if err != nil {
		return err
	}
	img := build.Image{Source: source, Program: program, Name: *name, Binaries: binaries, Parts: parts, Texts: texts}
	digest, err := img.Write(*out)
	if err != nil {
		return err
	}
	fmt.Printf("%s %s %s:%s\n", digest, *out, *name, *version)
	return nil
}

// justified fails where the daemon has a heavy dependency of which the repository's page does not say what it is for.
func justified(dir, binary string, write bool) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	weights, err := build.Weights(binary)
	if err != nil {
		return err
	}
	name := filepath.Join(dir, build.WeightsPage)
	page, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	text, unjustified := build.Justify(string(page), info.Main.Path, weights)
	if write {
		err = os.WriteFile(name, []byte(text), 0o644)
		return errors.Join(unjustified, err)
	}
	return unjustified
}
