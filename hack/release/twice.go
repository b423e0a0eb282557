package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// twiceCommand builds a commit twice, as on two unrelated machines: in different
// directories, with different time zone, language, umask and build settings. Unless
// told otherwise, the second build starts with an empty cache.
func twiceCommand(ctx context.Context, args []string, out io.Writer) error {
	flags, source := flagsOf("twice")
	version := flags.String("version", "v0.0.0-twice", "the version")
	commit := flags.String("commit", "HEAD", "what is built")
	var lacks Lacks
	lacks.flags(flags)
	warm := flags.Bool("warm", false,
		"take what was compiled before: seconds instead of minutes, and the compiler itself is not tried")
	if err := parse(flags, args); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "quietcore-twice-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	surroundings := [][]string{
		{"TZ=UTC", "LC_ALL=C"},
		{"TZ=Pacific/Kiritimati", "LC_ALL=C.UTF-8", "GOAMD64=v3", "GOARM64=v9.0", "GOFLAGS=-buildvcs=true",
			"CGO_ENABLED=1", "SOURCE_DATE_EPOCH=1"},
	}
	var dists []string
	for i, env := range surroundings {
		top := filepath.Join(work, fmt.Sprintf("%0*d", 1+20*i, i)) // of another length, too
		if err := os.Mkdir(top, 0o755); err != nil {
			return err
		}
		dist := filepath.Join(top, "dist")
		args := []string{"build", "-source", *source, "-version", *version, "-commit", *commit,
			"-draft=" + strconv.FormatBool(lacks.Bills), "-no-scheduler=" + strconv.FormatBool(lacks.Scheduler),
			"-o", dist}
		if i > 0 && !*warm {
			args = append(args, "-cache", filepath.Join(top, "cache"))
		}
		from := time.Now()
		cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", `umask "$1"; shift; exec "$@"`, "sh",
			[]string{"022", "077"}[i], self}, args...)...)
		cmd.Env = append(os.Environ(), env...)
		cmd.Stdout, cmd.Stderr = io.Discard, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("build %d: %w", i+1, err)
		}
		fmt.Fprintf(out, "build %d took %.0f s\n", i+1, time.Since(from).Seconds())
		dists = append(dists, dist)
	}
	return same(dists[0], dists[1], out)
}

// same compares two releases by their checksums, and names what differs.
func same(a, b string, out io.Writer) error {
	var sums [2]map[string]string
	for i, dir := range []string{a, b} {
		text, err := os.ReadFile(filepath.Join(dir, sumsName))
		if err != nil {
			return err
		}
		if sums[i], err = readSums(string(text)); err != nil {
			return err
		}
	}
	var names []string
	for _, s := range sums {
		for name := range s {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	var errs []error
	for _, name := range names {
		if sums[0][name] != sums[1][name] {
			errs = append(errs, fmt.Errorf("%s is %q in one build, %q in the other", name, sums[0][name],
				sums[1][name]))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d files, the same in both builds\n", len(names))
	return nil
}
