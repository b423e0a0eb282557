package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/fleet"
	"github.com/quietcore/quietcore/internal/incidents/report"
)

func newReport(c *fleet.Cluster) *cobra.Command {
	var f report.Filter
	cmd := &cobra.Command{
		Use:   "report",
		Short: "what the last day was like on all nodes, and what enforcing would have changed",
		Long: `Shows for every node how many owners of CPUs shared cores from which enforcing parts them, how many
incidents there were and how many minutes somebody was disturbed, the pods that were or would be
refused, the CPUs that were allocated and idle, and those that could be lent; then who was disturbed
longest, and who left most CPUs idle, over all nodes. With --node NAME it has all that quietcore
report says there; with -o json it has that of every node.`,
		Example: "  kubectl quietcore report\n  kubectl quietcore report --node worker-7 --since 8h\n" +
			"  kubectl quietcore report -l pool=batch -o json",
		Args: cli.NoArgs,
	}
	cmd.Flags().StringVar(&f.SinceText, "since", "24h", "TIME of the beginning: 90m, 24h, a day or a time")
	cmd.Flags().StringVar(&f.UntilText, "until", "", "TIME of the end")
	cmd.Flags().IntVar(&f.Limit, "limit", 10, "at most so many lines of each list; 0: all")
	format := cli.Output(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.Parse(time.Now()); err != nil {
			return err
		}
		return c.Report(cmd.Context(), cli.StreamsOf(cmd),
			control.ReportQuery{Since: f.Since, Until: f.Until, Limit: f.Limit}, *format)
	}
	return cmd
}
