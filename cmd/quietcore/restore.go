package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/daemon"
)

func newRestore() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "undo what the daemon did to what runs, before it is uninstalled",
		Long: `Gives every container back the CPUs and the CFS quota that the kernel, kubelet and the
runtime alone would have given it: masks of slices, pods and containers, lifted quotas,
caps, and what the runtime has stored. Nothing is restarted. The daemon must have ended;
the runtime must run. Pins of kubelet's static policy stay. What the Node says of lent
CPUs is taken away where the API server can be reached.

What no longer is needed is forgotten: the state file is removed once all is restored.
docs/enforcement.md says what a kernel may refuse to give back.`,
		Example: "  quietcore restore --config /etc/quietcore/config.yaml",
		Args:    cli.NoArgs,
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration file of the daemon; without one the defaults hold")
	format := cli.Output(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		found, err := daemon.Restore(cmd.Context(), daemon.Options{File: file, Version: version,
			Log: cmd.ErrOrStderr()})
		if err != nil && len(found) == 0 {
			return inputOf(err) // it has not begun
		}
		if *format == "json" {
			return errors.Join(daemon.RestoredJSON(cmd.OutOrStdout(), found), err)
		}
		return errors.Join(daemon.RestoredText(cmd.OutOrStdout(), found), err)
	}
	return cmd
}
