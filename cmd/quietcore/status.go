package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/control/show"
)

func newStatus() *cobra.Command {
	var o show.Options
	var settled bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "who sits where now",
		Long: `Asks the running daemon over its local socket for every container, the pools and the machine.

With --namespace, --class or --pod only the containers, owners and lent CPUs of these pods are
listed, in JSON too. The map and the pools are always the machine's.`,
		Example: "  quietcore status\n  quietcore status --namespace shop --class LSE,LSR\n" +
			"  quietcore status --pod 'web-*'\n  quietcore status -o json | jq .pools",
		Args: cli.NoArgs,
	}
	socketFlag(cmd, &o.Client.Socket)
	containerFlags(cmd, &o.Filter)
	cmd.Flags().BoolVar(&settled, "wait-settled", false, "wait until everything decided is written and read back")
	format := cli.Output(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.Filter.Check(); err != nil {
			return err
		}
		o.To, o.Format = cmd.OutOrStdout(), *format
		return show.Status(cmd.Context(), o, settled)
	}
	return cmd
}

func socketFlag(cmd *cobra.Command, socket *string) {
	cli.SocketFlag(cmd, socket, config.Default().Socket)
}

// containerFlags are the flags that choose containers.
func containerFlags(cmd *cobra.Command, f *control.Filter) {
	cmd.Flags().StringSliceVar(&f.Namespaces, "namespace", nil, "only pods of these namespaces")
	cmd.Flags().StringSliceVar(&f.Classes, "class", nil,
		fmt.Sprintf("only containers of these classes: %v", control.Classes()))
	cmd.Flags().StringSliceVar(&f.Pods, "pod", nil, "only pods with these names, or patterns such as 'web-*'")
	cli.Completes(cmd, "class", control.Classes()...)
	for _, name := range []string{"namespace", "pod"} {
		cli.Completes(cmd, name) // nothing: not files
	}
}
