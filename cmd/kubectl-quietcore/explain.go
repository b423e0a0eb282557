package main

import (
	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/fleet"
)

func newExplain(c *fleet.Cluster) *cobra.Command {
	return &cobra.Command{
		Use:   "explain NAMESPACE/POD[/CONTAINER]",
		Short: "why a pod has the CPUs it has, wherever it runs",
		Long: `Asks the daemon of the pod's node. Where the pod may not be read, or is gone, every node is asked;
CPUs of a pod are its own until it has ended.`,
		Example: "  kubectl quietcore explain shop/db\n  kubectl quietcore explain shop/db/main",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || !fleet.IsPod(args[0]) {
				return cli.Usage("%s takes NAMESPACE/POD or NAMESPACE/POD/CONTAINER, got %q", cmd.CommandPath(), args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.Explain(cmd.Context(), cmd.OutOrStdout(), args[0])
		},
	}
}
