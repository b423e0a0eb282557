package machine

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/quietcore/quietcore/e2e/wire"
)

// fakeAgent answers requests with answer until the pipe closes.
func fakeAgent(t *testing.T, answer func(wire.Request) wire.Response) *client {
	t.Helper()
	host, guest := net.Pipe()
	go func() {
		for {
			var req wire.Request
			if wire.Read(guest, &req) != nil {
				return
			}
			resp := answer(req)
			resp.ID = req.ID
			if wire.Write(guest, resp) != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { guest.Close(); host.Close() })
	return newClient(host, make(chan struct{}))
}

func TestExecReportsTheExitCode(t *testing.T) {
	c := fakeAgent(t, func(r wire.Request) wire.Response {
		return wire.Response{Stdout: []byte("out"), Stderr: []byte("no such thing\n"), Code: len(r.Argv)}
	})
	r, err := c.Exec(context.Background(), "ls", "/x")
	if err == nil || r.Code != 2 || !strings.Contains(err.Error(), "ls /x: exit code 2: no such thing") {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestCRICallsCrossThePort(t *testing.T) {
	c := fakeAgent(t, func(r wire.Request) wire.Response {
		if r.Socket != containerdSocket {
			return wire.Response{Error: "wrong socket " + r.Socket, Code: int(codes.NotFound)}
		}
		if r.Method != "/runtime.v1.RuntimeService/RunPodSandbox" {
			return wire.Response{Error: "InvalidQoS: no", Code: int(codes.Unknown)}
		}
		var req cri.RunPodSandboxRequest
		if err := proto.Unmarshal(r.Body, &req); err != nil {
			return wire.Response{Error: err.Error()}
		}
		body, _ := proto.Marshal(&cri.RunPodSandboxResponse{PodSandboxId: "id of " + req.Config.Metadata.Name})
		return wire.Response{Body: body}
	})
	resp, err := c.runtimeService(containerdSocket).RunPodSandbox(context.Background(), &cri.RunPodSandboxRequest{
		Config: &cri.PodSandboxConfig{Metadata: &cri.PodSandboxMetadata{Name: "web"}}})
	if err != nil || resp.PodSandboxId != "id of web" {
		t.Errorf("%v, %v", resp, err)
	}
	_, err = c.runtimeService(containerdSocket).Status(context.Background(), &cri.StatusRequest{})
	if s := status.Convert(err); s.Code() != codes.Unknown || s.Message() != "InvalidQoS: no" {
		t.Errorf("%v", err)
	}
}

func TestALostGuestIsAnError(t *testing.T) {
	host, guest := net.Pipe()
	c := newClient(host, make(chan struct{}))
	go func() {
		var req wire.Request
		_ = wire.Read(guest, &req)
		guest.Close()
	}()
	if _, err := c.Hello(context.Background()); err == nil || !strings.Contains(err.Error(), "the guest is gone") {
		t.Errorf("%v", err)
	}
	if _, err := c.Hello(context.Background()); err == nil {
		t.Error("a second call to a lost guest succeeds")
	}
}

func TestAHungGuestEndsEveryCall(t *testing.T) {
	host, guest := net.Pipe()
	t.Cleanup(func() { guest.Close(); host.Close() })
	c := newClient(host, make(chan struct{}))
	go func() { _, _ = io.Copy(io.Discard, guest) }()
	go c.watch(time.Millisecond, 20*time.Millisecond)
	if _, err := c.Exec(context.Background(), "true"); !errors.Is(err, ErrHangs) {
		t.Errorf("a call to a guest that hangs: %v", err)
	}
	if _, err := c.Exec(context.Background(), "true"); !errors.Is(err, ErrHangs) {
		t.Errorf("a later call: %v", err)
	}
}

// A guest that answers, however slowly, is left alone.
func TestABusyGuestIsWaitedFor(t *testing.T) {
	hellos := make(chan bool)
	c := fakeAgent(t, func(r wire.Request) wire.Response {
		if r.Op == wire.OpHello {
			select {
			case hellos <- true:
			default:
			}
		}
		return wire.Response{}
	})
	go c.watch(time.Millisecond, time.Minute)
	for range 3 {
		<-hellos
	}
	if _, err := c.Exec(context.Background(), "true"); err != nil {
		t.Error(err)
	}
}

func TestTheEscapeEndsAShell(t *testing.T) {
	var sent strings.Builder
	typed := strings.NewReader("ls\n\x03\x1drm -rf /\n")
	copyUntilEscape(&sent, typed)
	if sent.String() != "ls\n\x03" {
		t.Errorf("the guest got %q", sent.String())
	}
}
