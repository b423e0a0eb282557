package main

import (
	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/paper"
)

func newPlan() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan FILE",
		Short: "print the moves that compaction would make after a script",
		Long: `Plays a script, or what ` + "`quietcore record`" + ` wrote, and prints the moves of owners that
compaction (allocation.compact: always) would make from there on while nothing else happens, in
their order, each with its reason; whatever the script's configuration says of it. One move a
minute is made. FILE may be - for standard input.`,
		Example: "  quietcore plan script.yaml\n  quietcore record | quietcore plan -o json -",
		Args:    cli.OneArg("the script"),
	}
	format := cli.Output(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return paper.Plan(cli.StreamsOf(cmd), args[0], *format)
	}
	return cmd
}
