package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"
)

// Times are how long a client may take.
type Times struct {
	Request time.Duration // to send a request, and for the handshake of TLS
	Answer  time.Duration // to take the answer; 0: as long as the handler lets it
	Idle    time.Duration // to send the next one; 0: a connection has one request
}

// maxHeader bounds a request's headers: a token of a service account has 1 to 2 kB.
const maxHeader = 16 << 10

// connKey is where a request's context has its conn.
type connKey struct{}

// Serve answers on l until ctx ends.
func Serve(ctx context.Context, l net.Listener, h http.Handler, t Times) error {
	srv := &http.Server{
		Handler: marking(h), ReadHeaderTimeout: t.Request, WriteTimeout: t.Answer, IdleTimeout: t.Idle,
		MaxHeaderBytes: maxHeader,
		BaseContext:    func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if secure, ok := c.(*tls.Conn); ok {
				c = secure.NetConn()
			}
			return context.WithValue(ctx, connKey{}, c)
		},
		// Every failed handshake would be a line of the log, which any client can write then.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	srv.SetKeepAlivesEnabled(t.Idle > 0)
	stop := context.AfterFunc(ctx, func() { srv.Close() })
	defer stop()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	return nil
}

// marking tells the listener which connections are being answered. Nothing that is
// served takes a body, and the server would wait for the rest of one.
func marking(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			// A ResponseWriter without deadlines is a test's.
			_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0))
			w.Header().Set("Connection", "close")
			http.Error(w, "a request has no body here", http.StatusBadRequest)
			return
		}
		if c, ok := r.Context().Value(connKey{}).(*conn); ok {
			c.answering.Store(true)
			defer c.answering.Store(false)
		}
		h.ServeHTTP(w, r)
	})
}
