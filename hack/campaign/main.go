// Command campaign plays the scenarios that fleets meet and writes down what came of each. `make campaign` calls it.
//
// A scenario names the tests that play it, and proofs in virtual machines. Proofs take hours, so their results are read
// from what e2e/proof and e2e/kubernetes printed. A scenario of which only a part is played says what is missing.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
)

type options struct {
	out    string
	guests []string // files
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "campaign: %v\n", err)
		stop()
		os.Exit(1)
	}
}

func parse(args []string, stderr io.Writer) (*options, error) {
	var o options
	f := flag.NewFlagSet("campaign", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.out, "o", "", "write the table to this `file` rather than to the standard output")
	f.Usage = func() {
		fmt.Fprint(stderr, "usage: campaign [flags] [files with what e2e/proof and e2e/kubernetes printed]\n")
		f.PrintDefaults()
	}
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	o.guests = f.Args()
	return &o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	proofs := map[string]outcome{}
	for _, name := range o.guests {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		readProofs(proofs, string(text))
	}
	list := scenarios()
	tests := map[string]outcome{}
	for dir, names := range byPackage(list) {
		fmt.Fprintf(stderr, "%s: %d tests\n", dir, len(names))
		if err := play(ctx, dir, names, tests); err != nil {
			return err
		}
	}
	var page bytes.Buffer
	bad := report(&page, list, tests, proofs)
	if o.out != "" {
		err = os.WriteFile(o.out, page.Bytes(), 0o644)
	} else {
		_, err = stdout.Write(page.Bytes())
	}
	if len(bad) > 0 {
		err = errors.Join(err, fmt.Errorf("%d scenarios do not hold: %s", len(bad), strings.Join(bad, "; ")))
	}
	return err
}
