// Command kubectl-quietcore asks the daemons of a cluster's nodes through the API
// server: `kubectl quietcore status`, `top`, `map`, `explain`, `doctor`, `incidents`,
// `report` and `bundle`.
//
// It logs in as kubectl does, and reaches the daemons' read-only API by the API server's
// proxy to pods. docs/fleet.md says which rights that takes.
//
// Exit codes: 0 done; 1 nothing could be had, nobody knows the pod, or doctor found an
// error; 2 the input or the flags are wrong; 3 some nodes did not answer, the rest is
// shown.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/fleet"
)

var version = "dev" // set by the linker

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, out, errs io.Writer) int {
	err := cli.Execute(ctx, newRoot(), args, cli.Streams{In: os.Stdin, Out: out, Errs: errs})
	if err != nil {
		fmt.Fprintln(errs, "kubectl-quietcore:", fleet.Printable(err.Error()))
	}
	return cli.ExitCode(err)
}

func newRoot() *cobra.Command {
	c := &fleet.Cluster{}
	root := &cobra.Command{
		Use:   "kubectl-quietcore",
		Short: "the daemons of all nodes: how they are, who has which CPUs, who disturbs whom",
		Long: `Asks the Quietcore daemons of a cluster through the API server, several at a time. It logs in as
kubectl does: the current context holds, and everything that kubectl knows of how to log in.

Nodes are chosen by --node or by their labels with --selector; else all are asked. A node that does
not answer is named on standard error; the others are shown, and the exit code is 3. It takes the
rights of the chart's Role for readers, which docs/fleet.md lists, and no right to exec.`,
		Example: `  kubectl quietcore status
  kubectl quietcore top --limit 10
  kubectl quietcore map --draw --node worker-7
  kubectl quietcore explain -n shop db
  kubectl quietcore incidents top --victim web --since 24h
  kubectl quietcore report`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl quietcore"},
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetFlagErrorFunc(cli.FlagError)
	f := root.PersistentFlags()
	f.StringVar(&c.Kubeconfig, "kubeconfig", "", "the kubeconfig, in place of kubectl's own")
	f.StringVar(&c.Context, "context", "", "the context of it, in place of the current one")
	f.StringVar(&c.Home, "daemon-namespace", "quietcore-system", "where the daemons run")
	f.StringVar(&c.Labels, "daemon-selector", "app.kubernetes.io/name=quietcore", "labels of their pods")
	f.StringSliceVar(&c.Nodes, "node", nil, "only these nodes; may be repeated")
	f.StringVarP(&c.Selector, "selector", "l", "", "only nodes with these labels")
	f.BoolVar(&c.All, "all", false, "all nodes, where a command would ask one, or none")
	f.IntVar(&c.Parallel, "parallel", 32, "how many nodes are asked at once")
	f.DurationVar(&c.Patience, "timeout", 30*time.Second, "how long one node may take")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		c.Errs = cmd.ErrOrStderr()
		c.Live = cli.IsTerminal(c.Errs)
		return c.Check()
	}
	return cli.Group(root, newStatus(c), newTop(c), newMap(c), newExplain(c), newDoctor(c), newIncidents(c),
		newReport(c), newBundle(c))
}
