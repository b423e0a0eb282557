package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/doctor/drift"
	"github.com/quietcore/quietcore/internal/printable"
	"github.com/quietcore/quietcore/internal/script"
	"github.com/quietcore/quietcore/policy"
)

func newDiff() *cobra.Command {
	var socket, root string
	pause := time.Second
	cmd := &cobra.Command{
		Use:   "diff",
		Short: "what the kernel has against what the daemon wants",
		Long: `Asks the running daemon where every container is to run, reads the containers' cgroups itself, and
prints what differs: CPUs, memory nodes, CFS quota. It looks twice (--pause apart), and tells only
what differed both times, so that a change on its way is not told. With mode: observe everything
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
		ctx, cancel := context.WithTimeout(cmd.Context(), settleLimit+pause)
		defer cancel()
		c := comparison{client: control.Client{Socket: socket}, root: root}
		found, err := c.twice(ctx, pause)
		if err != nil {
			return err
		}
		if *format == "json" {
			err = cli.WriteJSON(cmd.OutOrStdout(), found)
		} else {
			err = writeDifferences(cmd.OutOrStdout(), found)
		}
		if err == nil && len(found.Differences) > 0 {
			err = fmt.Errorf(
				"%d values differ; the daemon repairs them within its audit, unless it observes or says why not in "+
					"its log", len(found.Differences))
		}
		return err
	}
	return cmd
}

// compared is the output of diff.
type compared struct {
	Containers  int                `json:"containers"` // that were compared
	Differences []drift.Difference `json:"differences"`
}

type comparison struct {
	client control.Client
	root   string
}

func (c comparison) twice(ctx context.Context, pause time.Duration) (compared, error) {
	first, err := c.once(ctx)
	if err != nil || pause == 0 || len(first.Differences) == 0 {
		return first, err
	}
	select {
	case <-ctx.Done():
		return first, ctx.Err()
	case <-time.After(pause):
	}
	second, err := c.once(ctx)
	second.Differences = drift.Both(first.Differences, second.Differences)
	return second, err
}

func (c comparison) once(ctx context.Context) (compared, error) {
	top, err := c.client.Top(ctx)
	if err != nil {
		return compared{}, err
	}
	status, err := c.client.Status(ctx)
	if err != nil {
		return compared{}, err
	}
	want, ids := wanted(top, status)
	have, err := drift.Find(c.root, ids)
	if err != nil {
		return compared{}, err
	}
	list, err := drift.Differences(want, have)
	return compared{Containers: len(want), Differences: list}, err
}

// wanted is what the daemon wants of the containers that it places. Of two that have
// one name (one of them is ending) only the CPUs are known for sure.
func wanted(top *control.Top, status *control.Status) ([]drift.Want, map[string]bool) {
	states, several := map[string]*script.State{}, map[string]bool{}
	for i := range status.Containers {
		s := &status.Containers[i]
		key := s.Namespace + "/" + s.Pod + "/" + s.Container
		several[key] = states[key] != nil
		states[key] = s
	}
	ids := make(map[string]bool, len(top.Containers))
	var want []drift.Want
	for i := range top.Containers {
		c := &top.Containers[i]
		if c.Pool == policy.PoolUnmanaged {
			continue
		}
		w := drift.Want{Container: c.Namespace + "/" + c.Pod + "/" + c.Container, ID: c.ID, CPUs: c.CPUs}
		if s := states[w.Container]; s != nil && !several[w.Container] {
			w.Mems, w.QuotaMilli, w.Why = s.Mems, &s.QuotaMilli, s.Why
		}
		ids[c.ID] = true
		want = append(want, w)
	}
	return want, ids
}

func writeDifferences(w io.Writer, c compared) error {
	if len(c.Differences) == 0 {
		_, err := fmt.Fprintf(w, "%d containers: the kernel has what is wanted\n", c.Containers)
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "CONTAINER\tWHAT\tWANTED\tKERNEL\tCGROUP")
	for _, d := range c.Differences {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", printable.Text(d.Container), d.What, d.Wanted, d.Kernel,
			printable.Text(d.Cgroup))
	}
	return table.Flush()
}
