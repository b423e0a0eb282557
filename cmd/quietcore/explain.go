package main

import (
	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/control/show"
)

func newExplain() *cobra.Command {
	var o show.Options
	cmd := &cobra.Command{
		Use:   "explain NAMESPACE/POD[/CONTAINER]",
		Short: "why a pod has the CPUs it has",
		Long: `Asks the running daemon where the containers of a pod may run, and why there. docs/explain.md
lists the keys of -o json, which stay.`,
		Example: "  quietcore explain default/web\n  quietcore explain default/web/main\n" +
			"  quietcore explain default/web -o json | jq '.containers[].why'",
		Args: cli.OneArg("NAMESPACE/POD[/CONTAINER]"),
	}
	socketFlag(cmd, &o.Client.Socket)
	format := cli.Output(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.To, o.Format = cmd.OutOrStdout(), *format
		return show.Explain(cmd.Context(), o, args[0])
	}
	return cmd
}
