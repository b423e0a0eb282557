package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"github.com/containerd/ttrpc"
	"github.com/fsnotify/fsnotify"

	"github.com/quietcore/quietcore/plugin/node"
)

const (
	leastBackOff = 100 * time.Millisecond
	mostBackOff  = 30 * time.Second
)

// connect keeps the plugin registered with the runtime. Every attempt has a new
// stub, since one that failed keeps its dead connection.
func (p *Plugin) connect(ctx context.Context) {
	back := leastBackOff
	for ctx.Err() == nil {
		p.beginEnforcing(ctx)
		err := p.attempt(ctx)
		if ctx.Err() != nil || p.connected.Swap(false) && p.runner.put(ctx, node.Lost{}) != nil {
			return
		}
		if errors.Is(err, errAgain) {
			p.synchronised.Store(false)
			continue
		}
		result := "error"
		if p.synchronised.Swap(false) {
			back, result = leastBackOff, "lost"
		}
		p.o.Metrics.Connection(result)
		wait := time.Duration((0.5 + p.o.Clock.Jitter()/2) * float64(back))
		p.o.Log.Warn("not connected to the runtime; containers keep running where they are", "socket", p.o.Socket,
			"err", err, "next", wait.String())
		p.waitFor(ctx, wait)
		back = min(back*2, mostBackOff)
	}
}

// waitFor waits before the next attempt, less long if the socket appears.
func (p *Plugin) waitFor(ctx context.Context, d time.Duration) {
	appeared, stop := socketAppears(p.o.Socket)
	defer stop()
	select {
	case <-ctx.Done():
	case <-p.o.Clock.After(d):
	case <-appeared:
	case <-p.mode.again:
	}
}

// socketAppears returns a channel that is closed when the runtime creates its socket; never, if
// the socket's directory does not exist either.
func socketAppears(socket string) (<-chan struct{}, func()) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, func() {}
	}
	if w.Add(filepath.Dir(socket)) != nil {
		w.Close()
		return nil, func() {}
	}
	appeared := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range w.Events {
			if e.Op.Has(fsnotify.Create) && filepath.Base(e.Name) == filepath.Base(socket) {
				close(appeared)
				return
			}
		}
	}()
	return appeared, func() { w.Close(); <-done }
}

// attempt registers and serves until the connection ends.
func (p *Plugin) attempt(ctx context.Context) error {
	s := &session{Plugin: p, deadline: half(0)}
	l, err := register(ctx, &p.o, s, func(st stub.Stub) { s.stub = st })
	if err != nil {
		return err
	}
	defer l.stacks.close()
	p.connected.Store(true)
	p.o.Metrics.Connection("ok")
	select {
	case <-l.closed:
		return errors.New("the runtime closed the connection")
	case <-p.mode.again:
		l.end()
		return errAgain
	case <-ctx.Done():
		l.end()
		return ctx.Err()
	}
}

// link is one registration with the runtime.
type link struct {
	stub   stub.Stub
	line   *trackedConn
	closed chan struct{} // when the runtime has ended it
	stacks stacks        // of the handlers
}

// register registers handler as a plugin of the runtime. know gets the stub before any handler is
// called.
func register(ctx context.Context, o *Options, handler any, know func(stub.Stub)) (*link, error) {
	l := &link{line: &trackedConn{lost: make(chan struct{})}, closed: make(chan struct{})}
	var once sync.Once
	var err error
	l.stub, err = stub.New(handler,
		stub.WithPluginName(o.Name), stub.WithPluginIdx(o.Index), stub.WithSocketPath(o.Socket),
		stub.WithDialer(l.line.dial), stub.WithLogger(nriLog{o.Log}),
		stub.WithTTRPCOptions(nil, []ttrpc.ServerOpt{ttrpc.WithUnaryServerInterceptor(l.stacks.serve)}),
		stub.WithOnClose(func() { once.Do(func() { close(l.closed) }) }))
	if err != nil {
		return nil, fmt.Errorf("make the NRI stub: %w", err)
	}
	know(l.stub)
	started := make(chan error, 1)
	go func() { started <- l.stub.Start(ctx) }()
	if err := await(ctx, o, l, started); err != nil {
		l.line.Close()
		l.stacks.close()
		return nil, err
	}
	return l, nil
}

func (l *link) end() {
	l.stub.Stop()
	l.line.Close()
	l.stacks.close()
}

// await is the watchdog of Start, which may wait forever for the runtime to configure the plugin,
// holding the lock that closing needs. The only way to end it without leaks is to configure the
// stub ourselves, with an error.
func await(ctx context.Context, o *Options, l *link, started <-chan error) error {
	st, line := l.stub, l.line
	var cause error
	select {
	case err := <-started:
		return err
	case <-o.Clock.After(o.Registration):
		cause = fmt.Errorf("the runtime did not complete the registration on %s within %s", o.Socket, o.Registration)
	case <-line.lost:
		cause = fmt.Errorf("the runtime closed the connection on %s before it configured the plugin", o.Socket)
	case <-ctx.Done():
		cause = ctx.Err()
	}
	line.Close()
	select {
	case err := <-started: // it ended by itself: nothing hangs
		if err == nil {
			st.Stop()
		}
		return cmp.Or(err, cause)
	default:
	}
	if self, ok := st.(api.PluginService); ok && line.wrote.Load() {
		// Not in this goroutine: if the runtime has configured the plugin and Start fails anyway,
		// nothing receives the second result, and this call would wait forever.
		go func() { _, _ = self.Configure(ctx, &api.ConfigureRequest{RuntimeName: watchdogRuntime}) }()
	}
	if err := <-started; err == nil {
		st.Stop() // the runtime configured it at the last moment
	}
	return cause
}

// trackedConn is the connection to the runtime, which we close ourselves: the stub does not close
// it when its Start fails.
type trackedConn struct {
	net.Conn
	mu    sync.Mutex
	wrote atomic.Bool   // since the first write the stub waits for a reply
	lost  chan struct{} // closed when the other side is gone, which Start does not notice
	once  sync.Once
}

func (c *trackedConn) dial(socket string) (net.Conn, error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("dial the runtime's NRI socket: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Conn = conn
	return c, nil
}

func (c *trackedConn) Write(b []byte) (int, error) {
	c.wrote.Store(true)
	return c.Conn.Write(b)
}

func (c *trackedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		c.once.Do(func() { close(c.lost) })
	}
	return n, err
}

// Close may come before the dial, and more than once.
func (c *trackedConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Conn == nil {
		return nil
	}
	return c.Conn.Close()
}

// nriLog writes the NRI library's messages to our log, a level lower: we log the important events
// ourselves.
type nriLog struct{ log *slog.Logger }

func (l nriLog) Debugf(context.Context, string, ...any) {}
func (l nriLog) Infof(_ context.Context, f string, a ...any) {
	l.log.Debug(fmt.Sprintf(f, a...), "from", "nri")
}
func (l nriLog) Warnf(_ context.Context, f string, a ...any) {
	l.log.Info(fmt.Sprintf(f, a...), "from", "nri")
}
func (l nriLog) Errorf(_ context.Context, f string, a ...any) {
	l.log.Warn(fmt.Sprintf(f, a...), "from", "nri")
}
