package main

import (
	"math"

	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/paper"
)

func newReclaim() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reclaim",
		Short: "ask about lending idle CPUs",
	}
	return cli.Group(cmd, newReclaimReplay())
}

func newReclaimReplay() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replay FILE.csv",
		Short: "run the estimator of idle CPUs on recorded data",
		Long: `Reads a CSV file with the columns time (seconds), pod, class (prod or batch), request
and usage (CPUs); an empty usage is a sample that is missing, other columns are left out. Prints
one JSON line an interval, which is one distinct time, from past and present rows only: what may
be promised to batch pods, which of them are idle, who would be evicted. The last line sums up.
FILE may be - for standard input.`,
		Example: "  quietcore reclaim replay --capacity 64 node.csv\n  quietcore reclaim replay --capacity 64 " +
			"--from usage node.csv | tail -n 1 | jq .violationRatio",
		Args: cli.OneArg("the recorded data"),
	}
	cli.Output(cmd, "json")
	var with paper.Reclaim
	cmd.Flags().Float64Var(&with.Capacity, "capacity", 0, "CPUs of the node")
	cmd.Flags().StringVar(&with.From, "from", "",
		"what supply is measured against: slack (production's requests) or usage (the peak it is expected to use)")
	cmd.Flags().StringVar(&with.Config, "config", "", "configuration file, of which the part reclaim is used")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !cmd.Flags().Changed("capacity") || !(with.Capacity > 0 && with.Capacity <= math.MaxInt32) {
			return cli.Usage(
				"--capacity is %v; give the CPUs of the node that the data are of, more than 0 and at most %d",
				with.Capacity, math.MaxInt32)
		}
		return paper.ReplayReclaim(cli.StreamsOf(cmd), args[0], with)
	}
	return cmd
}
