// Command e2e plays scenarios on virtual machines with a real kernel and a real
// container runtime. See docs of package scenario for what a scenario is.
//
//	go run ./e2e -scenario FILE -o json   one file; the lines that simulate would print
//	go run ./e2e -suite e2e/scenarios     all files, simulate against machine
//	    -driver systemd                   in guests with systemd, or both with -suite
//	    -runtime crio                     with another runtime than containerd
//	    -kernel trixie                    with Linux 6.12 in place of 6.1
//
// Invariant: standard output carries results only; progress goes to standard error.
// Exit codes: 0 done, 1 the work failed, 2 the input is wrong or not realisable.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/quietcore/quietcore/e2e/command"
	"github.com/quietcore/quietcore/e2e/kubelet"
	"github.com/quietcore/quietcore/e2e/machine"
	"github.com/quietcore/quietcore/e2e/scenario"
	"github.com/quietcore/quietcore/internal/script"
)

type options struct {
	command.Flags
	scenario, suite, runtime, dir string
	kernel                        machine.Suite
	keep, noDaemon, trace         bool
	turn                          int // -1: the whole suite
}

// usage marks errors of the input: exit code 2.
type usage struct{ error }

func main() { command.Main("e2e", run, exitCode) }

func exitCode(err error) int {
	var not machine.NotRealisable
	var bad usage
	if errors.As(err, &not) || errors.As(err, &bad) {
		return 2
	}
	return 1
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{Flags: command.Flags{Driver: string(kubelet.Cgroupfs)}}
	f := flag.NewFlagSet("e2e", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.scenario, "scenario", "", "play this `file`")
	f.StringVar(&o.suite, "suite", "", "play all files of this `directory`, in simulate and on machines, and compare")
	f.StringVar(&o.runtime, "runtime", string(machine.Containerd), "container `runtime`: "+machine.RuntimeNames())
	o.kernel.Flag(f)
	o.Flags.Add(f, command.Both, command.Alternate)
	f.StringVar(&o.dir, "dir", "", "`directory` for the machine's console log (default: a temporary one)")
	f.BoolVar(&o.keep, "keep", false, "leave the machine running afterwards and connect the terminal to its shell")
	f.BoolVar(&o.noDaemon, "no-daemon", false, "play without the daemon: what the node does without pinning")
	f.IntVar(&o.turn, "turn", -1, "play the half of the suite that is due in this turn, a `number`, with -driver "+
		"alternate: in four turns all of it with both drivers")
	f.BoolVar(&o.trace, "trace", false, "say what each call into the machine took")
	if err := f.Parse(args); err != nil {
		return nil, usage{err}
	}
	if err := o.Check(); err != nil {
		return nil, usage{err}
	}
	switch {
	case (o.scenario == "") == (o.suite == ""):
		return nil, usage{errors.New("give either -scenario or -suite")}
	case machine.Runtime(o.runtime).Check() != nil:
		return nil, usage{machine.Runtime(o.runtime).Check()}
	case o.suite != "" && o.dir != "" && o.Several():
		return nil, usage{errors.New("-dir: two guests cannot share it; give one -driver")}
	case o.turn >= 0 && (o.suite == "" || o.Driver != command.Alternate):
		return nil, usage{errors.New("-turn: needs -suite and -driver alternate")}
	case o.Several() && o.suite == "":
		return nil, usage{fmt.Errorf("-driver %s: needs -suite", o.Driver)}
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if o.suite != "" {
		return runSuite(ctx, o, stdout, stderr)
	}
	return runScenario(ctx, o, stdout, stderr)
}

func runScenario(ctx context.Context, o *options, stdout, stderr io.Writer) error {
	s, err := scenario.Load(o.scenario)
	if err != nil {
		return usage{err}
	}
	grid, err := s.Grid()
	if err != nil {
		return usage{err}
	}
	guest, err := scenario.Boot(ctx, o.bootOptions(grid, kubelet.Driver(o.Driver), stderr))
	if err != nil {
		return err
	}
	defer guest.Close()
	if o.trace {
		guest.Trace(func(what string, took time.Duration) { fmt.Fprintf(stderr, "%8.3f s %s\n", took.Seconds(), what) })
	}
	err = play(ctx, guest, s, printer(o.Output, stdout))
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, guest.Diagnosis(context.WithoutCancel(ctx)))
	}
	if o.keep {
		if err != nil {
			fmt.Fprintln(stderr, "e2e:", err)
		}
		return guest.Shell(ctx, os.Stdin, stderr)
	}
	return err
}

func (o *options) bootOptions(g machine.Grid, d kubelet.Driver, stderr io.Writer) scenario.BootOptions {
	return scenario.BootOptions{
		Machine: machine.Options{Grid: g, Driver: d, Runtime: machine.Runtime(o.runtime), Suite: o.kernel,
			Cache: o.Cache, Dir: o.dir, Progress: stderr},
		Daemon: !o.noDaemon,
	}
}

func play(ctx context.Context, g *scenario.Guest, s *scenario.Script, emit func(script.Line) error) error {
	p, err := scenario.NewPlayer(ctx, g, s)
	if err != nil {
		return err
	}
	return p.Play(ctx, emit)
}

func printer(format string, w io.Writer) func(script.Line) error {
	if format == "json" {
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		return func(l script.Line) error { return enc.Encode(l) }
	}
	return func(l script.Line) error { return scenario.Text(w, l) }
}
