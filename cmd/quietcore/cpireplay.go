package main

import (
	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cli"
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
BE), usage (CPU-seconds per second), cpi or both cycles and instructions, and optionally platform;
other columns are left out. Prints JSON lines in the order of time: specs as they are learned,
outliers, anomalies, an analysis with the score of every suspect, and the caps and uncaps that
enforcing would bring. In each, container is the victim and antagonist the one that is blamed or
capped. The last line sums up.

What is normal is learned from the rows before, never from later ones, unless --specs gives it:
JSON lines of job, platform, mean, stddev, samples and tasks. FILE may be - for standard input.`,
		Example: "  quietcore cpi replay node.csv\n  quietcore cpi replay --detector classic --specs specs.jsonl " +
			"node.csv | jq 'select(.event == \"cap\")'",
		Args: cli.OneArg("the recorded data"),
	}
	cli.Output(cmd, "json")
	var with paper.CPI
	cmd.Flags().StringVar(&with.Config, "config", "", "configuration file, of which the part cpi is used")
	cmd.Flags().StringVar(&with.Specs, "specs", "", "file of specs; they alone say what is normal then")
	cmd.Flags().StringVar(&with.Detector, "detector", "",
		"classic (the paper to the letter) or default; over the configuration's")
	cmd.Flags().DurationVar(&with.Period, "period", 0,
		"time between two samples of a container (the median of the data where left out)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return paper.ReplayCPI(cli.StreamsOf(cmd), args[0], with)
	}
	return cmd
}
