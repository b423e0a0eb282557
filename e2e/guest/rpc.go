package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/quietcore/quietcore/e2e/wire"
)

// conns keeps one gRPC connection a socket; gRPC itself reconnects after the
// server was restarted.
type conns struct {
	mu sync.Mutex
	by map[string]*grpc.ClientConn
}

func newConns() *conns { return &conns{by: map[string]*grpc.ClientConn{}} }

func (c *conns) get(socket string) (*grpc.ClientConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn := c.by[socket]; conn != nil {
		return conn, nil
	}
	// A server that was just killed comes back in a second, not after gRPC's minute.
	quick := backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2,
		MaxDelay: 300 * time.Millisecond}
	conn, err := grpc.NewClient("unix://"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: quick, MinConnectTimeout: 5 * time.Second}))
	if err != nil {
		return nil, fmt.Errorf("gRPC client for %s: %w", socket, err)
	}
	c.by[socket] = conn
	return conn, nil
}

func (c *conns) call(req *wire.Request) (*wire.Response, error) {
	conn, err := c.get(req.Socket)
	if err != nil {
		return nil, err
	}
	ctx, cancel := timeout(req)
	defer cancel()
	var reply []byte
	err = conn.Invoke(ctx, req.Method, &req.Body, &reply,
		grpc.ForceCodec(rawCodec{}), grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(wire.MaxFrame))
	if err != nil {
		s := status.Convert(err)
		return &wire.Response{Code: int(s.Code())}, fmt.Errorf("%s", s.Message())
	}
	return &wire.Response{Body: reply}, nil
}

// rawCodec passes messages through undecoded: the host knows their types, the
// agent need not. It has no name, since that would become a part of the content
// type, and CRI-O answers only the plain one.
type rawCodec struct{}

func (rawCodec) Name() string { return "" }

func (rawCodec) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

func (rawCodec) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = bytes.Clone(data)
	return nil
}

func httpCall(req *wire.Request) (*wire.Response, error) {
	ctx, cancel := timeout(req)
	defer cancel()
	var d net.Dialer
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return d.DialContext(ctx, "unix", req.Socket)
		},
	}}
	hr, err := http.NewRequestWithContext(ctx, req.Method, "http://guest"+req.Path, bytes.NewReader(req.Body))
	if err != nil {
		return nil, err
	}
	hr.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(hr)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, wire.MaxFrame/2))
	return &wire.Response{Code: answer.StatusCode, Body: body}, err
}

// waitSocket polls because a unix socket that does not exist yet cannot be
// waited for in any other way that also covers one left over from a dead server.
func waitSocket(req *wire.Request) (*wire.Response, error) {
	ctx, cancel := timeout(req)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := net.Dial("unix", req.Socket)
		if err == nil {
			return &wire.Response{}, conn.Close()
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("nothing accepts at %s within %d ms: %w", req.Socket, req.TimeoutMillis, err)
		case <-tick.C:
		}
	}
}
