package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/fleet"
	"github.com/quietcore/quietcore/internal/top"
)

func newStatus(c *fleet.Cluster) *cobra.Command {
	var unwell bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "how every node is, a line each",
		Long: `Shows for every node its mode, its CPUs, how many are owned, used and lent, its containers, the pods
that wait for CPUs, and the worst of what is wrong with it. USED is known where lending is on, or
observed. With -o json each node has all of its problems.`,
		Example: "  kubectl quietcore status\n  kubectl quietcore status --unwell\n" +
			"  kubectl quietcore status -l pool=batch -o json",
		Args: cli.NoArgs,
	}
	cmd.Flags().BoolVar(&unwell, "unwell", false, "leave out nodes on which all is well")
	format := cli.Output(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return c.Status(cmd.Context(), cli.StreamsOf(cmd), *format, unwell)
	}
	return cmd
}

func newTop(c *fleet.Cluster) *cobra.Command {
	var t fleet.Top
	var sort string
	cmd := &cobra.Command{
		Use:   "top",
		Short: "what the containers of all nodes use, the first of one order",
		Long: `Asks each node twice, a second apart or more: USAGE is the CPUs in use between. Columns mean what
they mean in quietcore top.`,
		Example: "  kubectl quietcore top\n  kubectl quietcore top -n shop --sort cpi --limit 10",
		Args:    cli.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&sort, "sort", "usage", fmt.Sprintf("column to sort by: %v", top.Keys()))
	f.IntVar(&t.Limit, "limit", 20, "at most so many containers; 0: all")
	f.StringSliceVarP(&t.Namespaces, "namespace", "n", nil, "only pods of these namespaces")
	format := cli.Output(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		t.Sort, t.Format = top.Key(sort), *format
		return c.Top(cmd.Context(), cli.StreamsOf(cmd), t)
	}
	return cmd
}

func newMap(c *fleet.Cluster) *cobra.Command {
	var draw bool
	cmd := &cobra.Command{
		Use:   "map",
		Short: "the pools of every node; with --draw the machines",
		Long: `Shows for every node its CPUs, its pools, how many pods own CPUs, how many containers run and are
capped. With --draw each node's machine, as quietcore status draws it. -o json has all that
quietcore status -o json has, of every node.`,
		Example: "  kubectl quietcore map\n  kubectl quietcore map --draw --node worker-7",
		Args:    cli.NoArgs,
	}
	cmd.Flags().BoolVar(&draw, "draw", false, "draw the machines")
	format := cli.Output(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if draw && *format == "json" {
			return cli.Usage("--draw and -o json exclude each other")
		}
		if draw {
			return c.Draw(cmd.Context(), cli.StreamsOf(cmd))
		}
		return c.Map(cmd.Context(), cli.StreamsOf(cmd), *format)
	}
	return cmd
}

func newExplain(c *fleet.Cluster) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain POD",
		Short: "why a pod has the CPUs it has, wherever it runs",
		Long: `POD is the name of a pod, in the namespace of -n, or of the context without it; or NAMESPACE/POD, or
NAMESPACE/POD/CONTAINER. Asks the daemon of the pod's node. Where the pod may not be read, or is
gone, every node is asked; CPUs of a pod are its own until it has ended.`,
		Example: "  kubectl quietcore explain -n shop db\n  kubectl quietcore explain shop/db/main",
		Args:    cli.OneArg("a pod"),
	}
	cmd.Flags().StringVarP(&c.Namespace, "namespace", "n", "", "the pod's namespace")
	format := cli.Output(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		pod, ok := fleet.PodOf(args[0], c.Namespace)
		if !ok {
			return cli.Usage("%s takes POD, NAMESPACE/POD or NAMESPACE/POD/CONTAINER, the namespace being that of -n; "+
				"got %q", cmd.CommandPath(), args[0])
		}
		return c.Explain(cmd.Context(), cli.StreamsOf(cmd), pod, *format)
	}
	return cmd
}

func newDoctor(c *fleet.Cluster) *cobra.Command {
	var notes bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "what keeps daemons from working, each finding with its nodes",
		Long: `Has every daemon look for what keeps it from working, as quietcore doctor does in its pod, but for
the counters, which a daemon does not open twice. Exits with 1 where there is an error.`,
		Example: "  kubectl quietcore doctor\n  kubectl quietcore doctor --node worker-7 --notes",
		Args:    cli.NoArgs,
	}
	cmd.Flags().BoolVar(&notes, "notes", false, "show notes, too")
	format := cli.Output(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return c.Doctor(cmd.Context(), cli.StreamsOf(cmd), *format, notes)
	}
	return cmd
}

func newBundle(c *fleet.Cluster) *cobra.Command {
	var dir string
	var hashNames bool
	cmd := &cobra.Command{
		Use:   "bundle",
		Short: "what a bug report needs, an archive of each node",
		Long: `Writes quietcore-bundle-NODE-TIME.tar.gz of each node that is chosen, which is what quietcore bundle
writes there. Without another --timeout a node has three minutes.`,
		Example: "  kubectl quietcore bundle --node worker-7\n  kubectl quietcore bundle --all --hash-names --dir /tmp",
		Args:    cli.NoArgs,
	}
	cmd.Flags().StringVar(&dir, "dir", ".", "where the archives go")
	cmd.Flags().BoolVar(&hashNames, "hash-names", false, "replace names by hashes, another for each node")
	_ = cmd.MarkFlagDirname("dir") // it exists: defined above
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !cmd.Flags().Changed("timeout") {
			c.Patience = 3 * time.Minute
		}
		return c.Bundle(cmd.Context(), cli.StreamsOf(cmd), dir, hashNames, time.Now())
	}
	return cmd
}
