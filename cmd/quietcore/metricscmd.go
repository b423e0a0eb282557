package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/docs"
)

func newMetrics() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "metrics [PATTERN]",
		Short: "print the catalogue of metrics",
		Long: `Prints every metric that the daemon may have: name, type, labels, meaning; with PATTERN those whose
name contains it. It is the table of docs/metrics.md, which a test holds to what the daemon serves.`,
		Example: "  quietcore metrics\n  quietcore metrics cpi_ -o json | jq -r '.[].name'",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage("%s takes at most one argument, a part of names; got %d", cmd.CommandPath(), len(args))
			}
			return nil
		},
	}
	format := output(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		list := []metric{}
		for _, m := range catalogue(docs.Metrics) {
			if len(args) == 0 || strings.Contains(m.Name, args[0]) {
				list = append(list, m)
			}
		}
		if *format == "json" {
			return writeJSON(cmd.OutOrStdout(), list)
		}
		if len(list) == 0 {
			return usage("no metric's name contains %q", args[0])
		}
		return writeMetrics(cmd.OutOrStdout(), list)
	}
	return cmd
}

// metric is a line of the catalogue.
type metric struct {
	Name   string `json:"name"`
	Type   string `json:"type"`
	Labels string `json:"labels,omitempty"`
	Help   string `json:"help"`
}

// catalogue reads the page's table. "the same" is the labels of the line above.
func catalogue(page string) []metric {
	var list []metric
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.TrimSpace(line), "|") // the first and the last are empty
		if len(cells) != 6 || !strings.HasPrefix(line, "| `quietcore_") {
			continue
		}
		m := metric{Name: unmarked(cells[1]), Type: unmarked(cells[2]), Labels: unmarked(cells[3]), Help: unmarked(cells[4])}
		if n := len(list); m.Labels == "the same" && n > 0 {
			m.Labels = list[n-1].Labels
		}
		list = append(list, m)
	}
	return list
}

// unmarked takes away what only a page has: quotes of code, and where links lead.
func unmarked(cell string) string {
	var b strings.Builder
	for cell != "" {
		before, rest, found := strings.Cut(cell, "](")
		b.WriteString(before)
		if !found {
			break
		}
		if _, cell, found = strings.Cut(rest, ")"); !found {
			break
		}
	}
	return strings.TrimSpace(strings.NewReplacer("`", "", "[", "").Replace(b.String()))
}

func writeMetrics(w io.Writer, list []metric) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tTYPE\tLABELS\tMEANING")
	for _, m := range list {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", m.Name, m.Type, m.Labels, m.Help)
	}
	return table.Flush()
}
