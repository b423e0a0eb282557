package control

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quietcore/quietcore/internal/dayreport"
)

// asked is what Remote answers, and which path was asked for the right to.
func asked(t *testing.T, h http.Handler, path string, header ...string) (code int, body []byte) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for _, v := range header {
		r.Header.Add("Accept-Encoding", v)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	body = w.Body.Bytes()
	if w.Header().Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		if body, err = io.ReadAll(z); err != nil {
			t.Fatal(err)
		}
	}
	return w.Code, body
}

// What other machines are answered is what the socket answers, packed or not, and each path is asked about.
func TestRemoteAnswersAsTheSocket(t *testing.T) {
	var s *Server
	p, client, _ := daemon(t, func(made *Server) {
		made.About = About{Version: "v1", Doctor: func(context.Context) (any, error) { return "a finding", nil },
			Bundle: func(_ context.Context, w io.Writer, hash bool) error {
				_, err := io.WriteString(w, map[bool]string{true: "hashed", false: "plain"}[hash])
				return err
			}, Degraded: func() map[string]string { return map[string]string{"systemd": "silent"} }}
		made.Reports.Of = func(_ context.Context, since, until time.Time, limit int) (*dayreport.Report, error) {
			if limit == 13 {
				return nil, errors.New("no facts")
			}
			return dayreport.Of(nil, dayreport.Asked{Since: since, Until: until.Truncate(time.Hour)}), nil
		}
		s = made
	})
	live(t, p)
	var rights []string
	h := s.Remote(func(path string, h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rights = append(rights, path)
			h.ServeHTTP(w, r)
		})
	})
	for _, path := range []string{"/v1/status", "/v1/summary", "/v1/explain?pod=default/db",
		"/v1/explain?pod=default/none", "/v1/explain?pod=x", "/v1/doctor", "/v1/bundle?hashNames=true",
		"/v1/report?since=2026-11-20T00:00:00Z&until=2026-11-21T00:00:00Z", "/v1/report?since=x",
		"/v1/report?since=2026-11-21T00:00:00Z&until=2026-11-20T00:00:00Z", "/v1/report?limit=13",
		"/v1/incidents", "/v1/incidents/one/x"} {
		var want []byte
		err := client.get(limited(t), path, func(text []byte) error { want = text; return nil })
		code, got := asked(t, h, RemotePrefix+path)
		_, packed := asked(t, h, RemotePrefix+path, "gzip")
		if (err == nil) != (code == http.StatusOK) || err == nil && !bytes.Equal(got, want) ||
			!bytes.Equal(got, packed) {
			t.Errorf("%s: %d %.300s\nover the socket: %v %.300s\npacked: %.300s", path, code, got, err, want, packed)
		}
	}
	for _, path := range []string{"/v1/mode", "/v1/record", "/v1/metrics", "/v1/nothing"} {
		if code, _ := asked(t, h, RemotePrefix+path); code != http.StatusNotFound {
			t.Errorf("%s: %d", path, code)
		}
	}
	r := httptest.NewRequest(http.MethodPost, RemotePrefix+"/v1/status", nil)
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("a POST: %d", w.Code)
	}
	if last := rights[len(rights)-1]; last != RemotePrefix+"/v1/incidents/one" {
		t.Errorf("of an incident %s is asked about", last)
	}
	for _, path := range RemotePaths() {
		// Kubernetes lets every user get /api/*, for discovery.
		if !strings.HasPrefix(path, RemotePrefix+"/v1/") {
			t.Errorf("%s", path)
		}
		unasked := []string{RemotePrefix + "/v1/top", RemotePrefix + "/v1/incidents/top",
			RemotePrefix + "/v1/incidents/export"}
		if slices.Contains(rights, path) == slices.Contains(unasked, path) {
			t.Errorf("%s was not asked about: %v", path, rights)
		}
	}
	_, text := asked(t, h, RemotePrefix+"/v1/summary")
	var sum Summary
	if err := json.Unmarshal(text, &sum); err != nil {
		t.Fatal(err)
	}
	want := Summary{Version: "v1", CPUs: 16, Pools: sum.Pools, Owners: 1, Containers: 2, CPI: "off",
		Revision: sum.Revision, Node: sum.Node,
		Problems: []string{"not registered with the runtime: pods that start are not placed", "systemd: silent"}}
	if d := cmp.Diff(want, sum); d != "" || sum.Pools.Exclusive != "0-3" {
		t.Errorf("%s\n%s", d, text)
	}
}

// Who holds answers open keeps nobody's memory: there are four at a time, and one that is slow.
func TestRemoteAnswersInTurn(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	s := &Server{About: About{Doctor: func(context.Context) (any, error) {
		begun <- struct{}{}
		<-end
		return nil, errors.New("none")
	}}}
	h := s.Remote(func(_ string, h http.Handler) http.Handler { return h })
	done := make(chan struct{})
	go func() { asked(t, h, RemotePrefix+"/v1/doctor"); close(done) }()
	<-begun
	r := httptest.NewRequest(http.MethodGet, RemotePrefix+"/v1/bundle", nil)
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" {
		t.Errorf("beside a slow one: %d, again after %q", w.Code, w.Header().Get("Retry-After"))
	}
	if code, body := asked(t, h, RemotePrefix+"/v1/incidents"); code != http.StatusServiceUnavailable ||
		!strings.Contains(string(body), "keeps no incidents") {
		t.Errorf("a usual one beside a slow one: %d %s", code, body)
	}
	close(end)
	<-done
	if code, body := asked(t, h, RemotePrefix+"/v1/bundle"); code != http.StatusServiceUnavailable ||
		!strings.Contains(string(body), "started without") {
		t.Errorf("after it: %d %s", code, body)
	}
	turns := make(chan struct{}, 1)
	turns <- struct{}{}
	if code, _ := asked(t, inTurn(turns, route{}), "/"); code != http.StatusServiceUnavailable {
		t.Errorf("without a place: %d", code)
	}
}
