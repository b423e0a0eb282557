// Package prom asks a Prometheus. It gives its token to the server that is configured alone, follows no redirect, waits
// no longer than it was told, and reads no endless answer.
//
//	s, err := prom.New(prom.Server{URL: "http://prometheus.monitoring:9090", Timeout: 10 * time.Second})
//	vector, err := s.Query(ctx, `quietcore_ready`)
package prom

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/transport"
)

// Server is one to ask.
type Server struct {
	URL     string
	Timeout time.Duration // of a question
	// TokenFile and CAFile are read anew when they change; empty: none, and the system's authorities.
	TokenFile, CAFile string
}

// Client asks one. It is safe for concurrent use.
type Client struct {
	api     v1.API
	timeout time.Duration
}

// maxAnswer bounds what is read of an answer: what is asked for takes some hundred kilobytes.
const maxAnswer = 16 << 20

// New has asked for nothing yet.
func New(s Server) (*Client, error) {
	tls := transport.TLSConfig{CAFile: s.CAFile, ReloadTLSFiles: true}
	trip, err := transport.New(&transport.Config{BearerTokenFile: s.TokenFile, TLS: tls})
	if err != nil {
		return nil, err
	}
	client, err := api.NewClient(api.Config{Address: s.URL, Client: &http.Client{
		Transport: bounded{trip},
		// Only the configured server gets the token, never one that it redirects to.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}})
	if err != nil {
		return nil, err
	}
	return &Client{v1.NewAPI(client), s.Timeout}, nil
}

// Query has the vector that an expression is now, by Prometheus' clock. No sample of it is nil. A warning, as of a
// store that is away, is no error: what the others say counts.
func (c *Client) Query(ctx context.Context, expr string) (model.Vector, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	answer, _, _, err := c.api.Query(ctx, expr, time.Time{})
	if err != nil {
		return nil, err
	}
	if answer == nil {
		return nil, errors.New("the answer has no data: is this a Prometheus?")
	}
	vector, ok := answer.(model.Vector)
	if !ok {
		return nil, fmt.Errorf("the answer is a %s, not a vector", answer.Type())
	}
	if slices.Contains(vector, nil) {
		return nil, errors.New("the answer has an empty sample: is this a Prometheus?")
	}
	return vector, nil
}

// bounded keeps a long answer from filling the memory.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		answer.Body = struct {
			io.Reader
			io.Closer
		}{&limited{from: answer.Body, left: maxAnswer}, answer.Body}
	}
	return answer, err
}

type limited struct {
	from io.Reader
	left int
}

func (l *limited) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
	}
	n, err := l.from.Read(p[:min(len(p), l.left)])
	l.left -= n
	return n, err
}
