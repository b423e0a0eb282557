package show

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/printable"
)

// writeLending lists which CPUs are lent, to which pods, and why some were taken back.
func writeLending(w io.Writer, l *control.Lending) error {
	if l == nil {
		return nil
	}
	fmt.Fprintln(w)
	for _, line := range lendingLines(l) {
		fmt.Fprintln(w, line)
	}
	if len(l.Pods) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "BATCH POD\tREQUESTS\tCOUNTS\tWHY")
	for _, p := range l.Pods {
		counts := "-"
		if p.Why != "" {
			counts = fmt.Sprintf("%.2f", p.Counts)
		}
		fmt.Fprintf(table, "%s\t%.2f\t%s\t%s\n", printable.Text(p.Namespace+"/"+p.Pod), p.Requests, counts,
			printable.Text(p.Why))
	}
	return table.Flush()
}

func lendingLines(l *control.Lending) []string {
	lines := []string{fmt.Sprintf("lending %s, suppression %s", l.Mode, l.Suppression)}
	add := func(format string, args ...any) { lines = append(lines, "  "+fmt.Sprintf(format, args...)) }
	if l.Problem != "" {
		add("wrong: %s", printable.Text(l.Problem))
	}
	if l.Known {
		add("in use: production %.2f, batch %.2f, outside of pods %.2f of %.0f CPUs", l.Production, l.Batch, l.Outside,
			l.Capacity)
	} else if l.Capacity > 0 {
		add("in use: not known, so it counts as all")
	}
	if l.Suppression != "off" && l.Capacity > 0 {
		left := fmt.Sprintf("all %d", l.Pool)
		if l.Suppressed != "" {
			left = fmt.Sprintf("%s of %d", l.Suppressed, l.Pool)
		}
		retreated := ""
		if l.Retreated {
			retreated = ": the reserved ones, which are enough for it"
		}
		if l.Quota > 0 {
			left += fmt.Sprintf(", which hold %.2f CPUs by a quota,", l.Quota)
		}
		add("best effort%s: a budget of %.2f CPUs, on CPUs %s of its pool%s", would(l.Suppression), l.Budget, left,
			retreated)
		if g := l.Group; g != nil {
			pods := "pods"
			if g.Pods == 1 {
				pods = "pod"
			}
			add("one group%s: the best-effort slice has %.2f CPUs of the quota, %d %s outside of it the rest",
				would(g.Mode), g.Slice, g.Pods, pods)
		}
	}
	if e := l.Estimate; e != nil {
		add("lent%s: %.2f CPUs offered; %.2f promised, %.2f needed (%d idle pods); production leaves %.2f",
			would(l.Mode), e.Offer, e.Promised, e.Demand, e.Idle, e.Supply)
		if e.Overcommitted {
			add("overcommitted: batch pods need more than there is")
		}
		if e.Halted != "" {
			add("halted: no more is lent than was promised: %s", printable.Text(e.Halted))
		}
		if e.Frozen {
			add("frozen: batch pods are held back so far that nobody can be seen to be idle")
		}
	}
	if l.Published != nil {
		add("published: %.2f CPUs in the Node's status", *l.Published)
	}
	for _, t := range l.Taken {
		add("taken back%s", printable.Text(takenText(t)))
	}
	return lines
}

// would marks what is only observed.
func would(mode string) string {
	if mode == "observe" {
		return " (would be)"
	}
	return ""
}

func takenText(t control.Taken) string {
	who := ""
	if t.Pod != "" {
		who = " from " + t.Pod
	}
	if t.Observed {
		who = would("observe") + who
	}
	return fmt.Sprintf("%s at %s: %s; %s", who, t.At.UTC().Format(time.RFC3339), t.What, t.Why)
}
