package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/render"
	"github.com/quietcore/quietcore/internal/topodoc"
	"github.com/quietcore/quietcore/sysfs"
)

func newTopology() *cobra.Command {
	var root string
	cmd := &cobra.Command{
		Use:   "topology",
		Short: "show what a machine is made of",
		Long:  "Reads a /sys tree, live or copied, and shows its sockets, NUMA nodes, L3 domains, cores and threads.",
		Args:  cli.NoArgs,
	}
	cmd.Flags().StringVar(&root, "sysfs", "/sys", "the /sys tree to read")
	format := cli.Output(cmd, "text", "json", "svg")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		fsys, err := topodoc.Open(root)
		if err != nil {
			return cli.UsageError{Err: err}
		}
		t, warnings, err := sysfs.Read(fsys)
		if err != nil {
			return cli.Usage("read topology of %s: %w", root, err)
		}
		var texts []string
		for _, w := range warnings {
			texts = append(texts, w.String())
		}
		switch *format {
		case "json":
			cli.Warn(cmd.ErrOrStderr(), texts)
			doc, err := topodoc.JSON(t)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", doc)
			return err
		case "svg":
			cli.Warn(cmd.ErrOrStderr(), texts)
			return render.SVG(cmd.OutOrStdout(), render.View{Title: root, Topology: t})
		}
		return render.Describe(cmd.OutOrStdout(), t, texts, cli.Colored(cmd.OutOrStdout()))
	}
	return cmd
}
