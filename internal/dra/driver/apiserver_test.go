package driver

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/quietcore/quietcore/internal/dra"
)

// binariesEnv names a folder with kube-apiserver and etcd, in place of those that e2e/kubernetes has built.
const binariesEnv = "QUIETCORE_KUBERNETES_BIN"

// realServer is a real API server, which can be started anew with other feature gates on the same data.
type realServer struct {
	t              *testing.T
	bin, dir, etcd string
	port           string
	stop           func() // of the API server
	http           *http.Client
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
}

func newRealServer(t *testing.T) *realServer {
	t.Helper()
	bin := os.Getenv(binariesEnv)
	if bin == "" {
		built, err := filepath.Glob("../../../.cache/e2e/kubernetes-*-etcd-*/kube-apiserver")
		if err != nil {
			t.Fatal(err)
		}
		if len(built) == 0 {
			t.Skipf("needs kube-apiserver and etcd: `make e2e-kubernetes-smoke` builds them, or set %s to their folder",
				binariesEnv)
		}
		bin = filepath.Dir(built[len(built)-1])
	}
	s := &realServer{t: t, bin: bin, dir: t.TempDir(), etcd: "http://127.0.0.1:" + freePort(t), port: freePort(t),
		stop: func() {}}
	peer := "http://127.0.0.1:" + freePort(t)
	s.run("etcd", "--data-dir="+filepath.Join(s.dir, "etcd"), "--unsafe-no-fsync", "--log-level=error",
		"--listen-client-urls="+s.etcd, "--advertise-client-urls="+s.etcd, "--listen-peer-urls="+peer,
		"--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	s.write("accounts.key", pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY",
		Bytes: x509.MarshalPKCS1PrivateKey(key)}))
	s.write("tokens", []byte("admin,admin,admin,system:masters\n"))
	client, err := rest.HTTPClientFor(s.config())
	if err != nil {
		t.Fatal(err)
	}
	s.http = client
	return s
}

func (s *realServer) path(name string) string { return filepath.Join(s.dir, name) }

func (s *realServer) write(name string, text []byte) {
	s.t.Helper()
	if err := os.WriteFile(s.path(name), text, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// run starts a program, which ends with the test or by what is returned.
func (s *realServer) run(name string, args ...string) (stop func()) {
	s.t.Helper()
	log, err := os.OpenFile(s.path(name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, name), args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait(); _ = log.Close() }()
	stop = func() { cancel(); <-ended }
	s.t.Cleanup(func() {
		stop()
		if text, _ := os.ReadFile(log.Name()); s.t.Failed() {
			s.t.Logf("%s: %s", name, text[max(0, len(text)-3000):])
		}
	})
	return stop
}

// start starts the API server with a feature gate on or off.
func (s *realServer) start(gate bool) {
	s.t.Helper()
	s.stop()
	s.stop = s.run("kube-apiserver", "--etcd-servers="+s.etcd, "--bind-address=127.0.0.1", "--secure-port="+s.port,
		"--cert-dir="+s.path("certs"), "--service-cluster-ip-range=10.0.0.0/24", "--authorization-mode=RBAC",
		"--disable-admission-plugins=ServiceAccount", "--token-auth-file="+s.path("tokens"),
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+s.path("accounts.key"),
		"--service-account-signing-key-file="+s.path("accounts.key"),
		fmt.Sprintf("--feature-gates=DRANodeAllocatableResources=%t", gate))
	eventually(s.t, "the API server is ready", func() bool { return s.ask(http.MethodGet, "/readyz", "") == "" })
}

func (s *realServer) config() *rest.Config {
	return &rest.Config{Host: "https://127.0.0.1:" + s.port, BearerToken: "admin",
		TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

// ask makes a request; empty: it worked.
func (s *realServer) ask(method, path, body string) string {
	r, err := http.NewRequestWithContext(s.t.Context(), method, "https://127.0.0.1:"+s.port+path,
		strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	answer, err := s.http.Do(r)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		return answer.Status
	}
	return ""
}

// TestRealAPIServerMapsCPUs: a real API server drops the mapping without the gate, refuses it for a node whose kubelet
// does not declare it, and keeps it for one that does.
func TestRealAPIServerMapsCPUs(t *testing.T) {
	s := newRealServer(t)
	w := newWorld(t)
	w.maps = true
	w.driver.o.API = NewAPI(func() (*rest.Config, error) { return s.config(), nil })
	p := newPublisher(w.driver)
	at := func(what string, mapped bool, state string) {
		t.Helper()
		eventually(t, what, func() bool {
			p.attempt(t.Context())
			return !strings.Contains(w.driver.slices, "not yet ready")
		})
		list, err := w.driver.o.API.Slices(t.Context(), "n1")
		if err != nil || len(list) != 1 || len(list[0].Spec.Devices) != 2 {
			t.Fatalf("%s: slices %+v, %v; state %q", what, list, err, w.driver.slices)
		}
		for _, d := range list[0].Spec.Devices {
			m := d.NodeAllocatableResources["cpu"].Mapping
			if (m != nil) != mapped ||
				m != nil && (*m.CapacityKey != dra.Capacity || m.CapacityMultiplier.Value() != 1) {
				t.Errorf("%s: device %s has mapping %v", what, d.Name, m)
			}
		}
		if !strings.Contains(w.driver.slices, state) || (w.driver.slices == "") != (state == "") {
			t.Errorf("%s: state %q", what, w.driver.slices)
		}
	}
	s.start(false)
	if err := s.ask(http.MethodPost, "/api/v1/nodes", `{"metadata": {"name": "n1"}}`); err != "" {
		t.Fatal(err)
	}
	at("off in the API server", false, "drops nodeAllocatableResources")
	s.start(true)
	p.forget() // kubelet came back
	at("off in kubelet", false, "refuses nodeAllocatableResources")
	if err := s.ask(http.MethodPatch, "/api/v1/nodes/n1/status",
		`{"status": {"declaredFeatures": ["DRANodeAllocatableResources"]}}`); err != "" {
		t.Fatal(err)
	}
	eventually(t, "the API server's own list of nodes", func() bool {
		p.attempt(t.Context())
		return w.driver.slices == ""
	})
	at("on in both", true, "")
}
