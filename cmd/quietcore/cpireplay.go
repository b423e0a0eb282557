package main

import (
	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/paper"
)

func newCPI() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cpi",
		Short: "ask the detector of CPI antagonists",
	}
	return cli.Group(cmd, newCPIReplay())
}

func newCPIReplay() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replay FILE.csv",
		Short: "run the detector on recorded samples",
		Long: `Reads a CSV file with the columns time (seconds), container, job, class (LSE, LSR, LS, BATCH or
BE), usage (CPU-seconds per second), cpi or both cycles and instructions, and optionally platform,
release (the version of the job: a new one may need other CPIs), mpki (LLC misses in a thousand
instructions), wait (share of the time that it waited for a CPU; checked, and not used yet) and window
(seconds that a row's window stands for: shorter than an interval's, it is a test's alone). Prints JSON
lines in the order of time: what is normal (spec), outliers, anomalies, an analysis with the score of
every suspect, and the caps, probes and uncaps that enforcing would bring. In each, container is the
victim and antagonist the one that is blamed, tested, capped or uncapped. The last line sums up.

The detector default throttles suspects at random times and watches the victim. In a record of the past
nothing follows from that, so that it blames hardly anybody: --interactive lets a caller play what
follows. An empty line ends an interval then; everything that follows from it is written, and after it
{"event":"tick","time":SECONDS}. A probe lasts until its until, a cap until its until or an uncap. Where
there is a column window, probes last cpi.probe.window, and so may the windows between two intervals' own
while one is under way. The coins follow from --seed, the pair and the window alone: later rows change no earlier line.

What is normal is learned from the rows before, never from later ones, unless --specs gives it:
JSON lines of job, platform, mean, stddev, samples and tasks. FILE may be - for standard input.`,
		Example: "  quietcore cpi replay node.csv\n  quietcore cpi replay --detector classic --specs specs.jsonl " +
			"node.csv | jq 'select(.event == \"cap\")'\n  ./machine | quietcore cpi replay --interactive --seed 7 -",
		Args: cli.OneArg("the recorded data"),
	}
	cli.Output(cmd, "json")
	var with paper.CPI
	cmd.Flags().StringVar(&with.Config, "config", "", "configuration file, of which the part cpi is used")
	cmd.Flags().StringVar(&with.Specs, "specs", "", "file of specs; they alone say what is normal then")
	cmd.Flags().StringVar(&with.Detector, "detector", "",
		"classic (the paper to the letter), contrast (what the daemon does as default today) or default (by "+
			"experiment); over the configuration's")
	cmd.Flags().DurationVar(&with.Period, "period", 0,
		"time between two samples of a container (the median of the data where left out)")
	probe := cmd.Flags().Float64("probe", config.Default().CPI.Probe.Budget,
		"minutes an hour that probes of innocents may take for one victim, over the configuration's "+
			"cpi.probe.budget; 0: nobody is probed, and nobody capped by the default detector")
	cmd.Flags().Uint64Var(&with.Seed, "seed", 1, "of the coins")
	cmd.Flags().BoolVar(&with.Interactive, "interactive", false,
		"an empty line ends an interval, which is answered at once")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("probe") {
			with.Probe = probe
		}
		return paper.ReplayCPI(cli.StreamsOf(cmd), args[0], with)
	}
	return cmd
}
