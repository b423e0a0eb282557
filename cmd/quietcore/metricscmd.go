package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/metrics"
)

func newMetrics() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "metrics [PATTERN]",
		Short: "print the catalogue of metrics",
		Long: `Prints every metric that the daemon may have: name, type, meaning and labels, with their values where
they can be listed; with PATTERN those whose name contains it. docs/metrics.md is made of it.`,
		Example: "  quietcore metrics\n  quietcore metrics cpi_ -o json | jq -r '.[].name'",
		Args:    cli.AtMostOneArg("a part of names"),
	}
	format := cli.Output(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		all, err := metrics.Catalogue()
		if err != nil {
			return err
		}
		list := []metrics.Entry{}
		for _, m := range all {
			if len(args) == 0 || strings.Contains(m.Name, args[0]) {
				list = append(list, m)
			}
		}
		if *format == "json" {
			return cli.WriteJSON(cmd.OutOrStdout(), list)
		}
		if len(list) == 0 {
			return cli.Usage("no metric's name contains %q", args[0])
		}
		return writeMetrics(cmd.OutOrStdout(), list)
	}
	return cmd
}

func writeMetrics(w io.Writer, list []metrics.Entry) error {
	var b strings.Builder
	for _, m := range list {
		fmt.Fprintf(&b, "%s  %s\n  %s\n", m.Name, m.Type, m.Help)
		for _, l := range m.Labels {
			if l.Values == nil {
				fmt.Fprintf(&b, "  %s\n", l.Name)
				continue
			}
			fmt.Fprintf(&b, "  %s: %s\n", l.Name, strings.Join(l.Values, ", "))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
