package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/incidents"
	"github.com/quietcore/quietcore/internal/incidents/export"
	"github.com/quietcore/quietcore/internal/incidents/report"
)

// newIncidents is `quietcore incidents`; without another word it lists.
func newIncidents() *cobra.Command {
	cmd := newIncidentsList()
	cmd.Use = "incidents"
	cmd.Short = "who disturbed whom, what was done, and whether it helped"
	cmd.Long = `Asks the running daemon about interference on this node: which container ran slower
than is normal for its job, who was suspected, what was done, and whether that helped.
With --database it reads the file of a daemon that does not run.

JOB is a job (web, Deployment/web, default/web), a pod (default/web-x2x9q) or
NAMESPACE/POD/CONTAINER. TIME is a duration back from now (90m, 24h, 7d), a day
(2026-11-21) or a time (2026-11-21T12:00:00Z).`
	cmd.Example = `  quietcore incidents --since 24h --victim web
  quietcore incidents show 20261121-1200 --svg incident.svg
  quietcore incidents top --victim web --since 7d
  quietcore incidents export incidents.csv`
	list := newIncidentsList()
	cmd.AddCommand(list, newIncidentsShow(), newIncidentsTop(), newIncidentsExport())
	cmd.Args = cli.NoSuchCommand
	return cmd
}

func sourceFlags(cmd *cobra.Command, s *report.Source) {
	socketFlag(cmd, &s.Socket)
	cmd.Flags().StringVar(&s.Database, "database", "", "read this file, of a daemon that does not run")
	_ = cmd.MarkFlagFilename("database", "db") // it exists: defined above
}

func newIncidentsList() *cobra.Command {
	var s report.Source
	cmd := report.ListCommand(func(cmd *cobra.Command, f incidents.Filter, format string) error {
		return report.List(cmd.Context(), &s, f, report.Output{To: cmd.OutOrStdout(), Format: format})
	})
	sourceFlags(cmd, &s)
	return cmd
}

func newIncidentsShow() *cobra.Command {
	var s report.Source
	var svg string
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "everything about one incident",
		Long:  "Shows one incident. Of its ID as much is enough as no other one begins with.",
		Example: "  quietcore incidents show 20261121-1200\n  quietcore incidents show 20261121-1200 --svg " +
			"incident.svg\n  quietcore incidents show 20261121-1200 -o html > incident.html",
		Args: cli.OneArg("the ID of an incident, or its beginning"),
	}
	sourceFlags(cmd, &s)
	cmd.Flags().StringVar(&svg, "svg", "", "write a plot of it to this file")
	_ = cmd.MarkFlagFilename("svg", "svg") // it exists: defined above
	format := cli.Output(cmd, "text", "json", "html", "svg")
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return s.IDs(cmd.Context()), cobra.ShellCompDirectiveNoFileComp
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		out := report.Output{To: cmd.OutOrStdout(), Format: *format}
		if svg != "" && !cmd.Flags().Changed("output") {
			out.Format = ""
		}
		return report.Show(cmd.Context(), &s, args[0], svg, out)
	}
	return cmd
}

func newIncidentsTop() *cobra.Command {
	var s report.Source
	cmd := report.TopCommand(func(cmd *cobra.Command, q incidents.TopQuery, format string) error {
		return report.Top(cmd.Context(), &s, q, report.Output{To: cmd.OutOrStdout(), Format: format})
	})
	sourceFlags(cmd, &s)
	cmd.Example = "  quietcore incidents top --victim web --since 24h\n  quietcore incidents top --antagonist video " +
		"--by excess"
	return cmd
}

func newIncidentsExport() *cobra.Command {
	var s report.Source
	var f report.Filter
	var format string
	formats := []string{export.CSV, export.Lines}
	cmd := &cobra.Command{
		Use:   "export FILE",
		Short: "write incidents for other programs",
		Long: `Writes incidents, the oldest first: as CSV with a line for each suspect, or as JSON with a
line for each incident and everything in it, of which kubectl quietcore incidents export makes
Parquet and OTLP. FILE - is standard output.`,
		Example: "  quietcore incidents export --since 7d incidents.jsonl\n  quietcore incidents " +
			"export --format csv - | head",
		Args: cli.OneArg("the FILE to write, or -"),
	}
	sourceFlags(cmd, &s)
	report.FilterFlags(cmd, &f)
	cmd.Flags().StringVar(&format, "format", "", fmt.Sprintf("one of %v; without it what FILE ends in", formats))
	cli.Completes(cmd, "format", formats...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := f.Parse(time.Now()); err != nil {
			return err
		}
		if format == "" {
			format = args[0][strings.LastIndexByte(args[0], '.')+1:]
		}
		if format == "parquet" || format == "otlp" {
			return cli.Usage("export lines (--format %s): kubectl quietcore incidents export --from makes %s of them",
				export.Lines, format)
		}
		if err := cli.OneOf("format", format, formats...); err != nil {
			return err
		}
		if args[0] == "-" {
			_, err := report.Export(cmd.Context(), &s, f.Filter, report.Output{To: cmd.OutOrStdout(), Format: format})
			return err
		}
		n, err := report.ExportFile(cmd.Context(), &s, f.Filter, args[0], format)
		if err == nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "%d incidents are in %s\n", n, args[0])
		}
		return err
	}
	return cmd
}
