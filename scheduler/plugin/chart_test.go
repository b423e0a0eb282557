package plugin

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api/v1"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // as the program does
	"k8s.io/klog/v2"
	kubeoptions "k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/validation"
	"sigs.k8s.io/yaml"

	"github.com/quietcore/quietcore/policy"
)

const (
	// asScheduler makes the test's program the scheduler's.
	asScheduler   = "QUIETCORE_TEST_AS_SCHEDULER"
	schedulerUser = "quietcore-scheduler"
	// What the chart installs, as hack/chart renders it.
	chartRules  = "../../charts/quietcore/files/scheduler-rules.yaml"
	chartConfig = "../../hack/chart/testdata/scheduler-config.yaml"
	chartArgs   = "../../hack/chart/testdata/scheduler-args.txt"
	// leaseSpace is where they have the lease.
	leaseSpace = "quietcore-system"
)

// grant gives the scheduler the rights that the chart gives it.
func (s *server) grant() error {
	text, err := os.ReadFile(chartRules)
	if err != nil {
		return err
	}
	role := rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: schedulerUser}}
	if err := yaml.UnmarshalStrict(text, &role.Rules); err != nil {
		return err
	}
	lease := []rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "update"},
			ResourceNames: []string{schedulerUser}},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
	}
	// It may patch pods where it annotates before another plugin binds: may gives that.
	patch := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"patch"}}}
	ctx, create := context.Background(), metav1.CreateOptions{}
	rbac := s.client.RbacV1()
	who := []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: schedulerUser}}
	meta := metav1.ObjectMeta{Name: schedulerUser}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: schedulerUser}
	if _, err := rbac.ClusterRoles().Create(ctx, &role, create); err != nil {
		return err
	}
	if _, err := rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: prebind},
		Rules: patch}, create); err != nil {
		return err
	}
	if _, err := rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: who,
		RoleRef: ref}, create); err != nil {
		return err
	}
	if _, err := s.client.CoreV1().Namespaces().Create(ctx,
		&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: leaseSpace}}, create); err != nil {
		return err
	}
	if _, err := rbac.Roles(leaseSpace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: lease}, create); err != nil {
		return err
	}
	ref.Kind = "Role"
	_, err = rbac.RoleBindings(leaseSpace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: who,
		RoleRef: ref}, create)
	return err
}

const prebind = schedulerUser + "-prebind"

// may is the client of a scheduler with these arguments.
func (s *server) may(t testing.TB, a Args) kubernetes.Interface {
	t.Helper()
	bindings := s.client.RbacV1().ClusterRoleBindings()
	if a.Annotate != TellPreBind {
		return s.own
	}
	_, err := bindings.Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: prebind},
		Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: schedulerUser}},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: prebind}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bindings.Delete(context.Background(), prebind, metav1.DeleteOptions{}) })
	return s.own
}

// TestTheChartsFile: kube-scheduler takes the file that the chart writes, and a profile of it has the
// plugin with its arguments.
func TestTheChartsFile(t *testing.T) {
	cfg, err := kubeoptions.LoadConfigFromFile(klog.Background(), chartConfig)
	if err != nil {
		t.Fatal(err)
	}
	if err := validation.ValidateKubeSchedulerConfiguration(cfg); err != nil {
		t.Error(err)
	}
	profile := cfg.Profiles[0]
	if profile.Plugins.Bind.Enabled[0].Name != Name || !cfg.LeaderElection.LeaderElect {
		t.Errorf("the file says %+v", cfg)
	}
	for _, c := range profile.PluginConfig {
		if c.Name == Name {
			if _, err := readArgs(c.Args); err != nil {
				t.Error(err)
			}
			return
		}
	}
	t.Errorf("nothing is for the plugin: %+v", profile.PluginConfig)
}

// TestAsTheChartInstallsIt runs the program with the chart's arguments, file and rights on a real API
// server: it binds a pod, asks for nothing that it may not, and its port answers to what
// may be asked without a name, and to nothing else.
func TestAsTheChartInstallsIt(t *testing.T) {
	s := realServer(t)
	if s == nil {
		return // the file is read above; rights are an API server's
	}
	s.clear(t)
	program := s.startProgram(t, s.theirs.Host)
	log := program.log
	machine := ledgers(t)[0]
	amount := v1.ResourceList{v1.ResourceCPU: resource.MustParse("256"), v1.ResourceMemory: resource.MustParse("1Ti"),
		v1.ResourcePods: resource.MustParse("500")}
	ctx := t.Context()
	if _, err := s.client.CoreV1().Nodes().Create(ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-0"},
		Status: v1.NodeStatus{Capacity: amount, Allocatable: amount}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, ctx: ctx, server: s}
	s.publish(w, "node-0", machine)
	pod := w.object("owner", "LSR", "4")
	pod.Spec.SchedulerName = schedulerUser
	pod.UID = ""
	if _, err := s.client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute)
	for {
		got, err := s.client.CoreV1().Pods("default").Get(ctx, "owner", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got.Spec.NodeName == "node-0" && got.Annotations[policy.AnnStatus] != "" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the pod is on %q with %v\n%s", got.Spec.NodeName, got.Annotations, log())
		}
		time.Sleep(100 * time.Millisecond)
	}
	for path, want := range map[string]int{"/livez": 200, "/readyz": 200, "/metrics": 200, "/configz": 403,
		"/debug/pprof/": 403, "/statusz": 403} {
		code, body := ask(t, program.port, path)
		if code != want {
			t.Errorf("%s answers %d, want %d", path, code, want)
		}
		if path != "/metrics" {
			continue
		}
		// What rules and dashboards ask for.
		for _, series := range []string{`quietcore_scheduler_refusals_total{ledger="same"} 0`,
			`leader_election_master_status{name="kube-scheduler"} 1`, `scheduler_pending_pods{`,
			`scheduler_schedule_attempts_total{profile="quietcore-scheduler",result="scheduled"} 1`} {
			if !strings.Contains(body, "\n"+series) {
				t.Errorf("%s is not among its metrics", series)
			}
		}
	}
	events, err := s.client.EventsV1().Events("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(events.Items, func(e eventsv1.Event) bool { return e.Reason == "Scheduled" }) {
		t.Errorf("no Event says that the pod was scheduled: %v", events.Items)
	}
	if text := log(); strings.Contains(text, "forbidden") || strings.Contains(text, "cannot ") {
		t.Errorf("it lacks rights:\n%s", text)
	}
}

// program is a scheduler in a process of its own.
type program struct {
	port int
	log  func() string
	kill func() // as kill -9 does; any number of times
}

// startProgram runs the scheduler as the chart does, but for where its file, port and API server are.
func (s *server) startProgram(t *testing.T, host string) program {
	t.Helper()
	// It need not wait until the lease of one that was killed is over.
	err := s.client.CoordinationV1().Leases(leaseSpace).Delete(t.Context(), schedulerUser, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name string, what any) string {
		text, err := yaml.Marshal(what)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, name)
	}
	text, err := os.ReadFile(chartConfig)
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := yaml.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	config["clientConnection"].(map[string]any)["kubeconfig"] = write("kubeconfig", clientcmdapi.Config{
		CurrentContext: "x",
		Contexts: []clientcmdapi.NamedContext{{Name: "x",
			Context: clientcmdapi.Context{Cluster: "x", AuthInfo: "x"}}},
		Clusters: []clientcmdapi.NamedCluster{{Name: "x", Cluster: clientcmdapi.Cluster{Server: host,
			InsecureSkipTLSVerify: true}}},
		AuthInfos: []clientcmdapi.NamedAuthInfo{{Name: "x",
			AuthInfo: clientcmdapi.AuthInfo{Token: s.theirs.BearerToken}}},
	})
	lines, err := os.ReadFile(chartArgs)
	if err != nil {
		t.Fatal(err)
	}
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	args := strings.Fields(strings.NewReplacer("/etc/quietcore-scheduler/config.yaml", write("config.yaml", config),
		"--secure-port=10259", fmt.Sprintf("--secure-port=%d", port)).Replace(string(lines)))
	file, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(os.Args[0], append(args, "--bind-address=127.0.0.1")...)
	c.Env = append(os.Environ(), asScheduler+"=1")
	c.Stdout, c.Stderr = file, file
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	kill := sync.OnceFunc(func() { _ = c.Process.Kill(); _ = c.Wait() })
	t.Cleanup(kill)
	return program{port: port, kill: kill, log: func() string {
		text, _ := os.ReadFile(file.Name())
		return string(text)
	}}
}

// ask asks as anybody may who reaches the port.
func ask(t *testing.T, port int, path string) (code int, body string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
		Timeout: 10 * time.Second}
	r, err := client.Get(fmt.Sprintf("https://127.0.0.1:%d%s", port, path))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(text)
}
