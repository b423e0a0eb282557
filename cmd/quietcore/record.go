package main

import (
	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/control/show"
)

func newRecord() *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use:   "record",
		Short: "what happened on this node, as a script that simulate plays",
		Long: `Asks the running daemon for its latest events, together with the machine, the configuration and
the state that they began with. Played with simulate they lead to the same decisions, so the output
belongs in a bug report. It holds names, labels and annotations of pods, but only those that
decisions depend on.`,
		Example: "  quietcore record > record.yaml && quietcore simulate record.yaml",
		Args:    cli.NoArgs,
	}
	socketFlag(cmd, &socket)
	format := cli.Output(cmd, "yaml", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o := show.Options{Client: control.Client{Socket: socket}, To: cmd.OutOrStdout(), Format: *format}
		return show.Record(cmd.Context(), o)
	}
	return cmd
}
