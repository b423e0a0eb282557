// Package planetest runs a real API server for tests of its clients.
//
//	p := planetest.Start(t) // it skips the test where nothing was built
//	p.Create("/api/v1/nodes", "{metadata: {name: n1}}")
package planetest

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
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
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// binariesEnv names a folder with kube-apiserver and etcd, in place of those that
// e2e/kubernetes has built.
const binariesEnv = "QUIETCORE_KUBERNETES_BIN"

// Plane is a real API server without anything behind it.
type Plane struct {
	t        *testing.T
	host     string
	http     *http.Client
	bin, dir string
	server   []string // kube-apiserver's arguments
	stop     func()   // of it
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

// binaries are what binariesEnv names, or what e2e/kubernetes has built in this
// working copy.
func binaries(t *testing.T) string {
	t.Helper()
	for _, name := range []string{binariesEnv, "QUIETCORE_CONTROL_PLANE"} {
		if bin := os.Getenv(name); bin != "" {
			return bin
		}
	}
	for _, up := range []string{"../..", "../../.."} { // packages are two or three folders below it
		built, err := filepath.Glob(filepath.Join(up, ".cache", "e2e", "kubernetes-*-etcd-*", "kube-apiserver"))
		if err != nil {
			t.Fatal(err)
		}
		if len(built) > 0 {
			return filepath.Dir(built[len(built)-1])
		}
	}
	t.Skipf("needs kube-apiserver and etcd: `make e2e-kubernetes-smoke` builds them, or set %s to their folder",
		binariesEnv)
	return ""
}

// Start runs an API server and its etcd until the test ends.
func Start(t *testing.T) *Plane {
	t.Helper()
	p := &Plane{t: t, bin: binaries(t), dir: t.TempDir(), stop: func() {},
		http: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}}
	t.Cleanup(p.http.CloseIdleConnections)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	accounts := p.write("accounts.key", string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY",
		Bytes: x509.MarshalPKCS1PrivateKey(key)})))
	client, peer, port := "http://127.0.0.1:"+freePort(t), "http://127.0.0.1:"+freePort(t), freePort(t)
	p.host = "https://127.0.0.1:" + port
	p.Run("etcd", "--data-dir="+filepath.Join(p.dir, "etcd"), "--unsafe-no-fsync", "--log-level=error",
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer)
	p.server = []string{"--etcd-servers=" + client, "--bind-address=127.0.0.1", "--secure-port=" + port,
		"--cert-dir=" + filepath.Join(p.dir, "certs"),
		"--service-cluster-ip-range=10.0.0.0/24", "--authorization-mode=RBAC",
		"--disable-admission-plugins=ServiceAccount",
		"--token-auth-file=" + p.write("tokens", "admin,admin,admin,system:masters\n"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + accounts, "--service-account-signing-key-file=" + accounts}
	p.Restart()
	return p
}

// Restart starts the API server anew on the same data, with more arguments than it has by itself.
func (p *Plane) Restart(more ...string) {
	p.t.Helper()
	p.stop()
	p.stop = p.Run("kube-apiserver", slices.Concat(p.server, more)...)
	p.Within("the API server is ready", func() bool {
		code, _ := p.Try(http.MethodGet, "/readyz", "", nil)
		return code == http.StatusOK
	})
}

// Stop ends the API server; its data stay for Restart.
func (p *Plane) Stop() { p.stop() }

// write makes a file of the plane's, and returns its path.
func (p *Plane) write(name, text string) string {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	return path
}

// Run starts one of Kubernetes' programs. It ends with the test, or by what is returned.
func (p *Plane) Run(name string, args ...string) (stop func()) {
	p.t.Helper()
	log, err := os.OpenFile(filepath.Join(p.dir, name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		p.t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(p.bin, name), args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		log.Close()
	})
	p.t.Cleanup(func() {
		stop()
		if p.t.Failed() {
			text, _ := os.ReadFile(log.Name())
			p.t.Logf("%s: %s", name, text[max(0, len(text)-3000):])
		}
	})
	return stop
}

// Config is what the administrator connects by.
func (p *Plane) Config() *rest.Config {
	return &rest.Config{Host: p.host, BearerToken: "admin", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

// Programs is the folder of Kubernetes' programs, kubectl among them.
func (p *Plane) Programs() string { return p.bin }

// Within waits until something is so.
func (p *Plane) Within(what string, so func() bool) {
	p.t.Helper()
	deadline := time.After(2 * time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-deadline:
			p.t.Fatalf("not so after two minutes: %s", what)
		}
	}
}

// Try is a request of the administrator.
func (p *Plane) Try(method, path, kind string, body []byte) (int, []byte) {
	r, err := http.NewRequestWithContext(p.t.Context(), method, p.host+path, bytes.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer admin")
	r.Header.Set("Content-Type", kind)
	answer, err := p.http.Do(r)
	if err != nil {
		return 0, []byte(err.Error())
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, []byte(err.Error())
	}
	return answer.StatusCode, text
}

// Do is a request of the administrator that has to work.
func (p *Plane) Do(method, path, kind, text string) []byte {
	p.t.Helper()
	body, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		p.t.Fatal(err)
	}
	code, answer := p.Try(method, path, kind, body)
	if code/100 != 2 {
		p.t.Fatalf("%s %s: %d %s", method, path, code, answer)
	}
	return answer
}

// Create is one that creates an object out of YAML.
func (p *Plane) Create(path, text string) []byte {
	p.t.Helper()
	return p.Do(http.MethodPost, path, "application/json", text)
}

// Apply creates the objects of a file.
func (p *Plane) Apply(name string) {
	p.t.Helper()
	all, err := os.ReadFile(name)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, text := range strings.Split(strings.TrimPrefix(string(all), "---\n"), "\n---\n") {
		var o struct {
			APIVersion, Kind string
			Metadata         struct{ Namespace string }
		}
		if err := yaml.Unmarshal([]byte(text), &o); err != nil {
			p.t.Fatal(err)
		}
		plural := strings.Replace(strings.ToLower(o.Kind)+"s", "policys", "policies", 1)
		if o.Metadata.Namespace != "" {
			plural = "namespaces/" + o.Metadata.Namespace + "/" + plural
		}
		group := "/apis/"
		if o.APIVersion == "v1" {
			group = "/api/"
		}
		p.Create(group+o.APIVersion+"/"+plural, text)
	}
}

// Merge is one that changes an object.
func (p *Plane) Merge(path, text string) {
	p.t.Helper()
	p.Do(http.MethodPatch, path, "application/merge-patch+json", text)
}

// Get reads one field of an object as text, "" where it is not there.
func (p *Plane) Get(path string, fields ...string) string {
	p.t.Helper()
	var v any
	if err := json.Unmarshal(p.Do(http.MethodGet, path, "application/json", "{}"), &v); err != nil {
		p.t.Fatal(err)
	}
	for _, f := range fields {
		m, _ := v.(map[string]any)
		v = m[f]
	}
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}

// Kubeconfig is one that speaks as a user, with extras of its token.
func (p *Plane) Kubeconfig(user string, groups []string, extra map[string][]string) string {
	p.t.Helper()
	path := filepath.Join(p.t.TempDir(), "kubeconfig")
	as, err := json.Marshal(map[string]any{"token": "admin", "as": user, "as-groups": groups, "as-user-extra": extra})
	if err != nil {
		p.t.Fatal(err)
	}
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, insecure-skip-tls-verify: true}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: %s}]
current-context: c
`, p.host, as)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	return path
}
