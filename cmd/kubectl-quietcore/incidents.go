package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/fleet"
	"github.com/quietcore/quietcore/internal/incidents"
	"github.com/quietcore/quietcore/internal/incidents/report"
)

func newIncidents(c *fleet.Cluster) *cobra.Command {
	cmd := newIncidentsList(c)
	cmd.Use = "incidents"
	cmd.Short = "who disturbed whom, on all nodes"
	cmd.Long = `Without another word it lists incidents of all nodes, the newest first; top ranks who hurt a job most;
show has everything about one. Flags mean what they mean in quietcore incidents; docs/incidents.md
explains the columns.`
	cmd.Example = `  kubectl quietcore incidents --since 24h --victim web
  kubectl quietcore incidents top --victim web --since 24h
  kubectl quietcore incidents show 20261121-1200`
	list := newIncidentsList(c)
	cmd.AddCommand(list, newIncidentsTop(c), newIncidentsShow(c))
	cmd.Args = cli.NoSuchCommand
	return cmd
}

func filterFlags(flags *pflag.FlagSet, f *report.Filter) {
	flags.StringVar(&f.SinceText, "since", "", "TIME of the oldest: 90m, 24h, 7d, a day or a time")
	flags.StringVar(&f.UntilText, "until", "", "TIME before which the newest is")
	flags.StringVar(&f.Victim, "victim", "", "JOB that was disturbed")
	flags.StringVar(&f.Antagonist, "antagonist", "", "JOB that was blamed")
}

func newIncidentsList(c *fleet.Cluster) *cobra.Command {
	var f report.Filter
	verdicts := []string{incidents.None, incidents.Observe, incidents.Test, incidents.Cap, incidents.Move}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "list incidents of all nodes, the newest first",
		Args:  cli.NoArgs,
	}
	filterFlags(cmd.Flags(), &f)
	cmd.Flags().StringVar(&f.Verdict, "verdict", "", fmt.Sprintf("what followed: one of %v", verdicts))
	cmd.Flags().BoolVar(&f.Active, "active", false, "only those with a cap in force")
	cmd.Flags().IntVar(&f.Limit, "limit", 50, "at most so many")
	cli.Completes(cmd, "verdict", verdicts...)
	format := cli.Output(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.Parse(time.Now()); err != nil {
			return err
		}
		if f.Verdict != "" {
			if err := cli.OneOf("verdict", f.Verdict, verdicts...); err != nil {
				return err
			}
		}
		return c.Incidents(cmd.Context(), cli.StreamsOf(cmd), f.Filter, *format)
	}
	return cmd
}

func newIncidentsTop(c *fleet.Cluster) *cobra.Command {
	var f report.Filter
	var by, group string
	orders := []string{incidents.ByIncidents, incidents.ByCapped, incidents.ByScore, incidents.ByExcess}
	groups := []string{incidents.GroupJob, incidents.GroupPod}
	cmd := &cobra.Command{
		Use:   "top",
		Short: "who hurt a job most, or whom a job hurt, over all nodes",
		Long: `Ranks the antagonists of a victim, or the victims of an antagonist, or all antagonists, by the
incidents of all nodes together. Columns mean what they mean in quietcore incidents top.`,
		Example: "  kubectl quietcore incidents top --victim web --since 24h\n" +
			"  kubectl quietcore incidents top --antagonist video --by excess",
		Args: cli.NoArgs,
	}
	filterFlags(cmd.Flags(), &f)
	cmd.Flags().IntVar(&f.Limit, "limit", 20, "at most so many; 0: all")
	cmd.Flags().StringVar(&by, "by", incidents.ByIncidents, fmt.Sprintf("what decides: one of %v", orders))
	cmd.Flags().StringVar(&group, "group", incidents.GroupJob, fmt.Sprintf("what a line is: one of %v", groups))
	cli.Completes(cmd, "by", orders...)
	cli.Completes(cmd, "group", groups...)
	format := cli.Output(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := errors.Join(f.Parse(time.Now()), cli.OneOf("by", by, orders...),
			cli.OneOf("group", group, groups...)); err != nil {
			return err
		}
		return c.IncidentsTop(cmd.Context(), cli.StreamsOf(cmd), incidents.TopQuery{Victim: f.Victim,
			Antagonist: f.Antagonist, Since: f.Since, Until: f.Until, Limit: f.Limit, By: by, Group: group}, *format)
	}
	return cmd
}

func newIncidentsShow(c *fleet.Cluster) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show ID",
		Short:   "everything about one incident, of whatever node",
		Long:    "Shows one incident. Of its ID as much is enough as no other one begins with.",
		Example: "  kubectl quietcore incidents show 20261121-1200",
		Args:    cli.OneArg("the ID of an incident, or its beginning"),
	}
	format := cli.Output(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.IncidentsShow(cmd.Context(), cli.StreamsOf(cmd), args[0], *format)
	}
	return cmd
}
