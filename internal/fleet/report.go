package fleet

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/dayreport"
)

// dayOfNode is a node in a report.
type dayOfNode struct {
	Node   string            `json:"node"`
	Pod    string            `json:"pod,omitempty"`
	Report *dayreport.Report `json:"report,omitempty"`
	Error  string            `json:"error,omitempty"`
}

// Report writes what a time was like on every node, a line each, and who was disturbed and left CPUs idle over all of
// them. Of one node that was chosen alone it writes all that this node says.
func (c *Cluster) Report(ctx context.Context, s cli.Streams, q control.ReportQuery, format string) error {
	limit := q.Limit
	q.Limit = 0 // sums are of all
	a, err := c.begin(ctx)
	if err != nil {
		return err
	}
	answers, err := ask[dayreport.Report](ctx, a, a.daemons, question{"/v1/report", q.Values()})
	if err != nil {
		return err
	}
	nodes := make([]dayOfNode, 0, len(answers))
	for i := range answers {
		n := dayOfNode{Node: answers[i].node, Pod: answers[i].pod}
		if err := answers[i].err; err != nil {
			n.Error = line(err.Error())
		} else {
			n.Report = &answers[i].value
		}
		nodes = append(nodes, n)
	}
	switch {
	case format == "json":
		err = cli.WriteJSON(s.Out, map[string]any{"nodes": nodes})
	case len(nodes) == 1 && nodes[0].Report != nil:
		nodes[0].Report.Cut(limit)
		err = dayreport.Write(s.Out, nodes[0].Report)
	default:
		err = writeReports(s.Out, nodes, limit)
	}
	if err != nil {
		return err
	}
	return failuresOf(answers).end(s.Errs)
}

func writeReports(w io.Writer, nodes []dayOfNode, limit int) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NODE\tMODE\tSEEN\tOWNERS SHARING\tINCIDENTS\tDISTURBED MIN\tREFUSED\tIDLE CPUS\tTO LEND")
	all := &dayreport.Report{}
	for i := range nodes {
		n := &nodes[i]
		if n.Report == nil {
			fmt.Fprintf(table, "%s\t-\t-\t-\t-\t-\t-\t-\t%s\n", line(n.Node), n.Error)
			continue
		}
		r, t := n.Report, n.Report.Totals()
		fmt.Fprintf(table, "%s\t%s\t%.0fh\t%d\t%d\t%.0f\t%d\t%s\t%s\n", line(n.Node), orDash(r.Mode),
			r.LookedMinutes/60, t.Sharing, t.Incidents, t.Minutes, t.Refused, figure(r.CPUs.Idle, 1),
			figure(r.CPUs.Lendable, 1))
		all.Join(r)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	t := all.Totals()
	fmt.Fprintf(w, "\n%d nodes: %d incidents, %.0f minutes disturbed\n", len(nodes), t.Incidents, t.Minutes)
	if err := writeDisturbed(w, all, limit); err != nil {
		return err
	}
	return writeIdle(w, nodes, limit)
}

// writeDisturbed writes the jobs that were disturbed longest, over all nodes.
func writeDisturbed(w io.Writer, all *dayreport.Report, limit int) error {
	list := all.Disturbed
	if len(list) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nDISTURBED\tINCIDENTS\tMINUTES\tMOST BY")
	for i := range list[:most(len(list), limit)] {
		by := "-"
		if len(list[i].By) > 0 {
			by = list[i].By[0].Job
		}
		fmt.Fprintf(table, "%s\t%d\t%.0f\t%s\n", line(list[i].Job), list[i].Incidents, list[i].Minutes, line(by))
	}
	return table.Flush()
}

// writeIdle writes the pods that left most CPUs idle, of all nodes.
func writeIdle(w io.Writer, nodes []dayOfNode, limit int) error {
	type row struct {
		node string
		dayreport.Idle
	}
	var list []row
	for i := range nodes {
		if nodes[i].Report == nil {
			continue
		}
		for _, p := range nodes[i].Report.Idle {
			list = append(list, row{nodes[i].Node, p})
		}
	}
	if len(list) == 0 {
		return nil
	}
	slices.SortStableFunc(list, func(a, b row) int { return cmp.Compare(b.Hours, a.Hours) })
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nLEFT IDLE BY\tNODE\tCLASS\tALLOCATED\tUSED\tIDLE CPU-HOURS")
	for i := range list[:most(len(list), limit)] {
		p := &list[i]
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", line(p.Pod), line(p.node), orDash(p.Class), amount(p.Allocated),
			amount(p.Used), amount(p.Hours))
	}
	return table.Flush()
}

// most is how many of n are shown; limit 0: all.
func most(n, limit int) int {
	if limit == 0 {
		return n
	}
	return min(n, limit)
}
