// Package promtest runs a real Prometheus for tests.
package promtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// Tool finds a program of Debian's package prometheus. CI has it.
func Tool(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("QUIETCORE_CI") == "1" {
			t.Fatalf("%v: install the package prometheus", err)
		}
		t.Skipf("%v: it is in the package prometheus", err)
	}
	return path
}

// Until waits for a condition, looking often, as long as a machine with much else to
// do may need.
func Until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	const limit = 3 * time.Minute
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for deadline := time.Now().Add(limit); !ok(); <-again.C {
		if time.Now().After(deadline) {
			t.Fatalf("after %s: %s is still not so", limit, what)
		}
	}
}

// Server is a Prometheus that runs.
type Server struct{ URL string }

// Start runs one with this configuration until the test ends, and returns once it is
// ready.
func Start(t testing.TB, config string, flags ...string) Server {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "prometheus.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	cmd := exec.Command(Tool(t, "prometheus"), append(flags, "--config.file="+file, "--storage.tsdb.path="+
		filepath.Join(dir, "data"), "--web.listen-address="+address)...)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }() // how it ends says nothing
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-ended
		if t.Failed() {
			t.Logf("Prometheus: %s", log.String())
		}
	})
	s := Server{"http://" + address}
	Until(t, "Prometheus is ready", func() bool {
		select {
		case <-ended:
			t.Fatal("Prometheus ended")
		default:
		}
		r, err := http.Get(s.URL + "/-/ready")
		if err != nil {
			return false
		}
		r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
	return s
}

// Get asks Prometheus' API and decodes the data of its answer. A warning is an error.
func (s Server) Get(path string, query url.Values, into any) error {
	r, err := http.Get(s.URL + path + "?" + query.Encode())
	if err != nil {
		return err
	}
	defer r.Body.Close()
	var a struct {
		Status   string
		Error    string
		Warnings []string
		Data     json.RawMessage
	}
	if err := json.NewDecoder(r.Body).Decode(&a); err != nil {
		return fmt.Errorf("%s: %w", r.Status, err)
	}
	if a.Status != "success" || len(a.Warnings) > 0 {
		return fmt.Errorf("%s %s %v", a.Status, a.Error, a.Warnings)
	}
	return json.Unmarshal(a.Data, into)
}
