package main

import (
	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/control/show"
)

func newStatus() *cobra.Command {
	var socket string
	var settled bool
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "who sits where now",
		Long:    "Asks the running daemon over its local socket for every container, the pools and the machine.",
		Example: "  quietcore status\n  quietcore status -o json | jq .pools",
		Args:    cli.NoArgs,
	}
	socketFlag(cmd, &socket)
	cmd.Flags().BoolVar(&settled, "wait-settled", false, "wait until everything decided is written and read back")
	format := cli.Output(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o := show.Options{Client: control.Client{Socket: socket}, To: cmd.OutOrStdout(), Format: *format}
		return show.Status(cmd.Context(), o, settled)
	}
	return cmd
}

func socketFlag(cmd *cobra.Command, socket *string) {
	cli.SocketFlag(cmd, socket, config.Default().Socket)
}
