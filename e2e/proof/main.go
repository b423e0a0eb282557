// Command proof boots one guest and proves on it, against the kernel, the promises
// about enforcement. No thread is ever seen on another owner's CPUs, changes by others
// are repaired, and a crashed daemon leaves nothing broken.
//
//	go run ./e2e/proof                       everything, with the cgroupfs driver
//	go run ./e2e/proof -only window,hotplug  two of them
//	    -kernel bullseye                     with Linux 5.10 in place of 6.1
//
// It prints a line per proof with what was measured. Exit code 1: one failed.
//
// Invariant: a proof that could not have failed is itself a failure. Each reports how
// much it has observed, and demands enough of it.
package main

import (
	"context"
	"flag"
	"io"
	"slices"
	"time"

	"github.com/quietcore/quietcore/e2e/command"
	"github.com/quietcore/quietcore/e2e/kubelet"
	"github.com/quietcore/quietcore/e2e/machine"
)

type options struct {
	command.Flags
	only    string
	kernel  machine.Suite
	minutes float64
	trace   bool
	// unlessNoisy lets interference hold where its host lost too much of its CPUs.
	unlessNoisy bool
}

type (
	figure = command.Figure
	proof  = command.Proof[*node]
)

// proofs are all there are, in the order in which they run.
var proofs = []proof{
	{Name: "window", Run: window},
	{Name: "hotplug", Run: hotplug},
	{Name: "drift", Run: drift},
	{Name: "crash", Run: crash},
	{Name: "disorder", Run: disorder},
	{Name: "uninstall", Run: uninstall},
	{Name: "doctor", Run: doctor},
	{Name: "reserved", Run: reserved},
	{Name: "starved", Run: starved},
	{Name: "hotadd", Run: on(machine.Options{Absent: grid.ThreadsPerCore}, hotadd)},
	{Name: "new-runtime",
		Run: on(machine.Options{Runtime: machine.Containerd17, Next: machine.Containerd}, newRuntime)},
	{Name: "sleep", Run: sleep},
	{Name: "versions", Run: versions},
	{Name: "interference", Run: interference},
}

// asked are proofs that run where they are named alone.
var asked = []proof{
	byTest("experiment"), byTest("experiment-steady"), byTest("experiment-rotating"), byTest("experiment-same-hours"),
	byTest("experiment-windows"), byTest("experiment-move"), {Name: "queue", Run: queue},
	{Name: "queue-contrast", Run: queueByContrast},
}

func main() { command.Main("proof", run, command.Failed) }

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{Flags: command.Flags{Driver: string(kubelet.Cgroupfs)}}
	f := flag.NewFlagSet("proof", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.only, "only", "", "run these `proofs` only, by name, with commas between")
	o.kernel.Flag(f)
	o.Flags.Add(f)
	f.Float64Var(&o.minutes, "minutes", 3, "how long owners come and go before the sampler")
	f.BoolVar(&o.unlessNoisy, "unless-noisy", false,
		"say NOT SHOWN of interference, and do not fail, where the hypervisor keeps the host's CPUs from it")
	f.BoolVar(&o.trace, "trace", false, "say what each call into the machine took")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if err := o.Check(); err != nil {
		return nil, err
	}
	_, err := o.chosen()
	return o, err
}

func (o *options) chosen() ([]proof, error) {
	if o.only == "" {
		return proofs, nil
	}
	return command.Choose(slices.Concat(proofs, asked), o.only)
}

// grid is the smallest machine with room for two owners at once, whole cores and
// two sockets: every CPU more slows the emulation of all.
var grid = machine.Grid{Sockets: 2, NodesPerSocket: 1, L3PerNode: 1, CoresPerL3: 2, ThreadsPerCore: 2}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	chosen, err := o.chosen()
	if err != nil {
		return err
	}
	s := command.Stage[*node]{
		Program: "proof", Flags: &o.Flags, Limit: limit + time.Duration(o.minutes*float64(time.Minute)),
		Stdout: stdout, Stderr: stderr,
		Open: func(ctx context.Context) (*node, error) { return boot(ctx, o, stderr) },
	}
	return s.Show(ctx, chosen)
}

// limit bounds one proof besides the minutes that were asked for.
const limit = 12 * time.Minute
