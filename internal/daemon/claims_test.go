package daemon

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/kube"
	"github.com/quietcore/quietcore/internal/metrics"
)

// Our driver does not start beside another one for CPUs, whichever sign of it there is.
func TestForeignDrivers(t *testing.T) {
	for _, c := range []struct{ name, file, text, want string }{
		{"an empty node", "", "", ""},
		{"other plugins", "registry/gpu.example.com-reg.sock", "", ""},
		{"our own socket", "registry/cpu.quietcore.dev-reg.sock", "", ""},
		{"dra-driver-cpu", "registry/dra.cpu-reg.sock", "", "driver dra.cpu has a socket"},
		{"its claims", "cdi/a.json", `{"kind":"dra.k8s.io/cpu","devices":[{"name":"claim-a"}]}`,
			"CDI specs of kind dra.k8s.io/cpu"},
		{"a GPU's claims", "cdi/a.json", `{"kind":"example.com/gpu","devices":[{"name":"a"}]}`, ""},
		{"our own claims", "cdi/a.json", `{"kind":"quietcore.dev/cpu","devices":[{"name":"a-0"}]}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if strings.HasPrefix(c.file, "cdi") && os.Getuid() != 0 {
				if os.Getenv("QUIETCORE_CI") == "1" {
					t.Fatal("only root's specs are believed, and CI is root")
				}
				t.Skip("only root's specs are believed: needs root")
			}
			dir := t.TempDir()
			registry, specs := filepath.Join(dir, "registry"), filepath.Join(dir, "cdi")
			for _, d := range []string{registry, specs} {
				if err := os.Mkdir(d, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if c.file != "" {
				if err := os.WriteFile(filepath.Join(dir, c.file), []byte(c.text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			got := foreignDriver(t.Context(), registry, []string{specs}, slog.New(slog.DiscardHandler))
			if !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// Whether claims are served depends on three things of the configuration.
func TestWhereClaimsAreServed(t *testing.T) {
	for _, c := range []struct {
		name   string
		mode   config.DRAMode
		daemon config.Mode
		api    bool
		serves bool
		state  string
	}{
		{"off", config.DRAOff, config.Enforce, true, false, ""},
		{"on", config.DRAOn, config.Enforce, true, true, "not started yet"},
		{"on, observing", config.DRAOn, config.Observe, true, false, "mode is observe"},
		{"on, no API server", config.DRAOn, config.Enforce, false, false, "no API server"},
	} {
		cfg := config.Default()
		cfg.DRA.Mode, cfg.Mode = c.mode, c.daemon
		a := &apiServer{o: apiOptions{config: &cfg, node: &node{}, log: slog.New(slog.DiscardHandler)}}
		if c.api {
			client, err := kube.New(kube.Options{Node: "n1"})
			if err != nil {
				t.Fatal(err)
			}
			a.client = client
		}
		a.claims = newClaims(a)
		got := a.Health()[metrics.FeatureDRA]
		if (a.claims.driver != nil) != c.serves || !strings.Contains(got, c.state) || (got == "") != (c.state == "") {
			t.Errorf("%s: serves %v, %q", c.name, a.claims.driver != nil, got)
		}
		if a.devices(nil) != nil {
			t.Errorf("%s: devices are known before what runs is", c.name)
		}
	}
}
