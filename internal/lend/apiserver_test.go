package lend

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/quietcore/quietcore/internal/kube"
	"github.com/quietcore/quietcore/policy"
)

// binariesEnv names a folder with kube-apiserver and etcd, in place of those that
// e2e/kubernetes has built.
const binariesEnv = "QUIETCORE_KUBERNETES_BIN"

const daemonUser = "system:serviceaccount:quietcore:quietcore"

// plane is a real API server without anything behind it.
type plane struct {
	t    *testing.T
	host string
	http *http.Client
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
	if bin := os.Getenv(binariesEnv); bin != "" {
		return bin
	}
	built, err := filepath.Glob(filepath.Join("..", "..", ".cache", "e2e", "kubernetes-*-etcd-*", "kube-apiserver"))
	if err != nil {
		t.Fatal(err)
	}
	if len(built) == 0 {
		t.Skipf("needs kube-apiserver and etcd: `make e2e-kubernetes-smoke` builds them, or set %s to their folder",
			binariesEnv)
	}
	return filepath.Dir(built[len(built)-1])
}

func startPlane(t *testing.T) *plane {
	t.Helper()
	bin := binaries(t)
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	accounts := file("accounts.key", string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY",
		Bytes: x509.MarshalPKCS1PrivateKey(key)})))
	client, peer, port := "http://127.0.0.1:"+freePort(t), "http://127.0.0.1:"+freePort(t), freePort(t)
	run := func(name string, args ...string) {
		log, err := os.Create(filepath.Join(dir, name+".log"))
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(filepath.Join(bin, name), args...)
		cmd.Stdout, cmd.Stderr = log, log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			log.Close()
			if t.Failed() {
				text, _ := os.ReadFile(log.Name())
				t.Logf("%s: %s", name, text[max(0, len(text)-3000):])
			}
		})
	}
	run("etcd", "--data-dir="+filepath.Join(dir, "etcd"), "--unsafe-no-fsync", "--log-level=error",
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer)
	run("kube-apiserver", "--etcd-servers="+client, "--bind-address=127.0.0.1", "--secure-port="+port, "--cert-dir="+
		filepath.Join(dir, "certs"),
		"--service-cluster-ip-range=10.0.0.0/24", "--authorization-mode=RBAC",
		"--disable-admission-plugins=ServiceAccount",
		"--token-auth-file="+file("tokens", "admin,admin,admin,system:masters\n"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+accounts, "--service-account-signing-key-file="+accounts)
	p := &plane{t: t, host: "https://127.0.0.1:" + port,
		http: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}}
	t.Cleanup(p.http.CloseIdleConnections)
	p.within("the API server is ready", func() bool {
		code, _ := p.try(http.MethodGet, "/readyz", "", nil)
		return code == http.StatusOK
	})
	return p
}

// within waits until something is so.
func (p *plane) within(what string, so func() bool) {
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

func (p *plane) try(method, path, kind string, body []byte) (int, []byte) {
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

// do is a request of the administrator that has to work.
func (p *plane) do(method, path, kind, text string) []byte {
	p.t.Helper()
	body, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		p.t.Fatal(err)
	}
	code, answer := p.try(method, path, kind, body)
	if code/100 != 2 {
		p.t.Fatalf("%s %s: %d %s", method, path, code, answer)
	}
	return answer
}

func (p *plane) create(path, text string) []byte {
	p.t.Helper()
	return p.do(http.MethodPost, path, "application/json", text)
}

// apply creates the cluster-wide objects of a file.
func (p *plane) apply(name string) {
	p.t.Helper()
	all, err := os.ReadFile(name)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, text := range strings.Split(strings.TrimPrefix(string(all), "---\n"), "\n---\n") {
		var o struct{ APIVersion, Kind string }
		if err := yaml.Unmarshal([]byte(text), &o); err != nil {
			p.t.Fatal(err)
		}
		plural := strings.Replace(strings.ToLower(o.Kind)+"s", "policys", "policies", 1)
		p.create("/apis/"+o.APIVersion+"/"+plural, text)
	}
}

func (p *plane) merge(path, text string) {
	p.t.Helper()
	p.do(http.MethodPatch, path, "application/merge-patch+json", text)
}

// get reads one field of an object as text, "" where it is not there.
func (p *plane) get(path string, fields ...string) string {
	p.t.Helper()
	var v any
	if err := json.Unmarshal(p.do(http.MethodGet, path, "application/json", "{}"), &v); err != nil {
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

// daemonOf is a kubeconfig that speaks as the daemon with the token of a node.
func (p *plane) daemonOf(node string) string {
	p.t.Helper()
	path := filepath.Join(p.t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, insecure-skip-tls-verify: true}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {token: admin, as: %q,
  as-groups: ["system:serviceaccounts", "system:authenticated"],
  as-user-extra: {authentication.kubernetes.io/node-name: [%q]}}}]
current-context: c
`, p.host, daemonUser, node)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	return path
}

func (p *plane) node(name string) {
	p.t.Helper()
	p.create("/api/v1/nodes", fmt.Sprintf("{metadata: {name: %s, labels: {zone: a}, annotations: {theirs: stays}}}",
		name))
	p.merge("/api/v1/nodes/"+name+"/status",
		`{status: {capacity: {cpu: "16"}, allocatable: {cpu: "15"}, conditions: [{type: Ready, status: "True"}]}}`)
}

// pod is bound to n1 and runs. It returns the UID.
func (p *plane) pod(name, request string) Pod {
	p.t.Helper()
	p.create("/api/v1/namespaces/default/pods", fmt.Sprintf(
		`{metadata: {name: %s, labels: {app: %s}}, spec: {nodeName: n1, containers: [{name: a, image: a,
  resources: {requests: {quietcore.dev/batch-cpu: %q}, limits: {quietcore.dev/batch-cpu: %q}}}]}}`, name, name,
		request, request))
	path := "/api/v1/namespaces/default/pods/" + name
	p.merge(path+"/status", `{status: {phase: Running, conditions: [{type: Ready, status: "True"}]}}`)
	return Pod{UID: p.get(path, "metadata", "uid"), Namespace: "default", Name: name}
}

// TestRealAPIServer publishes to and evicts from a real API server with no more than
// the rights in testdata/rights.yaml, and tries what they forbid.
func TestRealAPIServer(t *testing.T) {
	p := startPlane(t)
	p.apply("testdata/rights.yaml")
	p.node("n1")
	p.node("n2")

	wire := &struct {
		sync.Mutex
		repairs []string
	}{}
	var publisher *Publisher
	client, err := kube.New(kube.Options{
		Kubeconfig: p.daemonOf("n1"), Node: "n1",
		OnFacts: func(context.Context, policy.PodFacts) {}, OnLent: func(n kube.LentNode) {
			publisher.Observe(n)
		}, OnBatch: func() { publisher.Changed() },
	})
	if err != nil {
		t.Fatal(err)
	}
	server := NewServer(client.REST)
	t.Run("the policy", func(t *testing.T) {
		// It takes a moment until policies are in force.
		p.within("the daemon of n1 may not write n2", func() bool {
			_, err := server.PatchNode(t.Context(), "n2",
				[]byte(`{"status":{"capacity":{"quietcore.dev/batch-cpu":"1"}}}`))
			return err != nil
		})
		for _, c := range []struct{ name, patch, want string }{
			{"CPUs", `{"status":{"capacity":{"cpu":"64"}}}`, "batch-cpu only"},
			{"a resource less", `{"status":{"allocatable":{"cpu":null}}}`, "batch-cpu only"},
			{"a resource more", `{"status":{"allocatable":{"example.com/gpu":"4"}}}`, "batch-cpu only"},
			{"conditions", `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`,
				"capacity and allocatable only"},
			{"conditions taken away", `{"status":{"conditions":null}}`, "capacity and allocatable only"},
			{"a label", `{"metadata":{"labels":{"zone":"b"}}}`, "quietcore.dev/lending only"},
			{"an annotation", `{"metadata":{"annotations":{"theirs":"changed"}}}`, "quietcore.dev/lending only"},
			{"an annotation taken away", `{"metadata":{"annotations":{"theirs":null}}}`, "quietcore.dev/lending only"},
			{"an annotation more", `{"metadata":{"annotations":{"volumes":"x"}}}`, "quietcore.dev/lending only"},
			{"what is allowed",
				`{"metadata":{"annotations":{"quietcore.dev/lending":"x"}},` +
					`"status":{"capacity":{"quietcore.dev/batch-cpu":"1","kubernetes.io/batch-cpu":"1"}}}`, ""},
			{"and back",
				`{"metadata":{"annotations":{"quietcore.dev/lending":null}},` +
					`"status":{"capacity":{"quietcore.dev/batch-cpu":null,"kubernetes.io/batch-cpu":null}}}`, ""},
		} {
			_, err := server.PatchNode(t.Context(), "n1", []byte(c.patch))
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s: got %v, want %q", c.name, err, c.want)
			}
		}
	})

	t.Run("published", func(t *testing.T) {
		publisher = New(Options{API: server, Node: "n1", Bound: client.Batch, RaiseEvery: time.Millisecond,
			Repaired: func(cause string) {
				wire.Lock()
				defer wire.Unlock()
				wire.repairs = append(wire.repairs, cause)
			}})
		ctx, cancel := context.WithCancel(t.Context())
		var parts sync.WaitGroup
		defer parts.Wait()
		defer cancel()
		parts.Go(func() { client.Run(ctx) })
		parts.Go(func() { publisher.Run(ctx) })
		says := func() string {
			return p.get("/api/v1/nodes/n1", "status", "capacity", kube.BatchResource) + "/" +
				p.get("/api/v1/nodes/n1", "status", "allocatable", kube.BatchResource)
		}
		publisher.Offer(8000)
		p.within("8 CPUs are published", func() bool { return says() == "8k/8k" })
		publisher.Offer(2500)
		p.within("2.5 CPUs are published", func() bool { return says() == "2500/2500" })
		p.pod("big", "4000")
		p.within("what a pod requests is covered", func() bool { return says() == "4k/4k" })
		began := time.Now()
		p.merge("/api/v1/nodes/n1/status",
			`{status: {capacity: {quietcore.dev/batch-cpu: "0"}, allocatable: {quietcore.dev/batch-cpu: "0"}}}`)
		p.within("zeroes are repaired", func() bool { return says() == "4k/4k" })
		t.Logf("zeroes were repaired %s after they were written", time.Since(began).Round(time.Millisecond))
		wire.Lock()
		if diff := cmp.Diff([]string{CauseZeroed}, wire.repairs); diff != "" {
			t.Errorf("repairs: %s", diff)
		}
		wire.Unlock()
		publisher.Withdraw()
		p.within("nothing is published", func() bool { return says() == "/" })
		if got := p.get("/api/v1/nodes/n1", "metadata", "annotations"); got != "map[theirs:stays]" {
			t.Errorf("the annotations are %s in the end", got)
		}
		if got := p.get("/api/v1/nodes/n1", "status", "allocatable", "cpu"); got != "15" {
			t.Errorf("the Node has %s CPUs in the end", got)
		}
	})

	t.Run("evicted", func(t *testing.T) {
		e := NewEvictor(EvictorOptions{API: server, Burst: 10})
		free, guarded, twice := p.pod("free", "1"), p.pod("guarded", "1"), p.pod("twice", "1")
		for name, app := range map[string]string{"g": "guarded", "t1": "twice", "t2": "twice"} {
			p.create("/apis/policy/v1/namespaces/default/poddisruptionbudgets",
				fmt.Sprintf("{metadata: {name: %s}, spec: {minAvailable: 1, selector: {matchLabels: {app: %s}}}}",
					name, app))
			p.merge("/apis/policy/v1/namespaces/default/poddisruptionbudgets/"+name+"/status",
				`{status: {observedGeneration: 1, currentHealthy: 1, desiredHealthy: 1, expectedPods: 1, `+
					`disruptionsAllowed: 0}}`)
		}
		path := "/api/v1/namespaces/default/pods/"
		wrong := free
		wrong.UID = "00000000-0000-0000-0000-000000000000"
		expect := func(pod Pod, want string) {
			t.Helper()
			err := e.Evict(t.Context(), pod, why)
			var failed *EvictError
			switch {
			case want == Evicted:
				if err != nil {
					t.Errorf("%s: %v", pod, err)
				}
			case !errors.As(err, &failed) || failed.Result != want:
				t.Errorf("%s: got %v, want %s", pod, err, want)
			default:
				t.Logf("%s: %s: %v", pod, failed.Result, err)
			}
		}
		expect(wrong, Gone)
		if got := p.get(path+"free", "metadata", "deletionTimestamp"); got != "" {
			t.Errorf("a pod that was not meant ends at %s", got)
		}
		expect(free, Evicted)
		if got := p.get(path+"free", "metadata", "deletionTimestamp"); got == "" {
			t.Error("an evicted pod does not end")
		}
		if got := p.get(path+"free", "status", "conditions"); !strings.Contains(got, "EvictionByEvictionAPI") {
			t.Errorf("the pod's conditions are %s", got)
		}
		expect(guarded, Blocked)
		expect(twice, Blocked)
	})
}
