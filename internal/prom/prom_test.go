package prom

import (
	"compress/gzip"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/common/model"
)

// patience is how long a question may take where nothing is about that.
const patience = 30 * time.Second

// asking is a client of a server that answers so.
func asking(t testing.TB, handler http.HandlerFunc) *Client {
	t.Helper()
	at := httptest.NewServer(handler)
	t.Cleanup(at.Close)
	return clientOf(t, Server{URL: at.URL, Timeout: patience})
}

func clientOf(t testing.TB, s Server) *Client {
	t.Helper()
	c, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func says(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body) // the client may have gone
	}
}

// success is an answer of a type, with more beside its data.
func success(kind, result, more string) string {
	return fmt.Sprintf(`{"status":"success","data":{"resultType":%q,"result":%s}%s}`, kind, result, more)
}

const one = `[{"metric":{"__name__":"up","node":"a"},"value":[1.5,"2"]}]`

func up(node string, v float64) *model.Sample {
	return &model.Sample{Metric: model.Metric{"__name__": "up", "node": model.LabelValue(node)},
		Value: model.SampleValue(v), Timestamp: 1500}
}

func TestAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want model.Vector
	}{
		"a sample":   {success("vector", one, ""), model.Vector{up("a", 2)}},
		"no samples": {success("vector", "[]", ""), model.Vector{}},
		"no numbers": {success("vector", `[{"metric":{"__name__":"up","node":"a"},"value":[1.5,"NaN"]},`+
			`{"metric":{"__name__":"up","node":"b"},"value":[1.5,"-Inf"]}]`, ""),
			model.Vector{up("a", math.NaN()), up("b", math.Inf(-1))}},
		"warnings": {success("vector", one, `,"warnings":["a store is away"],"infos":["a hint"]`),
			model.Vector{up("a", 2)}},
	} {
		got, err := asking(t, says(200, c.body)).Query(t.Context(), "up")
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if d := cmp.Diff(c.want, got, cmpopts.EquateNaNs()); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func TestNoAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"overloaded":       {says(503, "busy"), "server_error: server error: 503"},
		"who are you":      {says(401, ""), "client_error: client error: 401"},
		"not Prometheus":   {says(404, "<html>"), "client_error: client error: 404"},
		"elsewhere":        {redirects, "302"},
		"a bad expression": {says(400, `{"status":"error","errorType":"bad_data","error":"typo"}`), "bad_data: typo"},
		"too many":         {says(422, `{"status":"error","errorType":"execution","error":"x"}`), "execution: x"},
		"an error of 200":  {says(200, `{"status":"error","errorType":"timeout","error":"slow"}`), "timeout: slow"},
		"an odd error":     {says(400, "oops"), "client error: 400"},
		"a scalar":         {says(200, success("scalar", `[1,"2"]`, "")), "the answer is a scalar, not a vector"},
		"a matrix":         {says(200, success("matrix", `[]`, "")), "the answer is a matrix, not a vector"},
		"a string":         {says(200, success("string", `[1,"x"]`, "")), `unexpected value type "string"`},
		"an unknown type":  {says(200, success("cube", `[]`, "")), `unknown value type "cube"`},
		"no type":          {says(200, `{"status":"success","data":{}}`), "unexpected value type"},
		"no data":          {says(200, `{"status":"success"}`), "the answer has no data"},
		"null":             {says(200, `{"status":"success","data":null}`), "the answer has no data"},
		"a null sample":    {says(200, success("vector", "[null]", "")), "the answer has an empty sample"},
		"nothing":          {says(200, ""), "bad_response"},
		"no content":       {says(204, ""), "bad_response"},
		"half of it":       {says(200, success("vector", one, "")[:70]), "bad_response"},
		"a word":           {says(200, success("vector", strings.Replace(one, "2", "two", 1), "")), "invalid syntax"},
		"not text":         {says(200, "\x00\xff"), "bad_response"},
		"cut":              {cut, "unexpected EOF"},
		"endless":          {endless, "the answer is longer than 16777216 bytes"},
		"a bomb":           {bomb, "the answer is longer than 16777216 bytes"},
		"an endless error": {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(500); endless(w, r) },
			"the answer is longer than 16777216 bytes"},
	} {
		got, err := asking(t, c.answer).Query(t.Context(), "up")
		if err == nil || got != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %.300v, want %q", name, got, err, c.want)
		}
	}
}

func redirects(w http.ResponseWriter, r *http.Request) {
	http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
}

// cut says less than it promised.
func cut(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "1000")
	_, _ = io.WriteString(w, success("vector", one, ""))
}

func endless(w http.ResponseWriter, _ *http.Request) {
	spaces := strings.Repeat(" ", 1<<20)
	for range 40 {
		if _, err := io.WriteString(w, spaces); err != nil {
			return
		}
	}
}

// bomb is endless where it is unpacked, and short on the wire.
func bomb(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Encoding", "gzip")
	packed := gzip.NewWriter(w)
	spaces := make([]byte, 1<<20)
	for range 40 {
		if _, err := packed.Write(spaces); err != nil {
			return
		}
	}
	_ = packed.Close() // the client may have gone
}

// What is asked is an expression of now, of the server and path that are configured, by a proxy's way if need be.
func TestTheQuestion(t *testing.T) {
	var asked []string
	c := asking(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.Path+" "+r.FormValue("query")+" "+r.FormValue("time"))
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		says(200, success("vector", one, ""))(w, r)
	})
	if got, err := c.Query(t.Context(), `up{node=~"a|b"}`); err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	want := []string{`POST /api/v1/query up{node=~"a|b"} `, `GET /api/v1/query up{node=~"a|b"} `}
	if d := cmp.Diff(want, asked); d != "" {
		t.Error(d)
	}
	for _, address := range []string{"://", "http://a b"} {
		if _, err := New(Server{URL: address}); err == nil {
			t.Errorf("%q is an address", address)
		}
	}
	if _, err := New(Server{URL: "http://a", CAFile: "/does/not/exist"}); err == nil {
		t.Error("authorities that are not there are no error")
	}
}

// The token is read anew, and goes to the configured server alone; that has to be signed by who is trusted.
func TestTokenAndAuthorities(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("another server is asked, with the authorization %q", r.Header.Get("Authorization"))
	}))
	defer elsewhere.Close()
	var authorization string
	at := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		authorization = r.Header.Get("Authorization")
		if r.FormValue("query") == "moved" {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
			return
		}
		says(200, success("vector", one, ""))(w, r)
	}))
	at.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // of a client that trusts nobody
	at.StartTLS()
	defer at.Close()
	dir := t.TempDir()
	token, ca := filepath.Join(dir, "token"), filepath.Join(dir, "ca.crt")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: at.Certificate().Raw})
	if err := errors.Join(os.WriteFile(token, []byte("secret\n"), 0o600),
		os.WriteFile(ca, certificate, 0o600)); err != nil {
		t.Fatal(err)
	}
	s := Server{URL: at.URL, Timeout: patience, TokenFile: token}
	if _, err := clientOf(t, s).Query(t.Context(), "up"); err == nil || !strings.Contains(err.Error(), "certificate") ||
		authorization != "" {
		t.Errorf("nobody signed it: %v, sent %q", err, authorization)
	}
	s.CAFile = ca
	c := clientOf(t, s)
	if _, err := c.Query(t.Context(), "up"); err != nil || authorization != "Bearer secret" {
		t.Errorf("%v, sent %q", err, authorization)
	}
	if _, err := c.Query(t.Context(), "moved"); err == nil || !strings.Contains(err.Error(), "307") {
		t.Errorf("a redirect: %v", err)
	}
}

// A server that does not answer, or not to the end, is waited for no longer than was said, or than anybody waits.
func TestPatience(t *testing.T) {
	for name, says := range map[string]string{"nothing": "", "a half": `{"status":`} {
		ctx, gone := context.WithCancel(t.Context())
		at := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			query := r.FormValue("query") // a server whose request is not read does not notice that the client went
			if says != "" {
				_, _ = io.WriteString(w, says)
				_ = http.NewResponseController(w).Flush()
			}
			if query == "go" {
				gone()
			}
			<-r.Context().Done()
		}))
		c := clientOf(t, Server{URL: at.URL, Timeout: 50 * time.Millisecond})
		if _, err := c.Query(t.Context(), "up"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v after its time", name, err)
		}
		c = clientOf(t, Server{URL: at.URL, Timeout: patience})
		if _, err := c.Query(ctx, "go"); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v after nobody waits", name, err)
		}
		at.Close()
	}
	at := httptest.NewServer(nil)
	at.Close()
	if _, err := clientOf(t, Server{URL: at.URL, Timeout: patience}).Query(t.Context(), "up"); err == nil ||
		!strings.Contains(err.Error(), "refused") {
		t.Errorf("nobody listens: %v", err)
	}
}

// Whatever a server says: a vector of samples or an error comes of it.
func FuzzQuery(f *testing.F) {
	for _, body := range []string{success("vector", one, ""), success("vector", "[null]", ""), `{"status":"success"}`,
		success("scalar", `[1,"2"]`, ""), success("matrix", `[{"metric":{},"values":[[1,"2"]]}]`, ""),
		success("vector", `[{"metric":{"a":"b"},"histogram":[1,{"count":"1","sum":"1","buckets":[[0,"1","2","1"]]}]}]`,
			""), `{"status":"error","errorType":"bad_data","error":"x"}`} {
		f.Add(200, body)
		f.Add(422, body)
	}
	code, body := 0, ""
	c := asking(f, func(w http.ResponseWriter, r *http.Request) { says(code, body)(w, r) })
	f.Fuzz(func(t *testing.T, newCode int, newBody string) {
		if code, body = newCode, newBody; code < 200 || code > 599 {
			code = 200
		}
		got, err := c.Query(t.Context(), "up")
		if err != nil && got != nil {
			t.Errorf("%v and %v", got, err)
		}
		if slices.Contains(got, nil) {
			t.Errorf("a sample is none: %v", got)
		}
	})
}
