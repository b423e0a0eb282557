package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/control/show"
)

// PodOf is namespace/pod or namespace/pod/container of what a user wrote, POD or NAMESPACE/POD and a container, where
// the namespace may be given apart. false: it is none.
func PodOf(text, namespace string) (pod string, ok bool) {
	if !strings.Contains(text, "/") {
		text = "/" + text
	}
	parts := strings.Split(text, "/")
	if namespace != "" && parts[0] != "" && parts[0] != namespace {
		return "", false
	}
	if parts[0] == "" {
		parts[0] = namespace
	}
	if len(parts) < 2 || len(parts) > 3 || slices.ContainsFunc(parts[1:], func(p string) bool { return !isName(p) }) ||
		parts[0] != "" && !isName(parts[0]) {
		return "", false
	}
	return strings.Join(parts, "/"), true
}

// nodeExplanation is what a node says of a pod.
type nodeExplanation struct {
	Node string `json:"node"`
	control.Explanation
}

// Explain writes why a pod has the CPUs it has, wherever it runs. An empty namespace is the context's.
func (c *Cluster) Explain(ctx context.Context, s cli.Streams, pod, format string) error {
	a, err := c.begin(ctx)
	if err != nil {
		return err
	}
	if strings.HasPrefix(pod, "/") {
		pod = a.server.namespace + pod
	}
	asked := a.daemons
	node := ""
	if !c.chosen() {
		if node = a.nodeOf(ctx, pod); node != "" {
			asked = slices.DeleteFunc(slices.Clone(asked), func(d daemon) bool { return d.node != node })
		}
		if len(asked) == 0 {
			return fmt.Errorf("%s runs on node %q, on which no daemon does", pod, node)
		}
	}
	answers, err := ask[control.Explanation](ctx, a, asked, question{"/v1/explain", url.Values{"pod": {pod}}})
	if err != nil {
		return err
	}
	known := []nodeExplanation{}
	f := &failures{nodes: map[string][]string{}, all: len(answers)}
	absent := ""
	for i := range answers {
		var refused *refusedError
		switch err := answers[i].err; {
		case err == nil:
			answers[i].value.Asked = pod
			known = append(known, nodeExplanation{answers[i].node, answers[i].value})
		case errors.As(err, &refused) && refused.code == http.StatusNotFound && strings.Contains(refused.text, pod):
			absent = refused.text
		default:
			f.add(answers[i].node, err)
		}
	}
	switch {
	case len(known) > 0:
		// One node knows it, and no other is asked for more.
		return writeExplanations(s, known, format)
	case f.failed > 0:
		return f.end(s.Errs)
	case node != "":
		return fmt.Errorf("on node %s: %s", line(node), line(absent))
	}
	return fmt.Errorf("no node knows %s; a pod that was refused shows the sentence as an Event", pod)
}

func writeExplanations(s cli.Streams, known []nodeExplanation, format string) error {
	if format == "json" {
		return cli.WriteJSON(s.Out, map[string]any{"nodes": known})
	}
	for i := range known {
		var text bytes.Buffer
		if err := show.WriteExplanation(&text, &known[i].Explanation); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(s.Out, "node %s\n%s", line(known[i].Node), Printable(text.String())); err != nil {
			return err
		}
	}
	return nil
}

// nodeOf is the node of a pod, "" where that is not to be had.
func (a *asking) nodeOf(ctx context.Context, what string) string {
	ctx, cancel := context.WithTimeout(ctx, a.Patience)
	defer cancel()
	parts := strings.Split(what, "/")
	var p pod
	err := a.server.do(ctx, call{method: http.MethodGet,
		path: "/api/v1/namespaces/" + parts[0] + "/pods/" + parts[1]}, into(&p))
	if err != nil {
		return "" // every node is asked
	}
	return p.Spec.NodeName
}
