package fleet

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/control"
)

// nodeSummary is a node in a list.
type nodeSummary struct {
	Node    string           `json:"node"`
	Pod     string           `json:"pod,omitempty"`
	Summary *control.Summary `json:"summary,omitempty"`
	Error   string           `json:"error,omitempty"`
}

// Status writes a line for every node: how it is, and what it has. unwell leaves out those that are well.
func (c *Cluster) Status(ctx context.Context, s cli.Streams, format string, unwell bool) error {
	return c.summaries(ctx, s, format, func(w io.Writer, nodes []nodeSummary) error {
		return writeStatuses(w, nodes, unwell)
	})
}

// summaries asks for them, and writes them in a form.
func (c *Cluster) summaries(ctx context.Context, s cli.Streams, format string,
	text func(io.Writer, []nodeSummary) error) error {
	a, err := c.begin(ctx)
	if err != nil {
		return err
	}
	answers, err := ask[control.Summary](ctx, a, a.daemons, question{path: "/v1/summary"})
	if err != nil {
		return err
	}
	nodes := make([]nodeSummary, 0, len(answers))
	for i := range answers {
		n := nodeSummary{Node: answers[i].node, Pod: answers[i].pod}
		if err := answers[i].err; err != nil {
			n.Error = line(err.Error())
		} else {
			n.Summary = &answers[i].value
		}
		nodes = append(nodes, n)
	}
	if format == "json" {
		err = cli.WriteJSON(s.Out, map[string]any{"nodes": nodes})
	} else {
		err = text(s.Out, nodes)
	}
	if err != nil {
		return err
	}
	return failuresOf(answers).end(s.Errs)
}

func writeStatuses(w io.Writer, nodes []nodeSummary, unwell bool) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NODE\tMODE\tCPUS\tOWNED\tUSED\tLENT\tCONTAINERS\tWAITING\tCAPPED\tSTATE")
	var cpus, owned, well, silent int
	for i := range nodes {
		s := nodes[i].Summary
		if s == nil {
			silent++
			fmt.Fprintf(table, "%s\t-\t-\t-\t-\t-\t-\t-\t-\t%s\n", line(nodes[i].Node), nodes[i].Error)
			continue
		}
		cpus += s.CPUs
		owned += max(count(s.Pools.Exclusive), 0)
		if len(s.Problems) == 0 {
			well++
			if unwell {
				continue
			}
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%s\t%s\t%d\t%d\t%d\t%s\n", line(nodes[i].Node), modeOf(s), s.CPUs,
			count(s.Pools.Exclusive), usedOf(s), lentOf(s), s.Containers, s.Waiting, s.Capped, stateOf(s))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if len(nodes) == 1 {
		return nil
	}
	_, err := fmt.Fprintf(w, "\n%d nodes: %d ready, %d with problems, %d without an answer; %d CPUs, %d owned\n",
		len(nodes), well, len(nodes)-well-silent, silent, cpus, owned)
	return err
}

func modeOf(s *control.Summary) string {
	if s.Mode == nil {
		return "-"
	}
	return line(s.Mode.Mode)
}

func usedOf(s *control.Summary) string {
	if s.Used == nil {
		return "-"
	}
	return amount(s.Used.Production + s.Used.Batch + s.Used.Outside)
}

func lentOf(s *control.Summary) string {
	if s.Lent == nil {
		return "-"
	}
	return amount(*s.Lent)
}

func amount(cpus float64) string { return strconv.FormatFloat(cpus, 'f', 1, 64) }

// stateOf is the worst problem, and how many more there are.
func stateOf(s *control.Summary) string {
	const most = 100
	n := len(s.Problems)
	if n == 0 {
		return "ready"
	}
	text := line(s.Problems[0])
	if len(text) > most {
		text = text[:most] + "…"
	}
	if n > 1 {
		text += fmt.Sprintf(" (+%d)", n-1)
	}
	return text
}
