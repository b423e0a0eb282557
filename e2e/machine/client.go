package machine

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/quietcore/quietcore/e2e/wire"
)

const portName = wire.PortName

// client is the host's end of the agent's port.
type client struct {
	conn   net.Conn
	exited <-chan struct{}

	mu      sync.Mutex
	next    uint64
	waiting map[uint64]chan *wire.Response
	broken  error
	// trace, if set, is called with what each call took.
	trace func(what string, took time.Duration)
}

// Trace makes every call report what it took; it is for finding out why a test
// is slow.
func (c *client) Trace(f func(what string, took time.Duration)) { c.trace = f }

func newClient(conn net.Conn, exited <-chan struct{}) *client {
	c := &client{conn: conn, exited: exited, waiting: map[uint64]chan *wire.Response{}}
	go c.receive()
	return c
}

func (c *client) receive() {
	in := bufio.NewReaderSize(c.conn, 1<<16)
	for {
		resp := &wire.Response{}
		err := wire.Read(in, resp)
		c.mu.Lock()
		if err != nil {
			c.mu.Unlock()
			c.fail(fmt.Errorf("the guest is gone: %w", err))
			return
		}
		ch := c.waiting[resp.ID]
		delete(c.waiting, resp.ID)
		c.mu.Unlock()
		if ch != nil {
			ch <- resp
		}
	}
}

// fail ends all present and future calls. The first error stays.
func (c *client) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken == nil {
		c.broken = err
	}
	for id, ch := range c.waiting {
		delete(c.waiting, id)
		close(ch)
	}
}

// ErrHangs is a guest whose agent does not answer. QEMU's threads race with a kernel
// that patches its own code; no program of the guest can silence the agent.
var ErrHangs = errors.New("the guest hangs")

// A guest is asked every pulse, and given up after a silence: a busy one has been
// seen to take seconds, not minutes.
const (
	pulse   = 10 * time.Second
	silence = 2 * time.Minute
)

// Broken says why no call can succeed any more, or nil.
func (c *client) Broken() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken
}

// watch pings the agent after every pause until it fails to answer within the limit:
// callers would wait forever.
func (c *client) watch(pause, limit time.Duration) {
	for {
		select {
		case <-c.exited:
			return
		case <-time.After(pause):
		}
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		_, err := c.Hello(ctx)
		cancel()
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			c.fail(fmt.Errorf("%w: no answer for %v", ErrHangs, limit))
			return
		case err != nil:
			return
		}
	}
}

func (c *client) close() { c.conn.Close() }

// do sends one request. It passes the context's deadline on, so that the guest gives up
// when no caller waits any more.
func (c *client) do(ctx context.Context, req *wire.Request) (*wire.Response, error) {
	if d, ok := ctx.Deadline(); ok {
		req.TimeoutMillis = max(1, time.Until(d).Milliseconds())
	}
	if c.trace != nil {
		started := time.Now()
		defer func() {
			c.trace(strings.Join(append([]string{req.Op, req.Name, req.Method}, req.Argv...), " "), time.Since(started))
		}()
	}
	ch := make(chan *wire.Response, 1)
	c.mu.Lock()
	if c.broken != nil {
		c.mu.Unlock()
		return nil, c.broken
	}
	c.next++
	req.ID = c.next
	c.waiting[req.ID] = ch
	err := c.conn.SetWriteDeadline(time.Now().Add(silence))
	if err == nil {
		err = wire.Write(c.conn, req)
	}
	c.mu.Unlock()
	if err != nil { // half a request may be on its way
		why := fmt.Errorf("the guest is gone: %w", err)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			why = fmt.Errorf("%w: it reads nothing for %v", ErrHangs, silence)
		}
		c.fail(why)
		return nil, c.broken
	}
	select {
	case resp, ok := <-ch:
		if !ok {
			return nil, c.broken
		}
		if resp.Error != "" {
			return resp, errors.New(resp.Error)
		}
		return resp, nil
	case <-c.exited:
		return nil, errors.New("QEMU has ended")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Hello waits until the agent answers.
func (c *client) Hello(ctx context.Context) (*wire.Response, error) {
	return c.do(ctx, &wire.Request{Op: wire.OpHello})
}

// Result is what a program in the guest left.
type Result struct {
	Stdout, Stderr string
	Code           int
}

// Exec runs a program to its end; a non-zero exit code is an error here, with what
// it wrote on standard error.
func (c *client) Exec(ctx context.Context, argv ...string) (Result, error) {
	resp, err := c.do(ctx, &wire.Request{Op: wire.OpExec, Argv: argv})
	if err != nil {
		return Result{}, fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
	}
	r := Result{Stdout: string(resp.Stdout), Stderr: string(resp.Stderr), Code: resp.Code}
	if r.Code != 0 {
		return r, fmt.Errorf("%s: exit code %d: %s", strings.Join(argv, " "), r.Code, strings.TrimSpace(r.Stderr))
	}
	return r, nil
}

// Start starts a program that goes on running; its output goes to LogFile(name).
func (c *client) Start(ctx context.Context, name string, argv ...string) error {
	_, err := c.do(ctx, &wire.Request{Op: wire.OpStart, Name: name, Argv: argv})
	return err
}

// Signal returns when the program is gone; one that is gone already is no error.
func (c *client) Signal(ctx context.Context, name string, sig int) error {
	_, err := c.do(ctx, &wire.Request{Op: wire.OpSignal, Name: name, Signal: sig})
	return err
}

// Running says whether a started program still runs, and its exit code if not.
func (c *client) Running(ctx context.Context, name string) (bool, int, error) {
	resp, err := c.do(ctx, &wire.Request{Op: wire.OpProcess, Name: name})
	if err != nil {
		return false, 0, err
	}
	return resp.Running, resp.Code, nil
}

// LogFile is the guest's file with the output of a started program.
func LogFile(name string) string { return "/var/log/" + name + ".log" }

// LogTail is the end of a started program's output.
func (c *client) LogTail(ctx context.Context, name string, n int) string {
	res, err := c.Files(ctx, wire.FileAction{Do: wire.FileRead, Path: LogFile(name), Optional: true})
	if err != nil {
		return err.Error()
	}
	return tail(res[0].Data, n)
}

// Files performs the actions in order in one round trip.
func (c *client) Files(ctx context.Context, actions ...wire.FileAction) ([]wire.FileResult, error) {
	resp, err := c.do(ctx, &wire.Request{Op: wire.OpFiles, Files: actions})
	if err != nil {
		return nil, err
	}
	return resp.Files, nil
}

// Units performs the calls to systemd in order in one round trip.
func (c *client) Units(ctx context.Context, actions ...wire.UnitAction) ([]wire.UnitResult, error) {
	resp, err := c.do(ctx, &wire.Request{Op: wire.OpUnits, Units: actions})
	if err != nil {
		return nil, err
	}
	return resp.Units, nil
}

// WriteFile makes missing directories; kernel files are written in place.
func (c *client) WriteFile(ctx context.Context, path, data string) error {
	_, err := c.Files(ctx, wire.FileAction{Do: wire.FileWrite, Path: path, Data: []byte(data)})
	return err
}

// ReadFile reads one file.
func (c *client) ReadFile(ctx context.Context, path string) (string, error) {
	res, err := c.Files(ctx, wire.FileAction{Do: wire.FileRead, Path: path})
	if err != nil {
		return "", err
	}
	return string(res[0].Data), nil
}

// WaitSocket returns when a process accepts at a unix socket of the guest.
func (c *client) WaitSocket(ctx context.Context, path string) error {
	_, err := c.do(ctx, &wire.Request{Op: wire.OpDial, Socket: path})
	return err
}

// HTTP makes one request over a unix socket of the guest; a JSON body may be nil.
func (c *client) HTTP(ctx context.Context, socket, method, path string, body any) (int, []byte, error) {
	req := &wire.Request{Op: wire.OpHTTP, Socket: socket, Method: method, Path: path}
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return 0, nil, err
		}
		req.Body = data
	}
	resp, err := c.do(ctx, req)
	if err != nil {
		return 0, nil, fmt.Errorf("%s %s at %s: %w", method, path, socket, err)
	}
	return resp.Code, resp.Body, nil
}

// runtimeService is the service of a runtime that listens at the socket, called
// through the agent.
func (c *client) runtimeService(socket string) cri.RuntimeServiceClient {
	return cri.NewRuntimeServiceClient(&guestConn{c: c, socket: socket})
}

// guestConn is a gRPC connection that ends in the guest: messages are encoded
// here, so the agent need not know their types.
type guestConn struct {
	c      *client
	socket string
}

func (g *guestConn) Invoke(ctx context.Context, method string, args, reply any, _ ...grpc.CallOption) error {
	body, err := proto.Marshal(args.(proto.Message))
	if err != nil {
		return err
	}
	resp, err := g.c.do(ctx, &wire.Request{Op: wire.OpGRPC, Socket: g.socket, Method: method, Body: body})
	if err != nil {
		code := codes.Unavailable
		if resp != nil && resp.Code != 0 {
			code = codes.Code(resp.Code)
		}
		return status.Error(code, err.Error())
	}
	return proto.Unmarshal(resp.Body, reply.(proto.Message))
}

func (g *guestConn) NewStream(context.Context, *grpc.StreamDesc, string,
	...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, status.Error(codes.Unimplemented, "the agent's port carries unary calls only")
}
