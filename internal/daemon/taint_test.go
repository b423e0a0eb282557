package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/kube"
	"github.com/quietcore/quietcore/internal/metrics"
)

// The daemon takes the startup taint away where it is told to, not before it places pods, and in mode observe, too.
func TestWhoTakesTheStartupTaintAway(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte("apiVersion: v1\nkind: Config\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{"kubernetes: {kubeconfig: " + kubeconfig + ", startupTaint: true}": true,
		"kubernetes: {kubeconfig: " + kubeconfig + "}": false} {
		d := built(t, t.TempDir(), "mode: observe\ncpi: {mode: \"off\"}\n"+text+"\n")
		if (d.api.taint != nil) != want || (d.api.clientOptions().OnStartupTaint != nil) != want {
			t.Errorf("%s: %t", text, !want)
		}
		if !want {
			continue
		}
		d.api.clientOptions().OnStartupTaint([]kube.Taint{{Raw: []byte(`{"key":"quietcore.dev/not-ready"}`)}})
		if d.api.taint.State() != "" {
			t.Errorf("it is asked for before there is a runtime: %s", d.api.taint.State())
		}
		if _, watched := d.api.Health()[metrics.FeatureTaint]; !watched {
			t.Error("nobody would say why it stays")
		}
	}
	if _, err := config.Parse([]byte("apiVersion: quietcore.dev/v1alpha1\nkubernetes: {api: \"off\", startupTaint: " +
		"true}\nlisten: 127.0.0.1:1\n")); err == nil || !strings.Contains(err.Error(), "kubernetes.startupTaint") {
		t.Errorf("without an API server: %v", err)
	}
}
