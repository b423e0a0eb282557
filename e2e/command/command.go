// Package command is shared by the programs of e2e: their common [Flags], [Main] with
// its exit codes, and a [Stage] that runs [Proof]s and prints their [Figure]s.
package command

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/quietcore/quietcore/e2e/kubelet"
)

// Main runs a program until it ends or is interrupted. It prints an error and exits
// with code's exit code.
func Main(name string, run func(ctx context.Context, args []string, stdout, stderr io.Writer) error,
	code func(error) int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(code(err))
	}
}

// Failed is the exit code of a program whose errors are all of one kind.
func Failed(error) int { return 1 }

// Values of -driver other than a driver's name: with every driver, or with the next
// one from file to file, which takes half the time.
const (
	Both      = "both"
	Alternate = "alternate"
)

// Flags are those that every program has.
type Flags struct {
	Driver string // of cgroups
	Output string // text or json
	Cache  string // directory
	known  []string
}

// Add defines the flags with the defaults that f holds; Driver must be set. several
// are the values that the program takes for it other than a driver's name.
func (f *Flags) Add(set *flag.FlagSet, several ...string) {
	f.known = nil
	for _, d := range kubelet.Drivers() {
		f.known = append(f.known, string(d))
	}
	f.known = append(f.known, several...)
	set.StringVar(&f.Driver, "driver", f.Driver, "cgroup driver of the guest: "+strings.Join(f.known, ", "))
	set.StringVar(&f.Output, "o", "text", "output: text or json")
	set.StringVar(&f.Cache, "cache", ".cache/e2e", "`directory` for kernels and runtimes")
}

// Check refuses values that the program does not know.
func (f *Flags) Check() error {
	if f.Output != "text" && f.Output != "json" {
		return fmt.Errorf("-o %s: must be text or json", f.Output)
	}
	if !slices.Contains(f.known, f.Driver) {
		return fmt.Errorf("-driver %s: must be one of %s", f.Driver, strings.Join(f.known, ", "))
	}
	return nil
}

// Several says whether more than one driver is meant.
func (f *Flags) Several() bool { return f.Driver == Both || f.Driver == Alternate }

// Drivers are those that are meant.
func (f *Flags) Drivers() []kubelet.Driver {
	if f.Several() {
		return kubelet.Drivers()
	}
	return []kubelet.Driver{kubelet.Driver(f.Driver)}
}
