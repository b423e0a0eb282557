package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/incidents"
	"github.com/quietcore/quietcore/internal/incidents/report"
)

// incident is what is shown of one; the rest of it is kept for -o json.
type incident struct {
	incidents.Summary
	node  string
	whole map[string]json.RawMessage
}

// Incidents writes the incidents of all nodes, the newest first.
func (c *Cluster) Incidents(ctx context.Context, s cli.Streams, f incidents.Filter, format string) error {
	if f.Limit < 1 || f.Limit > 10_000 {
		return cli.Usage("--limit is %d; it must be 1 to 10000", f.Limit)
	}
	a, err := c.begin(ctx)
	if err != nil {
		return err
	}
	answers, err := ask[struct {
		Incidents []json.RawMessage `json:"incidents"`
	}](ctx, a, a.daemons, question{"/v1/incidents", control.Values(f)})
	if err != nil {
		return err
	}
	var list []incident
	for i := range answers {
		for _, text := range answers[i].value.Incidents {
			one := incident{node: answers[i].node}
			if answers[i].err = errors.Join(json.Unmarshal(text, &one.Summary),
				json.Unmarshal(text, &one.whole)); answers[i].err != nil {
				break
			}
			list = append(list, one)
		}
	}
	slices.SortStableFunc(list, func(a, b incident) int {
		return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.node, b.node))
	})
	list = list[:min(len(list), f.Limit)]
	if format == "json" {
		err = cli.WriteJSON(s.Out, whole(list))
	} else {
		err = writeIncidents(s.Out, list)
	}
	if err != nil {
		return err
	}
	return failuresOf(answers).end(s.Errs)
}

// whole is the incidents as their nodes reported them, each with its node.
func whole(list []incident) any {
	all := make([]map[string]json.RawMessage, 0, len(list))
	for i := range list {
		w := list[i].whole
		node, err := json.Marshal(list[i].node)
		if err == nil {
			w["node"] = node
		}
		all = append(all, w)
	}
	return map[string]any{"incidents": all}
}

func writeIncidents(w io.Writer, list []incident) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "No incidents.")
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "AT\tNODE\tID\tVICTIM\tCPI\tNORMAL\tVERDICT\tANTAGONIST\tRESULT")
	for i := range list {
		one := &list[i]
		who := "-"
		if n := len(one.Antagonists); n > 0 {
			who = one.Antagonists[0].Namespace + "/" + one.Antagonists[0].Pod
			if n > 1 {
				who += fmt.Sprintf(" +%d", n-1)
			}
		}
		result := one.Result
		if one.Active {
			result = "in force"
		}
		cells := []string{one.At.UTC().Format(time.DateTime), one.node, one.ID, one.Victim.Namespace + "/" +
			one.Victim.Pod,
			strconv.FormatFloat(one.CPI, 'f', 2, 64), strconv.FormatFloat(one.Mean, 'f', 2, 64), one.Verdict, who,
			result}
		for n := range cells {
			cells[n] = line(cells[n])
		}
		fmt.Fprintln(table, strings.Join(cells, "\t"))
	}
	return table.Flush()
}

// IncidentsTop ranks, over all nodes, who hurt a job most, or whom a job hurt.
func (c *Cluster) IncidentsTop(ctx context.Context, s cli.Streams, q incidents.TopQuery, format string) error {
	a, err := c.begin(ctx)
	if err != nil {
		return err
	}
	unlimited := q
	unlimited.Limit = 0 // what is little on every node may be much on all of them
	answers, err := ask[incidents.Top](ctx, a, a.daemons, question{"/v1/incidents/top", control.TopValues(unlimited)})
	if err != nil {
		return err
	}
	tops := make([]*incidents.Top, 0, len(answers))
	for i := range answers {
		if answers[i].err == nil {
			tops = append(tops, &answers[i].value)
		}
	}
	if len(tops) > 0 {
		merged := q.Merge(tops)
		if format == "json" {
			err = cli.WriteJSON(s.Out, merged)
		} else {
			err = report.WriteTop(s.Out, q, merged)
		}
		if err != nil {
			return err
		}
	}
	return failuresOf(answers).end(s.Errs)
}

// IncidentsShow writes everything about an incident, of whatever node it is.
func (c *Cluster) IncidentsShow(ctx context.Context, s cli.Streams, id, format string) error {
	if !isName(strings.ToLower(id)) {
		return cli.Usage("%q is not the ID of an incident, nor its beginning", id)
	}
	a, err := c.begin(ctx)
	if err != nil {
		return err
	}
	answers, err := ask[incidents.Incident](ctx, a, a.daemons, question{path: "/v1/incidents/one/" + id})
	if err != nil {
		return err
	}
	var have []int
	f := &failures{nodes: map[string][]string{}, all: len(answers)}
	for i := range answers {
		var refused *refusedError
		switch err := answers[i].err; {
		case err == nil:
			have = append(have, i)
		case errors.As(err, &refused) && refused.code == http.StatusNotFound && strings.Contains(refused.text, id):
		default:
			f.add(answers[i].node, err)
		}
	}
	switch {
	case len(have) == 0 && f.failed > 0:
		return f.end(s.Errs)
	case len(have) == 0:
		return fmt.Errorf("no node has an incident whose ID begins with %q", id)
	case len(have) > 1:
		return fmt.Errorf("%d nodes have an incident whose ID begins with %q; give more of it, or --node", len(have),
			id)
	}
	found := &answers[have[0]]
	found.value.Node = cmp.Or(found.value.Node, found.node)
	if format == "json" {
		return cli.WriteJSON(s.Out, found.value)
	}
	return report.WriteIncident(s.Out, &found.value)
}
