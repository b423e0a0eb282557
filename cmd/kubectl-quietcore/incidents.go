package main

import (
	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/fleet"
)

func newIncidents(c *fleet.Cluster) *cobra.Command {
	q := fleet.Incidents{Limit: 50}
	cmd := &cobra.Command{
		Use:   "incidents",
		Short: "who disturbed whom, on all nodes, the newest first",
		Long: `Lists the incidents of all nodes, the newest first. Flags mean what they mean in quietcore
incidents; docs/incidents.md explains the columns.`,
		Example: "  kubectl quietcore incidents --since 24h --victim web\n  kubectl quietcore incidents --active",
		Args:    cli.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&q.Since, "since", "", "TIME of the oldest: 90m, 24h, 7d, a day or a time")
	f.StringVar(&q.Until, "until", "", "TIME before which the newest is")
	f.StringVar(&q.Victim, "victim", "", "JOB that was disturbed")
	f.StringVar(&q.Antagonist, "antagonist", "", "JOB that was blamed")
	f.StringVar(&q.Verdict, "verdict", "", "what followed")
	f.BoolVar(&q.Active, "active", false, "only those with a cap in force")
	f.IntVar(&q.Limit, "limit", q.Limit, "at most so many")
	format := cli.Output(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return c.Incidents(cmd.Context(), cli.StreamsOf(cmd), q, *format)
	}
	return cmd
}
