package main

import (
	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/control/show"
)

func newMode() *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use:   "mode [observe|enforce|config]",
		Short: "the switch of an incident: enforce nothing, or enforce again",
		Long: `Without a word, says which mode is in force on this node and who says so.

observe ends everything that is enforced, within seconds: caps, the suppression of best
effort, evictions, new places and refusals. Placements stay as they are, and what was
lent stays with the pods that have it. enforce takes that back and carries everything
out, whatever the configuration's file says. config leaves the mode to the file.

The word survives restarts of the daemon and of the node. The annotation
quietcore.dev/mode: observe of the Node does the same from afar, for any number of nodes:
as long as it is there, enforce and config change nothing.

Exit code 1: the mode is not in force as asked, not yet, or not after a restart.`,
		Example: "  quietcore mode observe\n  quietcore mode config\n" +
			"  kubectl annotate nodes -l pool=batch quietcore.dev/mode=observe",
		Args:      cli.AtMostOneOf(control.Words()...),
		ValidArgs: control.Words(),
	}
	socketFlag(cmd, &socket)
	format := cli.Output(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o := show.Options{Client: control.Client{Socket: socket}, To: cmd.OutOrStdout(), Format: *format}
		if len(args) == 0 {
			return show.Mode(cmd.Context(), o)
		}
		return show.SetMode(cmd.Context(), o, args[0])
	}
	return cmd
}
