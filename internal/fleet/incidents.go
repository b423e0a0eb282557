package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/quietcore/quietcore/internal/cli"
)

// incident is what is shown of one; the rest of it is kept for -o json.
type incident struct {
	ID     string    `json:"id"`
	At     time.Time `json:"at"`
	Victim struct {
		Namespace, Pod string
	} `json:"victim"`
	CPI         float64 `json:"cpi"`
	Mean        float64 `json:"mean"`
	Verdict     string  `json:"verdict"`
	Antagonists []struct {
		Namespace, Pod string
	} `json:"antagonists"`
	Result string `json:"result"`
	Active bool   `json:"active"`

	node  string
	whole map[string]json.RawMessage
}

// Incidents asks for incidents.
type Incidents struct {
	Since, Until, Victim, Antagonist, Verdict string
	Active                                    bool
	Limit                                     int
}

// Incidents writes the incidents of all nodes, the newest first, and to s.Errs why
// a node did not answer.
func (c *Cluster) Incidents(ctx context.Context, s cli.Streams, q Incidents, format string) error {
	if q.Limit < 1 || q.Limit > 10_000 {
		return cli.Usage("--limit is %d; it must be 1 to 10000", q.Limit)
	}
	daemons, err := c.daemons(ctx)
	if err != nil {
		return err
	}
	answers := c.askAll(ctx, daemons, q.args()...)
	list, failures := merged(answers)
	if len(failures) == len(answers) && wrong(answers) {
		return cli.UsageError{Err: failures[0]} // all of them refuse the same flags
	}
	list = list[:min(len(list), q.Limit)]
	if format == "json" {
		err = cli.WriteJSON(s.Out, whole(list))
	} else {
		err = writeIncidents(s.Out, list)
	}
	for _, f := range failures {
		fmt.Fprintln(s.Errs, line(f.Error()))
	}
	if err != nil {
		return err
	}
	return silent(len(failures), len(answers))
}

// args are those of the daemon's own command.
func (q *Incidents) args() []string {
	args := []string{"incidents", "list", "-o", "json", "--limit=" + strconv.Itoa(q.Limit)}
	for _, flag := range []struct{ name, value string }{{"since", q.Since}, {"until", q.Until}, {"victim", q.Victim},
		{"antagonist", q.Antagonist}, {"verdict", q.Verdict}} {
		if flag.value != "" {
			args = append(args, "--"+flag.name+"="+flag.value)
		}
	}
	if q.Active {
		args = append(args, "--active")
	}
	return args
}

// wrong reports whether every node refused the flags.
func wrong(answers []answer) bool {
	return !slices.ContainsFunc(answers, func(a answer) bool {
		_, is := a.err.(cli.UsageError)
		return !is
	})
}

// merged puts the incidents of all nodes in order, the newest first.
func merged(answers []answer) (list []incident, failures []error) {
	for _, a := range answers {
		var listing struct {
			Incidents []json.RawMessage `json:"incidents"`
		}
		if a.err == nil {
			a.err = json.Unmarshal(a.text, &listing)
		}
		for _, text := range listing.Incidents {
			one := incident{node: a.Node}
			if a.err == nil {
				a.err = json.Unmarshal(text, &one)
			}
			if a.err == nil {
				a.err = json.Unmarshal(text, &one.whole)
			}
			if a.err == nil {
				list = append(list, one)
			}
		}
		if a.err != nil {
			failures = append(failures, fmt.Errorf("node %s: %w", a.Node, a.err))
		}
	}
	slices.SortStableFunc(list, func(a, b incident) int {
		return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.node, b.node))
	})
	return list, failures
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
