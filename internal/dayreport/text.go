package dayreport

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/quietcore/quietcore/internal/printable"
)

// Write writes a report for people.
func Write(w io.Writer, r *Report) error {
	var b bytes.Buffer
	who := "this node"
	if r.Node != "" {
		who = "node " + printable.Text(r.Node)
	}
	fmt.Fprintf(&b, "%s from %s to %s, mode %s\n", who, r.Since.Format(time.DateTime), r.Until.Format(time.DateTime),
		printable.Text(r.Mode))
	fmt.Fprintf(&b, "seen: %s of it", spell(r.LookedMinutes*60))
	if r.EnforcedMinutes > 0 {
		fmt.Fprintf(&b, ", enforced for %s", spell(r.EnforcedMinutes*60))
	}
	fmt.Fprintln(&b)
	for _, sentence := range r.Missing {
		fmt.Fprintln(&b, "not known:", printable.Text(sentence))
	}
	r.writeCPUs(&b)
	r.writeShared(&b)
	r.writeDisturbed(&b)
	r.writeIdle(&b)
	r.writeCosts(&b)
	if r.More > 0 {
		fmt.Fprintf(&b, "\n%d more lines; --limit 0 shows them.\n", r.More)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// enforced says that nothing of it only would be so.
func (r *Report) enforced() bool {
	return r.EnforcedMinutes > 0 && r.EnforcedMinutes == r.LookedMinutes
}

func (r *Report) writeCPUs(w io.Writer) {
	c := &r.CPUs
	owned := "owned by pods, if enforced"
	if r.enforced() {
		owned = "owned by pods"
	}
	of, has := "OF "+amount(c.Online), amount(c.Owned)
	if c.Online == 0 { // nothing was seen yet
		of, has = "NOT KNOWN", "-"
	}
	table(w, "CPUS ON AVERAGE\t"+of, func(row func(cells ...string)) {
		row(owned, has)
		row("requested by production", known(c.Requested))
		row("used by production", known(c.Production))
		row("used by best effort", known(c.Batch))
		row("used by the rest of the node", known(c.Outside))
		row("idle of those allocated", known(c.Idle))
		row("could be lent", known(c.Lendable))
	})
}

func (r *Report) writeShared(w io.Writer) {
	if len(r.Shared) == 0 {
		fmt.Fprintln(w, "\nNo pod that asks for CPUs of its own was seen to share cores.")
		return
	}
	table(w, "POD\tSHARED CORES WITH\tMINUTES\tCPUS\tMINUTES APART IF ENFORCED", func(row func(cells ...string)) {
		for i := range r.Shared {
			s := &r.Shared[i]
			parted := "-"
			if s.PartedMinutes > 0 {
				parted = whole(s.PartedMinutes)
			}
			row(s.Pod, s.With, whole(s.Minutes), amount(s.CPUs), parted)
		}
	})
}

func (r *Report) writeDisturbed(w io.Writer) {
	if len(r.Disturbed) == 0 {
		fmt.Fprintln(w, "\nNobody was seen to be disturbed.")
		return
	}
	table(w, "DISTURBED\tINCIDENTS\tMINUTES\tBY", func(row func(cells ...string)) {
		for i := range r.Disturbed {
			d := &r.Disturbed[i]
			var by []string
			for k := range d.By {
				text := fmt.Sprintf("%s (%s min", d.By[k].Job, whole(d.By[k].Minutes))
				if d.By[k].Verdicts == 0 {
					text += ", suspected"
				}
				by = append(by, text+")")
			}
			if len(by) == 0 {
				by = []string{"-"}
			}
			row(d.Job, strconv.Itoa(d.Incidents), whole(d.Minutes), strings.Join(by[:min(len(by), mostBy)], ", "))
		}
	})
}

// mostBy bounds who is named of a victim in a line.
const mostBy = 3

func (r *Report) writeIdle(w io.Writer) {
	if len(r.Idle) == 0 {
		return
	}
	table(w, "LEFT IDLE BY\tCLASS\tOWNS\tALLOCATED\tUSED\tIDLE CPU-HOURS", func(row func(cells ...string)) {
		for i := range r.Idle {
			p := &r.Idle[i]
			row(p.Pod, p.Class, amount(p.Owned), amount(p.Allocated), amount(p.Used), amount(p.Hours))
		}
	})
}

func (r *Report) writeCosts(w io.Writer) {
	head := "ENFORCING WOULD COST"
	if r.enforced() {
		head = "ENFORCING COSTS"
	}
	if len(r.Costs) == 0 {
		fmt.Fprintln(w, "\n"+head+" nobody anything that was seen.")
		return
	}
	table(w, head+"\tMINUTES\tCPU-MINUTES\tWHY", func(row func(cells ...string)) {
		for i := range r.Costs {
			c := &r.Costs[i]
			cpu := "-"
			if c.CPUMinutes > 0 {
				cpu = amount(c.CPUMinutes)
			}
			row(c.Who, whole(c.Minutes), cpu, c.Why)
		}
	})
}

// table writes one under an empty line.
func table(w io.Writer, head string, rows func(row func(cells ...string))) {
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, head)
	rows(func(cells ...string) {
		for i := range cells {
			cells[i] = printable.Text(cells[i])
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	})
	_ = t.Flush() // into memory
}

func amount(cpus float64) string   { return strconv.FormatFloat(cpus, 'f', 1, 64) }
func whole(minutes float64) string { return strconv.FormatFloat(minutes, 'f', 0, 64) }

func known(cpus *float64) string {
	if cpus == nil {
		return "-"
	}
	return amount(*cpus)
}
