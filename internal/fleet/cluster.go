// Package fleet is `kubectl quietcore`: it asks the daemons of a cluster's nodes.
//
// The way is the API server's proxy to pods, with the login of a kubeconfig, whatever that is. The API server keeps
// that login to itself, and a node is never shown it: a daemon gets a token of the chart's reader account, which lasts
// ten minutes, is for the audience of Quietcore alone, and is good for reading what daemons say.
package fleet

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/quietcore/quietcore/internal/cli"
)

// Cluster is whom to ask, and how.
type Cluster struct {
	Kubeconfig, Context string
	Namespace           string // of pods that are asked about; empty: the context's
	Home, Labels        string // namespace and labels of the daemons' pods
	Nodes               []string
	Selector            string // of nodes
	All                 bool   // of them, where a command would ask fewer
	Parallel            int    // nodes asked at once
	Patience            time.Duration
	Errs                io.Writer // where progress goes; nil: nowhere
	Live                bool      // Errs is a terminal
	// TokenFile has a token that daemons take; empty: the API server is asked for some.
	TokenFile string

	agent string                               // what requests say they are from; empty: the plugin
	after func(time.Duration) <-chan time.Time // nil: time.After
}

// Check refuses what the flags cannot mean.
func (c *Cluster) Check() error {
	switch {
	case c.Parallel < 1 || c.Parallel > 256:
		return cli.Usage("--parallel is %d; it must be 1 to 256", c.Parallel)
	case c.Patience < time.Second || c.Patience > time.Hour:
		return cli.Usage("--timeout is %s; it must be 1s to 1h", c.Patience)
	case c.Home == "" || c.Labels == "":
		return cli.Usage("--daemon-namespace and --daemon-selector must not be empty")
	case len(c.Nodes) > 0 && (c.Selector != "" || c.All), c.Selector != "" && c.All:
		return cli.Usage("--node, --selector and --all exclude each other")
	}
	if i := slices.IndexFunc(c.Nodes, func(n string) bool { return !isName(n) }); i >= 0 {
		return cli.Usage("--node is %q; it must be the name of a Node", c.Nodes[i])
	}
	if c.Namespace != "" && !isName(c.Namespace) || !isName(c.Home) {
		return cli.Usage("-n and --daemon-namespace take the name of a namespace, got %q and %q", c.Namespace, c.Home)
	}
	return nil
}

// chosen says that nodes were named in some way.
func (c *Cluster) chosen() bool { return len(c.Nodes) > 0 || c.Selector != "" || c.All }

// server is the API server, with a login.
type server struct {
	client    *http.Client
	base      *url.URL
	namespace string // of the context
	after     func(time.Duration) <-chan time.Time
}

// connect reads the kubeconfig as kubectl does.
func (c *Cluster) connect() (*server, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.Kubeconfig
	read := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: c.Context})
	config, err := read.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	namespace, _, err := read.Namespace()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	config.UserAgent = cmp.Or(c.agent, "kubectl-quietcore")
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	s := &server{client: client, base: base, namespace: cmp.Or(c.Namespace, namespace), after: c.after}
	if s.after == nil {
		s.after = time.After
	}
	return s, nil
}

// call is a request of the API server.
type call struct {
	method, path string
	query        url.Values
	header       http.Header
	body         any
	most         int64 // bytes of the answer; 0: maxAnswer
}

// refusedError is an answer that is none. Its text is the API server's, or the daemon's.
type refusedError struct {
	code int
	text string
}

func (e *refusedError) Error() string { return e.text }

// maxAnswer bounds what is read of one answer, maxRefusal of one that is a refusal.
const maxAnswer, maxRefusal = 64 << 20, 64 << 10

// tries is how often something is asked that is busy.
const tries = 5

// do sends a request, again where that is wanted, and hands on the body of a good answer.
func (s *server) do(ctx context.Context, c call, take func(io.Reader) error) error {
	var text []byte
	if c.body != nil {
		var err error
		if text, err = json.Marshal(c.body); err != nil {
			return err
		}
	}
	for n := 1; ; n++ {
		wait, err := s.once(ctx, c, text, take)
		if wait == 0 || n == tries {
			return patient(ctx, err)
		}
		select {
		case <-s.after(wait):
		case <-ctx.Done():
			return err // it was busy all the time
		}
	}
}

// patient replaces what a transport says of a time that is over.
func patient(ctx context.Context, err error) error {
	switch {
	case err == nil || ctx.Err() == nil:
		return err
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return errors.New("no answer in time; --timeout gives a node more")
	}
	return ctx.Err()
}

// once is one request. A wait says that the answer was to come back after it.
func (s *server) once(ctx context.Context, c call, body []byte, take func(io.Reader) error) (wait time.Duration,
	err error) {
	to := s.base.JoinPath(c.path)
	to.RawQuery = c.query.Encode()
	req, err := http.NewRequestWithContext(ctx, c.method, to.String(), bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	for name, values := range c.header {
		req.Header[name] = values
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	} else {
		req.Body, req.ContentLength = http.NoBody, 0
	}
	resp, err := s.client.Do(req)
	if err != nil {
		var outer *url.Error // it repeats the address
		if errors.As(err, &outer) {
			err = outer.Err
		}
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 == 2 {
		most := cmp.Or(c.most, maxAnswer)
		limited := &io.LimitedReader{R: resp.Body, N: most + 1}
		err := take(limited)
		if limited.N <= 0 {
			err = fmt.Errorf("the answer is longer than %d bytes", most)
		}
		return 0, err
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	if err != nil {
		return 0, err
	}
	if again, is := strconv.Atoi(resp.Header.Get("Retry-After")); is == nil && again > 0 {
		wait = time.Duration(min(again, 30)) * time.Second
	}
	return wait, &refusedError{resp.StatusCode, reasonOf(resp.Status, text)}
}

// reasonOf is the sentence of a refusal: a Status of the API server, an error of a daemon, or plain text.
func reasonOf(status string, text []byte) string {
	var said struct{ Message string }
	if json.Unmarshal(text, &said) == nil && said.Message != "" {
		return said.Message
	}
	if plain := strings.TrimSpace(string(text)); plain != "" && len(plain) < 1000 {
		return plain
	}
	return status
}

// into reads JSON into v.
func into(v any) func(io.Reader) error {
	return func(r io.Reader) error { return json.NewDecoder(r).Decode(v) }
}

// daemon is one node's.
type daemon struct {
	node, pod string
	port      int32
	account   string // whose token it takes
	missing   string // why it cannot be asked
}

const (
	// accountAnnotation is where a daemon's pod says whose token it takes.
	accountAnnotation = "quietcore.dev/reader"
	// portName is the port of what a daemon serves to other machines.
	portName = "metrics"
)

// pod is what is read of one.
type pod struct {
	Metadata struct {
		Name              string            `json:"name"`
		DeletionTimestamp string            `json:"deletionTimestamp"`
		Annotations       map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		NodeName   string `json:"nodeName"`
		Containers []struct {
			Ports []struct {
				Name          string `json:"name"`
				ContainerPort int32  `json:"containerPort"`
			} `json:"ports"`
		} `json:"containers"`
	} `json:"spec"`
	Status struct {
		Phase string `json:"phase"`
	} `json:"status"`
}

func (p *pod) daemon() daemon {
	d := daemon{node: p.Spec.NodeName, pod: p.Metadata.Name, account: p.Metadata.Annotations[accountAnnotation]}
	for _, c := range p.Spec.Containers {
		for _, port := range c.Ports {
			if port.Name == portName {
				d.port = port.ContainerPort
			}
		}
	}
	switch {
	case d.port == 0:
		d.missing = "its daemon listens on loopback alone (config.listen)"
	case d.account == "":
		d.missing = "its pod names no account of readers: the chart is of an older version, or reader.create is false"
	}
	return d
}

// list reads a list in pages.
func list[T any](ctx context.Context, s *server, path, labels string, each func(*T)) error {
	query := url.Values{"labelSelector": {labels}, "limit": {"500"}}
	for {
		var page struct {
			Metadata struct {
				Continue string `json:"continue"`
			} `json:"metadata"`
			Items []T `json:"items"`
		}
		if err := s.do(ctx, call{method: http.MethodGet, path: path, query: query}, into(&page)); err != nil {
			return err
		}
		for i := range page.Items {
			each(&page.Items[i])
		}
		if page.Metadata.Continue == "" {
			return nil
		}
		query.Set("continue", page.Metadata.Continue)
	}
}

// daemons lists those that are to be asked, by node.
func (c *Cluster) daemons(ctx context.Context, s *server) ([]daemon, error) {
	ctx, cancel := context.WithTimeout(ctx, max(c.Patience, time.Minute))
	defer cancel()
	byNode := map[string]daemon{}
	err := list(ctx, s, "/api/v1/namespaces/"+c.Home+"/pods", c.Labels, func(p *pod) {
		node := p.Spec.NodeName
		if node == "" || p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed" {
			return
		}
		// During a rollout a node has the old pod and the new one.
		if _, two := byNode[node]; !two || p.Metadata.DeletionTimestamp == "" {
			byNode[node] = p.daemon()
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list the daemons' pods: %w", err)
	}
	if len(byNode) == 0 {
		return nil, fmt.Errorf("no daemon was found: no pod of namespace %s with labels %s; name theirs with "+
			"--daemon-namespace and --daemon-selector", c.Home, c.Labels)
	}
	names := c.Nodes
	if c.Selector != "" {
		if names, err = nodesWith(ctx, s, c.Selector); err != nil {
			return nil, err
		}
	}
	if len(names) == 0 {
		for node := range byNode {
			names = append(names, node)
		}
	}
	all := make([]daemon, 0, len(names))
	for _, node := range names {
		d, is := byNode[node]
		if !is {
			d = daemon{node: node, missing: "no daemon runs here"}
		}
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b daemon) int { return cmp.Compare(a.node, b.node) })
	return slices.CompactFunc(all, func(a, b daemon) bool { return a.node == b.node }), nil
}

// nodesWith lists the names of Nodes with labels.
func nodesWith(ctx context.Context, s *server, labels string) (names []string, err error) {
	err = list(ctx, s, "/api/v1/nodes", labels, func(n *struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
	}) {
		names = append(names, n.Metadata.Name)
	})
	if err != nil {
		return nil, fmt.Errorf("list the Nodes with labels %s: %w", labels, err)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no Node has the labels %s", labels)
	}
	return names, nil
}
