package main

import (
	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/cli/man"
)

//go:generate go test -run TestReference . -update

func newMan() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "man DIR",
		Short: "write the man pages",
		Long: `Writes a man page of every command into a directory, which is made if need be. The date in them is
SOURCE_DATE_EPOCH's where that is set, so that packages can be built twice to the same bytes.`,
		Example: "  quietcore man /usr/local/share/man/man1 && man quietcore-doctor",
		Args:    cli.OneArg("the directory"),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return man.Write(cmd.Root(), version, args[0])
	}
	return cmd
}
