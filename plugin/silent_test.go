package plugin

import (
	"context"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/net/multiplex"
	"github.com/containerd/nri/pkg/stub"
	"github.com/containerd/ttrpc"

	"github.com/quietcore/quietcore/plugin/node"
	"github.com/quietcore/quietcore/policy"
)

// silentRuntime accepts registrations and then says nothing, as a runtime whose
// accept loop is stuck behind another plugin does.
type silentRuntime struct {
	l    net.Listener
	seen chan struct{}
	// configures it does, but does not answer the registration after that.
	configures bool

	mu      sync.Mutex
	closers []func()
}

func newSilentRuntime(t *testing.T, socket string) *silentRuntime {
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &silentRuntime{l: l, seen: make(chan struct{}, 100)}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.serve(conn)
		}
	}()
	t.Cleanup(s.close)
	return s
}

func (s *silentRuntime) serve(conn net.Conn) {
	mux := multiplex.Multiplex(conn)
	l, err := mux.Listen(multiplex.RuntimeServiceConn)
	if err != nil {
		return
	}
	srv, err := ttrpc.NewServer()
	if err != nil {
		return
	}
	api.RegisterRuntimeService(srv, &silentLine{s, mux})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(context.Background(), l)
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closers = append(s.closers, func() { mux.Close(); srv.Close(); l.Close(); <-done })
}

// silentLine is its side of one connection.
type silentLine struct {
	runtime *silentRuntime
	mux     multiplex.Mux
}

func (s *silentLine) RegisterPlugin(ctx context.Context, _ *api.RegisterPluginRequest) (*api.Empty, error) {
	if !s.runtime.configures {
		s.runtime.seen <- struct{}{}
		return &api.Empty{}, nil
	}
	conn, err := s.mux.Open(multiplex.PluginServiceConn)
	if err != nil {
		return nil, err
	}
	client := ttrpc.NewClient(conn)
	defer client.Close()
	if _, err := api.NewPluginClient(client).Configure(ctx,
		&api.ConfigureRequest{RuntimeName: "containerd", RuntimeVersion: "v2.3.0"}); err != nil {
		return nil, err
	}
	s.runtime.seen <- struct{}{}
	<-ctx.Done()
	return nil, ctx.Err()
}

func (s *silentLine) UpdateContainers(context.Context,
	*api.UpdateContainersRequest) (*api.UpdateContainersResponse, error) {
	return nil, os.ErrInvalid
}

func (s *silentRuntime) registered(t *testing.T) {
	t.Helper()
	select {
	case <-s.seen:
	case <-time.After(limitOfWait):
		t.Fatal("the plugin did not register")
	}
}

func (s *silentRuntime) close() {
	s.l.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.closers {
		f()
	}
	s.closers = nil
}

// Whoever ends while the runtime has configured the plugin, and not yet answered its
// registration, ends.
func TestEndingInTheMiddleOfARegistration(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	runtime := newSilentRuntime(t, n.socket)
	runtime.configures = true
	n.start()
	runtime.registered(t)
	n.stop()
	ends(t, n.done)
}

// configured is a stub that the runtime has configured and whose Start will fail: a
// second answer waits for a receiver.
type configured struct {
	stub.Stub
	api.PluginService
	asked, released chan struct{}
}

func (c *configured) Configure(context.Context, *api.ConfigureRequest) (*api.ConfigureResponse, error) {
	close(c.asked)
	<-c.released
	return nil, os.ErrClosed
}

// The same where the watchdog is ahead of Start, of which few runs are.
func TestTheWatchdogWaitsForNoSecondConfiguration(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	newSilentRuntime(t, n.socket)
	line := &trackedConn{lost: make(chan struct{})}
	conn, err := line.dial(n.socket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte{0}); err != nil {
		t.Fatal(err)
	}
	c := &configured{asked: make(chan struct{}), released: make(chan struct{})}
	defer close(c.released)
	o := n.options()
	o.Registration, o.Clock.After = time.Hour, time.After
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	started, done := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(done)
		if err := await(ctx, &o, &link{stub: c, line: line}, started); err == nil {
			t.Error("an attempt that was given up has succeeded")
		}
	}()
	<-c.asked
	started <- os.ErrClosed
	ends(t, done)
}

func ends(t *testing.T, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(limitOfWait):
		t.Fatal("it does not end")
	}
}

// A status must not call an old state the present one: whoever asks while the loop
// is busy gets the last view and is told that it may be old.
func TestABusyLoopsViewIsNotCalledCurrent(t *testing.T) {
	t.Parallel() // it waits for a deadline
	n := newNode(t, grid(t, testGrid))
	p := n.up()
	n.settle()
	if _, current := p.Look(); !current {
		t.Error("an idle loop's view is called old")
	}
	if err := p.Submit(short(t), policy.Tick{}); err != nil {
		t.Fatal(err)
	}
	busy, done := make(chan struct{}), make(chan struct{})
	go func() {
		_, _ = ask(short(t), p.runner, func(*node.Core) bool { close(busy); <-done; return true })
	}()
	<-busy
	if _, current := p.Look(); current {
		t.Error("a busy loop's view is called current")
	}
	close(done)
	eventually(t, "the view is current again", func() bool { _, current := p.Look(); return current })
}

// What was answered is what is seen, also where the loop publishes by itself at that
// very moment.
func TestAViewIsNeverOlderThanAnAnswer(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	ticks := make(chan time.Time)
	p := n.up(func(o *Options) { o.Clock.Tick = ticks })
	n.settle()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			select {
			case ticks <- time.Time{}:
			case <-stop:
				return
			}
		}
	}()
	pod := policy.Pod{
		UID: "uid-db", Sandbox: "sb-db", Namespace: "default", Name: "db", QoS: policy.Guaranteed,
		Labels:    map[string]string{"koordinator.sh/qosClass": "LSE"},
		Resources: &policy.Resources{RequestMilli: 2000, LimitMilli: 2000}, CgroupParent: "/kubepods/poduid-db",
	}
	seen := p.Snapshot().Rev
	for range 2000 {
		for _, e := range []policy.Event{policy.PodRun{Pod: pod}, policy.PodRemoved{Sandbox: pod.Sandbox}} {
			if err := p.Submit(t.Context(), e); err != nil {
				t.Fatal(err)
			}
			view, current := p.Look()
			if view.Rev <= seen || !current {
				t.Fatalf("%T was answered; the view has revision %d as before it, current: %t", e, view.Rev, current)
			}
			seen = view.Rev
		}
	}
}
