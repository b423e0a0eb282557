// Command evalcpi measures the detector on simulated machines whose truth is known: how
// often it finds the antagonist, and how often it blames an innocent. It also measures
// the two definitions of "normal" on real CPIs. It prints tables and, with -write, puts
// them and a plot into docs/cpi.md.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	trials := flag.Int("trials", 1000, "trials a cell")
	seed := flag.Uint64("seed", 1, "of the first trial")
	docs := flag.String("write", "", "folder of cpi.md: put the tables and the plot there")
	google := flag.String("google", "", "google2019_cpi_sample.csv.gz: judge real CPIs too")
	flag.Parse()
	if err := run(options{trials: *trials, seed: *seed, docs: *docs, google: *google}); err != nil {
		fmt.Fprintln(os.Stderr, "evalcpi:", err)
		os.Exit(1)
	}
}

type options struct {
	trials       int
	seed         uint64
	docs, google string
}

func run(o options) error {
	if o.trials < 1 {
		return fmt.Errorf("%d trials a cell; there must be at least one", o.trials)
	}
	var real *googleResult
	if o.google != "" {
		jobs, err := readGoogle(o.google)
		if err != nil {
			return err
		}
		if real, err = judgeGoogle(jobs); err != nil {
			return err
		}
	}
	s, err := survey(o.trials, o.seed, func(c *cell) {
		fmt.Fprintf(os.Stderr, "%s, effect %.1f, %d suspects: %d of %d caps right, recall %.3f\n", c.mode, c.effect,
			c.suspects, c.right, c.right+c.wrong, c.recall())
	})
	if err != nil {
		return err
	}
	s.google = real
	fmt.Print(s.markdown())
	if o.docs != "" {
		if err := s.write(o.docs); err != nil {
			return err
		}
	}
	return s.target()
}
