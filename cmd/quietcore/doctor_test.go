package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/doctor"
)

func reportOf(t *testing.T, args ...string) (int, doctor.Report) {
	t.Helper()
	code, out, errs := call(append([]string{"doctor", "-o", "json"}, args...)...)
	var r doctor.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("exit %d, %s%s: %v", code, out, errs, err)
	}
	return code, r
}

func found(r *doctor.Report, id string) *doctor.Finding {
	i := slices.IndexFunc(r.Findings, func(f doctor.Finding) bool { return f.ID == id })
	if i < 0 {
		return nil
	}
	return &r.Findings[i]
}

func TestDoctorsExitCodes(t *testing.T) {
	root := t.TempDir()
	if code, r := reportOf(t, "--root", root); code != cli.Failed || found(&r, "cgroup.missing") == nil {
		t.Errorf("an empty node: exit %d, %+v", code, r)
	}
	for file, text := range map[string]string{
		"sys/fs/cgroup/cgroup.controllers": "cpuset cpu", "sys/devices/system/cpu/online": "0-3",
		"sys/devices/system/cpu/present": "0-3",
		"proc/self/status":               "Uid:\t0\t0\t0\t0\nCapEff:\tffffffffff\n",
		"proc/sys/kernel/osrelease":      "6.12.1",
	} {
		file = filepath.Join(root, file)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if code, out, errs := call("doctor", "--root", root); code != 0 || !strings.Contains(out, "0 errors, ") ||
		strings.Contains(out, "\nok ") {
		t.Errorf("a node with warnings: exit %d\n%s%s", code, out, errs)
	}
	if code, out, errs := call("doctor", "--root", root, "--strict", "--all"); code != cli.Failed ||
		!strings.Contains(errs, "0 errors and ") || !strings.Contains(out, "ok       kernel") {
		t.Errorf("strictly: exit %d\n%s%s", code, out, errs)
	}
	for want, args := range map[string][]string{
		"must be absolute":    {"--root", "here"},
		"must be a directory": {"--root", "/dev/null"},
		"must be one of":      {"--runtime", "docker"},
		"takes no argument":   {"please"},
		`-o is "xml"`:         {"-o", "xml"},
	} {
		if code, _, errs := call(append([]string{"doctor"}, args...)...); code != cli.Wrong ||
			!strings.Contains(errs, want) {
			t.Errorf("%v: exit %d, %s", args, code, errs)
		}
	}
}

// A daemon that waits for its runtime is found, with its lock.
func TestDoctorExaminesARunningDaemon(t *testing.T) {
	p := newPlace(t, "")
	_, stop := p.start(t)
	code, r := reportOf(t, "--config", p.config)
	if f := found(&r, "daemon.disconnected"); code != cli.Failed || f == nil || f.Level != doctor.Error {
		t.Errorf("exit %d, %+v", code, r.Findings)
	}
	if f := found(&r, "instances"); f == nil || !strings.Contains(f.What, fmt.Sprintf("pid %d on", os.Getpid())) {
		t.Errorf("its lock is not found: %+v", r.Findings)
	}
	stop()
	if _, r = reportOf(t, "--config", p.config); found(&r, "daemon.absent") == nil {
		t.Errorf("after its end: %+v", r.Findings)
	}
}

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
	if a := probeAPI(t.Context(), apiServer(t, "", "node-a", true)); !a.Asked || a.Err != "" || a.NoNode || a.NoCRD ||
		len(a.Denied) != 0 || a.Checked != 9 {
		t.Errorf("where all is well: %+v", a)
	}
	a := probeAPI(t.Context(), apiServer(t, "patch events", "node-b", false))
	if a.Err != "" || !a.NoNode || !a.NoCRD || len(a.Denied) != 1 ||
		a.Denied[0].String() != "patch events.events.k8s.io" {
		t.Errorf("where nothing is: %+v", a)
	}
	c := apiServer(t, "patch nodes status", "node-a", true)
	c.Reclaim.Mode = config.SwitchEnforce
	if a := probeAPI(t.Context(), c); len(a.Denied) != 1 || a.Denied[0].Resource != "nodes/status" {
		t.Errorf("a subresource: %+v", a)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if a := probeAPI(ended, c); a.Err == "" {
		t.Errorf("an API server that does not answer: %+v", a)
	}
	c.Kubernetes.Kubeconfig = filepath.Join(t.TempDir(), "none")
	if a := probeAPI(t.Context(), c); a.Err == "" {
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
	if f := probeCounters(&c); f.Err != "" {
		t.Errorf("%+v", f)
	}
	c.CPI.StandIns = config.StandIns{Cycles: config.OnCPUTime, Instructions: config.PageFaults}
	if f := probeCounters(&c); f.Err != "" || f.Absent["cycles"] != "" {
		t.Errorf("with stand-ins: %+v", f)
	}
}
