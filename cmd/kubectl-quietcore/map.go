package main

import (
	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/fleet"
)

func newMap(c *fleet.Cluster) *cobra.Command {
	var draw bool
	cmd := &cobra.Command{
		Use:   "map",
		Short: "the pools of every node; with --draw the machines",
		Long: `Shows for every node its CPUs, its pools, how many pods own CPUs, how many containers run and are
capped. With --draw each node's machine, as quietcore status draws it.`,
		Example: "  kubectl quietcore map\n  kubectl quietcore map --draw --node worker-7",
		Args:    cli.NoArgs,
	}
	cmd.Flags().BoolVar(&draw, "draw", false, "draw the machines")
	format := cli.Output(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if draw && *format == "json" {
			return cli.Usage("--draw and -o json exclude each other")
		}
		if draw {
			return c.Draw(cmd.Context(), cmd.OutOrStdout())
		}
		return c.Map(cmd.Context(), cmd.OutOrStdout(), *format)
	}
	return cmd
}
