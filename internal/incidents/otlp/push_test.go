package otlp

import (
	"compress/gzip"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/incidents"
)

// server takes logs by OTLP/HTTP, answers as its list says, and then with nothing.
type server struct {
	t       *testing.T
	answers []func(http.ResponseWriter)
	got     []*logspb.LogsData
	headers []http.Header
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/v1/logs" || r.Method != http.MethodPost {
		http.NotFound(w, r)
		return
	}
	s.headers = append(s.headers, r.Header)
	if len(s.answers) > 0 {
		answer := s.answers[0]
		s.answers = s.answers[1:]
		if answer != nil {
			answer(w)
			return
		}
	}
	var data logspb.LogsData
	plain, err := gzip.NewReader(r.Body)
	if err == nil {
		var text []byte
		if text, err = io.ReadAll(plain); err == nil {
			err = proto.Unmarshal(text, &data)
		}
	}
	if err != nil || r.Header.Get("Content-Type") != "application/x-protobuf" {
		s.t.Errorf("%s: %v", r.Header, err)
	}
	s.got = append(s.got, &data)
}

// pushed sends so many incidents, the first half of one node, and says what that ended with and how long it waited.
func pushed(t *testing.T, address string, environment map[string]string, n int) (waits []time.Duration, err error) {
	t.Helper()
	p, err := NewPush(t.Context(), address, func(name string) string { return environment[name] })
	if err != nil {
		return nil, err
	}
	p.after = func(d time.Duration) <-chan time.Time {
		waits = append(waits, d)
		now := make(chan time.Time, 1)
		now <- noon
		return now
	}
	for i := range n {
		one := incidents.Incident{ID: fmt.Sprint("i", i), At: noon, Node: "a", CPI: 2}
		if i >= n/2 {
			one.Node = "b"
		}
		if err := p.Write(&one); err != nil {
			return waits, err
		}
	}
	return waits, p.Close()
}

// All records arrive once, in requests of a bounded size, by node.
func TestPush(t *testing.T) {
	s := &server{t: t}
	at := httptest.NewServer(s)
	defer at.Close()
	environment := map[string]string{"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20secret, x-tenant=a"}
	if _, err := pushed(t, at.URL, environment, 2*batch+50); err != nil {
		t.Fatal(err)
	}
	seen, nodes := map[string]bool{}, map[string]int{}
	for _, data := range s.got {
		in := 0
		for _, r := range data.ResourceLogs {
			node, _ := named(t, r.Resource.Attributes)["k8s.node.name"].(string)
			for _, record := range r.ScopeLogs[0].LogRecords {
				seen[named(t, record.Attributes)["log.record.uid"].(string)] = true
				nodes[node]++
				in++
			}
		}
		if len(data.ResourceLogs) > 2 || in > batch {
			t.Errorf("a request has %d records of %d resources", in, len(data.ResourceLogs))
		}
	}
	if len(s.got) != 3 || len(seen) != 2*batch+50 || nodes["a"] != nodes["b"] {
		t.Errorf("%d requests have %d records, by node %v", len(s.got), len(seen), nodes)
	}
	if h := s.headers[0]; h.Get("Authorization") != "Bearer secret" || h.Get("X-Tenant") != "a" {
		t.Errorf("headers %v", h)
	}
	// What is said of logs alone counts, and an address may be whole.
	environment["OTEL_EXPORTER_OTLP_LOGS_HEADERS"] = "x-tenant=b"
	if _, err := pushed(t, at.URL+"/v1/logs", environment, 1); err != nil || s.headers[3].Get("X-Tenant") != "b" ||
		s.headers[3].Get("Authorization") != "" {
		t.Errorf("%v, headers %v", err, s.headers[3])
	}
	if _, err := pushed(t, at.URL, nil, 0); err != nil || len(s.headers) != 4 {
		t.Errorf("no incidents make %d requests, %v", len(s.headers)-4, err)
	}
}

func code(code int, header, body string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		if key, value, is := strings.Cut(header, ": "); is {
			w.Header().Set(key, value)
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// A server that is busy is asked again, any other refusal ends it, with the server's words and the way out.
func TestPushIsRefused(t *testing.T) {
	partial := protowire.AppendTag(nil, 1, protowire.VarintType)
	partial = protowire.AppendVarint(partial, 3)
	partial = protowire.AppendTag(partial, 2, protowire.BytesType)
	partial = protowire.AppendString(partial, "too old")
	partly := string(protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), partial))
	status := string(protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), "no such tenant"))
	busy := code(http.StatusServiceUnavailable, "Retry-After: 7", "")
	for name, c := range map[string]struct {
		answers []func(http.ResponseWriter)
		waits   string
		want    string // empty: it succeeds
	}{
		"busy": {[]func(http.ResponseWriter){busy, code(429, "", "")}, "[7s 2s]", ""},
		"busy for good": {[]func(http.ResponseWriter){busy, busy, busy, busy, busy, busy}, "[7s 7s 7s 8s]",
			"503 Service Unavailable"},
		"an error": {[]func(http.ResponseWriter){code(400, "", "what is\x1b this?\n")}, "[]",
			`400 Bad Request: "what is\x1b this?"`},
		"a status": {[]func(http.ResponseWriter){code(400, "Content-Type: application/x-protobuf", status)}, "[]",
			`400 Bad Request: "no such tenant"`},
		"who are you":   {[]func(http.ResponseWriter){code(401, "", "")}, "[]", "OTEL_EXPORTER_OTLP_HEADERS"},
		"no such path":  {[]func(http.ResponseWriter){code(404, "", "")}, "[]", "base address of an OTLP/HTTP server"},
		"elsewhere":     {[]func(http.ResponseWriter){code(307, "Location: http://127.0.0.1:1/", "")}, "[]", "307 "},
		"a part":        {[]func(http.ResponseWriter){code(200, "", partly)}, "[]", "rejected 3 records: too old"},
		"an odd answer": {[]func(http.ResponseWriter){code(200, "", "{\"a\":\xff")}, "[]", ""},
	} {
		s := &server{t: t, answers: c.answers}
		at := httptest.NewServer(s)
		waits, err := pushed(t, at.URL, nil, 4)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) ||
			fmt.Sprint(waits) != c.waits {
			t.Errorf("%s: waits %v, %v; want %s, %q", name, waits, err, c.waits, c.want)
		}
		var part cli.PartialError
		if got := errors.As(err, &part); got != (name == "a part") {
			t.Errorf("%s: only a part failed: %t", name, got)
		}
		if c.want == "" && len(c.answers) > 1 && len(s.got) != 1 {
			t.Errorf("%s: %d requests were taken", name, len(s.got))
		}
		at.Close()
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	if _, err := pushed(t, gone.URL, nil, 1); err == nil || !strings.Contains(err.Error(), "gRPC, which this is not") {
		t.Errorf("nobody listens: %v", err)
	}
}

func TestPushesCertificate(t *testing.T) {
	s := &server{t: t}
	at := httptest.NewTLSServer(s)
	at.Config.ErrorLog = nil
	defer at.Close()
	file := filepath.Join(t.TempDir(), "ca.crt")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: at.Certificate().Raw})
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := pushed(t, at.URL, nil, 1); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("nobody signed it: %v", err)
	}
	if _, err := pushed(t, at.URL, map[string]string{"OTEL_EXPORTER_OTLP_CERTIFICATE": file}, 1); err != nil {
		t.Error(err)
	}
}

func TestWhatNoPushIsMadeOf(t *testing.T) {
	for address, environment := range map[string]map[string]string{
		"localhost:4318": nil, "grpc://localhost:4317": nil, "http://": nil,
		"http://a": {"OTEL_EXPORTER_OTLP_HEADERS": "hunter2"},
		"http://b": {"OTEL_EXPORTER_OTLP_HEADERS": "a=%zz-hunter2"},
		"http://c": {"OTEL_EXPORTER_OTLP_CERTIFICATE": "/does/not/exist"},
		"http://d": {"OTEL_EXPORTER_OTLP_CERTIFICATE": os.Args[0]},
	} {
		_, err := NewPush(context.Background(), address, func(name string) string { return environment[name] })
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s, %v: %v", address, environment, err)
		}
	}
}
