package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/quietcore/quietcore/internal/script"
)

// Client asks a daemon over its socket.
type Client struct{ Socket string }

// maxAnswer bounds what is read of an answer; a record of a full node is a few
// megabytes.
const maxAnswer = 64 << 20

// askAgain is the interval at which a client polls whether the daemon has settled.
const askAgain = 50 * time.Millisecond

// Status asks once.
func (c Client) Status(ctx context.Context) (*Status, error) {
	s := &Status{}
	return s, c.get(ctx, "/v1/status", func(text []byte) error { return json.Unmarshal(text, s) })
}

// Top asks what every container uses.
func (c Client) Top(ctx context.Context) (*Top, error) {
	t := &Top{}
	return t, c.get(ctx, "/v1/top", func(text []byte) error { return json.Unmarshal(text, t) })
}

// Record returns the events of the daemon as a script.
func (c Client) Record(ctx context.Context) ([]byte, error) {
	var all []byte
	err := c.get(ctx, "/v1/record", func(text []byte) error { all = text; return nil })
	return all, err
}

// Metrics returns the daemon's metrics, in the format of Prometheus.
func (c Client) Metrics(ctx context.Context) ([]byte, error) {
	var all []byte
	err := c.get(ctx, "/v1/metrics", func(text []byte) error { all = text; return nil })
	return all, err
}

// Settled polls until every decision is written and read back. It waits for a daemon that is not
// running yet.
func (c Client) Settled(ctx context.Context) (*Status, error) {
	for {
		s, err := c.Status(ctx)
		switch {
		case err == nil && s.Settled:
			return s, nil
		case err != nil && !absent(err):
			return nil, err
		}
		select {
		case <-ctx.Done():
			if err != nil {
				return nil, err
			}
			return nil, fmt.Errorf("the daemon has not settled yet (connected %t, synchronised %t); its log says why",
				s.Connected, s.Synchronised)
		case <-time.After(askAgain):
		}
	}
}

// unanswered is a question that the daemon did not answer. It says what to do, and leaves how
// it was asked to errors.Is.
type unanswered struct {
	socket string
	cause  error
}

func (u *unanswered) Unwrap() error { return u.cause }

func (u *unanswered) Error() string {
	none := "no daemon answers on " + u.socket
	switch err := u.cause; {
	case errors.Is(err, os.ErrNotExist):
		return none + ": there is no such socket; start the daemon (`quietcore run`, its service or its pod), or " +
			"give its socket with --socket"
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOTSOCK):
		return none + ": nothing listens there; start the daemon again, its log says why it ended"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return none + ": it ended in the middle of the answer; ask again once it is back"
	case errors.Is(err, os.ErrPermission):
		return "the daemon's socket " + u.socket + " is for root alone; run this as root"
	case errors.Is(err, context.Canceled):
		return "interrupted before the daemon answered"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return "the daemon on " + u.socket + " did not answer in time; `quietcore doctor` and its log say what holds " +
			"it up"
	}
	const noise = "net/http: HTTP/1.x transport connection broken: "
	return fmt.Sprintf("what listens on %s does not answer as a daemon does (%s); name the daemon's socket with "+
		"--socket", u.socket, strings.TrimPrefix(innermost(u.cause).Error(), noise))
}

// innermost is an error without what package net and the client put around it.
func innermost(err error) error {
	for {
		var outer *url.Error
		var op *net.OpError
		switch {
		case errors.As(err, &outer):
			err = outer.Err
		case errors.As(err, &op):
			err = op.Err
		default:
			return err
		}
	}
}

func absent(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, io.EOF)
}

func into(v any) func([]byte) error {
	return func(text []byte) error { return json.Unmarshal(text, v) }
}

func (c Client) get(ctx context.Context, path string, take func([]byte) error) error {
	return c.send(ctx, http.MethodGet, path, take)
}

func (c Client) send(ctx context.Context, method, path string, take func([]byte) error) error {
	body, err := c.request(ctx, method, path)
	if err != nil {
		return err
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, maxAnswer))
	if err != nil {
		return &unanswered{c.Socket, err}
	}
	return take(text)
}

// ask returns the body of a successful answer; the caller closes it.
func (c Client) ask(ctx context.Context, path string) (io.ReadCloser, error) {
	return c.request(ctx, http.MethodGet, path)
}

func (c Client) request(ctx context.Context, method, path string) (io.ReadCloser, error) {
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", c.Socket)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, method, "http://quietcore"+path, nil)
	if err != nil {
		return nil, fmt.Errorf("ask the daemon: %w", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, &unanswered{c.Socket, err}
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	const most = 64 << 10
	text, err := io.ReadAll(io.LimitReader(resp.Body, most))
	if err != nil {
		return nil, fmt.Errorf("the daemon answered %s, and no more: %w", resp.Status, err)
	}
	var refused script.Error
	if json.Unmarshal(text, &refused) == nil && refused.Message != "" {
		text = []byte(refused.Message)
	}
	return nil, fmt.Errorf("the daemon answered %s: %s", resp.Status, text)
}
