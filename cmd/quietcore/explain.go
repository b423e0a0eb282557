package main

import (
	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/control/show"
)

func newExplain() *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use:     "explain NAMESPACE/POD[/CONTAINER]",
		Short:   "why a pod has the CPUs it has",
		Long:    "Asks the running daemon where the containers of a pod may run, and why there.",
		Example: "  quietcore explain default/web\n  quietcore explain default/web/main",
		Args:    cli.OneArg("NAMESPACE/POD[/CONTAINER]"),
	}
	socketFlag(cmd, &socket)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o := show.Options{Client: control.Client{Socket: socket}, To: cmd.OutOrStdout()}
		return show.Explain(cmd.Context(), o, args[0])
	}
	return cmd
}
