// Package fleet is `kubectl quietcore`: it asks the daemons of a cluster's nodes through
// kubectl, whose kubeconfig, contexts and login plugins hold. `kubectl get pods` finds the
// daemons, `kubectl exec` runs in each the read-only command of the same name.
package fleet

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/quietcore/quietcore/internal/cli"
)

// Cluster is how the daemons are reached.
type Cluster struct {
	Kubectl, Kubeconfig, Context   string
	Namespace, Selector, Container string        // of the daemons
	Nodes                          []string      // none: all
	Parallel                       int           // nodes asked at once
	Patience                       time.Duration // with one node
}

// Check refuses what the flags cannot mean.
func (c *Cluster) Check() error {
	switch {
	case c.Parallel < 1 || c.Parallel > 256:
		return cli.Usage("--parallel is %d; it must be 1 to 256", c.Parallel)
	case c.Patience < time.Second || c.Patience > time.Hour:
		return cli.Usage("--timeout is %s; it must be 1s to 1h", c.Patience)
	}
	for flag, value := range map[string]string{"namespace": c.Namespace, "selector": c.Selector,
		"container": c.Container} {
		// kubectl would take it for a flag of its own.
		if value == "" || strings.HasPrefix(value, "-") {
			return cli.Usage("--%s is %q; it must be there, and not begin with -", flag, value)
		}
	}
	return nil
}

// daemon is one node's.
type daemon struct{ Node, Pod string }

// maxAnswer bounds what is taken of one kubectl.
const maxAnswer = 64 << 20

// run runs kubectl and returns what it printed. A daemon's own sentence is the error
// where it refused.
func (c *Cluster) run(ctx context.Context, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Patience)
	defer cancel()
	var global []string
	if c.Kubeconfig != "" {
		global = append(global, "--kubeconfig="+c.Kubeconfig)
	}
	if c.Context != "" {
		global = append(global, "--context="+c.Context)
	}
	cmd := exec.CommandContext(ctx, c.Kubectl, append(global, args...)...)
	cmd.WaitDelay = 10 * time.Second // a child of kubectl that keeps its output open, on a machine that is busy
	out, errs := &bounded{most: maxAnswer}, &bounded{most: 64 << 10}
	cmd.Stdout, cmd.Stderr = out, errs
	err := cmd.Run()
	switch {
	case err == nil && out.cut:
		return nil, fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
	case err == nil:
		return out.Bytes(), nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("no answer within %s", c.Patience)
	case errors.Is(err, exec.ErrNotFound):
		return nil, fmt.Errorf("%s is not to be found; name it with --kubectl: %w", c.Kubectl, err)
	}
	message := strings.TrimSpace(errs.String())
	// kubectl adds a line of its own where the command in the pod failed.
	lines := slices.DeleteFunc(strings.Split(message, "\n"), func(l string) bool {
		return strings.HasPrefix(l, "command terminated with exit code")
	})
	if message = strings.TrimSpace(strings.Join(lines, "\n")); message == "" {
		return nil, err
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == cli.Wrong {
		return nil, cli.UsageError{Err: errors.New(message)}
	}
	return nil, errors.New(message)
}

// bounded keeps the beginning of what is written.
type bounded struct {
	bytes.Buffer
	most int
	cut  bool
}

func (b *bounded) Write(p []byte) (int, error) {
	if room := b.most - b.Len(); len(p) > room {
		b.cut = true
		b.Buffer.Write(p[:max(room, 0)])
		return len(p), nil
	}
	return b.Buffer.Write(p)
}

// daemons lists those that are to be asked, by node.
func (c *Cluster) daemons(ctx context.Context) ([]daemon, error) {
	text, err := c.run(ctx, "get", "pods", "--namespace", c.Namespace, "--selector", c.Selector, "--output", "json")
	if err != nil {
		return nil, fmt.Errorf("list the daemons' pods: %w", err)
	}
	var pods struct {
		Items []struct {
			Metadata struct {
				Name              string `json:"name"`
				DeletionTimestamp string `json:"deletionTimestamp"`
			} `json:"metadata"`
			Spec struct {
				NodeName string `json:"nodeName"`
			} `json:"spec"`
			Status struct {
				Phase string `json:"phase"`
			} `json:"status"`
		} `json:"items"`
	}
	if err := json.Unmarshal(text, &pods); err != nil {
		return nil, fmt.Errorf("list the daemons' pods: %w", err)
	}
	byNode := map[string]daemon{}
	for _, p := range pods.Items {
		node := p.Spec.NodeName
		if node == "" || p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed" || len(c.Nodes) > 0 &&
			!slices.Contains(c.Nodes, node) {
			continue
		}
		d := daemon{Node: node, Pod: p.Metadata.Name}
		// During a rollout a node has the old pod and the new one.
		if _, two := byNode[node]; !two || p.Metadata.DeletionTimestamp == "" {
			byNode[node] = d
		}
	}
	list := make([]daemon, 0, len(byNode))
	for _, d := range byNode {
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b daemon) int { return cmp.Compare(a.Node, b.Node) })
	for _, node := range c.Nodes {
		if _, ok := byNode[node]; !ok {
			return nil, fmt.Errorf("no daemon runs on node %q: no pod of namespace %s with labels %s", node,
				c.Namespace, c.Selector)
		}
	}
	if len(list) == 0 {
		return nil,
			fmt.Errorf("no daemon was found: no pod of namespace %s with labels %s; name theirs with -n and -l",
				c.Namespace, c.Selector)
	}
	return list, nil
}

// ask runs a command of the daemon's binary in its pod.
func (c *Cluster) ask(ctx context.Context, d daemon, args ...string) ([]byte, error) {
	return c.run(ctx, append([]string{"exec", "--namespace", c.Namespace, d.Pod, "--container", c.Container, "--",
		"/quietcore"}, args...)...)
}

// answer is one node's.
type answer struct {
	daemon
	text []byte
	err  error
}

// askAll asks several nodes at a time and returns their answers in the order of nodes.
func (c *Cluster) askAll(ctx context.Context, daemons []daemon, args ...string) []answer {
	answers := make([]answer, len(daemons))
	turn := make(chan struct{}, c.Parallel)
	var all sync.WaitGroup
	for i, d := range daemons {
		turn <- struct{}{}
		all.Go(func() {
			defer func() { <-turn }()
			text, err := c.ask(ctx, d, args...)
			answers[i] = answer{d, text, err}
		})
	}
	all.Wait()
	return answers
}

// silent is the error where nodes did not answer, nil where all did.
func silent(failed, all int) error {
	if failed == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d nodes did not answer as they should", failed, all)
}

// Printable keeps text from elsewhere from moving the cursor; lines stay.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || unicode.IsPrint(r) && r != unicode.ReplacementChar {
			return r
		}
		return '?'
	}, text)
}

// line is Printable text on one line.
func line(text string) string { return Printable(strings.Join(strings.Fields(text), " ")) }
