package show

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/printable"
	"github.com/quietcore/quietcore/internal/script"
)

// Explain writes where the containers of NAMESPACE/POD[/CONTAINER] may run, and why.
func Explain(ctx context.Context, o Options, what string) error {
	want := strings.Split(what, "/")
	if len(want) < 2 || len(want) > 3 {
		return cli.Usage("%q is not NAMESPACE/POD or NAMESPACE/POD/CONTAINER", what)
	}
	s, err := o.Client.Status(ctx)
	if err != nil {
		return err
	}
	e := s.Explain(want)
	if e == nil {
		return fmt.Errorf("no container of %s runs here; a pod that was refused shows the sentence as an Event", what)
	}
	if o.Format == "json" {
		return cli.WriteJSON(o.To, e)
	}
	return WriteExplanation(o.To, e)
}

// WriteExplanation writes an explanation for people, at once.
func WriteExplanation(w io.Writer, e *control.Explanation) error {
	var text bytes.Buffer
	explanationText(&text, e)
	_, err := w.Write(text.Bytes())
	return err
}

func explanationText(w io.Writer, e *control.Explanation) {
	for i := range e.Containers {
		explainedText(w, e, &e.Containers[i])
	}
	if len(e.Containers) == 0 && len(e.Owners) > 0 {
		fmt.Fprintf(w, "%s\n  CPUs      %s, its own until the pod ends; no such container runs at the moment\n",
			printable.Text(e.Asked), e.Owners[0].CPUs)
	}
	if len(e.Containers) > 0 && e.Lending != nil {
		lentText(w, e.Lending)
	}
}

func explainedText(w io.Writer, e *control.Explanation, c *control.ExplainedContainer) {
	fmt.Fprintf(w, "%s\n", printable.Text(e.Namespace+"/"+e.Pod+"/"+c.Container))
	fmt.Fprintf(w, "  why       %s\n", printable.Text(c.Why))
	fmt.Fprintf(w, "  class     %s, pool %s\n", c.Class, c.Pool)
	fmt.Fprintf(w, "  CPUs      %s\n", c.CPUs)
	if c.Withheld != "" {
		fmt.Fprintf(w, "  withheld  %s are kept idle for it\n", c.Withheld)
	}
	fmt.Fprintf(w, "  memory    NUMA nodes %s\n", c.Mems)
	fmt.Fprintf(w, "  quota     %s\n", quotaText(script.State{CapMilli: c.CapMilli, QuotaMilli: c.QuotaMilli}))
	if c.ManagedByKubelet {
		fmt.Fprintln(w, "  owner     kubelet's static policy chose these CPUs")
	}
	fmt.Fprintf(w, "  pools     shared %s, be %s, exclusive %s\n", e.Pools.Shared, e.Pools.BE, e.Pools.Exclusive)
	switch {
	case c.Throttled != nil && c.Throttled.MovedOff != "":
		fmt.Fprintf(w, "  moved     %s\n", printable.Text(c.Throttled.Why))
	case c.Throttled != nil && c.Throttled.IdleOnly:
		fmt.Fprintf(w, "  idle only %s\n", printable.Text(c.Throttled.Why))
	case c.Throttled != nil && c.Throttled.LeastBandwidth:
		fmt.Fprintf(w, "  bandwidth %s\n", printable.Text(c.Throttled.Why))
	case c.Throttled != nil:
		fmt.Fprintf(w, "  throttled %s\n", printable.Text(c.Throttled.Why))
	case c.CapMilli != nil:
		fmt.Fprintln(w, "  throttled by the daemon before this one, until its deadline")
	}
}

// lentText is what a best-effort pod was lent and what was taken back.
func lentText(w io.Writer, l *control.ExplainedLending) {
	if l.Requests > 0 {
		fmt.Fprintf(w, "  lent      %.2f CPUs, by its request\n", l.Requests)
	}
	if l.Why != "" {
		fmt.Fprintf(w, "  lending   %s\n", printable.Text(l.Why))
	}
	if b := l.Budget; b != nil {
		how := "on CPUs " + b.On
		if b.On == "" {
			how = fmt.Sprintf("by a quota of %.2f", b.Quota)
		}
		fmt.Fprintf(w, "  budget%s  %.2f CPUs for all of best effort together, %s\n", would(b.Mode), b.CPUs, how)
	}
	if p := l.Part; p != nil {
		fmt.Fprintf(w, "  part%s    %.2f CPUs of it: the pod is outside of the best-effort slice\n",
			would(p.Mode), p.CPUs)
	}
	for _, t := range l.Taken {
		fmt.Fprintf(w, "  taken    %s\n", printable.Text(takenText(t)))
	}
}
