package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/quietcore/quietcore/internal/access"
	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/control"
)

// tokenSeconds is how long a token lasts: the shortest that the API server gives.
const tokenSeconds = 600

// question is what every node is asked.
type question struct {
	path  string // below control.RemotePrefix
	query url.Values
}

// answer is one node's.
type answer[T any] struct {
	daemon
	value T
	err   error
}

// asking is a connection with the daemons that are to be asked.
type asking struct {
	*Cluster
	server  *server
	daemons []daemon
	tokens  map[string]string // by account
	most    int64             // bytes of a daemon's answer; 0: maxAnswer
}

// begin connects, and finds the daemons.
func (c *Cluster) begin(ctx context.Context) (*asking, error) {
	s, err := c.connect()
	if err != nil {
		return nil, err
	}
	a := &asking{Cluster: c, server: s, tokens: map[string]string{}}
	if a.daemons, err = c.daemons(ctx, s); err != nil {
		return nil, err
	}
	return a, nil
}

// login has a token of each account. Without one no daemon of that account can be asked.
func (a *asking) login(ctx context.Context, daemons []daemon) error {
	if a.TokenFile != "" {
		text, err := os.ReadFile(a.TokenFile)
		if err != nil {
			return fmt.Errorf("read the token for daemons: %w", err)
		}
		for _, d := range daemons {
			a.tokens[d.account] = strings.TrimSpace(string(text))
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, a.Patience)
	defer cancel()
	for _, d := range daemons {
		if _, has := a.tokens[d.account]; has || d.missing != "" {
			continue
		}
		var review struct {
			Status struct {
				Token string `json:"token"`
			} `json:"status"`
		}
		err := a.server.do(ctx, call{
			method: http.MethodPost, path: "/api/v1/namespaces/" + a.Home + "/serviceaccounts/" + d.account + "/token",
			body: map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
				"spec": map[string]any{"audiences": []string{access.Audience}, "expirationSeconds": tokenSeconds}},
		}, into(&review))
		if err != nil {
			return fmt.Errorf("have a token of the account %s/%s: %w", a.Home, d.account, err)
		}
		a.tokens[d.account] = review.Status.Token
	}
	return nil
}

// one asks a node.
func (a *asking) one(ctx context.Context, d daemon, q question, take func(io.Reader) error) error {
	if d.missing != "" {
		return errors.New(d.missing)
	}
	ctx, cancel := context.WithTimeout(ctx, a.Patience)
	defer cancel()
	return a.server.do(ctx, call{
		method: http.MethodGet, query: q.query, most: a.most,
		header: http.Header{access.Header: {"Bearer " + a.tokens[d.account]}},
		path: fmt.Sprintf("/api/v1/namespaces/%s/pods/https:%s:%d/proxy%s%s", a.Home, d.pod, d.port,
			control.RemotePrefix, q.path),
	}, take)
}

// ask asks several nodes at a time and returns their answers in the order of nodes.
func ask[T any](ctx context.Context, a *asking, daemons []daemon, q question) ([]answer[T], error) {
	return each(ctx, a, daemons, func(ctx context.Context, d daemon) (value T, err error) {
		err = a.one(ctx, d, q, into(&value))
		return value, err
	})
}

// each does something with several nodes at a time.
func each[T any](ctx context.Context, a *asking, daemons []daemon, do func(context.Context, daemon) (T, error)) (
	[]answer[T], error) {
	if err := a.login(ctx, daemons); err != nil {
		return nil, err
	}
	answers := make([]answer[T], len(daemons))
	shown := progress{to: a.Errs, all: len(daemons), live: a.Live && len(daemons) > 1}
	turn := make(chan struct{}, a.Parallel)
	var all sync.WaitGroup
	for i, d := range daemons {
		turn <- struct{}{}
		all.Go(func() {
			defer func() { <-turn }()
			value, err := do(ctx, d)
			answers[i] = answer[T]{d, value, err}
			shown.one(err)
		})
	}
	all.Wait()
	shown.end()
	return answers, ctx.Err()
}

// progress says on a terminal how many nodes have answered, in a line that is gone at the end.
type progress struct {
	to   io.Writer
	live bool
	all  int

	mu           sync.Mutex // guards the rest
	done, failed int
}

func (p *progress) one(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done++; err != nil {
		p.failed++
	}
	if !p.live {
		return
	}
	text := fmt.Sprintf("%d of %d nodes", p.done, p.all)
	if p.failed > 0 {
		text += fmt.Sprintf(", %d did not answer", p.failed)
	}
	fmt.Fprintf(p.to, "\r%s\x1b[K", text)
}

func (p *progress) end() {
	if p.live {
		fmt.Fprint(p.to, "\r\x1b[K")
	}
}

// failures are the nodes that did not answer, each reason once.
type failures struct {
	reasons []string
	nodes   map[string][]string
	failed  int
	all     int
}

func failuresOf[T any](answers []answer[T]) *failures {
	f := &failures{nodes: map[string][]string{}, all: len(answers)}
	for i := range answers {
		if answers[i].err != nil {
			f.add(answers[i].node, answers[i].err)
		}
	}
	return f
}

func (f *failures) add(node string, err error) {
	f.failed++
	why := line(err.Error())
	if f.nodes[why] == nil {
		f.reasons = append(f.reasons, why)
	}
	f.nodes[why] = append(f.nodes[why], node)
}

// end writes the reasons, and is the error of a command that has written what it had.
func (f *failures) end(w io.Writer) error {
	const most = 5
	for _, why := range f.reasons {
		nodes := f.nodes[why]
		who := "node " + line(nodes[0])
		if n := len(nodes); n > 1 {
			who = fmt.Sprintf("%d nodes (%s", n, line(strings.Join(nodes[:min(n, most)], ", ")))
			if n > most {
				who += fmt.Sprintf(" and %d more", n-most)
			}
			who += ")"
		}
		fmt.Fprintf(w, "%s: %s\n", who, why)
	}
	switch {
	case f.failed == 0:
		return nil
	case f.failed < f.all:
		return cli.PartialError{Err: fmt.Errorf("%d of %d nodes did not answer", f.failed, f.all)}
	}
	return fmt.Errorf("none of %d nodes answered", f.all)
}

// wait passes the time that is left of a delay.
func (a *asking) wait(ctx context.Context, d time.Duration) {
	select {
	case <-a.server.after(d):
	case <-ctx.Done():
	}
}
