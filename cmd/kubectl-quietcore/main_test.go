package main

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/quietcore/quietcore/internal/access"
	"github.com/quietcore/quietcore/internal/cmdtest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"kubectl-quietcore": main})
}

// cluster stands in for the API server, and for the daemons behind its proxy. Lists are the files pods.json and
// nodes.json, a pod is NAMESPACE.POD.json, and what a daemon answers is POD.PATH, with dots for the slashes of a path
// below /quietcore/v1. A first line "status N" is the code of an answer, "hang" none at all. Everything that it is
// asked goes to the file asked.
type cluster struct {
	dir string
	mu  sync.Mutex // guards the file asked
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	login, shown := r.Header.Get("Authorization"), r.Header.Get(access.Header)
	c.log(fmt.Sprintf("%s %s %s", r.Method, r.URL.RequestURI(), shown))
	name := ""
	switch {
	case login != "Bearer me":
		http.Error(w, `{"kind":"Status","message":"who are you?"}`, http.StatusUnauthorized)
		return
	case r.Method == http.MethodPost && parts[len(parts)-1] == "token":
		name = "token"
	case parts[len(parts)-1] == "pods":
		name = "pods.json"
	case parts[len(parts)-1] == "nodes":
		name = "nodes.json"
	case len(parts) > 9 && parts[6] == "proxy": // api v1 namespaces N pods https:POD:PORT proxy quietcore v1 …
		if shown != "Bearer a-token" {
			http.Error(w, "the API server does not know this token", http.StatusUnauthorized)
			return
		}
		name = strings.Split(parts[5], ":")[1] + "." + strings.Join(parts[9:], ".")
	case len(parts) == 6:
		name = parts[3] + "." + parts[5] + ".json"
	}
	text, err := os.ReadFile(filepath.Join(c.dir, name))
	if err != nil {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, `{"kind":"Status","message":"%s is not allowed"}`, name)
		return
	}
	first, rest, _ := strings.Cut(string(text), "\n")
	switch words := strings.Fields(first); {
	case len(words) == 2 && words[0] == "status":
		code, _ := strconv.Atoi(words[1])
		w.WriteHeader(code)
		fmt.Fprint(w, rest)
	case first == "hang":
		<-r.Context().Done()
	default:
		fmt.Fprint(w, string(text))
	}
}

func (c *cluster) log(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f, err := os.OpenFile(filepath.Join(c.dir, "asked"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
		fmt.Fprintln(f, strings.TrimSpace(line))
		f.Close()
	}
}

// collector stands in for a server of OTLP/HTTP, and keeps in a file what it is sent.
func collector(file string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/logs" {
			http.NotFound(w, r)
			return
		}
		plain, err := gzip.NewReader(r.Body)
		if err == nil {
			var text []byte
			if text, err = io.ReadAll(plain); err == nil {
				err = os.WriteFile(file, text, 0o600)
			}
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	})
}

const kubeconfig = `apiVersion: v1
kind: Config
current-context: here
contexts:
  - {name: here, context: {cluster: c, user: u, namespace: shop}}
  - {name: stranger, context: {cluster: c, user: s}}
clusters: [{name: c, cluster: {server: %q, insecure-skip-tls-verify: true}}]
users:
  - {name: u, user: {token: me}}
  - {name: s, user: {token: nobody}}
`

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			api := httptest.NewTLSServer(&cluster{dir: e.WorkDir})
			e.Defer(api.Close)
			logs := httptest.NewServer(collector(filepath.Join(e.WorkDir, "sent")))
			e.Defer(logs.Close)
			e.Setenv("OTLP", logs.URL)
			e.Setenv("KUBECONFIG", filepath.Join(e.WorkDir, "kubeconfig"))
			return os.WriteFile(filepath.Join(e.WorkDir, "kubeconfig"), fmt.Appendf(nil, kubeconfig, api.URL), 0o600)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool,
			args []string){"exits": cmdtest.Exits, "otlp": readLogs},
	})
}

// readLogs reads a file of one LogsData, as OpenTelemetry's own messages are, and wants records of these names.
func readLogs(ts *testscript.TestScript, _ bool, args []string) {
	decode := proto.Unmarshal
	if args[0] == "json" {
		decode = protojson.Unmarshal
	}
	var data logspb.LogsData
	ts.Check(decode([]byte(ts.ReadFile(args[1])), &data))
	var names []string
	for _, r := range data.ResourceLogs {
		for _, s := range r.ScopeLogs {
			for _, record := range s.LogRecords {
				for _, a := range record.Attributes {
					if a.Key == "log.record.uid" {
						names = append(names, a.Value.GetStringValue())
					}
				}
			}
		}
	}
	slices.Sort(names)
	if !slices.Equal(names, args[2:]) {
		ts.Fatalf("%s has the records %v, want %v", args[1], names, args[2:])
	}
}
