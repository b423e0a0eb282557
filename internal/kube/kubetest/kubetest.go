// Package kubetest is shared by the tests of all clients of an API server: how
// a server answers and refuses, and a network that works in fake time.
//
//	synctest.Test(t, func(t *testing.T) {
//		config, stop := kubetest.Serve(handler)
//		defer stop()
//		// a client made of config asks handler
//	})
package kubetest

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Answer sends an object.
func Answer(w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object) // the client went away
}

// Refuse sends an error as the API server does: a Status with its code. One that is
// none of the API's is an internal error.
func Refuse(w http.ResponseWriter, err error) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}
	s := status.Status()
	s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	Answer(w, int(s.Code), s)
}

// Serve serves h to clients of the configuration until stop, which
// waits for the server's end. Nothing leaves the process: in a synctest bubble
// waiting for the network is idling.
func Serve(h http.Handler) (config *rest.Config, stop func()) {
	network := &wire{conns: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: h, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(network) }()
	return &rest.Config{Host: "http://api", Dial: network.dial, QPS: -1}, func() {
		_ = server.Close()
		<-done
	}
}

// wire is a network inside of the process.
type wire struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *wire) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *wire) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *wire) Addr() net.Addr { return &net.UnixAddr{Name: "wire", Net: "wire"} }

func (l *wire) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case l.conns <- there:
		return here, nil
	case <-l.closed:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
