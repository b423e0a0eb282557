package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// browse asks a page on a Unix socket.
func browse(path, address string) (*http.Response, error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context,
		_, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}}}
	return client.Get("http://localhost" + address)
}

func TestADaemonServesItsPage(t *testing.T) {
	p := newPlace(t, "")
	text, err := os.ReadFile(p.config)
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(p.dir, "run", "page.sock")
	if err := os.WriteFile(p.config, []byte(strings.Replace(string(text), `page: {listen: ''}`, "page: {listen: "+
		socket+"}\nnode: {name: node-a}", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stop := p.start(t)
	waitUntil(t, "the page's socket accepts", func() bool {
		resp, err := browse(socket, "/")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	resp, err := browse(socket, "/api/state")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var d struct {
		Machine struct{ Sockets []any }
		Node    struct {
			Name, Version string
			Connected     bool
			CPI           struct{ Mode string }
		}
		CPUs struct{ CPUs []any }
	}
	if err := json.NewDecoder(resp.Body).Decode(&d); err != nil {
		t.Fatal(err)
	}
	if d.Node.Name != "node-a" || d.Node.Version == "" || d.Node.Connected || d.Node.CPI.Mode != "observe" ||
		len(d.Machine.Sockets) == 0 || len(d.CPUs.CPUs) == 0 {
		t.Errorf("the page shows %+v", d)
	}
	if code := stop(); code != 0 {
		t.Errorf("after SIGTERM the exit code is %d", code)
	}
	if _, err := browse(socket, "/"); err == nil {
		t.Error("the page outlives its daemon")
	}
}

// A page that cannot be served is no reason not to place pods.
func TestAPageThatCannotBeServed(t *testing.T) {
	p := newPlace(t, "")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	text, err := os.ReadFile(p.config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.config, []byte(strings.Replace(string(text), `page: {listen: ''}`, "page: {listen: "+
		taken.Addr().String()+"}", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	log, _ := p.start(t)
	waitUntil(t, "the log says so", func() bool { return strings.Contains(log.String(), "the page is not served") })
	if code, _, errs := call("status", "--socket", p.socket); code != 0 {
		t.Errorf("status: exit %d, %s", code, errs)
	}
}
