package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Ground is where proofs run, one after the other: a machine or a cluster.
type Ground interface {
	// Broken says why no proof can run on it any more, or nil.
	Broken() error
	// Clean removes what a proof has left.
	Clean(context.Context) error
	// Diagnosis describes its state after a failure.
	Diagnosis(context.Context) string
	Close() error
}

// Proof is one property to show. An error refutes it; figures measured until then may
// come with it.
type Proof[G Ground] struct {
	Name string
	Run  func(context.Context, G) ([]Figure, error)
}

// Figure is a measurement.
type Figure struct {
	Name  string `json:"name"`
	Value any    `json:"value"`
}

// Choose returns the proofs of a list of names with commas between, in its order, and
// all of them for an empty list.
func Choose[G Ground](all []Proof[G], only string) ([]Proof[G], error) {
	if only == "" {
		return all, nil
	}
	var names []string
	byName := map[string]Proof[G]{}
	for _, p := range all {
		names = append(names, p.Name)
		byName[p.Name] = p
	}
	var out []Proof[G]
	for name := range strings.SplitSeq(only, ",") {
		p, ok := byName[name]
		if !ok {
			return nil, fmt.Errorf("-only %s: there is no such proof: must be of %s", name, strings.Join(names, ", "))
		}
		out = append(out, p)
	}
	return out, nil
}

// Stage runs proofs on one ground, which it replaces when it breaks.
type Stage[G Ground] struct {
	Program        string // for messages
	Flags          *Flags
	Limit          time.Duration // of one proof
	Open           func(context.Context) (G, error)
	Stdout, Stderr io.Writer

	ground G
	open   bool
}

// Show runs the proofs and prints a line for each. It returns an error that has the reason of each that failed,
// since of a long log the end is what is read.
func (s *Stage[G]) Show(ctx context.Context, proofs []Proof[G]) error {
	defer s.close()
	began := time.Now()
	var failed []string
	for _, p := range proofs {
		line := s.show(ctx, p)
		line.print(s.Stdout, s.Flags.Output)
		if !line.OK {
			failed = append(failed, fmt.Sprintf("%s: %.500s", line.Proof, line.Error))
		}
	}
	s.say("%d of %d hold, %.0f s", len(proofs)-len(failed), len(proofs), time.Since(began).Seconds())
	if len(failed) > 0 {
		return fmt.Errorf("%d of %d proofs failed: %s", len(failed), len(proofs), strings.Join(failed, "; "))
	}
	return ctx.Err()
}

// show runs a proof, and once more on a new ground if the ground itself broke, which
// says nothing about the property.
func (s *Stage[G]) show(ctx context.Context, p Proof[G]) result {
	line, lost := s.try(ctx, p)
	if lost != nil && ctx.Err() == nil {
		s.say("%s: the machine failed, once more on a new one: %v", p.Name, lost)
		line, _ = s.try(ctx, p)
	}
	return line
}

func (s *Stage[G]) try(ctx context.Context, p Proof[G]) (line result, lost error) {
	began := time.Now()
	line = result{Proof: p.Name, Driver: s.Flags.Driver}
	var err error
	if !s.open {
		s.ground, err = s.Open(ctx)
		s.open = err == nil
	}
	if err == nil {
		line.Figures, err = s.prove(ctx, p)
	}
	line.OK, line.Seconds = err == nil, time.Since(began).Round(100*time.Millisecond).Seconds()
	if err != nil {
		line.Error = err.Error()
	}
	if s.open {
		if lost = s.ground.Broken(); lost != nil {
			s.close()
		}
	}
	return line, lost
}

func (s *Stage[G]) prove(ctx context.Context, p Proof[G]) ([]Figure, error) {
	after := context.WithoutCancel(ctx)
	ctx, cancel := context.WithTimeout(ctx, s.Limit)
	defer cancel()
	figures, err := p.Run(ctx, s.ground)
	if err != nil { // before the traces are cleaned away
		s.say("%s: %v\n%s", p.Name, err, s.ground.Diagnosis(after))
	}
	left := s.ground.Clean(after)
	if err == nil && left != nil {
		s.say("%s: %v\n%s", p.Name, left, s.ground.Diagnosis(after))
	}
	return figures, errors.Join(err, left)
}

func (s *Stage[G]) close() {
	if !s.open {
		return
	}
	if err := s.ground.Close(); err != nil {
		s.say("%v", err)
	}
	s.open = false
}

func (s *Stage[G]) say(format string, args ...any) {
	fmt.Fprintf(s.Stderr, s.Program+": "+format+"\n", args...)
}

// result is the line of a proof.
type result struct {
	Proof   string   `json:"proof"`
	Driver  string   `json:"driver"`
	OK      bool     `json:"ok"`
	Seconds float64  `json:"seconds"`
	Figures []Figure `json:"figures"`
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
