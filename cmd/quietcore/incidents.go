package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/incidents"
	"github.com/quietcore/quietcore/internal/incidents/export"
	"github.com/quietcore/quietcore/internal/incidents/plot"
	"github.com/quietcore/quietcore/internal/printable"
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

// incidentSource is where the answers come from.
type incidentSource struct{ socket, database string }

func (s *incidentSource) flags(cmd *cobra.Command) {
	socketFlag(cmd, &s.socket)
	cmd.Flags().StringVar(&s.database, "database", "", "read this file, of a daemon that does not run")
	_ = cmd.MarkFlagFilename("database", "db") // it exists: defined above
}

// with opens the source, lets do use it, and closes it.
func (s *incidentSource) with(do func(incidents.Source) error) error {
	if s.database == "" {
		return do(control.Client{Socket: s.socket}.Incidents())
	}
	r, err := incidents.OpenReader(s.database, time.Now())
	if err != nil {
		return err
	}
	return errors.Join(do(r), r.Close())
}

// incidentFilter is a filter as flags have it.
type incidentFilter struct {
	incidents.Filter
	since, until string
}

func (f *incidentFilter) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.since, "since", "", "TIME of the oldest")
	cmd.Flags().StringVar(&f.until, "until", "", "TIME before which the newest is")
	cmd.Flags().StringVar(&f.Victim, "victim", "", "JOB that was disturbed")
	cmd.Flags().StringVar(&f.Antagonist, "antagonist", "", "JOB that was blamed")
	for _, name := range []string{"since", "until"} {
		cli.Completes(cmd, name, "1h", "24h", "7d", "30d")
	}
}

func (f *incidentFilter) parse(now time.Time) (err error) {
	if f.Since, err = parseWhen("since", f.since, now); err != nil {
		return err
	}
	if f.Until, err = parseWhen("until", f.until, now); err != nil {
		return err
	}
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		return cli.Usage("--since %s is not before --until %s", f.Since.Format(time.RFC3339),
			f.Until.Format(time.RFC3339))
	}
	if f.Limit < 0 {
		return cli.Usage("--limit is %d, must be 0 (no limit) or more", f.Limit)
	}
	return nil
}

// parseWhen reads a duration back from now, a day or a time.
func parseWhen(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		const most = 100_000
		if n, err := strconv.ParseFloat(days, 64); err == nil && n >= 0 && n < most {
			return now.Add(-time.Duration(n * float64(24*time.Hour))), nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, form := range []string{time.RFC3339Nano, "2006-01-02T15:04", "2006-01-02 15:04", time.DateTime,
		time.DateOnly} {
		if t, err := time.ParseInLocation(form, text, time.UTC); err == nil {
			return t, nil
		}
	}
	return time.Time{},
		cli.Usage("--%s is %q; give a duration back from now (90m, 24h, 7d), a day (2026-11-21) or a time "+
			"(2026-11-21T12:00:00Z)", flag, text)
}

func newIncidentsList() *cobra.Command {
	var s incidentSource
	var f incidentFilter
	verdicts := []string{incidents.None, incidents.Observe, incidents.Cap, incidents.Move}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "list incidents, the newest first",
		Args:  cli.NoArgs,
	}
	s.flags(cmd)
	f.flags(cmd)
	cmd.Flags().StringVar(&f.Verdict, "verdict", "", fmt.Sprintf("what followed: one of %v", verdicts))
	cmd.Flags().BoolVar(&f.Active, "active", false, "only those with a cap in force")
	cmd.Flags().IntVar(&f.Limit, "limit", 50, "at most so many; 0: all")
	cli.Completes(cmd, "verdict", verdicts...)
	format := cli.Output(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.parse(time.Now()); err != nil {
			return err
		}
		if f.Verdict != "" {
			if err := cli.OneOf("verdict", f.Verdict, verdicts...); err != nil {
				return err
			}
		}
		return s.with(func(from incidents.Source) error {
			l, err := from.List(cmd.Context(), f.Filter)
			if err != nil {
				return err
			}
			if *format == "json" {
				return cli.WriteJSON(cmd.OutOrStdout(), l)
			}
			return printed(cmd.OutOrStdout(), func(w io.Writer, columns int) { writeListing(w, columns, l) })
		})
	}
	return cmd
}

// printed writes what text makes for a terminal of so many columns, at once: a disk
// that is full is told then.
func printed(w io.Writer, text func(w io.Writer, columns int)) error {
	var b bytes.Buffer
	text(&b, terminalColumns(w))
	_, err := w.Write(b.Bytes())
	return err
}

func writeListing(w io.Writer, columns int, l *incidents.Listing) {
	if len(l.Incidents) == 0 {
		if l.Kept == 0 {
			fmt.Fprintln(w, "No incidents are kept.")
		} else {
			fmt.Fprintf(w, "None matches; %d are kept, the oldest of %s.\n", l.Kept,
				l.Oldest.UTC().Format(time.DateTime))
		}
		return
	}
	t := textTable{head: []string{"ID", "VICTIM", "CPI", "NORMAL", "VERDICT", "ANTAGONIST", "CAPPED", "RESULT"},
		flexible: []int{1, 5}}
	for _, i := range l.Incidents {
		var capped float64
		who := ""
		for n, a := range i.Antagonists {
			capped += a.CappedSeconds
			if n == 0 {
				who = a.Namespace + "/" + a.Pod
			}
		}
		if n := len(i.Antagonists); n > 1 {
			who += fmt.Sprintf(" +%d", n-1)
		}
		result := i.Result
		if i.Active {
			result = "in force"
		}
		t.row(i.ID, i.Victim.Namespace+"/"+i.Victim.Pod, twoDigits(i.CPI), twoDigits(i.Mean), i.Verdict, who,
			lasted(capped), result)
	}
	t.write(w, columns)
	if l.More {
		fmt.Fprintln(w, "There are more; --limit shows them.")
	}
	warnDamaged(w, l.Damaged)
}

func warnDamaged(w io.Writer, n int) {
	if n > 0 {
		fmt.Fprintf(w, "%d incidents are damaged and left out.\n", n)
	}
}

func twoDigits(v float64) string {
	if v == 0 {
		return "-"
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

func lasted(s float64) string {
	if s == 0 {
		return "-"
	}
	return (time.Duration(s * float64(time.Second))).Round(time.Second).String()
}

// terminalColumns is the width of the terminal that w is; 0: as wide as need be.
func terminalColumns(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0
	}
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	n, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return n
}

// textTable is a table that fits into a terminal: flexible columns are cut first,
// and where that is not enough each row becomes lines of its own.
type textTable struct {
	head     []string
	flexible []int
	rows     [][]string
}

func (t *textTable) row(cells ...string) {
	for n := range cells {
		cells[n] = printable.Text(cells[n])
	}
	t.rows = append(t.rows, cells)
}

const tableGap = 2

func (t *textTable) write(w io.Writer, width int) {
	const least = 12
	all := append([][]string{t.head}, t.rows...)
	widths := make([]int, len(t.head))
	total := -tableGap
	for n := range widths {
		for _, r := range all {
			widths[n] = max(widths[n], len(r[n]))
		}
		total += widths[n] + tableGap
	}
	for width > 0 && total > width {
		widest := slices.MaxFunc(t.flexible, func(a, b int) int { return widths[a] - widths[b] })
		if widths[widest] <= least {
			t.stack(w, width)
			return
		}
		widths[widest]--
		total--
	}
	for _, r := range all {
		line := ""
		for n, cell := range r {
			line += fmt.Sprintf("%-*s", widths[n]+tableGap, fitted(cell, widths[n]))
		}
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
}

// stack writes a row as "NAME value" lines.
func (t *textTable) stack(w io.Writer, width int) {
	label := 0
	for _, h := range t.head {
		label = max(label, len(h))
	}
	for n, r := range t.rows {
		if n > 0 {
			fmt.Fprintln(w)
		}
		for k, cell := range r {
			if cell != "" && cell != "-" {
				fmt.Fprintln(w, fitted(fmt.Sprintf("%-*s %s", label, t.head[k], cell), width))
			}
		}
	}
}

func fitted(text string, width int) string {
	if len(text) <= width || width < 1 {
		return text
	}
	return text[:width-1] + "~"
}

func newIncidentsShow() *cobra.Command {
	var s incidentSource
	var svg string
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "everything about one incident",
		Long:  "Shows one incident. Of its ID as much is enough as no other one begins with.",
		Example: "  quietcore incidents show 20261121-1200\n  quietcore incidents show 20261121-1200 --svg " +
			"incident.svg\n  quietcore incidents show 20261121-1200 -o html > incident.html",
		Args: cli.OneArg("the ID of an incident, or its beginning"),
	}
	s.flags(cmd)
	cmd.Flags().StringVar(&svg, "svg", "", "write a plot of it to this file")
	_ = cmd.MarkFlagFilename("svg", "svg") // it exists: defined above
	format := cli.Output(cmd, "text", "json", "html", "svg")
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		return s.ids(cmd.Context(), len(args)), cobra.ShellCompDirectiveNoFileComp
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return s.with(func(from incidents.Source) error {
			i, err := from.Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if svg != "" {
				if err := toFile(svg, func(w io.Writer) error { return plot.SVG(w, i) }); err != nil {
					return err
				}
				if !cmd.Flags().Changed("output") {
					return nil
				}
			}
			w := cmd.OutOrStdout()
			switch *format {
			case "json":
				return cli.WriteJSON(w, i)
			case "html":
				return plot.HTML(w, i)
			case "svg":
				return plot.SVG(w, i)
			}
			return printed(w, func(w io.Writer, columns int) { writeIncident(w, columns, i) })
		})
	}
	return cmd
}

// ids are the newest, for completion; nothing where nobody answers at once.
func (s *incidentSource) ids(ctx context.Context, given int) (list []string) {
	const most, patience = 50, time.Second
	if given > 0 {
		return nil
	}
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_ = s.with(func(from incidents.Source) error {
		l, err := from.List(ctx, incidents.Filter{Limit: most})
		if err != nil {
			return err
		}
		for _, i := range l.Incidents {
			list = append(list, fmt.Sprintf("%s\t%s %s", i.ID, printable.Text(i.Victim.Name()),
				printable.Text(i.Verdict)))
		}
		return nil
	})
	return list
}

// toFile writes a file as a whole or not at all. A pipe or a device is written to,
// not replaced.
func toFile(name string, write func(io.Writer) error) error {
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(write(f), f.Close())
	}
	f, err := renameio.NewPendingFile(name, renameio.WithPermissions(0o644))
	if err != nil {
		return err
	}
	defer func() { _ = f.Cleanup() }()
	if err := write(f); err != nil {
		return err
	}
	return f.CloseAtomicallyReplace()
}

func writeIncident(w io.Writer, columns int, i *incidents.Incident) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-11s %s\n", name, printable.Text(fmt.Sprintf(format, args...)))
	}
	line("incident", "%s", i.ID)
	line("at", "%s", i.At.UTC().Format(time.RFC3339))
	if i.Node != "" {
		line("node", "%s", i.Node)
	}
	line("victim", "%s (%s, class %s, CPUs %s)", i.Victim.Name(), i.Victim.JobName(), orDash(i.Victim.Class),
		orDash(i.Victim.CPUs))
	line("CPI", "%s, threshold %s", twoDigits(i.CPI), twoDigits(i.Threshold))
	if i.Spec.Mean > 0 {
		band := ""
		if i.Spec.Band >= 0 {
			band = fmt.Sprintf(", usage band %d", i.Spec.Band)
		}
		line("normal", "%s +- %s, from %.0f samples of %d tasks; platform %s%s", twoDigits(i.Spec.Mean),
			twoDigits(i.Spec.StdDev), i.Spec.Samples, i.Spec.Tasks, orDash(i.Spec.Platform), band)
	}
	line("verdict", "%s", i.Verdict)
	if i.Why != "" {
		line("why", "%s", i.Why)
	}
	for _, a := range i.Actions {
		what := a.Kind
		if a.Kind == incidents.Cap {
			what = fmt.Sprintf("cap at %dm", a.Milli)
		}
		end := "until " + a.Until.UTC().Format(time.TimeOnly)
		if !a.Ended.IsZero() {
			end = "ended " + a.Ended.UTC().Format(time.TimeOnly)
		}
		if a.EndedWhy != "" {
			end += ": " + a.EndedWhy
		}
		line("action", "%s of %s from %s, %s", what, a.Subject.Name(), a.From.UTC().Format(time.TimeOnly), end)
	}
	if o := i.Outcome; o.Result != "" {
		line("outcome", "%s: mean CPI %s before, %s after, %d samples", o.Result, twoDigits(o.Before),
			twoDigits(o.After), o.Samples)
	}
	if len(i.Suspects) == 0 {
		fmt.Fprintln(w, "\nNobody else ran.")
		return
	}
	fmt.Fprintln(w)
	t := textTable{head: []string{"SUSPECT", "CLASS", "SCORE", "CONTRAST", "CONFIDENCE", "USAGE", "SHARES", ""},
		flexible: []int{0}}
	for _, s := range i.Suspects {
		mark := ""
		if slices.ContainsFunc(i.Antagonists, s.Same) {
			mark = "antagonist"
		}
		number := func(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }
		t.row(s.Name(), s.Class, number(s.Score), number(s.Contrast), number(s.Confidence), number(s.Usage),
			orDash(s.Shares), mark)
	}
	t.write(w, columns)
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func newIncidentsTop() *cobra.Command {
	var s incidentSource
	var f incidentFilter
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
	s.flags(cmd)
	f.flags(cmd)
	cmd.Flags().IntVar(&f.Limit, "limit", 20, "at most so many; 0: all")
	cmd.Flags().StringVar(&by, "by", incidents.ByIncidents, fmt.Sprintf("what decides: one of %v", orders))
	cmd.Flags().StringVar(&group, "group", incidents.GroupJob, fmt.Sprintf("what a line is: one of %v", groups))
	cli.Completes(cmd, "by", orders...)
	cli.Completes(cmd, "group", groups...)
	format := cli.Output(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := errors.Join(f.parse(time.Now()), cli.OneOf("by", by, orders...),
			cli.OneOf("group", group, groups...)); err != nil {
			return err
		}
		q := incidents.TopQuery{Victim: f.Victim, Antagonist: f.Antagonist, Since: f.Since, Until: f.Until,
			Limit: f.Limit, By: by, Group: group}
		return s.with(func(from incidents.Source) error {
			t, err := from.Top(cmd.Context(), q)
			if err != nil {
				return err
			}
			if *format == "json" {
				return cli.WriteJSON(cmd.OutOrStdout(), t)
			}
			return printed(cmd.OutOrStdout(), func(w io.Writer, columns int) { writeTop(w, columns, q, t) })
		})
	}
	return cmd
}

func writeTop(w io.Writer, columns int, q incidents.TopQuery, top *incidents.Top) {
	what := "ANTAGONIST"
	if q.Antagonist != "" {
		what = "VICTIM"
	}
	if len(top.Ranks) > 0 {
		t := textTable{head: []string{what, "INCIDENTS", "CAPPED", "SCORE", "EXCESS", "HELPED", "LAST"},
			flexible: []int{0}}
		for _, r := range top.Ranks {
			t.row(r.Name, strconv.Itoa(r.Incidents), lasted(r.CappedSeconds), strconv.FormatFloat(r.Score, 'f', 2, 64),
				strconv.FormatFloat(r.Excess, 'f', 2, 64),
				strconv.Itoa(r.Helped), r.Last.UTC().Format(time.DateTime))
		}
		t.write(w, columns)
	}
	if top.More {
		fmt.Fprintln(w, "There are more; --limit shows them.")
	}
	fmt.Fprintf(w, "%d incidents, %d of them without an antagonist.\n", top.Incidents, top.Unexplained)
	warnDamaged(w, top.Damaged)
}

func newIncidentsExport() *cobra.Command {
	var s incidentSource
	var f incidentFilter
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
	s.flags(cmd)
	f.flags(cmd)
	cmd.Flags().StringVar(&format, "format", "", fmt.Sprintf("one of %v; without it what FILE ends in", formats))
	cli.Completes(cmd, "format", formats...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := f.parse(time.Now()); err != nil {
			return err
		}
		if format == "" {
			format = args[0][strings.LastIndexByte(args[0], '.')+1:]
		}
		if err := cli.OneOf("format", format, formats...); err != nil {
			return err
		}
		n := 0
		write := func(w io.Writer) error {
			return s.with(func(from incidents.Source) error {
				to, err := export.To(w, format)
				if err != nil {
					return err
				}
				if err := from.Export(cmd.Context(), f.Filter, func(i *incidents.Incident) error {
					n++
					return to.Write(i)
				}); err != nil {
					return err
				}
				return to.Close()
			})
		}
		if args[0] == "-" {
			return write(cmd.OutOrStdout())
		}
		if err := toFile(args[0], write); err != nil {
			return err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%d incidents are in %s\n", n, args[0])
		return nil
	}
	return cmd
}
