package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/printable"
	"github.com/quietcore/quietcore/internal/script"
)

func newExplain() *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use:     "explain NAMESPACE/POD[/CONTAINER]",
		Short:   "why a pod has the CPUs it has",
		Long:    "Asks the running daemon where the containers of a pod may run, and why there.",
		Example: "  quietcore explain default/web\n  quietcore explain default/web/main",
		Args:    cli.OneArg("NAMESPACE/POD[/CONTAINER]"),
	}
	socketFlag(cmd, &socket)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		want := strings.Split(args[0], "/")
		if len(want) < 2 || len(want) > 3 {
			return cli.Usage("%q is not NAMESPACE/POD or NAMESPACE/POD/CONTAINER", args[0])
		}
		s, err := control.Client{Socket: socket}.Status(cmd.Context())
		if err != nil {
			return err
		}
		var text bytes.Buffer
		if !explainPod(&text, s, want) {
			return fmt.Errorf("no container of %s runs here; a pod that was refused shows the sentence as an Event",
				args[0])
		}
		_, err = cmd.OutOrStdout().Write(text.Bytes())
		return err
	}
	return cmd
}

// explainPod says whether there was something to explain about a namespace, a pod
// and perhaps a container.
func explainPod(w io.Writer, s *control.Status, want []string) bool {
	found := false
	for _, c := range s.Containers {
		if c.Namespace == want[0] && c.Pod == want[1] && (len(want) == 2 || c.Container == want[2]) {
			explain(w, c, s.Pools)
			found = true
		}
	}
	if found {
		explainLent(w, s.Lending, want)
	}
	for _, o := range s.Owners {
		if !found && o.Namespace == want[0] && o.Pod == want[1] {
			fmt.Fprintf(w, "%s\n  CPUs      %s, its own until the pod ends; no such container runs at the moment\n",
				printable.Text(strings.Join(want, "/")), o.CPUs)
			return true
		}
	}
	return found
}

func explain(w io.Writer, c script.State, pools script.Pools) {
	fmt.Fprintf(w, "%s\n", printable.Text(c.Namespace+"/"+c.Pod+"/"+c.Container))
	fmt.Fprintf(w, "  why       %s\n", printable.Text(c.Why))
	fmt.Fprintf(w, "  class     %s, pool %s\n", c.Class, c.Pool)
	fmt.Fprintf(w, "  CPUs      %s\n", c.CPUs)
	if c.Withheld != "" {
		fmt.Fprintf(w, "  withheld  %s are kept idle for it\n", c.Withheld)
	}
	fmt.Fprintf(w, "  memory    NUMA nodes %s\n", c.Mems)
	fmt.Fprintf(w, "  quota     %s\n", quotaText(c))
	if c.ByKubelet {
		fmt.Fprintln(w, "  owner     kubelet's static policy chose these CPUs")
	}
	fmt.Fprintf(w, "  pools     shared %s, be %s, exclusive %s\n", pools.Shared, pools.BE, pools.Exclusive)
}
