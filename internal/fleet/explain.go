package fleet

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

var dnsName = regexp.MustCompile(`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`)

// IsPod reports whether text is NAMESPACE/POD or NAMESPACE/POD/CONTAINER.
func IsPod(text string) bool {
	parts := strings.Split(text, "/")
	return len(text) < 600 && (len(parts) == 2 || len(parts) == 3) && !slices.ContainsFunc(parts, func(p string) bool {
		return !dnsName.MatchString(p)
	})
}

// Explain writes why a pod has the CPUs it has, wherever it runs.
func (c *Cluster) Explain(ctx context.Context, w io.Writer, pod string) error {
	daemons, err := c.daemons(ctx)
	if err != nil {
		return err
	}
	all := len(daemons)
	if node := c.nodeOf(ctx, pod); node != "" {
		of := slices.DeleteFunc(slices.Clone(daemons), func(d daemon) bool { return d.Node != node })
		if len(of) == 0 && len(c.Nodes) == 0 {
			return fmt.Errorf("%s runs on node %q, on which no daemon does", pod, node)
		}
		if len(of) > 0 {
			daemons = of
		}
	}
	answers := c.askAll(ctx, daemons, "explain", pod)
	known, failed := 0, 0
	failure := ""
	for _, a := range answers {
		switch {
		case a.err == nil:
			known++
			if _, err := fmt.Fprintf(w, "node %s\n%s", line(a.Node), Printable(string(a.text))); err != nil {
				return err
			}
		case strings.Contains(a.err.Error(), "no container of"):
			failure = a.err.Error()
		default:
			failed++
			failure = fmt.Sprintf("node %s: %s", a.Node, line(a.err.Error()))
		}
	}
	switch {
	case known > 0:
		return nil
	case failed > 0:
		return fmt.Errorf("%w: %s", silent(failed, len(answers)), failure)
	case len(answers) == 1 && all > 1:
		return fmt.Errorf("on node %s: %s", answers[0].Node, strings.TrimPrefix(failure, "quietcore: "))
	}
	return fmt.Errorf("no node knows %s; a pod that was refused shows the sentence as an Event", pod)
}

// nodeOf is the node of a pod, "" where that is not to be had.
func (c *Cluster) nodeOf(ctx context.Context, pod string) string {
	parts := strings.Split(pod, "/")
	text, err := c.run(ctx, "get", "pod", "--namespace", parts[0], parts[1], "--output", "jsonpath={.spec.nodeName}")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
