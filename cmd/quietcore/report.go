package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/control/show"
	"github.com/quietcore/quietcore/internal/incidents/report"
)

func newReport() *cobra.Command {
	var o show.Options
	var f report.Filter
	cmd := &cobra.Command{
		Use:   "report",
		Short: "what the last day was like, and what enforcing would have changed",
		Long: `Says of this node which pods shared cores with a pod that asks for CPUs of its own, and from which of
them enforcing parts it; which jobs were disturbed, for how long and by whom; which CPUs were allocated
and idle, and how many could be lent; and what enforcing would have cost whom. It is for a daemon in
mode observe. With mode enforce it says what is left.

The daemon looks every minute and keeps sums by the hour, of 25 hours. In mode observe they are gone when
the node restarts. Incidents are kept longer: quietcore incidents lists them.`,
		Example: "  quietcore report\n  quietcore report --since 8h --limit 0\n" +
			"  quietcore report -o json | jq '.costs[] | select(.kind == \"refused\")'",
		Args: cli.NoArgs,
	}
	socketFlag(cmd, &o.Client.Socket)
	cmd.Flags().StringVar(&f.SinceText, "since", "24h", "TIME of the beginning: 90m, 24h, a day or a time")
	cmd.Flags().StringVar(&f.UntilText, "until", "", "TIME of the end")
	cmd.Flags().IntVar(&f.Limit, "limit", 10, "at most so many lines of each list; 0: all")
	format := cli.Output(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.Parse(time.Now()); err != nil {
			return err
		}
		o.To, o.Format = cmd.OutOrStdout(), *format
		return show.Report(cmd.Context(), o, control.ReportQuery{Since: f.Since, Until: f.Until, Limit: f.Limit})
	}
	return cmd
}
