package main

import (
	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/control"
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
		text, err := control.Client{Socket: socket}.Record(cmd.Context())
		if err != nil {
			return err
		}
		if *format == "yaml" {
			if text, err = yaml.JSONToYAML(text); err != nil {
				return err
			}
		}
		_, err = cmd.OutOrStdout().Write(text)
		return err
	}
	return cmd
}
