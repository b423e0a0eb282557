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
	var text bytes.Buffer
	if !explainPod(&text, s, want) {
		return fmt.Errorf("no container of %s runs here; a pod that was refused shows the sentence as an Event", what)
	}
	_, err = o.To.Write(text.Bytes())
	return err
}

// explainPod reports whether there was something to explain for a namespace, a pod and optionally a
// container.
func explainPod(w io.Writer, s *control.Status, want []string) bool {
	found := false
	for _, c := range s.Containers {
		if c.Namespace == want[0] && c.Pod == want[1] && (len(want) == 2 || c.Container == want[2]) {
			explain(w, c, s.Pools)
			explainThrottle(w, c, s.Throttled)
			found = true
		}
	}
	if found {
		explainLent(w, s.Lending, want)
	}
	for _, o := range s.Owners {
		if !found && o.Namespace == want[0] && o.Pod == want[1] &&
			(o.Container == "" || len(want) == 2 || o.Container == want[2]) {
			fmt.Fprintf(w, "%s\n  CPUs      %s, its own until the pod ends; no such container runs at the moment\n",
				printable.Text(strings.Join(want, "/")), o.CPUs)
			return true
		}
	}
	return found
}

// explainThrottle says why a container is throttled now.
func explainThrottle(w io.Writer, c script.State, throttled map[string]control.Throttled) {
	why, known := throttled[c.Namespace+"/"+c.Pod+"/"+c.Container]
	switch {
	case known:
		fmt.Fprintf(w, "  throttled %s\n", printable.Text(why.Why))
	case c.CapMilli != nil:
		fmt.Fprintln(w, "  throttled by the daemon before this one, until its deadline")
	}
}

func explain(w io.Writer, c script.State, pools script.Pools) {
	fmt.Fprintf(w, "%s\n", printable.Text(c.Namespace+"/"+c.Pod+"/"+c.Container))
	fmt.Fprintf(w, "  why       %s\n", printable.Text(c.Why))
	fmt.Fprintf(w, "  class     %s, pool %s\n", c.Class, c.Pool)
	fmt.Fprintf(w, "  CPUs      %s\n", c.CPUs)
	if c.Withheld != "" {
		fmt.Fprintf(w, "  withheld  %s are kept idle for it\n", c.Withheld)
	}
	fmt.Fprintf(w, "  memory    NUMA nodes %s\n", c.Mems)
	fmt.Fprintf(w, "  quota     %s\n", quotaText(c))
	if c.ByKubelet {
		fmt.Fprintln(w, "  owner     kubelet's static policy chose these CPUs")
	}
	fmt.Fprintf(w, "  pools     shared %s, be %s, exclusive %s\n", pools.Shared, pools.BE, pools.Exclusive)
}
