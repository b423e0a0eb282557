// Command kubectl-quietcore asks the daemons of a cluster's nodes through the API
// server: `kubectl quietcore map`, `explain` and `incidents`.
//
// It runs kubectl, whose kubeconfig, contexts and login plugins hold: `kubectl get pods`
// finds the daemons, `kubectl exec` runs in each the read-only command of the same name.
// docs/kubectl.md says which rights that takes, and how they are narrowed to it.
//
// Exit codes: 0 done; 1 a node did not answer, or nobody knows the pod; 2 the input or
// the flags are wrong.
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
		Short: "who has which CPUs, on all nodes",
		Long: `Asks the Quietcore daemons of a cluster through the API server. It runs kubectl, so the current
context holds, and everything else that kubectl knows of how to log in.

It takes the rights to list pods and to exec in the daemons' namespace; docs/kubectl.md narrows the
latter to the three questions that are asked here.`,
		Example: `  kubectl quietcore map
  kubectl quietcore map --draw --node worker-7
  kubectl quietcore explain shop/db
  kubectl quietcore incidents --since 24h --victim web`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl quietcore"},
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetFlagErrorFunc(cli.FlagError)
	f := root.PersistentFlags()
	f.StringVar(&c.Kubectl, "kubectl", "kubectl", "the kubectl to run")
	f.StringVar(&c.Kubeconfig, "kubeconfig", "", "kubectl's --kubeconfig")
	f.StringVar(&c.Context, "context", "", "kubectl's --context")
	f.StringVarP(&c.Namespace, "namespace", "n", "quietcore-system", "where the daemons run")
	f.StringVarP(&c.Selector, "selector", "l", "app.kubernetes.io/name=quietcore", "labels of their pods")
	f.StringVar(&c.Container, "container", "quietcore", "the daemon's container")
	f.StringSliceVar(&c.Nodes, "node", nil, "only these nodes; may be repeated")
	f.IntVar(&c.Parallel, "parallel", 8, "how many nodes are asked at once")
	f.DurationVar(&c.Patience, "timeout", 30*time.Second, "how long one node may take")
	root.PersistentPreRunE = func(*cobra.Command, []string) error { return c.Check() }
	return cli.Group(root, newMap(c), newExplain(c), newIncidents(c))
}
