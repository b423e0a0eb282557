package fleet

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/quietcore/quietcore/internal/access"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/dayreport"
	"github.com/quietcore/quietcore/internal/incidents"
	"github.com/quietcore/quietcore/internal/serve"
	"github.com/quietcore/quietcore/plugin"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// simulated is a daemon as other machines see it: the real read-only API, with TLS, tokens and a listener's limits,
// over the real core on a machine that is none.
type simulated struct {
	node, pod string
	port      int
	owners    int

	plugin *plugin.Plugin
	file   config.Config                 // of a node without a policy
	cfg    atomic.Pointer[config.Config] // in force
	follows
}

// machines are shapes of 8 to 512 CPUs.
func machines() []topology.Grid {
	return []topology.Grid{
		{Sockets: 1, L3PerNode: 1, CoresPerL3: 4, ThreadsPerCore: 2},
		{Sockets: 1, L3PerNode: 2, CoresPerL3: 4, ThreadsPerCore: 2},
		{Sockets: 2, L3PerNode: 1, CoresPerL3: 16, ThreadsPerCore: 2},
		{Sockets: 2, L3PerNode: 4, CoresPerL3: 8, ThreadsPerCore: 2},
		{Sockets: 2, L3PerNode: 8, CoresPerL3: 8, ThreadsPerCore: 2},
		{Sockets: 2, NodesPerSocket: 2, L3PerNode: 8, CoresPerL3: 8, ThreadsPerCore: 2},
	}
}

// simulate starts a daemon that asks the API server of kube about tokens.
func simulate(t testing.TB, n int, address string, kube *rest.Config) *simulated {
	t.Helper()
	coins := rand.New(rand.NewPCG(uint64(n), 28))
	shapes := machines()
	topo, err := shapes[n%len(shapes)].Build()
	if err != nil {
		t.Fatal(err)
	}
	d := &simulated{node: fmt.Sprintf("node-%03d", n), pod: fmt.Sprintf("quietcore-%03d", n), file: config.Default()}
	d.file.Node.Name = d.node
	d.cfg.Store(&d.file)
	dir := t.TempDir()
	p, err := plugin.New(plugin.Options{Topology: topo, Config: d.file.Policy(), Log: slog.New(slog.DiscardHandler),
		Socket: filepath.Join(dir, "no-runtime")})
	if err != nil {
		t.Fatal(err)
	}
	d.plugin = p
	store := incidents.New(incidents.Options{Path: filepath.Join(dir, "incidents.db"), Pause: time.Millisecond})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { p.Run(ctx) })
	running.Go(func() { store.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	for i := range 2 + coins.IntN(3) {
		if owns(ctx, t, p, i, int64(1+coins.IntN(2))*1000) {
			d.owners++
		}
	}
	for i := range coins.IntN(4) {
		store.Put(disturbed(d.node, n*10+i, []string{"video", "batch", "sort"}[coins.IntN(3)]))
	}
	if err := store.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	s := &control.Server{Plugin: p, Config: d.cfg.Load, Incidents: store, Mode: d.mode, Policy: d.policy,
		Reports: reportsOf(d.node, store),
		About: control.About{Version: "v0.9.0", Degraded: d.degraded,
			Bundle: func(_ context.Context, w io.Writer, _ bool) error {
				_, err := io.WriteString(w, "an archive of "+d.node)
				return err
			}}}
	l, err := serve.Listen(address, serve.Limits{All: 64, FromOne: 8, Rate: 4})
	if err != nil {
		t.Fatal(err)
	}
	d.port = l.Addr().(*net.TCPAddr).Port
	certificate, err := serve.NewCertificate("", "", time.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	guard := access.New(access.NewReviews(func() (*rest.Config, error) { return kube, nil }), time.Now,
		slog.New(slog.DiscardHandler))
	running.Go(func() {
		err := serve.Serve(ctx, tls.NewListener(l, certificate.Config()), s.Remote(guard.Protect),
			serve.Times{Request: 5 * time.Second, Answer: 15 * time.Second, Idle: 10 * time.Second})
		if err != nil {
			t.Error(err)
		}
	})
	return d
}

// reportsOf is a daemon's: db shared cores for an hour, and left two CPUs idle.
func reportsOf(node string, store *incidents.Store) control.Reports {
	day := dayreport.NewDay()
	db := dayreport.Pod{Namespace: "shop", Name: "db-" + node, Class: "LSE"}
	for m := range 61 {
		at := noon.Add(time.Duration(m) * time.Minute)
		owner := dayreport.PodLook{Pod: db, Owns: 4, Used: 2}
		day.Look(&dayreport.Look{At: at, Online: 8, Known: true, Pods: []dayreport.PodLook{owner}})
		day.Share(at, time.Minute, false, []dayreport.Pair{{Owner: db, CPUs: 1, Parts: true,
			Other: dayreport.Pod{Namespace: "lab", Name: "batch", Class: "BE"}}})
	}
	return control.Reports{Of: func(ctx context.Context, since, until time.Time, limit int) (*dayreport.Report, error) {
		list, err := store.List(ctx, incidents.Filter{Since: since, Until: until})
		if err != nil {
			return nil, err
		}
		return dayreport.Of(day.Facts(), dayreport.Asked{Node: node, Mode: "observe", Since: since, Until: until,
			Incidents: list.Incidents, Listed: true, Lends: true, Counts: true, Limit: limit}), nil
	}}
}

// owns runs a pod with CPUs of its own, where it fits.
func owns(ctx context.Context, t testing.TB, p *plugin.Plugin, i int, milli int64) bool {
	t.Helper()
	at := time.Unix(1e9, 0)
	pod := policy.Pod{UID: fmt.Sprint("uid-", i), Sandbox: fmt.Sprint("sb-", i), Namespace: "shop",
		Name: fmt.Sprint("db-", i), QoS: policy.Guaranteed, CreatedAt: at,
		Labels:    policy.Relevant(map[string]string{policy.LabelClass: "LSR"}, ""),
		Resources: &policy.Resources{RequestMilli: milli, LimitMilli: milli}}
	if p.Submit(ctx, policy.PodRun{Pod: pod}) != nil {
		return false
	}
	err := p.Submit(ctx, policy.ContainerCreate{Pod: pod, Container: policy.Container{ID: fmt.Sprint("c-", i),
		Sandbox: pod.Sandbox, Name: "main", Resources: *pod.Resources, Shares: 1024, CreatedAt: at}})
	if err != nil {
		t.Error(err)
	}
	return err == nil
}

// noon is when all of it happened.
var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func disturbed(node string, n int, by string) incidents.Incident {
	at := time.Now().UTC().Truncate(time.Second).Add(-time.Duration(n) * time.Second)
	victim := incidents.Subject{Namespace: "shop", Pod: "web-" + node, Container: "main", Job: "shop/Deployment/web"}
	antagonist := incidents.Subject{Namespace: "lab", Pod: by + "-" + node, Container: "main", Job: "lab/Job/" + by}
	return incidents.Incident{At: at, Node: node, Victim: victim, DisturbedSeconds: 120, CPI: 3, Threshold: 2,
		Verdict:     incidents.Observe,
		Spec:        incidents.Spec{Mean: 1.5, StdDev: 0.25, Samples: 1000, Tasks: 6},
		Suspects:    []incidents.Suspect{{Subject: antagonist, Score: 0.5}},
		Antagonists: []incidents.Subject{antagonist}}
}

// fakeAPI is an API server in as far as it is asked here. It keeps the login of its users from pods, as the real one.
type fakeAPI struct {
	nodes    []*simulated
	labels   func(*simulated) string
	requests sync.Map // path, shortened -> *atomic.Int64
	proxies  http.Handler
}

const readerToken = "a-token-for-readers-"

func (f *fakeAPI) count(what string) {
	n, _ := f.requests.LoadOrStore(what, &atomic.Int64{})
	n.(*atomic.Int64).Add(1)
}

func (f *fakeAPI) asked(what string) int64 {
	if n, is := f.requests.Load(what); is {
		return n.(*atomic.Int64).Load()
	}
	return 0
}

// all is how often each was asked.
func (f *fakeAPI) all() map[string]int64 {
	by := map[string]int64{}
	f.requests.Range(func(what, n any) bool {
		by[what.(string)] = n.(*atomic.Int64).Load()
		return true
	})
	return by
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Spec struct {
			Token     string
			Audiences []string
			Attrs     struct{ Path string } `json:"nonResourceAttributes"`
		}
	}
	if r.Method == http.MethodPost {
		_ = json.NewDecoder(r.Body).Decode(&body) // what is none has no token
	}
	path := strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/quietcore-system")
	last := path[strings.LastIndexByte(path, '/')+1:]
	if strings.HasPrefix(path, "/pods/") {
		last = "proxy"
	}
	f.count(last)
	if r.Header.Get("Authorization") == "" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	forUs := slices.Equal(body.Spec.Audiences, []string{access.Audience})
	switch last {
	case "pods":
		f.list(w, r, func(d *simulated) any { return podOf(d, "10.0.0.1") })
	case "nodes":
		f.list(w, r, func(d *simulated) any { return map[string]any{"metadata": map[string]any{"name": d.node}} })
	case "token":
		token := "a token for something else"
		if forUs && strings.Contains(path, "/quietcore-reader/") {
			token = fmt.Sprint(readerToken, f.asked("token")) // another each time, as the real one's
		}
		answer200(w, map[string]any{"status": map[string]any{"token": token}})
	case "tokenreviews":
		is := forUs && strings.HasPrefix(body.Spec.Token, readerToken)
		answer200(w, map[string]any{"status": map[string]any{"authenticated": is, "audiences": body.Spec.Audiences}})
	case "subjectaccessreviews":
		answer200(w, map[string]any{"status": map[string]any{"allowed": strings.HasPrefix(body.Spec.Attrs.Path,
			"/quietcore/v1/")}})
	case "proxy":
		r.Header.Del("Authorization")
		f.proxies.ServeHTTP(w, r)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func answer200(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client went away
}

// list answers in pages of 25, or of what is asked for.
func (f *fakeAPI) list(w http.ResponseWriter, r *http.Request, item func(*simulated) any) {
	q := r.URL.Query()
	from, _ := strconv.Atoi(q.Get("continue"))
	limit, _ := strconv.Atoi(q.Get("limit"))
	limit = min(limit, 25)
	items, n := []any{}, 0
	more := ""
	for _, d := range f.nodes {
		if want := q.Get("labelSelector"); strings.HasPrefix(want, "pool=") && f.labels(d) != want {
			continue
		}
		if n++; n <= from {
			continue
		}
		if len(items) == limit {
			more = strconv.Itoa(n - 1)
			break
		}
		items = append(items, item(d))
	}
	answer200(w, map[string]any{"metadata": map[string]any{"continue": more}, "items": items})
}

func podOf(d *simulated, ip string) map[string]any {
	ports := []any{map[string]any{"name": portName, "containerPort": d.port}}
	return map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": d.pod, "labels": map[string]string{"app.kubernetes.io/name": "quietcore"},
			"annotations": map[string]string{accountAnnotation: "quietcore-reader"}},
		"spec": map[string]any{"nodeName": d.node,
			"containers": []any{map[string]any{"name": "quietcore", "image": "none", "ports": ports}}},
		"status": map[string]any{"phase": "Running", "podIP": ip, "podIPs": []any{map[string]any{"ip": ip}}},
	}
}

// toDaemons passes requests of …/pods/https:POD:PORT/proxy/PATH on.
func toDaemons() http.Handler {
	return &httputil.ReverseProxy{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
		ErrorLog:  slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		Rewrite: func(r *httputil.ProxyRequest) {
			_, rest, _ := strings.Cut(r.In.URL.Path, "/pods/https:")
			target, path, _ := strings.Cut(rest, "/proxy")
			r.Out.URL = &url.URL{Scheme: "https", Host: "127.0.0.1" + target[strings.LastIndexByte(target, ':'):],
				Path: path, RawQuery: r.In.URL.RawQuery}
		},
	}
}

// clusterOf is a cluster of so many simulated daemons behind a fake API server, and how it is asked.
func clusterOf(t testing.TB, n int) (*fakeAPI, *Cluster) {
	t.Helper()
	f := &fakeAPI{proxies: toDaemons(), labels: func(d *simulated) string { return "pool=" + d.node[len(d.node)-1:] }}
	api := httptest.NewTLSServer(f) // a login is not sent without TLS
	t.Cleanup(api.Close)
	kube := &rest.Config{Host: api.URL, BearerToken: "a daemon's",
		TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	for i := range n {
		f.nodes = append(f.nodes, simulate(t, i, "127.0.0.1:0", kube))
	}
	return f, asUser(t, api.URL, "a user's")
}

func asUser(t testing.TB, address, token string) *Cluster {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: a\n"+
		"contexts: [{name: a, context: {cluster: a, user: a}}]\n"+
		"clusters: [{name: a, cluster: {server: %q, insecure-skip-tls-verify: true}}]\n"+
		"users: [{name: a, user: {token: %q}}]\n",
		address, token)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return &Cluster{Kubeconfig: kubeconfig, Home: "quietcore-system", Labels: "app.kubernetes.io/name=quietcore",
		Parallel: 8, Patience: 5 * time.Minute}
}

func insecureTransport() *http.Transport {
	return &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
}
