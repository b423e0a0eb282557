package fleet

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/top"
)

// between is the time between the two answers of a node of which usage is made.
const between = time.Second

// Top says what to show of what containers use.
type Top struct {
	Sort       top.Key
	Limit      int // rows of the table
	Namespaces []string
	Format     string
}

// Check refuses what the flags cannot mean.
func (t *Top) Check() error {
	if !slices.Contains(top.Keys(), t.Sort) {
		return cli.Usage("--sort is %q; it must be one of %v", t.Sort, top.Keys())
	}
	if t.Limit < 0 {
		return cli.Usage("--limit is %d; it must be 0 (all) or more", t.Limit)
	}
	return nil
}

// nodeFrame is what a node's containers use.
type nodeFrame struct {
	Node  string     `json:"node"`
	Error string     `json:"error,omitempty"`
	Frame *top.Frame `json:"frame,omitempty"`
}

// nodeRow is a container of a node.
type nodeRow struct {
	node string
	*top.Row
}

// Top writes what the containers of all nodes use, the first of one order.
func (c *Cluster) Top(ctx context.Context, s cli.Streams, t Top) error {
	if err := t.Check(); err != nil {
		return err
	}
	a, err := c.begin(ctx)
	if err != nil {
		return err
	}
	filter := control.Filter{Namespaces: t.Namespaces}
	look := func() ([]answer[control.Top], error) {
		return each(ctx, a, a.daemons, func(ctx context.Context, d daemon) (now control.Top, err error) {
			err = a.one(ctx, d, question{path: "/v1/top"}, into(&now))
			now.Filter(&filter)
			return now, err
		})
	}
	before, err := look()
	if err != nil {
		return err
	}
	a.wait(ctx, between)
	now, err := look()
	if err != nil {
		return err
	}
	nodes := make([]nodeFrame, 0, len(now))
	for i := range now {
		n := nodeFrame{Node: now[i].node}
		if err := now[i].err; err != nil {
			n.Error = line(err.Error())
		} else {
			// Without a first answer no container has a usage.
			n.Frame = top.Compare(&before[i].value, &now[i].value)
			n.Frame.Sort(t.Sort)
		}
		nodes = append(nodes, n)
	}
	if t.Format == "json" {
		err = cli.WriteJSON(s.Out, map[string]any{"nodes": nodes})
	} else {
		err = writeTop(s.Out, nodes, t)
	}
	if err != nil {
		return err
	}
	return failuresOf(now).end(s.Errs)
}

func writeTop(w io.Writer, nodes []nodeFrame, t Top) error {
	var rows []nodeRow
	var usage float64
	cpus := 0
	for i := range nodes {
		f := nodes[i].Frame
		if f == nil {
			continue
		}
		cpus, usage = cpus+f.CPUs, usage+f.Usage
		for k := range f.Containers {
			rows = append(rows, nodeRow{nodes[i].Node, &f.Containers[k]})
		}
	}
	slices.SortStableFunc(rows, func(a, b nodeRow) int { return t.Sort.Compare(a.Row, b.Row) })
	all := len(rows)
	if t.Limit > 0 {
		rows = rows[:min(len(rows), t.Limit)]
	}
	fmt.Fprintf(w, "%d nodes, %d CPUs, %.1f in use by %d containers; the first %d by %s\n\n", len(nodes), cpus, usage,
		all, len(rows), t.Sort)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NODE\tCLASS\tPOOL\tCPUS\tUSAGE\tCPI\tMPKI\tWAIT\tCONTAINER")
	for _, r := range rows {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", line(r.node), orDash(string(r.Class)),
			orDash(string(r.Pool)), orDash(r.CPUs), figure(r.Usage, 1), figure(r.Sample.CPI, 1), figure(r.MPKI, 1),
			percent(r.Wait), line(r.Namespace+"/"+r.Pod+"/"+r.Container))
	}
	return table.Flush()
}

func figure(v *float64, factor float64) string {
	if v == nil {
		return "-"
	}
	return strconv.FormatFloat(*v*factor, 'f', 2, 64)
}

func percent(v *float64) string {
	if v == nil {
		return "-"
	}
	return figure(v, 100) + "%"
}
