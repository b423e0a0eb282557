package main

import (
	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/config"
)

func newConfigDiff() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diff FILE [NEW]",
		Short: "what two files mean differently, and what of it wants a restart",
		Long: `Compares what two configuration files mean, key by key, defaults included; with one file, the
defaults with it. - is standard input. A key marked "restart" is taken over at the daemon's next
start only, the others at once when the file changes.

Exits with 0 also where they differ.`,
		Example: "  quietcore config diff config.yaml\n  quietcore config diff config.yaml new.yaml -o json",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return cli.Usage("%s takes one file or two; got %d", cmd.CommandPath(), len(args))
			}
			if len(args) == 2 && args[0] == "-" && args[1] == "-" {
				return cli.Usage("only one of the two files can be standard input")
			}
			return nil
		},
	}
	format := cli.Output(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			args = []string{"", args[0]}
		}
		old, err := config.Read(args[0], cmd.InOrStdin())
		if err != nil {
			return cli.UsageError{Err: err}
		}
		next, err := config.Read(args[1], cmd.InOrStdin())
		if err != nil {
			return cli.UsageError{Err: err}
		}
		changes, err := config.Changes(old, next)
		if err != nil {
			return err
		}
		if *format == "json" {
			return cli.WriteJSON(cmd.OutOrStdout(), struct {
				Changes []config.Change `json:"changes"`
			}{changes})
		}
		return config.WriteChanges(cmd.OutOrStdout(), changes)
	}
	return cmd
}
