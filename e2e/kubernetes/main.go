// Command kubernetes makes a real Kubernetes node (a control plane on this host,
// kubelet and containerd in a virtual machine) and proves on it what Quietcore promises
// to its operators. Pods are created through the API, and their CPUs are read from the
// kernel.
//
//	go run ./e2e/kubernetes                    everything, with systemd
//	go run ./e2e/kubernetes -only none,refused two of the proofs
//	go run ./e2e/kubernetes -build             none: build Kubernetes and print its folder
//
// It prints a line per proof with what was measured. Exit code 1: one failed.
//
// Invariant: a proof that could not have failed is itself a failure. Each reports how
// much it has observed, and demands enough of it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/quietcore/quietcore/e2e/command"
	"github.com/quietcore/quietcore/e2e/kubelet"
	"github.com/quietcore/quietcore/e2e/kubernetes/cluster"
	"github.com/quietcore/quietcore/e2e/machine"
	"github.com/quietcore/quietcore/internal/soak"
)

type options struct {
	command.Flags
	only    string
	parts   string
	runtime string
	minutes float64
	pods    int
	crowd   int
	random  int
	seed    uint64
	mix     int
	soak    int
	trace   bool
	build   bool
}

type (
	figure = command.Figure
	proof  = command.Proof[*bench]
)

// Proofs, in the order in which they run: first those with the daemon next to
// containerd, then those with the chart installed, for which the guest needs images.
var (
	asService = []proof{
		{Name: "none", Run: none},
		{Name: "refused", Run: refused},
		{Name: "labels", Run: labels},
		{Name: "resize", Run: resize},
		{Name: "restart", Run: restart},
		{Name: "absent", Run: absent},
		{Name: "figures", Run: figures},
		{Name: "lending", Run: lending},
		{Name: "group", Run: group},
		{Name: "faults", Run: faults},
		{Name: "bursts", Run: bursts},
		{Name: "static", Run: static},
		{Name: "claims", Run: claims},
		{Name: "claims-smoke", Run: claimsSmoke},
		{Name: "mix", Run: mix},
		{Name: "soak", Run: soakPods},
		{Name: "claims-counted", Run: claimsCounted},
		{Name: "claims-dynamic", Run: claimsDynamic},
		{Name: "scheduler", Run: scheduler},
	}
	withChart = []proof{
		{Name: "rollout", Run: rollout},
		{Name: chartVersionsProof, Run: chartVersions},
		{Name: "report", Run: report},
		{Name: "tenant", Run: tenant},
		{Name: "crowd", Run: crowd},
		{Name: "claims-chart", Run: claimsChart},
		{Name: schedulerProof, Run: schedulerChart},
	}
)

func main() { command.Main("kubernetes", run, command.Failed) }

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{Flags: command.Flags{Driver: string(kubelet.Systemd)}}
	f := flag.NewFlagSet("kubernetes", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.only, "only", "", "run these `proofs` only, by name, with commas between")
	f.StringVar(&o.parts, "parts", "", "run these `parts` of the proof claims only, by name, with commas between, and "+
		"those that they need")
	f.StringVar(&o.runtime, "runtime", string(machine.Containerd), "container `runtime`: "+machine.RuntimeNames()+
		"; CRI-O without the chart's proofs")
	o.Flags.Add(f)
	f.Float64Var(&o.minutes, "minutes", 3, "how long kubelet's own writes are watched")
	f.IntVar(&o.pods, "pods", 10, "how many pods a figure is the median of")
	f.IntVar(&o.crowd, "crowd", 32,
		"how many shared pods the proof crowd puts next to an owner; more than most nodes of eight CPUs have")
	f.IntVar(&o.random, "random", 12, "how many random pods the proof scheduler has come and go")
	f.IntVar(&o.mix, "operations", 40, "how many random operations the proof mix makes")
	f.IntVar(&o.soak, "soak", 2*soak.Least, "how many random pods the proof soak has come and go")
	f.Uint64Var(&o.seed, "seed", 0, "of the proofs mix and soak; 0: a new one, which is printed")
	f.BoolVar(&o.build, "build", false, "build Kubernetes and etcd, unless they are there, print their folder, and end")
	f.BoolVar(&o.trace, "trace", false, "say what each call into the machine took")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if err := o.Check(); err != nil {
		return nil, err
	}
	if o.pods < 2 || o.crowd < 2 || o.random < 10 || o.mix < 20 || o.soak < soak.Least || o.minutes <= 0 {
		return nil, fmt.Errorf("-pods %d -crowd %d -random %d -operations %d -soak %d -minutes %g: want at least 2, "+
			"2, 10, 20, %d and more than 0", o.pods, o.crowd, o.random, o.mix, o.soak, o.minutes, soak.Least)
	}
	if err := machine.Runtime(o.runtime).Check(); err != nil {
		return nil, err
	}
	if _, err := o.chosen(); err != nil {
		return nil, err
	}
	if _, err := partsNamed(o.parts); err != nil {
		return nil, err
	}
	if o.runtime == string(machine.CRIO) && o.chart() {
		return nil, errors.New("-runtime crio: the chart's images are imported by containerd; give -only without " +
			"rollout, " + chartVersionsProof + ", report, tenant, crowd, claims-chart and " + schedulerProof)
	}
	return o, nil
}

func (o *options) chosen() ([]proof, error) {
	return command.Choose(slices.Concat(asService, withChart), o.only)
}

// chart says whether one of the proofs installs it.
func (o *options) chart() bool {
	return slices.ContainsFunc(withChart, func(c proof) bool { return o.runs(c.Name) })
}

// runs says whether a proof was asked for.
func (o *options) runs(name string) bool {
	chosen, err := o.chosen()
	return err == nil && slices.ContainsFunc(chosen, func(p proof) bool { return p.Name == name })
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	chosen, err := o.chosen()
	if err != nil {
		return err
	}
	began := time.Now()
	bin, err := cluster.Build(ctx, o.Cache, stderr)
	if err != nil {
		return err
	}
	if built := time.Since(began); built > time.Minute {
		fmt.Fprintf(stderr, "kubernetes: built in %.0f s\n", built.Seconds())
	}
	if o.build {
		dir, err := filepath.Abs(bin.Kubernetes)
		fmt.Fprintln(stdout, dir)
		return err
	}
	s := command.Stage[*bench]{
		Program: "kubernetes", Flags: &o.Flags, Limit: limit + o.window() + time.Duration(o.random+o.mix+o.soak)*aPod,
		Stdout: stdout, Stderr: stderr,
		Open: func(ctx context.Context) (*bench, error) { return newBench(ctx, o, bin, stderr) },
	}
	return s.Show(ctx, chosen)
}

func (o *options) window() time.Duration {
	return time.Duration(o.minutes * float64(time.Minute))
}

// limit bounds one proof besides the minutes that were asked for.
const limit = 30 * time.Minute

// aPod bounds what a random pod, or another random operation, takes, most of them at a time with others.
const aPod = 20 * time.Second
