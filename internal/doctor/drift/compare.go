package drift

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/printable"
	"github.com/quietcore/quietcore/internal/script"
	"github.com/quietcore/quietcore/policy"
)

// limit bounds a comparison, without its pause.
const limit = time.Minute

// Compared is the result of a comparison.
type Compared struct {
	Containers  int          `json:"containers"` // that were compared
	Differences []Difference `json:"differences"`
}

// Compare gets from the daemon what it wants, and reads the cgroups below root. It
// compares twice, pause apart, and returns what differed both times, so that a change
// in progress is ignored; without a pause it compares once.
func Compare(ctx context.Context, client control.Client, root string, pause time.Duration) (Compared, error) {
	ctx, cancel := context.WithTimeout(ctx, limit+pause)
	defer cancel()
	first, err := compare(ctx, client, root)
	if err != nil || pause == 0 || len(first.Differences) == 0 {
		return first, err
	}
	select {
	case <-ctx.Done():
		return first, ctx.Err()
	case <-time.After(pause):
	}
	second, err := compare(ctx, client, root)
	second.Differences = Both(first.Differences, second.Differences)
	return second, err
}

func compare(ctx context.Context, client control.Client, root string) (Compared, error) {
	top, err := client.Top(ctx)
	if err != nil {
		return Compared{}, err
	}
	status, err := client.Status(ctx)
	if err != nil {
		return Compared{}, err
	}
	want, ids := wanted(top, status)
	have, err := Find(root, ids)
	if err != nil {
		return Compared{}, err
	}
	list, err := Differences(want, have)
	return Compared{Containers: len(want), Differences: list}, err
}

// wanted is what the daemon wants of the containers that it places. If two have one
// name, since one is terminating, only their CPUs are certain.
func wanted(top *control.Top, status *control.Status) ([]Want, map[string]bool) {
	states, several := map[string]*script.State{}, map[string]bool{}
	for i := range status.Containers {
		s := &status.Containers[i]
		key := s.Namespace + "/" + s.Pod + "/" + s.Container
		several[key] = states[key] != nil
		states[key] = s
	}
	ids := make(map[string]bool, len(top.Containers))
	var want []Want
	for i := range top.Containers {
		c := &top.Containers[i]
		if c.Pool == policy.PoolUnmanaged {
			continue
		}
		w := Want{Container: c.Namespace + "/" + c.Pod + "/" + c.Container, ID: c.ID, CPUs: c.CPUs}
		if s := states[w.Container]; s != nil && !several[w.Container] {
			w.Mems, w.QuotaMilli, w.Why = s.Mems, &s.QuotaMilli, s.Why
		}
		ids[c.ID] = true
		want = append(want, w)
	}
	return want, ids
}

// Text writes the differences for people.
func (c *Compared) Text(w io.Writer) error {
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

// Verdict returns an error if something differs.
func (c *Compared) Verdict() error {
	if len(c.Differences) == 0 {
		return nil
	}
	return fmt.Errorf("%d values differ; the daemon repairs them within its audit, unless it observes or says why not "+
		"in its log", len(c.Differences))
}
