package probe

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/internal/config"
)

// apiServer answers for the API server: what is denied, which Nodes there are, and
// whether the CRD is.
func apiServer(t *testing.T, denied, node string, crd bool) *config.Config {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", func(w http.ResponseWriter,
		r *http.Request) {
		var body struct {
			Spec struct {
				ResourceAttributes struct{ Verb, Resource, Subresource string }
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		a := body.Spec.ResourceAttributes
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"status":{"allowed":%t}}`, strings.TrimSpace(a.Verb+" "+a.Resource+" "+
			a.Subresource) != denied)
	})
	mux.HandleFunc("GET /api/v1/nodes", func(w http.ResponseWriter, r *http.Request) {
		items := "[]"
		if r.URL.Query().Get("fieldSelector") == "metadata.name="+node {
			items = `[{"metadata":{"name":"` + node + `"}}]`
		}
		fmt.Fprintf(w, `{"items":%s}`, items)
	})
	mux.HandleFunc("GET /apis/topology.node.k8s.io/v1alpha2", func(w http.ResponseWriter, _ *http.Request) {
		if !crd {
			w.WriteHeader(http.StatusNotFound)
		}
		fmt.Fprint(w, `{}`)
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(
		`{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: %q}}], users: `+
			`[{name: u, user: {token: "s3cret"}}], contexts: [{name: c, context: {cluster: c, user: u}}]}`, s.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := config.Default()
	c.Kubernetes.Kubeconfig, c.Node.Name = file, "node-a"
	return &c
}

func TestDoctorAsksTheAPIServer(t *testing.T) {
	if a := askAPI(t.Context(), apiServer(t, "", "node-a", true), "test"); !a.Asked || a.Err != "" || a.NoNode ||
		a.NoCRD ||
		len(a.Denied) != 0 || a.Checked != 9 {
		t.Errorf("where all is well: %+v", a)
	}
	a := askAPI(t.Context(), apiServer(t, "patch events", "node-b", false), "test")
	if a.Err != "" || !a.NoNode || !a.NoCRD || len(a.Denied) != 1 ||
		a.Denied[0].String() != "patch events.events.k8s.io" {
		t.Errorf("where nothing is: %+v", a)
	}
	c := apiServer(t, "patch nodes status", "node-a", true)
	c.Reclaim.Mode = config.SwitchEnforce
	if a := askAPI(t.Context(), c, "test"); len(a.Denied) != 1 || a.Denied[0].Resource != "nodes/status" {
		t.Errorf("a subresource: %+v", a)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if a := askAPI(ended, c, "test"); a.Err == "" {
		t.Errorf("an API server that does not answer: %+v", a)
	}
	c.Kubernetes.Kubeconfig = filepath.Join(t.TempDir(), "none")
	if a := askAPI(t.Context(), c, "test"); a.Err == "" {
		t.Errorf("credentials that are not there: %+v", a)
	}
}

// The counters are opened for real.
func TestDoctorOpensTheCounters(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("QUIETCORE_CI") == "1" {
			t.Fatal("CI is root")
		}
		t.Skip("opening the counters takes root")
	}
	c := config.Default()
	if f := openCounters(&c); f.Err != "" {
		t.Errorf("%+v", f)
	}
	c.CPI.StandIns = config.StandIns{Cycles: config.OnCPUTime, Instructions: config.PageFaults}
	if f := openCounters(&c); f.Err != "" || f.Absent["cycles"] != "" {
		t.Errorf("with stand-ins: %+v", f)
	}
}
