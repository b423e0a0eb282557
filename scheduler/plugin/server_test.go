package plugin

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"sigs.k8s.io/yaml"
)

// binaries names the folder with etcd and kube-apiserver. Without it the scenarios are played
// on an API server in memory.
const binaries = "QUIETCORE_CONTROL_PLANE"

// server is a real API server, and its nodes' kubelets.
type server struct {
	dir     string
	config  *rest.Config // of who may do everything
	client  kubernetes.Interface
	objects dynamic.Interface
	// The scheduler's own, with the rights that the chart gives it.
	theirs *rest.Config
	own    kubernetes.Interface
}

// running is the server of all tests of a run: it takes some seconds to start.
var running struct {
	sync.Once
	server   *server
	err      error
	children []*exec.Cmd
	dir      string
}

func TestMain(m *testing.M) {
	if os.Getenv(asScheduler) != "" {
		os.Exit(cli.Run(app.NewSchedulerCommand(app.WithPlugin(Name, New))))
	}
	code := m.Run()
	for _, c := range running.children {
		_ = c.Process.Kill()
		_ = c.Wait()
	}
	if running.dir != "" {
		_ = os.RemoveAll(running.dir)
	}
	os.Exit(code)
}

// realServer is nil where none is asked for.
func realServer(t *testing.T) *server {
	t.Helper()
	bin := os.Getenv(binaries)
	if bin == "" {
		return nil
	}
	running.Do(func() { running.server, running.err = startServer(bin) })
	if running.err != nil {
		t.Fatal(running.err)
	}
	return running.server
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func startServer(bin string) (*server, error) {
	dir, err := os.MkdirTemp("", "quietcore-scheduler-")
	if err != nil {
		return nil, err
	}
	running.dir = dir
	var ports [3]int
	for i := range ports {
		if ports[i], err = freePort(); err != nil {
			return nil, err
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	keyFile, tokens := filepath.Join(dir, "accounts.key"), filepath.Join(dir, "tokens.csv")
	const token, theirs = "scenario", "scheduler"
	for file, text := range map[string][]byte{
		keyFile: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}),
		tokens:  []byte(token + ",admin,1,system:masters\n" + theirs + "," + schedulerUser + ",2\n"),
	} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return nil, err
		}
	}
	client, peer := fmt.Sprintf("http://127.0.0.1:%d", ports[0]), fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	for _, args := range [][]string{
		{"etcd", "--data-dir=" + filepath.Join(dir, "etcd"), "--unsafe-no-fsync", "--log-level=error",
			"--listen-client-urls=" + client, "--advertise-client-urls=" + client, "--listen-peer-urls=" + peer,
			"--initial-advertise-peer-urls=" + peer, "--initial-cluster=default=" + peer},
		{"kube-apiserver", "--etcd-servers=" + client, "--cert-dir=" + dir, "--bind-address=127.0.0.1",
			fmt.Sprintf("--secure-port=%d", ports[2]), "--service-cluster-ip-range=10.96.0.0/24",
			"--authorization-mode=RBAC", "--token-auth-file=" + tokens,
			"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + keyFile,
			"--service-account-signing-key-file=" + keyFile,
			"--disable-admission-plugins=ServiceAccount,TaintNodesByCondition,Priority"},
	} {
		log, err := os.Create(filepath.Join(dir, args[0]+".log"))
		if err != nil {
			return nil, err
		}
		c := exec.Command(filepath.Join(bin, args[0]), args[1:]...)
		c.Stdout, c.Stderr = log, log
		if err := c.Start(); err != nil {
			return nil, err
		}
		running.children = append(running.children, c)
	}
	s := &server{dir: dir, config: &rest.Config{Host: fmt.Sprintf("https://127.0.0.1:%d", ports[2]), BearerToken: token,
		QPS: 5000, Burst: 5000, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}}
	s.theirs = rest.CopyConfig(s.config)
	qps := sizeFrom("QUIETCORE_QPS", 5000) // kube-scheduler's own default is 50, and twice that at once
	s.theirs.QPS, s.theirs.Burst = float32(qps), 2*qps
	s.theirs.BearerToken = theirs
	if err := s.ready(dir); err != nil {
		return nil, err
	}
	return s, s.grant()
}

func (s *server) ready(dir string) (err error) {
	if s.client, err = kubernetes.NewForConfig(s.config); err != nil {
		return err
	}
	if s.objects, err = dynamic.NewForConfig(s.config); err != nil {
		return err
	}
	if s.own, err = kubernetes.NewForConfig(s.theirs); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	for {
		if err = s.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err == nil {
			break
		}
		if ctx.Err() != nil {
			log, _ := os.ReadFile(filepath.Join(dir, "kube-apiserver.log"))
			return fmt.Errorf("the API server is not ready: %w\n%s", err, log[max(len(log)-2000, 0):])
		}
		time.Sleep(200 * time.Millisecond)
	}
	text, err := os.ReadFile("../../charts/quietcore/files/noderesourcetopologies.yaml")
	if err != nil {
		return err
	}
	var crd unstructured.Unstructured
	if err := yaml.Unmarshal(text, &crd.Object); err != nil {
		return err
	}
	gvr := topologies()
	gvr.Group, gvr.Version, gvr.Resource = "apiextensions.k8s.io", "v1", "customresourcedefinitions"
	if _, err := s.objects.Resource(gvr).Create(ctx, &crd, metav1.CreateOptions{}); err != nil {
		return err
	}
	for ctx.Err() == nil {
		if _, err = s.objects.Resource(topologies()).List(ctx, metav1.ListOptions{}); err == nil {
			return nil
		}
		time.Sleep(200 * time.Millisecond)
	}
	return err
}

// clear leaves nothing of the test before.
func (s *server) clear(t *testing.T) {
	t.Helper()
	ctx, now := t.Context(), int64(0)
	o, all := metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{}
	if err := s.client.CoreV1().Pods("default").DeleteCollection(ctx, o, all); err != nil {
		t.Fatal(err)
	}
	if err := s.client.CoreV1().Nodes().DeleteCollection(ctx, o, all); err != nil {
		t.Fatal(err)
	}
	if err := s.objects.Resource(topologies()).DeleteCollection(ctx, o, all); err != nil {
		t.Fatal(err)
	}
}

// publish writes what a node says of itself.
func (s *server) publish(w *world, name string, annotations map[string]string) {
	body, err := json.Marshal(map[string]any{"apiVersion": "topology.node.k8s.io/v1alpha2",
		"kind": "NodeResourceTopology", "metadata": map[string]any{"name": name, "annotations": annotations},
		"topologyPolicies": []string{"None"}, "zones": []any{}})
	if err == nil {
		force := true
		_, err = s.objects.Resource(topologies()).Patch(w.ctx, name, types.ApplyPatchType, body,
			metav1.PatchOptions{FieldManager: "quietcore", Force: &force})
	}
	if err != nil && w.ctx.Err() == nil {
		w.t.Errorf("publish %s: %v", name, err)
	}
}

// follow is the kubelets of all nodes: pods that are bound start, those that are deleted end.
func (s *server) follow(w *world) {
	pods := s.client.CoreV1().Pods("default")
	events, err := pods.Watch(w.ctx, metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(events.Stop)
	go func() {
		for e := range events.ResultChan() {
			pod, ok := e.Object.(*v1.Pod)
			if !ok || e.Type == watch.Deleted || pod.Spec.NodeName == "" {
				continue
			}
			w.mu.Lock()
			here, n := w.bound[pod.Name] != "", w.nodes[pod.Spec.NodeName]
			w.mu.Unlock()
			switch {
			case n == nil:
			case pod.DeletionTimestamp != nil && here:
				_ = w.end(pod.Name) // it may be gone by now
			case pod.DeletionTimestamp == nil && !here:
				w.arrive(pod)
			}
		}
	}()
}
