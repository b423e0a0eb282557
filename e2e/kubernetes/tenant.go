package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/quietcore/quietcore/e2e/kubelet"
	"github.com/quietcore/quietcore/e2e/kubernetes/cluster"
)

// tenantNamespace is one that may not claim anything; the tenant may do there what
// Kubernetes' own role edit allows.
const (
	tenantNamespace = "tenant"
	tenantUser      = "mallory"
	statusKey       = "scheduling.koordinator.sh/resource-status"
	classLabel      = "koordinator.sh/qosClass"
)

// tenant: a user without the right to CPUs of their own is refused by the API server,
// and by the node if the API server was not asked.
func tenant(ctx context.Context, b *bench) ([]figure, error) {
	config := map[string]any{"authority": map[string]any{
		"exclusive": map[string]any{"namespaces": []string{namespace}}}}
	policies := map[string]any{"admissionPolicies": map[string]any{
		"claims": map[string]any{"enabled": true, "workloads": "Deny"}, "frozen": map[string]any{"enabled": true}}}
	if err := b.deploy(ctx, firstTag, config, policies); err != nil {
		return nil, err
	}
	mallory, err := b.tenantAPI(ctx)
	if err != nil {
		return nil, err
	}
	if err := b.Patch(ctx, "/api/v1/namespaces/"+namespace, map[string]any{"metadata": map[string]any{
		"labels": map[string]any{"quietcore.dev/exclusive": "allowed"}}}); err != nil {
		return nil, err
	}
	// The API server's policies read the namespace from a cache, which a label reaches a moment later.
	lsr := owner("lsr", "LSR", 2)
	lsr.Namespace = namespace
	if err := cluster.Until(ctx, refusalLimit, func(ctx context.Context) error {
		return b.Create(ctx, cluster.PodsPath(namespace)+"?dryRun=All", cluster.PodObject(lsr), nil)
	}); err != nil {
		return nil, fmt.Errorf("namespace %s may claim exclusive CPUs: %w", namespace, err)
	}
	victims, err := b.startAll(ctx, lsr, burstable("web"))
	if err != nil {
		return nil, err
	}
	before, err := b.place(ctx, victims...)
	if err != nil {
		return nil, err
	}
	figures, err := b.attacks(ctx, mallory)
	if err != nil {
		return figures, err
	}
	if err := b.reach(ctx, victims); err != nil {
		return figures, err
	}
	figures = append(figures, figure{Name: "from the tenant's pod",
		Value: "no page, no socket, no pod's name in the metrics, no command in the daemon's pod"})
	line, err := b.attackTheNode(ctx)
	if err != nil {
		return figures, err
	}
	figures = append(figures, figure{Name: "claim past the API server", Value: line})
	now, err := b.place(ctx, victims...)
	return figures, errors.Join(err, before.Moved(now), b.DeletePods(ctx, tenantNamespace))
}

func (b *bench) tenantAPI(ctx context.Context) (*cluster.API, error) {
	if err := b.EnsureNamespace(ctx, tenantNamespace, nil); err != nil {
		return nil, err
	}
	bindings := "/apis/rbac.authorization.k8s.io/v1/namespaces/" + tenantNamespace + "/rolebindings"
	err := b.Create(ctx, bindings, map[string]any{
		"metadata": map[string]any{"name": tenantUser},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
		"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": tenantUser}},
	}, nil)
	if err != nil && !cluster.Refused(err, 409) {
		return nil, err
	}
	return b.As(tenantUser)
}

// attack is something that a tenant must not get away with.
type attack struct {
	name string
	do   func(context.Context, *cluster.API) error
	says string // part of the refusal
}

func (b *bench) attacks(ctx context.Context, mallory *cluster.API) ([]figure, error) {
	pods := cluster.PodsPath(tenantNamespace)
	// Policies take effect a moment after they were created.
	probe := tenantPod("probe", withClass("LSE"))
	if err := cluster.Until(ctx, refusalLimit, func(ctx context.Context) error {
		err := mallory.Create(ctx, pods+"?dryRun=All", probe, nil)
		if cluster.Refused(err, 403) || cluster.Refused(err, 422) {
			return nil
		}
		return fmt.Errorf("the claim of a class is not refused yet: %w", err)
	}); err != nil {
		return nil, err
	}
	innocent := tenantPod("innocent", func(*kubelet.Pod) {})
	if err := mallory.Create(ctx, pods, innocent, nil); err != nil {
		return nil, fmt.Errorf("a pod that claims nothing: %w", err)
	}
	if _, err := b.WaitRunning(ctx, tenantNamespace, "innocent"); err != nil {
		return nil, err
	}
	var shown []figure
	for _, a := range tenantAttacks(innocent["spec"]) {
		err := a.do(ctx, mallory)
		if !cluster.Refused(err, 403) && !cluster.Refused(err, 422) || !strings.Contains(fmt.Sprint(err), a.says) {
			return shown, fmt.Errorf("%s: want a refusal that speaks of %q, got: %w", a.name, a.says, err)
		}
		var refusal *cluster.StatusError
		if errors.As(err, &refusal) {
			shown = append(shown, figure{Name: a.name, Value: refusal.Message})
		}
	}
	return shown, nil
}

// tenantPod is a pod of the tenant's.
func tenantPod(name string, change func(*kubelet.Pod)) map[string]any {
	k := burstable(name)
	k.Namespace = tenantNamespace
	change(k)
	return cluster.PodObject(k)
}

func withClass(class string) func(*kubelet.Pod) {
	return func(k *kubelet.Pod) { k.Labels = map[string]string{classLabel: class} }
}

// tenantAttacks are requests that a tenant must be refused. podSpec is one that it may have.
func tenantAttacks(podSpec any) []attack {
	pods := cluster.PodsPath(tenantNamespace)
	create := func(object map[string]any) func(context.Context, *cluster.API) error {
		return func(ctx context.Context, api *cluster.API) error { return api.Create(ctx, pods, object, nil) }
	}
	patch := func(path string, meta map[string]any) func(context.Context, *cluster.API) error {
		return func(ctx context.Context, api *cluster.API) error {
			return api.Patch(ctx, path, map[string]any{"metadata": meta})
		}
	}
	forged := map[string]string{statusKey: `{"cpuset":"0-7"}`}
	deployment := map[string]any{"metadata": map[string]any{"name": "many"}, "spec": map[string]any{
		"selector": map[string]any{"matchLabels": map[string]any{"app": "many"}},
		"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "many",
			classLabel: "LSR"}}, "spec": podSpec}}}
	return []attack{
		{"class LSE", create(tenantPod("lse", withClass("LSE"))), "exclusive"},
		{"class LSR", create(tenantPod("lsr", withClass("LSR"))), "exclusive"},
		{"class SYSTEM", create(tenantPod("system", withClass("SYSTEM"))), "SYSTEM"},
		{"class in another case", create(tenantPod("case", withClass("lse"))), "qosClass"},
		{"forged resource-status", create(tenantPod("forged", func(k *kubelet.Pod) {
			k.Annotations = forged
		})), "resource-status"},
		{"exemption from caps", create(tenantPod("exempt", func(k *kubelet.Pod) {
			k.Annotations = map[string]string{"quietcore.dev/cap": "exempt"}
		})), "cap"},
		// One that may be claimed: of two policies that refuse, the answer may name either.
		{"class given to a running pod", patch(pods+"/innocent",
			map[string]any{"labels": map[string]any{classLabel: "BE"}}), classLabel},
		{"resource-status given to a running pod", patch(pods+"/innocent", map[string]any{"annotations": forged}),
			"resource-status"},
		{"class given through the status", patch(pods+"/innocent/status",
			map[string]any{"labels": map[string]any{classLabel: "LSE"}}), ""},
		{"Deployment of owners", func(ctx context.Context, api *cluster.API) error {
			return api.Create(ctx, "/apis/apps/v1/namespaces/"+tenantNamespace+"/deployments", deployment, nil)
		}, "exclusive"},
		{"label on the own namespace", patch("/api/v1/namespaces/"+tenantNamespace,
			map[string]any{"labels": map[string]any{"quietcore.dev/exclusive": "allowed"}}), ""},
		{"label on the Node", patch("/api/v1/nodes/"+cluster.NodeName,
			map[string]any{"labels": map[string]any{bindPolicy: "FullPCPUsOnly"}}), ""},
		{"NodeResourceTopology of the node", func(ctx context.Context, api *cluster.API) error {
			return api.Delete(ctx, topologies+"/"+cluster.NodeName)
		}, ""},
	}
}

// attackTheNode puts an owner of the tenant's namespace into kubelet's directory of
// static pods, past the API server's policies. The node itself refuses it.
func (b *bench) attackTheNode(ctx context.Context) (string, error) {
	k := owner("smuggled", "LSE", 2)
	k.Namespace = tenantNamespace
	if err := b.writeManifest(ctx, k); err != nil {
		return "", err
	}
	line, err := b.describeRefusal(ctx, tenantNamespace, k.Name+"-"+cluster.NodeName, "FailedCreatePodSandBox",
		"Unauthorized")
	return line, errors.Join(err, b.removeManifest(ctx, k.Name))
}

// reach is what a tenant's pod can reach of the daemon: its metrics, which name no
// other user's pods, and nothing else.
func (b *bench) reach(ctx context.Context, others []*cluster.Pod) error {
	daemon, err := b.daemonPod(ctx)
	if err != nil {
		return err
	}
	if daemon.Status.PodIP == "" {
		return fmt.Errorf("pod %s has no address", daemon.Key())
	}
	kubeconfig, err := b.UserKubeconfig(tenantUser)
	if err != nil {
		return err
	}
	exec := func(namespace, pod string, command ...string) (string, error) {
		out, err := runAs(ctx, b.KubectlPath(), append([]string{"--kubeconfig", kubeconfig, "exec", "-n", namespace,
			pod,
			"--"}, command...)...)
		return string(out), err
	}
	inside := func(command ...string) (string, error) {
		return exec(tenantNamespace, "innocent", append([]string{"/bin/busybox"}, command...)...)
	}
	get := func(port int) (string, error) {
		// Its wget needs name services, which the image has none of. A client that closes its side
		// counts as gone, so it must wait.
		return inside("sh", "-c",
			fmt.Sprintf(`(printf 'GET /metrics HTTP/1.0\r\n\r\n'; /bin/busybox sleep 5) | /bin/busybox nc %s %d`,
				daemon.Status.PodIP, port))
	}
	// Neither plain text nor anything else without a token that the API server allows.
	text, err := get(metricsPort)
	if err != nil || !strings.Contains(text, "400 Bad Request") || strings.Contains(text, "quietcore_") {
		return errors.Join(fmt.Errorf("the daemon's metrics, asked for by a tenant's pod: want HTTP 400, got %.300q",
			text), err)
	}
	if text, err := get(pagePort); err == nil || !strings.Contains(err.Error(), "refused") {
		return errors.Join(fmt.Errorf("the page, asked for by a tenant's pod: want a connection refused, got %.300q",
			text), err)
	}
	for _, dir := range []string{"/run/quietcore", "/var/run/nri", "/run/systemd", "/var/lib/quietcore"} {
		if text, err := inside("ls", dir); err == nil || !strings.Contains(err.Error(), "No such file") {
			return errors.Join(fmt.Errorf("%s in a tenant's pod: %q", dir, text), err)
		}
	}
	if text, err := exec(release, daemon.Metadata.Name, "/quietcore", "status"); err == nil ||
		!strings.Contains(err.Error(), "orbidden") {
		return errors.Join(fmt.Errorf("a tenant runs a command in the daemon's pod: %q", text), err)
	}
	return nil
}

// Ports of the daemon's metrics and of its page, by default.
const (
	metricsPort = 9464
	pagePort    = 9465
)
