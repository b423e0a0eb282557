package main

import (
	"github.com/spf13/cobra"

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
show has everything about one; export makes Parquet, OpenTelemetry's log records, CSV or JSON of them.
Flags mean what they mean in quietcore incidents; docs/incidents.md explains the columns.`
	cmd.Example = `  kubectl quietcore incidents --since 24h --victim web
  kubectl quietcore incidents top --victim web --since 24h
  kubectl quietcore incidents show 20261121-1200`
	list := newIncidentsList(c)
	cmd.AddCommand(list, newIncidentsTop(c), newIncidentsShow(c), newIncidentsExport(c))
	cmd.Args = cli.NoSuchCommand
	return cmd
}

func newIncidentsList(c *fleet.Cluster) *cobra.Command {
	cmd := report.ListCommand(func(cmd *cobra.Command, f incidents.Filter, format string) error {
		return c.Incidents(cmd.Context(), cli.StreamsOf(cmd), f, format)
	})
	cmd.Short = "list incidents of all nodes, the newest first"
	cmd.Flags().Lookup("limit").Usage = "at most so many, up to 10000"
	return cmd
}

func newIncidentsTop(c *fleet.Cluster) *cobra.Command {
	cmd := report.TopCommand(func(cmd *cobra.Command, q incidents.TopQuery, format string) error {
		return c.IncidentsTop(cmd.Context(), cli.StreamsOf(cmd), q, format)
	})
	cmd.Short = "who hurt a job most, or whom a job hurt, over all nodes"
	cmd.Example = "  kubectl quietcore incidents top --victim web --since 24h\n" +
		"  kubectl quietcore incidents top --antagonist video --by excess"
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
