// Command release makes what a version is published as, and judges it.
//
//	go run . build -version v0.1.0 -o ../../dist     binaries, image, chart, licences, bills of materials, changelog,
//	                                                 checksums
//	go run . check ../../dist                        is it whole, static, of one commit, and says what it is made of
//	go run . twice -version v0.1.0                   two builds in different surroundings have the same checksums
//	go run . licences                                what is linked, and under which licence
//	go run . changelog -version v0.1.0               what changed since the version before; -write puts it into
//	                                                 CHANGELOG.md
//	go run . push -registry HOST/PATH                the image of bin/ and the chart of the working tree, for trials
//	go run . provenance                              how dist/ came about, for dist-signatures/
//	go run . publish -dist ../../dist -keyless …     push, sign and attest a release, and verify the result
//	go run . trust                                   the same on loopback, with a key of its own, and attacks on it
//	go run . vulncheck                               known vulnerabilities in what is called
//
// A release is one of a commit: the commit is exported and built from there, so what is
// not committed is not in it. It is a module of its own, so that Helm's packages are no
// dependencies of the daemon. docs/releasing.md says how a version is published.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/quietcore/quietcore/hack/image/licences"
)

const (
	exitFailed      = 1
	exitUsage       = 2
	exitUnreachable = 4 // the database of vulnerabilities does not answer
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return
	}
	fmt.Fprintln(os.Stderr, "release:", err)
	var wrong usageError
	switch {
	case errors.As(err, &wrong):
		os.Exit(exitUsage)
	case errors.Is(err, errUnreachable):
		os.Exit(exitUnreachable)
	}
	os.Exit(exitFailed)
}

// usageError marks what the caller got wrong.
type usageError struct{ error }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func run(ctx context.Context, args []string, out io.Writer) error {
	commands := map[string]func(context.Context, []string, io.Writer) error{
		"build": buildCommand, "check": checkCommand, "twice": twiceCommand,
		"licences": licencesCommand, "changelog": changelogCommand, "vulncheck": vulncheckCommand,
		"push": pushCommand, "provenance": provenanceCommand, "publish": publishCommand, "trust": trustCommand,
	}
	if len(args) == 0 || commands[args[0]] == nil {
		return usage("say what to do: build, check, twice, licences, changelog, vulncheck, push, provenance, publish " +
			"or trust")
	}
	return commands[args[0]](ctx, args[1:], out)
}

// parse takes flags, and as many arguments as there are names.
func parse(flags *flag.FlagSet, args []string, names ...string) error {
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return usageError{err}
	}
	if flags.NArg() != len(names) {
		return usage("%s takes %d arguments %v, got %q", flags.Name(), len(names), names, flags.Args())
	}
	return nil
}

func flagsOf(name string) (flags *flag.FlagSet, source *string) {
	flags = flag.NewFlagSet(name, flag.ContinueOnError)
	return flags, flags.String("source", "../..", "the repository")
}

// flags are those of a trial.
func (l *Lacks) flags(flags *flag.FlagSet) {
	flags.BoolVar(&l.Bills, "draft", false,
		"without the bills of materials, for which syft is compiled; it is no release then")
	flags.BoolVar(&l.Scheduler, "no-scheduler", false,
		"without quietcore-scheduler, for which Kubernetes' is compiled; it is no release then")
}

func buildCommand(ctx context.Context, args []string, out io.Writer) error {
	flags, source := flagsOf("build")
	r := Release{}
	flags.StringVar(&r.Version, "version", "", "the version, such as v0.1.0")
	flags.StringVar(&r.Commit, "commit", "HEAD", "what is released")
	flags.StringVar(&r.Registry, "registry", "", "where images and chart will be published, such as REGISTRY/PROJECT: "+
		"the chart then runs REGISTRY/PROJECT/quietcore by its digest")
	flags.StringVar(&r.Cache, "cache", "", "compile with what is in this cache, instead of Go's own")
	r.Lacks.flags(flags)
	dist := flags.String("o", "../../dist", "the folder to make; a release that is there is replaced")
	if err := parse(flags, args); err != nil {
		return err
	}
	r.Source = *source
	images, err := r.Build(ctx, *dist)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, strings.Join(images, "\n"))
	return Check(ctx, *dist, r.Lacks, out)
}

func checkCommand(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("check", flag.ContinueOnError)
	var lacks Lacks
	lacks.flags(flags)
	if err := parse(flags, args, "DIR"); err != nil {
		return err
	}
	return Check(ctx, flags.Arg(0), lacks, out)
}

func licencesCommand(ctx context.Context, args []string, out io.Writer) error {
	flags, source := flagsOf("licences")
	dir := flags.String("o", "", "write the texts that go with the binaries into this folder")
	if err := parse(flags, args); err != nil {
		return err
	}
	parts, err := licences.Of(ctx, *source)
	if err != nil {
		return err
	}
	for _, p := range parts {
		fmt.Fprintf(out, "%-90s %s\n", p, strings.Join(p.Licences, " AND "))
	}
	if *dir == "" {
		return nil
	}
	texts, err := licences.Texts(*source, parts)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(*dir, 0o755); err != nil {
		return err
	}
	for _, t := range texts {
		if err := os.WriteFile(filepath.Join(*dir, t.Name), t.Data, 0o644); err != nil {
			return err
		}
	}
	return nil
}
