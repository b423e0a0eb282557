package main

import (
	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/paper"
)

func newSimulate() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "simulate FILE",
		Short: "play a node's life on the daemon's own state machine, without a node",
		Long: `Plays a script of steps (create, resize, kubeletUpdate, restartContainer, stop, remove,
restartDaemon, nodeLabels, kubeletState, offline, online, cap, advance, prepare, unprepare) and
shows after each step whom it changed, why, and the pools; -o svg draws the machine after the last step. It
answers "what would happen if"; docs/semantics.md leads to such scripts. A refused step is a
result: it changes nothing and says why. FILE may be - for standard input, and may be what
` + "`quietcore record`" + ` wrote.`,
		Example: "  quietcore simulate e2e/scenarios/classes.yaml\n  quietcore simulate -o json " +
			"e2e/scenarios/classes.yaml | jq .pools",
		Args: cli.OneArg("the script"),
	}
	format := cli.Output(cmd, "text", "json", "svg")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return paper.Simulate(cli.StreamsOf(cmd), args[0], *format)
	}
	return cmd
}
