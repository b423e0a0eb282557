package main

import (
	"errors"
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
  quietcore incidents export --format parquet incidents.parquet`
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

func filterFlags(cmd *cobra.Command, f *report.Filter) {
	cmd.Flags().StringVar(&f.SinceText, "since", "", "TIME of the oldest")
	cmd.Flags().StringVar(&f.UntilText, "until", "", "TIME before which the newest is")
	cmd.Flags().StringVar(&f.Victim, "victim", "", "JOB that was disturbed")
	cmd.Flags().StringVar(&f.Antagonist, "antagonist", "", "JOB that was blamed")
	for _, name := range []string{"since", "until"} {
		cli.Completes(cmd, name, "1h", "24h", "7d", "30d")
	}
}

func newIncidentsList() *cobra.Command {
	var s report.Source
	var f report.Filter
	verdicts := []string{incidents.None, incidents.Observe, incidents.Test, incidents.Cap, incidents.Move}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "list incidents, the newest first",
		Args:  cli.NoArgs,
	}
	sourceFlags(cmd, &s)
	filterFlags(cmd, &f)
	cmd.Flags().StringVar(&f.Verdict, "verdict", "", fmt.Sprintf("what followed: one of %v", verdicts))
	cmd.Flags().BoolVar(&f.Active, "active", false, "only those with a cap in force")
	cmd.Flags().IntVar(&f.Limit, "limit", 50, "at most so many; 0: all")
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
		return report.List(cmd.Context(), &s, f.Filter, report.Output{To: cmd.OutOrStdout(), Format: *format})
	}
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
	var f report.Filter
	var by, group string
	orders := []string{incidents.ByIncidents, incidents.ByCapped, incidents.ByScore, incidents.ByExcess}
	groups := []string{incidents.GroupJob, incidents.GroupPod}
	cmd := &cobra.Command{
		Use:   "top",
		Short: "who hurt a job most, or whom a job hurt",
		Long: `Ranks the antagonists of a victim, or the victims of an antagonist, or all
antagonists. EXCESS adds up how far above its normal CPI the victim was in each
incident, shared among those blamed for it: 1.00 is once its whole normal CPI.`,
		Example: "  quietcore incidents top --victim web --since 24h\n  quietcore incidents top --antagonist video " +
			"--by excess",
		Args: cli.NoArgs,
	}
	sourceFlags(cmd, &s)
	filterFlags(cmd, &f)
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
		q := incidents.TopQuery{Victim: f.Victim, Antagonist: f.Antagonist, Since: f.Since, Until: f.Until,
			Limit: f.Limit, By: by, Group: group}
		return report.Top(cmd.Context(), &s, q, report.Output{To: cmd.OutOrStdout(), Format: *format})
	}
	return cmd
}

func newIncidentsExport() *cobra.Command {
	var s report.Source
	var f report.Filter
	var format string
	formats := []string{export.CSV, export.Parquet}
	cmd := &cobra.Command{
		Use:   "export FILE",
		Short: "write incidents for other programs",
		Long: `Writes incidents, the oldest first: as CSV with a line for each suspect, or as Parquet
with a row for each incident and everything in it. FILE - is standard output.`,
		Example: "  quietcore incidents export --format parquet --since 7d incidents.parquet\n  quietcore incidents " +
			"export --format csv - | head",
		Args: cli.OneArg("the FILE to write, or -"),
	}
	sourceFlags(cmd, &s)
	filterFlags(cmd, &f)
	cmd.Flags().StringVar(&format, "format", "", fmt.Sprintf("one of %v; without it what FILE ends in", formats))
	cli.Completes(cmd, "format", formats...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := f.Parse(time.Now()); err != nil {
			return err
		}
		if format == "" {
			format = args[0][strings.LastIndexByte(args[0], '.')+1:]
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
