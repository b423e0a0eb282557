package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/control/show"
)

// Map writes the pools of every node; as JSON the whole status of each.
func (c *Cluster) Map(ctx context.Context, s cli.Streams, format string) error {
	if format == "json" {
		return c.wholeMap(ctx, s)
	}
	return c.summaries(ctx, s, format, writeMaps)
}

func writeMaps(w io.Writer, nodes []nodeSummary) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NODE\tCPUS\tEXCLUSIVE\tSHARED\tBE\tRESERVED\tOWNERS\tCONTAINERS\tCAPPED\tSTATE")
	for i := range nodes {
		n := &nodes[i]
		if n.Summary == nil {
			fmt.Fprintf(table, "%s\t-\t-\t-\t-\t-\t-\t-\t-\t%s\n", line(n.Node), n.Error)
			continue
		}
		s := n.Summary
		p := &s.Pools
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\n", line(n.Node), s.CPUs, orDash(p.Exclusive),
			orDash(p.Shared), orDash(p.BE), orDash(p.Reserved), s.Owners, s.Containers, s.Capped, stateOf(s))
	}
	return table.Flush()
}

func (c *Cluster) wholeMap(ctx context.Context, s cli.Streams) error {
	a, err := c.begin(ctx)
	if err != nil {
		return err
	}
	answers, err := ask[json.RawMessage](ctx, a, a.daemons, question{path: "/v1/status"})
	if err != nil {
		return err
	}
	type node struct {
		Node   string          `json:"node"`
		Pod    string          `json:"pod,omitempty"`
		Status json.RawMessage `json:"status,omitempty"`
		Error  string          `json:"error,omitempty"`
	}
	nodes := make([]node, 0, len(answers))
	for i := range answers {
		n := node{Node: answers[i].node, Pod: answers[i].pod, Status: answers[i].value}
		if err := answers[i].err; err != nil {
			n.Status, n.Error = nil, line(err.Error())
		}
		nodes = append(nodes, n)
	}
	if err := cli.WriteJSON(s.Out, map[string]any{"nodes": nodes}); err != nil {
		return err
	}
	return failuresOf(answers).end(s.Errs)
}

// Draw writes each node's machine as `quietcore status` draws it.
func (c *Cluster) Draw(ctx context.Context, s cli.Streams) error {
	a, err := c.begin(ctx)
	if err != nil {
		return err
	}
	// What is drawn is kept, not what it is drawn from.
	answers, err := each(ctx, a, a.daemons, func(ctx context.Context, d daemon) ([]byte, error) {
		var status control.Status
		if err := a.one(ctx, d, question{path: "/v1/status"}, into(&status)); err != nil {
			return nil, err
		}
		var text bytes.Buffer
		err := show.WriteStatus(&text, &status)
		return text.Bytes(), err
	})
	if err != nil {
		return err
	}
	for i := range answers {
		if answers[i].err != nil {
			continue
		}
		if _, err := fmt.Fprintf(s.Out, "%s (pod %s)\n%s\n", line(answers[i].node), line(answers[i].pod),
			Printable(string(answers[i].value))); err != nil {
			return err
		}
	}
	return failuresOf(answers).end(s.Errs)
}
