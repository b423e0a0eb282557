// Command proof boots one guest and proves there, against the kernel, what the
// promises about enforcement say: nobody is ever seen on somebody else's CPUs,
// what others change comes back, and a daemon that dies leaves nothing broken.
//
//	go run ./e2e/proof                       everything, with the cgroupfs driver
//	go run ./e2e/proof -only window,hotplug  two of them
//
// It prints a line a proof with what was measured. Exit code 1: one failed.
//
// Invariant: a proof that could not have failed is a failure itself; each says
// how much it has seen, and demands enough of it.
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
	"github.com/quietcore/quietcore/e2e/machine"
)

type options struct {
	command.Flags
	only    string
	minutes float64
	trace   bool
}

// figure is something that was measured.
type figure struct {
	Name  string `json:"name"`
	Value any    `json:"value"`
}

// proof is one thing to show.
type proof struct {
	name string
	run  func(context.Context, *node) ([]figure, error)
}

// proofs are all there are, in the order in which they run.
var proofs = []proof{
	{"window", window},
	{"hotplug", hotplug},
	{"drift", drift},
	{"crash", crash},
	{"disorder", disorder},
	{"uninstall", uninstall},
	{"interference", interference},
}

func main() { command.Main("proof", run, command.Failed) }

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{Flags: command.Flags{Driver: string(kubelet.Cgroupfs)}}
	f := flag.NewFlagSet("proof", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.only, "only", "", "run these `proofs` only, by name, with commas between")
	o.Flags.Add(f)
	f.Float64Var(&o.minutes, "minutes", 3, "how long owners come and go before the sampler")
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
	began, failed := time.Now(), 0
	s := &stage{options: o, stderr: stderr}
	defer s.close()
	for _, p := range chosen {
		line := s.show(ctx, p)
		line.print(stdout, o.Output)
		if !line.OK {
			failed++
		}
	}
	fmt.Fprintf(stderr, "proof: %d of %d hold, %.0f s\n", len(chosen)-failed, len(chosen), time.Since(began).Seconds())
	if failed > 0 {
		return fmt.Errorf("%d of %d proofs failed", failed, len(chosen))
	}
	return ctx.Err()
}

// limit bounds one proof besides the minutes that were asked for.
const limit = 12 * time.Minute

// stage is the machine on which proofs follow each other. It is replaced when it was lost.
type stage struct {
	options *options
	stderr  io.Writer
	node    *node
}

func (s *stage) close() {
	if s.node != nil {
		s.node.Close()
		s.node = nil
	}
}

// show runs a proof, and once more on a new machine where the machine itself was
// lost: that says nothing about what is to be shown.
func (s *stage) show(ctx context.Context, p proof) result {
	line, lost := s.try(ctx, p)
	if lost != nil && ctx.Err() == nil {
		fmt.Fprintf(s.stderr, "proof: %s: the machine failed, once more on a new one: %v\n", p.name, lost)
		line, _ = s.try(ctx, p)
	}
	return line
}

func (s *stage) try(ctx context.Context, p proof) (line result, lost error) {
	began := time.Now()
	line = result{Proof: p.name, Driver: s.options.Driver}
	var err error
	if s.node == nil {
		s.node, err = boot(ctx, s.options, s.stderr)
	}
	if err == nil {
		line.Figures, err = s.node.prove(ctx, p)
	}
	line.OK, line.Seconds = err == nil, time.Since(began).Round(100*time.Millisecond).Seconds()
	if err != nil {
		line.Error = err.Error()
	}
	if s.node != nil {
		if lost = s.node.Broken(); lost != nil {
			s.close()
		}
	}
	return line, lost
}

func (n *node) prove(ctx context.Context, p proof) ([]figure, error) {
	ctx, cancel := context.WithTimeout(ctx, limit+n.minutes())
	defer cancel()
	figures, err := p.run(ctx, n)
	err = errors.Join(err, n.clean(context.WithoutCancel(ctx)))
	if err != nil {
		fmt.Fprintln(n.stderr, n.Diagnosis(context.WithoutCancel(ctx)))
	}
	return figures, err
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
		fmt.Fprintf(w, "\n    %-34s %v", f.Name, f.Value)
	}
	if r.Error != "" {
		fmt.Fprintf(w, "\n    %s", r.Error)
	}
	fmt.Fprintln(w)
}
