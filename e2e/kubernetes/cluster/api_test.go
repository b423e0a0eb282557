package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// testServer is a TLS server with a certificate of the authority that demands one of
// its clients, as the API server does.
func testServer(t *testing.T, a *authority, handler http.Handler) string {
	t.Helper()
	own, err := a.server("localhost", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.X509KeyPair(own.cert, own.key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	s := httptest.NewUnstartedServer(handler)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: pool,
		ClientAuth: tls.RequireAndVerifyClientCert}
	s.StartTLS()
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "https://")
}

func testAPI(t *testing.T, handler http.Handler) *API {
	t.Helper()
	a, err := newAuthority(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	user, err := a.client("e2e", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	api, err := newAPI(testServer(t, a, handler), a, user)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.client.CloseIdleConnections)
	return api
}

func TestRequestsCarryUserAndPatchType(t *testing.T) {
	api := testAPI(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		subject := r.TLS.PeerCertificates[0].Subject
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, `{"seen": %q}`, fmt.Sprint(subject.CommonName, subject.Organization, r.Method,
			r.Header.Get("Content-Type"), string(body)))
	}))
	var got struct{ Seen string }
	if err := api.Do(t.Context(), http.MethodPatch, "/x", map[string]any{"a": nil}, &got); err != nil {
		t.Fatal(err)
	}
	if want := `e2e[system:masters]PATCHapplication/merge-patch+json{"a":null}`; strings.ReplaceAll(got.Seen, " ",
		"") != want {
		t.Errorf("the server saw %q, want %q", got.Seen, want)
	}
}

func TestRefusalsAreErrors(t *testing.T) {
	api := testAPI(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/gone":
			w.WriteHeader(404)
			fmt.Fprint(w, `{"kind":"Status","message":"pods \"a\" not found"}`)
		default:
			w.WriteHeader(500)
			fmt.Fprint(w, "broken")
		}
	}))
	if err := api.Get(t.Context(), "/gone", nil); !Refused(err, 404) ||
		!strings.Contains(err.Error(), `pods "a" not found`) {
		t.Errorf("got %v", err)
	}
	if err := api.Delete(t.Context(), "/gone"); err != nil {
		t.Errorf("deleting what is gone: %v", err)
	}
	if err := api.Delete(t.Context(), "/other"); !Refused(err, 500) || !strings.Contains(err.Error(), "broken") {
		t.Errorf("got %v", err)
	}
}

func TestWatchEnds(t *testing.T) {
	api := testAPI(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for i := range 3 {
			fmt.Fprintf(w, `{"type":"ADDED","object":{"n":%d}}`+"\n", i)
			w.(http.Flusher).Flush()
		}
		if r.URL.Path == "/open" {
			<-r.Context().Done()
		}
	}))
	seen := 0
	until := func(n int) func(string, json.RawMessage) (bool, error) {
		seen = 0
		return func(kind string, _ json.RawMessage) (bool, error) { seen++; return seen == n, nil }
	}
	if err := api.Watch(t.Context(), "/open", until(2)); err != nil || seen != 2 {
		t.Errorf("enough after %d: %v", seen, err)
	}
	if err := api.Watch(t.Context(), "/ends", until(9)); !errors.Is(err, io.EOF) {
		t.Errorf("a watch that the server ends: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := api.Watch(ctx, "/open", func(string, json.RawMessage) (bool, error) { cancel(); return false, nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a watch whose context ended: %v", err)
	}
}

func TestUntilKeepsTheLastReason(t *testing.T) {
	wrong := errors.New("the reason")
	err := Until(t.Context(), time.Millisecond, func(ctx context.Context) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return wrong
	})
	if !errors.Is(err, wrong) {
		t.Errorf("got %v", err)
	}
	if err := Until(t.Context(), time.Minute, func(context.Context) error { return nil }); err != nil {
		t.Error(err)
	}
}

// A child that ends before it is ready is reported at once, with what it printed.
func TestChildThatEnds(t *testing.T) {
	c := newChild(t.TempDir(), "sh", "/bin/sh", "-c", "echo no such luck; exit 3")
	if err := c.start(); err != nil {
		t.Fatal(err)
	}
	err := c.ready(t.Context(), func(context.Context) error { return errors.New("not yet") })
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "no such luck") {
		t.Errorf("got %v", err)
	}
	if err := c.stop(time.Minute); err != nil {
		t.Errorf("stop of one that has ended: %v", err)
	}
}

func TestChildIsStopped(t *testing.T) {
	for name, script := range map[string]string{"asked": "exec sleep 1000",
		"killed": "trap '' TERM; echo up; while :; do sleep 1; done"} {
		c := newChild(t.TempDir(), name, "/bin/sh", "-c", script)
		if err := c.start(); err != nil {
			t.Fatal(err)
		}
		if err := c.stop(50 * time.Millisecond); err != nil {
			t.Error(name, err)
		}
		select {
		case <-c.exited:
		default:
			t.Errorf("%s: it still runs", name)
		}
	}
	none := newChild(t.TempDir(), "none", "/nonexistent/program")
	if err := none.start(); err == nil {
		t.Error("a program that is not there has started")
	}
	if err := none.stop(0); err != nil {
		t.Errorf("stop of one that never ran: %v", err)
	}
}

func TestPortsDiffer(t *testing.T) {
	ports, err := freePorts(5)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, p := range ports {
		if p == 0 || seen[p] {
			t.Fatalf("ports %v", ports)
		}
		seen[p] = true
	}
}
