package main

import (
	"slices"
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
		list := slices.DeleteFunc(all, func(m metrics.Entry) bool {
			return len(args) > 0 && !strings.Contains(m.Name, args[0])
		})
		if *format == "json" {
			return cli.WriteJSON(cmd.OutOrStdout(), list)
		}
		if len(list) == 0 {
			return cli.Usage("no metric's name contains %q", args[0])
		}
		return metrics.WriteCatalogue(cmd.OutOrStdout(), list)
	}
	return cmd
}
