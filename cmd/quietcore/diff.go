package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/doctor/drift"
)

func newDiff() *cobra.Command {
	var socket, root string
	pause := time.Second
	cmd := &cobra.Command{
		Use:   "diff",
		Short: "what the kernel has against what the daemon wants",
		Long: `Asks the running daemon where every container is to run, reads the containers' cgroups itself, and
prints what differs: CPUs, memory nodes, CFS quota. It looks twice (--pause apart) and prints only
what differed both times, so that a change on its way is left out. With mode: observe everything
that enforcing would change is a difference.

Exits with 1 where something differs.`,
		Example: "  quietcore diff\n  quietcore diff -o json | jq '.differences[].container'",
		Args:    cli.NoArgs,
	}
	socketFlag(cmd, &socket)
	cmd.Flags().StringVar(&root, "cgroup-root", config.Default().Cgroup.Root, "where cgroups are mounted")
	cmd.Flags().DurationVar(&pause, "pause", pause, "time between the two looks; 0: look once")
	_ = cmd.MarkFlagDirname("cgroup-root") // it exists: defined above
	format := cli.Output(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if pause < 0 || pause > time.Minute {
			return cli.Usage("--pause is %s; it must be between 0 and 1m", pause)
		}
		found, err := drift.Compare(cmd.Context(), control.Client{Socket: socket}, root, pause)
		if err != nil {
			return err
		}
		if *format == "json" {
			err = cli.WriteJSON(cmd.OutOrStdout(), found)
		} else {
			err = found.Text(cmd.OutOrStdout())
		}
		if err != nil {
			return err
		}
		return found.Verdict()
	}
	return cmd
}
