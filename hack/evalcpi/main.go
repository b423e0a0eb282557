// Command evalcpi measures the detectors on simulated machines whose truth is known: how
// often they find the antagonist, how often they blame an innocent, what the search costs
// the innocents and how much of the disturbance is taken away. It also measures the two
// definitions of "normal" of package detect on real CPIs. It prints tables and, with
// -write, puts them into docs/evidence.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/quietcore/quietcore/hack/evalcpi/world"
)

func main() {
	o := options{}
	flag.IntVar(&o.trials, "trials", 30, "machines of each kind")
	flag.Uint64Var(&o.seed, "seed", 1_000_000, "of the first machine; the constants were tuned on lower ones")
	flag.StringVar(&o.docs, "write", "", "folder of the table detector.md")
	flag.StringVar(&o.google, "google", "", "google2019_cpi_sample.csv.gz: judge real CPIs too")
	flag.BoolVar(&o.scores, "scores", false, "only count how often the most suspicious job is guilty, by its score")
	kinds := flag.String("kinds", "", "only these, separated by commas")
	only := flag.String("detectors", strings.Join(names(detectors()), ","), "which detectors")
	flag.Parse()
	err := o.choose(*kinds, *only)
	if err == nil {
		err = run(o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "evalcpi:", err)
		os.Exit(1)
	}
}

type options struct {
	trials       int
	seed         uint64
	docs, google string
	scores       bool
	kinds        []world.Kind
	detectors    []detector
}

// choose kinds and detectors by name.
func (o *options) choose(kinds, only string) error {
	all := slices.Concat(world.WithGuilty(), world.Calm(), world.QueuesWithGuilty(), world.CalmQueues())
	o.kinds = all
	if kinds != "" {
		o.kinds = nil
		for name := range strings.SplitSeq(kinds, ",") {
			if !slices.Contains(all, world.Kind(name)) {
				return fmt.Errorf("kind %q is not known; there are %v", name, all)
			}
			o.kinds = append(o.kinds, world.Kind(name))
		}
	}
	for name := range strings.SplitSeq(only, ",") {
		at := slices.IndexFunc(detectors(), func(d detector) bool { return d.name == name })
		if at < 0 {
			return fmt.Errorf("detector %q is not known; there are %v", name, names(detectors()))
		}
		o.detectors = append(o.detectors, detectors()[at])
	}
	if o.trials < 1 {
		return fmt.Errorf("%d machines of each kind; there must be at least one", o.trials)
	}
	return nil
}

func names(list []detector) []string {
	out := make([]string, len(list))
	for i, d := range list {
		out[i] = d.name
	}
	return out
}

func run(o options) error {
	if o.scores {
		var all scores
		for _, kind := range o.kinds {
			if err := all.observe(kind, o.trials, o.seed); err != nil {
				return err
			}
		}
		fmt.Print(&all)
		return nil
	}
	s := &study{options: o}
	if o.google != "" {
		jobs, err := readGoogle(o.google)
		if err != nil {
			return err
		}
		if s.google, err = judgeGoogle(jobs); err != nil {
			return err
		}
	}
	for _, kind := range o.kinds {
		for _, d := range o.detectors {
			c, err := measure(kind, d, o.trials, o.seed)
			if err != nil {
				return err
			}
			s.cells = append(s.cells, c)
			fmt.Fprintln(os.Stderr, c.line())
		}
	}
	fmt.Print(s.markdown())
	if o.docs == "" {
		return nil
	}
	return s.write(o.docs)
}
