package metrics

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// served is a listener of which srv answers until the test ends.
func served(t *testing.T, srv *http.Server) string {
	t.Helper()
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, l, srv) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// dial connects from an address of loopback.
func dial(t *testing.T, from, to string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: time.Minute}
	c, err := d.Dial("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// answered says whether a request over a connection has an answer.
func answered(t *testing.T, c net.Conn) bool {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return false
	}
	_, err := c.Read(make([]byte, 16))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("no answer and no end within a minute")
	}
	return err == nil
}

// A tenant that takes all the connections it can get keeps no other client from being
// answered, and gives what it took back by ending.
func TestAFloodFromOneSource(t *testing.T) {
	address := served(t, &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})})
	var held []net.Conn
	for i := range maxFromOne {
		c := dial(t, "127.0.0.2", address)
		if !answered(t, c) {
			t.Fatalf("connection %d is not answered", i)
		}
		held = append(held, c)
	}
	for range 100 {
		if answered(t, dial(t, "127.0.0.2", address)) {
			t.Fatal("one more is answered")
		}
	}
	if !answered(t, dial(t, "127.0.0.3", address)) {
		t.Error("another client is locked out")
	}
	for _, c := range held {
		c.Close()
	}
	for end := time.Now().Add(time.Minute); !answered(t, dial(t, "127.0.0.2", address)); {
		if time.Now().After(end) {
			t.Fatal("it is kept out though it has none any more")
		}
	}
}

func TestAFloodFromManySources(t *testing.T) {
	l := &fairListener{open: map[string]int{}}
	taken := 0
	for range 1000 {
		for _, from := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p",
			"q", "r", "s", "t"} {
			if l.take(from) {
				taken++
			}
		}
	}
	if taken != maxFromAll {
		t.Errorf("%d connections at once, want %d", taken, maxFromAll)
	}
	for from, n := range maps.Clone(l.open) {
		for range n {
			l.giveBack(from)
		}
	}
	if l.all != 0 || len(l.open) != 0 {
		t.Errorf("after the last has gone %d are counted, of %v", l.all, l.open)
	}
}

// A client that requests much and reads nothing is disconnected: answers occupy memory.
func TestADeafReaderIsLetGoOf(t *testing.T) {
	let := make(chan struct{})
	address := served(t, &http.Server{WriteTimeout: 100 * time.Millisecond,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			defer close(let)
			_, _ = io.WriteString(w, strings.Repeat("x", 64<<20))
		})})
	c := dial(t, "127.0.0.1", address)
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-let:
	case <-time.After(time.Minute):
		t.Error("after a minute the answer still waits")
	}
}
