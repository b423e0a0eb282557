package control

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// fakeDaemon makes a socket that does to each connection what is told, and returns its path.
func fakeDaemon(t *testing.T, do func(net.Conn)) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			var request [4096]byte
			_, _ = c.Read(request[:]) // what is asked does not matter
			do(c)
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-ended })
	return socket
}

// Whatever keeps the daemon from answering, the sentence names the socket and says what to do,
// without the words of the transport.
func TestAClientSaysWhatToDo(t *testing.T) {
	dir := t.TempDir()
	dead := filepath.Join(dir, "dead")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancelLate := context.WithTimeout(t.Context(), 0)
	defer cancelLate()
	for name, c := range map[string]struct {
		ctx    context.Context
		socket string
		says   string
	}{
		"no socket":       {t.Context(), filepath.Join(dir, "none"), ": there is no such socket; start the daemon"},
		"nothing listens": {t.Context(), dead, ": nothing listens there; start the daemon again"},
		"a file":          {t.Context(), file, ": nothing listens there; start the daemon again"},
		"it ends at once": {t.Context(), fakeDaemon(t, func(net.Conn) {}), ": it ended in the middle of the answer"},
		"it ends midway": {t.Context(), fakeDaemon(t, func(c net.Conn) {
			_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{"))
		}), ": it ended in the middle of the answer"},
		"it speaks another language": {t.Context(), fakeDaemon(t, func(c net.Conn) {
			_, _ = c.Write([]byte("SSH-2.0\r\n\r\n"))
		}), "does not answer as a daemon does (malformed"},
		"interrupted": {over, dead, "interrupted before"},
		"late":        {late, dead, "did not answer in time; `quietcore doctor`"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Client{Socket: c.socket}.Status(c.ctx)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("it says %v, want %q", err, c.says)
			}
			if name != "interrupted" && !strings.Contains(err.Error(), c.socket) {
				t.Errorf("the socket is not named: %v", err)
			}
			for _, noise := range []string{"dial unix", "http://", "connect:", "EOF", "context "} {
				if strings.Contains(err.Error(), noise) {
					t.Errorf("%q is in %v", noise, err)
				}
			}
		})
	}
	private := &unanswered{socket: dead, cause: &net.OpError{Op: "dial", Err: os.NewSyscallError("connect",
		syscall.EACCES)}}
	if !errors.Is(private, os.ErrPermission) || !strings.Contains(private.Error(), "run this as root") {
		t.Errorf("a socket of root's: %v", private)
	}
}
