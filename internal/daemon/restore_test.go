package daemon

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/internal/config"
)

const apiNode = `{"metadata":{"name":"n1","uid":"u1","resourceVersion":"7"},` +
	`"status":{"capacity":{"quietcore.dev/batch-cpu":"5k"},"allocatable":{"quietcore.dev/batch-cpu":"5k"}}}`

// lentServer knows one Node that an earlier daemon has published lent CPUs in.
func lentServer(t *testing.T, patch http.HandlerFunc) (kubeconfig string) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodPatch && r.URL.Path == "/api/v1/nodes/n1/status":
			patch(w, r)
		case r.URL.Path == "/api/v1/nodes":
			_, _ = io.WriteString(w,
				`{"apiVersion":"v1","kind":"NodeList","metadata":{"resourceVersion":"7"},"items":[`+apiNode+`]}`)
		case r.URL.Path == "/api/v1/pods":
			_, _ = io.WriteString(w,
				`{"apiVersion":"v1","kind":"PodList","metadata":{"resourceVersion":"7"},"items":[]}`)
		default:
			http.Error(w, r.URL.Path, http.StatusNotFound)
		}
	}))
	t.Cleanup(s.Close)
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: '" + s.URL +
		"'}}]\nusers: [{name: u, user: {token: t}}]\ncontexts: [{name: x, context: {cluster: c, user: " +
		"u}}]\ncurrent-context: x\n"
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

func TestRestoreTakesLentCPUsFromTheNode(t *testing.T) {
	patched := ""
	cfg := config.Default()
	cfg.Node.Name = "n1"
	cfg.Kubernetes.Kubeconfig = lentServer(t, func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		patched = string(text)
		_, _ = io.WriteString(w, `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1","uid":"u1"}}`)
	})
	if err := (lentCPUs{&cfg, "v1", slog.New(slog.DiscardHandler)}).withdraw(t.Context()); err != nil ||
		!strings.Contains(patched, `"quietcore.dev/batch-cpu":null`) {
		t.Errorf("the patch is %q, %v", patched, err)
	}
}

// What could not be taken away is said: as a failure where CPUs were lent.
func TestRestoreSaysThatLentCPUsStay(t *testing.T) {
	var log strings.Builder
	cfg := config.Default()
	cfg.Node.Name = "n1"
	lent := lentCPUs{&cfg, "v1", slog.New(slog.NewTextHandler(&log, nil))}
	forbidden := lentServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w,
			`{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"Forbidden","message":"nodes n1 is `+
				`forbidden","code":403}`)
	})
	cfg.Kubernetes.Kubeconfig = forbidden
	if err := lent.withdraw(t.Context()); err != nil || !strings.Contains(log.String(), "forbidden") {
		t.Errorf("where nothing was to be lent: %v, log %q", err, &log)
	}
	cfg.Reclaim.Mode = config.SwitchEnforce
	for _, file := range []string{forbidden, filepath.Join(t.TempDir(), "none")} {
		cfg.Kubernetes.Kubeconfig = file
		if err := lent.withdraw(t.Context()); err == nil || !strings.Contains(err.Error(), "by hand") {
			t.Errorf("%s: %v", file, err)
		}
	}
	cfg.Reclaim.Mode, cfg.Kubernetes.API = config.SwitchOff, config.APIOff
	if err := lent.withdraw(t.Context()); err != nil {
		t.Errorf("where there is no API server and nothing was lent: %v", err)
	}
}
