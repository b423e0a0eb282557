package fleet

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/doctor"
)

// nodeReport is what a node's doctor finds.
type nodeReport struct {
	Node   string         `json:"node"`
	Report *doctor.Report `json:"report,omitempty"`
	Error  string         `json:"error,omitempty"`
}

// found is a finding with the nodes that have it.
type found struct {
	doctor.Finding
	nodes []string
}

// Doctor writes what keeps the daemons from working, as they find it themselves: each finding once, with its nodes.
// notes are written too where they are wanted.
func (c *Cluster) Doctor(ctx context.Context, s cli.Streams, format string, notes bool) error {
	a, err := c.begin(ctx)
	if err != nil {
		return err
	}
	answers, err := ask[doctor.Report](ctx, a, a.daemons, question{path: "/v1/doctor"})
	if err != nil {
		return err
	}
	nodes := make([]nodeReport, 0, len(answers))
	for i := range answers {
		n := nodeReport{Node: answers[i].node}
		if err := answers[i].err; err != nil {
			n.Error = line(err.Error())
		} else {
			n.Report = &answers[i].value
		}
		nodes = append(nodes, n)
	}
	all := findings(nodes)
	if format == "json" {
		err = cli.WriteJSON(s.Out, map[string]any{"nodes": nodes})
	} else {
		err = writeFindings(s.Out, all, notes)
	}
	if err != nil {
		return err
	}
	if err := failuresOf(answers).end(s.Errs); err != nil {
		return err
	}
	if n := len(nodesWithErrors(all)); n > 0 {
		return fmt.Errorf("doctor finds errors on %d of %d nodes", n, len(nodes))
	}
	return nil
}

// findings are those of all nodes, the worst first, and those of more nodes before those of fewer.
func findings(nodes []nodeReport) []*found {
	var list []*found
	by := map[doctor.Finding]*found{}
	for i := range nodes {
		if nodes[i].Report == nil {
			continue
		}
		for _, f := range nodes[i].Report.Findings {
			if f.Level == doctor.OK {
				continue
			}
			at := by[f]
			if at == nil {
				at = &found{Finding: f}
				by[f] = at
				list = append(list, at)
			}
			at.nodes = append(at.nodes, nodes[i].Node)
		}
	}
	order := []doctor.Level{doctor.Error, doctor.Warning, doctor.Note}
	slices.SortStableFunc(list, func(a, b *found) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Level), slices.Index(order, b.Level)),
			cmp.Compare(len(b.nodes), len(a.nodes)), cmp.Compare(a.ID, b.ID))
	})
	return list
}

func nodesWithErrors(all []*found) map[string]bool {
	nodes := map[string]bool{}
	for _, f := range all {
		if f.Level == doctor.Error {
			for _, n := range f.nodes {
				nodes[n] = true
			}
		}
	}
	return nodes
}

func writeFindings(w io.Writer, all []*found, notes bool) error {
	const most = 8
	var b strings.Builder
	left := 0
	for _, f := range all {
		if f.Level == doctor.Note && !notes {
			left++
			continue
		}
		fmt.Fprintf(&b, "%-7s  %-26s %s\n", line(string(f.Level)), line(f.ID), line(f.What))
		if f.Fix != "" {
			fmt.Fprintf(&b, "%-7s  %-26s -> %s\n", "", "", line(f.Fix))
		}
		who := strings.Join(f.nodes[:min(len(f.nodes), most)], ", ")
		if n := len(f.nodes) - most; n > 0 {
			who += fmt.Sprintf(" and %d more", n)
		}
		fmt.Fprintf(&b, "%-7s  %-26s on %s\n", "", "", line(who))
	}
	if b.Len() == 0 {
		fmt.Fprintln(&b, "Nothing keeps a daemon from working.")
	}
	if left > 0 {
		fmt.Fprintf(&b, "%d notes are left out; --notes shows them.\n", left)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
