package cgroup

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/quietcore/quietcore/internal/systemd"
)

// BusOptions configure the connection to systemd; zero values have defaults.
type BusOptions struct {
	// Socket is the one socket to use; empty: systemd.PrivateBus, else systemd.SystemBus.
	Socket string
	// Limit bounds one change, including the connection. Default 10 s: a daemon-reload of a large
	// node keeps systemd busy for seconds, and waiting for its end is faster than a retry.
	Limit time.Duration
	// Pause is how long calls fail at once after the bus did not answer. Default 3 s.
	Pause time.Duration
	Now   func() time.Time
	// Report is called with the result of every change: "ok", "error" or "timeout", and the
	// error if there was one.
	Report func(result string, err error)
}

// bus is a connection to systemd that reconnects by itself. A bus that hangs costs each caller
// Limit once, then calls fail at once for Pause.
type bus struct {
	o BusOptions

	mu     sync.Mutex
	conn   *systemd.Conn
	cancel context.CancelFunc // of conn
	cause  error              // why calls fail until then
	until  time.Time
}

func newBus(o BusOptions) *bus {
	if o.Limit == 0 {
		o.Limit = 10 * time.Second
	}
	if o.Pause == 0 {
		o.Pause = 3 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Report == nil {
		o.Report = func(string, error) {}
	}
	return &bus{o: o}
}

// do runs an exchange with systemd within its limit.
func (b *bus) do(ctx context.Context, talk func(context.Context, *systemd.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, b.o.Limit)
	defer cancel()
	c, fresh, err := b.connection(ctx)
	if err != nil {
		b.o.Report(resultOf(err), err)
		return err
	}
	err = talk(ctx, c)
	if lost(err) && !fresh && ctx.Err() == nil {
		// systemd, or the bus, was restarted since the last call.
		b.drop(c, nil)
		if c, _, err = b.connection(ctx); err == nil {
			err = talk(ctx, c)
		}
	}
	if lost(err) || errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("systemd does not answer: %w; %w", err, ErrInFlight)
		b.drop(c, err)
	}
	b.o.Report(resultOf(err), err)
	return err
}

func resultOf(err error) string {
	switch {
	case err == nil, errors.Is(err, ErrGone):
		return "ok"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	}
	return "error"
}

// lost reports whether the connection, not the request, is at fault.
func lost(err error) bool {
	var answer *systemd.Refusal
	return err != nil && !errors.As(err, &answer) && !errors.Is(err, ErrGone) && !errors.Is(err, systemd.ErrUnit) &&
		!errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled)
}

func (b *bus) connection(ctx context.Context) (c *systemd.Conn, fresh bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn != nil {
		return b.conn, false, nil
	}
	if wait := b.until.Sub(b.o.Now()); wait > 0 {
		return nil, false, fmt.Errorf("systemd: next attempt in %s: %w", wait.Round(time.Millisecond), b.cause)
	}
	if b.conn, b.cancel, err = b.dial(ctx); err != nil {
		b.cause, b.until = err, b.o.Now().Add(b.o.Pause)
		return nil, false, err
	}
	return b.conn, true, nil
}

// drop closes a connection; with a cause, calls fail at once for Pause.
func (b *bus) drop(c *systemd.Conn, cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn != c || c == nil {
		return
	}
	b.end()
	if cause != nil {
		b.cause, b.until = cause, b.o.Now().Add(b.o.Pause)
	}
}

func (b *bus) end() {
	if b.conn != nil {
		b.cancel()
		b.conn.Close()
		b.conn, b.cancel = nil, nil
	}
}

func (b *bus) close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.end()
	return nil
}

// dial tries the sockets in turn. Parts of the library's connection setup have no deadline, so it
// runs in a goroutine, and a connection that is established too late is closed.
func (b *bus) dial(ctx context.Context) (*systemd.Conn, context.CancelFunc, error) {
	sockets := []string{b.o.Socket}
	if b.o.Socket == "" {
		sockets = []string{systemd.PrivateBus, systemd.SystemBus}
	}
	var failures []error
	for _, socket := range sockets {
		life, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		var c *systemd.Conn
		go func() {
			var err error
			c, err = systemd.Dial(life, socket)
			done <- err
		}()
		var err error
		select {
		case err = <-done:
		case <-ctx.Done():
			cancel() // unblocks the goroutine
			if <-done == nil {
				c.Close()
			}
			err = ctx.Err()
		}
		if err == nil {
			return c, cancel, nil
		}
		cancel()
		failures = append(failures, fmt.Errorf("%s: %w", socket, err))
	}
	return nil, nil, fmt.Errorf("connect to systemd (in a pod its socket has to be mounted from the host): %w",
		errors.Join(failures...))
}
