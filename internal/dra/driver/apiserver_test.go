package driver

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

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
	_, failed := s.get(method, path, body)
	return failed
}

// create makes an object of YAML.
func (s *realServer) create(path, text string) {
	s.t.Helper()
	body, err := yaml.YAMLToJSON([]byte(strings.ReplaceAll(text, "\t", " ")))
	if err != nil {
		s.t.Fatal(err)
	}
	if failed := s.ask(http.MethodPost, path, string(body)); failed != "" {
		s.t.Fatalf("create at %s: %s", path, failed)
	}
}

// get makes a request and returns its answer.
func (s *realServer) get(method, path, body string) (text []byte, failed string) {
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
		return nil, err.Error()
	}
	defer answer.Body.Close()
	if text, err = io.ReadAll(answer.Body); err != nil {
		return nil, err.Error()
	}
	if answer.StatusCode/100 != 2 {
		return nil, answer.Status + ": " + string(text)
	}
	return text, ""
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

// TestRealAPIServerCountsClaims: a real kube-scheduler counts claims of our devices with what pods request, notes that
// in the status that the daemon reads, and has a pod wait whose claim and request do not fit together.
func TestRealAPIServerCountsClaims(t *testing.T) {
	s := newRealServer(t)
	s.start(true)
	s.create("/api/v1/nodes", `metadata: {name: n1}`)
	if failed := s.ask(http.MethodPatch, "/api/v1/nodes/n1", `{"spec": {"taints": null}}`); failed != "" {
		t.Fatal(failed) // it is not ready when it is new
	}
	s.create("/apis/resource.k8s.io/v1/deviceclasses", `{metadata: {name: cpu.quietcore.dev},
			spec: {selectors: [{cel: {expression: "device.driver == 'cpu.quietcore.dev'"}}]}}`)
	if failed := s.ask(http.MethodPatch, "/api/v1/nodes/n1/status", `{"status": {
		"declaredFeatures": ["DRANodeAllocatableResources"], "conditions": [{"type": "Ready", "status": "True"}],
		"capacity": {"cpu": "8", "memory": "8Gi", "pods": "9"}}}`); failed != "" {
		t.Fatal(failed)
	}
	w := newWorld(t)
	w.maps = true
	w.driver.o.API = NewAPI(func() (*rest.Config, error) { return s.config(), nil })
	p := newPublisher(w.driver)
	eventually(t, "slices with a mapping", func() bool { p.attempt(t.Context()); return w.driver.slices == "" })
	s.write("scheduler.conf", []byte(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
		"users": [{"name": "u", "user": {"token": "admin"}}], "clusters": [{"name": "c", "cluster": {
		"insecure-skip-tls-verify": true, "server": "https://127.0.0.1:`+s.port+`"}}]}`))
	s.run("kube-scheduler", "--kubeconfig="+s.path("scheduler.conf"), "--leader-elect=false", "--secure-port=0",
		"--feature-gates=DRANodeAllocatableResources=true")
	pod := func(name, request string) (pod corev1.Pod) {
		t.Helper()
		s.create("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims", `{metadata: {name: `+name+`},
				spec: {devices: {requests: [{name: cpus, exactly: {deviceClassName: cpu.quietcore.dev,
				capacity: {requests: {cpu: "2"}}}}]}}}`)
		s.create("/api/v1/namespaces/default/pods", `{metadata: {name: `+name+`}, spec: {
				resourceClaims: [{name: c, resourceClaimName: `+name+`}],
				containers: [{name: main, image: i,
				resources: {claims: [{name: c}], requests: {cpu: "`+request+`"}}}]}}`)
		eventually(t, "a decision on pod "+name, func() bool {
			pod = corev1.Pod{}
			text, failed := s.get(http.MethodGet, "/api/v1/namespaces/default/pods/"+name, "")
			return failed == "" && json.Unmarshal(text, &pod) == nil && len(pod.Status.Conditions) > 0
		})
		return pod
	}
	first := pod("first", "4")
	counted := first.Status.NodeAllocatableResourceClaimStatuses
	if first.Spec.NodeName != "n1" || len(counted) != 1 || counted[0].Mapping[0].Quantity.Value() != 2 ||
		len(counted[0].Containers) != 1 {
		t.Errorf("on node %q, counted %+v, %+v", first.Spec.NodeName, counted, first.Status.Conditions)
	}
	second := pod("second", "1") // 4 and 2 are taken of 8, and 1 and 2 more do not fit
	if why := second.Status.Conditions[0].Message; second.Spec.NodeName != "" ||
		!strings.Contains(why, "Insufficient cpu") {
		t.Errorf("on node %q: %s", second.Spec.NodeName, why)
	}
}
