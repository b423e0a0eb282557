package metrics

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// Limits per client. Any pod may be able to connect, so each source has a share of its
// own and cannot lock out kubelet's probes.
const (
	maxFromOne = 16
	maxFromAll = 256
)

// Listen listens on HOST:PORT. A source with too many connections has its next one
// closed at once.
func Listen(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	return &fairListener{Listener: l, open: map[string]int{}}, nil
}

type fairListener struct {
	net.Listener

	mu   sync.Mutex // guards what follows
	open map[string]int
	all  int
}

// Accept returns the next connection of a source that may have one more.
func (l *fairListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := sourceOf(c)
		if l.take(from) {
			return &fairConn{Conn: c, release: sync.OnceFunc(func() { l.giveBack(from) })}, nil
		}
		c.Close()
	}
}

func sourceOf(c net.Conn) string {
	if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return a.IP.String()
	}
	return ""
}

func (l *fairListener) take(from string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == maxFromAll || l.open[from] == maxFromOne {
		return false
	}
	l.all++
	l.open[from]++
	return true
}

func (l *fairListener) giveBack(from string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.open[from]--; l.open[from] == 0 {
		delete(l.open, from)
	}
}

type fairConn struct {
	net.Conn
	release func()
}

func (c *fairConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// Serve serves on l until ctx ends. It closes connections of clients that send requests
// or read answers too slowly, since they occupy memory.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	const ask, take, idle = 10 * time.Second, 30 * time.Second, 2 * time.Minute
	return serve(ctx, l, &http.Server{Handler: h, ReadTimeout: ask, WriteTimeout: take, IdleTimeout: idle,
		MaxHeaderBytes: 16 << 10})
}

func serve(ctx context.Context, l net.Listener, srv *http.Server) error {
	srv.BaseContext = func(net.Listener) context.Context { return ctx }
	stop := context.AfterFunc(ctx, func() { srv.Close() })
	defer stop()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	return nil
}
