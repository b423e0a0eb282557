package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cli"
)

// commit and date are set by the linker, as version is.
var commit, date string

func newVersion() *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "print the version of this binary", Args: cli.NoArgs}
	format := cli.Output(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		b := cli.BuildOf(version, commit, date)
		if *format == "json" {
			return json.NewEncoder(cmd.OutOrStdout()).Encode(b)
		}
		_, err := fmt.Fprintln(cmd.OutOrStdout(), b)
		return err
	}
	return cmd
}
