// Command kubernetes makes a real Kubernetes node (a control plane on this host, kubelet
// and containerd in a virtual machine) and proves on it what Quietcore promises to
// those who deploy it: pods are created through the API, and where they run is read
// from the kernel.
//
//	go run ./e2e/kubernetes                    everything, with systemd
//	go run ./e2e/kubernetes -only none,refused two of the proofs
//
// It prints a line a proof with what was measured. Exit code 1: one failed.
//
// Invariant: a proof that could not have failed is a failure itself; each says how
// much it has seen, and demands enough of it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/quietcore/quietcore/e2e/command"
	"github.com/quietcore/quietcore/e2e/kubelet"
	"github.com/quietcore/quietcore/e2e/kubernetes/cluster"
)

type options struct {
	command.Flags
	only    string
	minutes float64
	pods    int
	trace   bool
}

// figure is something that was measured.
type figure struct {
	Name  string `json:"name"`
	Value any    `json:"value"`
}

// proof is one thing to show.
type proof struct {
	name  string
	run   func(context.Context, *bench) ([]figure, error)
	chart bool // whether it installs the chart, for which the guest needs images
}

// proofs are all there are, in the order in which they run.
var proofs = []proof{
	{name: "none", run: none},
	{name: "refused", run: refused},
	{name: "labels", run: labels},
	{name: "restart", run: restart},
	{name: "absent", run: absent},
	{name: "figures", run: figures},
	{name: "static", run: static},
	{name: "rollout", run: rollout, chart: true},
	{name: "report", run: report, chart: true},
	{name: "tenant", run: tenant, chart: true},
}

func main() { command.Main("kubernetes", run, command.Failed) }

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{Flags: command.Flags{Driver: string(kubelet.Systemd)}}
	f := flag.NewFlagSet("kubernetes", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.only, "only", "", "run these `proofs` only, by name, with commas between")
	o.Flags.Add(f)
	f.Float64Var(&o.minutes, "minutes", 3, "how long kubelet's own writes are watched")
	f.IntVar(&o.pods, "pods", 10, "how many pods a figure is the median of")
	f.BoolVar(&o.trace, "trace", false, "say what each call into the machine took")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if err := o.Check(); err != nil {
		return nil, err
	}
	if o.pods < 2 || o.minutes <= 0 {
		return nil, fmt.Errorf("-pods %d -minutes %g: want at least 2 and more than 0", o.pods, o.minutes)
	}
	_, err := o.chosen()
	return o, err
}

func (o *options) chosen() ([]proof, error) {
	if o.only == "" {
		return proofs, nil
	}
	var out []proof
	for name := range strings.SplitSeq(o.only, ",") {
		i := slices.IndexFunc(proofs, func(p proof) bool { return p.name == name })
		if i < 0 {
			return nil, fmt.Errorf("-only %s: there is no such proof", name)
		}
		out = append(out, proofs[i])
	}
	return out, nil
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
	failed := 0
	s := &stage{options: o, binaries: bin, stderr: stderr}
	defer s.close()
	for _, p := range chosen {
		line := s.show(ctx, p)
		line.print(stdout, o.Output)
		if !line.OK {
			failed++
		}
	}
	fmt.Fprintf(stderr, "kubernetes: %d of %d hold, %.0f s\n", len(chosen)-failed, len(chosen), time.Since(began).Seconds())
	if failed > 0 {
		return fmt.Errorf("%d of %d proofs failed", failed, len(chosen))
	}
	return ctx.Err()
}

// limit bounds one proof besides the minutes that were asked for.
const limit = 30 * time.Minute

// stage is the cluster on which proofs follow each other. It is replaced when its
// machine was lost.
type stage struct {
	options  *options
	binaries *cluster.Binaries
	stderr   io.Writer
	bench    *bench
}

func (s *stage) close() {
	if s.bench != nil {
		if err := s.bench.close(); err != nil {
			fmt.Fprintln(s.stderr, "kubernetes:", err)
		}
		s.bench = nil
	}
}

// show runs a proof, and once more on a new cluster where the machine itself was lost:
// that says nothing about what is to be shown.
func (s *stage) show(ctx context.Context, p proof) result {
	line, lost := s.try(ctx, p)
	if lost != nil && ctx.Err() == nil {
		fmt.Fprintf(s.stderr, "kubernetes: %s: the machine failed, once more on a new one: %v\n", p.name, lost)
		line, _ = s.try(ctx, p)
	}
	return line
}

func (s *stage) try(ctx context.Context, p proof) (line result, lost error) {
	began := time.Now()
	line = result{Proof: p.name, Driver: s.options.Driver}
	var err error
	if s.bench == nil {
		s.bench, err = newBench(ctx, s.options, s.binaries, s.stderr)
	}
	if err == nil {
		line.Figures, err = s.bench.prove(ctx, p)
	}
	line.OK, line.Seconds = err == nil, time.Since(began).Round(100*time.Millisecond).Seconds()
	if err != nil {
		line.Error = err.Error()
	}
	if s.bench != nil {
		if lost = s.bench.node.Broken(); lost != nil {
			s.close()
		}
	}
	return line, lost
}

func (b *bench) prove(ctx context.Context, p proof) ([]figure, error) {
	ctx, cancel := context.WithTimeout(ctx, limit+b.window())
	defer cancel()
	figures, err := p.run(ctx, b)
	if err != nil {
		fmt.Fprintln(b.stderr, b.diagnosis(context.WithoutCancel(ctx)))
	}
	return figures, errors.Join(err, b.clean(context.WithoutCancel(ctx)))
}

// result is the line of a proof.
type result struct {
	Proof   string   `json:"proof"`
	Driver  string   `json:"driver"`
	OK      bool     `json:"ok"`
	Seconds float64  `json:"seconds"`
	Figures []figure `json:"figures"`
	Error   string   `json:"error,omitempty"`
}

func (r *result) print(w io.Writer, format string) {
	if format == "json" {
		_ = json.NewEncoder(w).Encode(r) // of plain values
		return
	}
	verdict := "holds"
	if !r.OK {
		verdict = "FAILS"
	}
	fmt.Fprintf(w, "%-9s %s (%s, %.0f s)", r.Proof, verdict, r.Driver, r.Seconds)
	for _, f := range r.Figures {
		fmt.Fprintf(w, "\n    %-44s %v", f.Name, f.Value)
	}
	if r.Error != "" {
		fmt.Fprintf(w, "\n    %s", r.Error)
	}
	fmt.Fprintln(w)
}
