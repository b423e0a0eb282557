package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"sigs.k8s.io/yaml"

	"github.com/quietcore/quietcore/e2e/kubelet"
	"github.com/quietcore/quietcore/e2e/kubernetes/cluster"
	"github.com/quietcore/quietcore/e2e/machine"
)

const (
	// secondName is of the second node.
	secondName = "guest-2"
	// ours is the scheduler's name in a pod's spec, and its user at the API server.
	ours  = "quietcore-scheduler"
	stock = "default-scheduler"

	specKey       = "scheduling.koordinator.sh/resource-spec"
	numaKey       = "scheduling.koordinator.sh/numa-topology-spec"
	smtKey        = "quietcore.dev/smt"
	ledgerKey     = "quietcore.dev/ledger"
	refusedByNode = "quietcore.dev/RefusedByNode"
)

// schedulerFiles are those of the chart that a scheduler needs, and the object that nodes publish.
const (
	schedulerRules = "charts/quietcore/files/scheduler-rules.yaml"
	topologyCRD    = "charts/quietcore/files/noderesourcetopologies.yaml"
)

// pair is a cluster of two nodes with daemons that trust quietcore-scheduler, which runs here, beside
// the stock one.
type pair struct {
	*bench
	nodes map[string]*cluster.Node
	out   []figure
}

// scheduler: pods go where their node takes them, on the CPUs that they were told; the stock
// scheduler sends such pods to nodes that refuse them. With two kubelets and daemons in two guests.
func scheduler(ctx context.Context, b *bench) ([]figure, error) {
	p := &pair{bench: b, nodes: map[string]*cluster.Node{cluster.NodeName: b.node}}
	err := p.open(ctx)
	for _, step := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"a node without a whole free core", p.wholeCores},
		{"one NUMA node", p.oneNUMANode},
		{"another scheduler, and a tenant's own resource-status", p.others},
		{"the node's choice and the scheduler's", p.sameChoice},
		{"random pods", p.random},
	} {
		if err != nil {
			break
		}
		b.say("%s", step.name)
		if err = step.run(ctx); err != nil {
			err = fmt.Errorf("%s: %w", step.name, err)
			break
		}
		err = p.empty(ctx)
	}
	return p.out, errors.Join(err, p.close(context.WithoutCancel(ctx)))
}

func (p *pair) note(name, format string, args ...any) {
	f := figure{Name: name, Value: fmt.Sprintf(format, args...)}
	p.say("  %s: %s", f.Name, f.Value)
	p.out = append(p.out, f)
}

// open makes the second node and starts the scheduler.
func (p *pair) open(ctx context.Context) error {
	if _, err := p.Kubectl(ctx, "", "apply", "-f", topologyCRD); err != nil {
		return err
	}
	n, err := p.Join(ctx, secondName, machine.Options{Grid: grid, Driver: kubelet.Driver(p.options.Driver),
		Cache: p.options.Cache, Progress: p.stderr,
		Files: map[string]string{strings.TrimPrefix(daemonBinary, "/"): p.binary}}, nil)
	if err != nil {
		return err
	}
	p.nodes[secondName] = n
	p.say("the second guest answered after %.1f s, the node is ready %.1f s after kubelet's start",
		n.Booted.Seconds(), n.Ready.Seconds())
	if err := p.killDaemon(ctx); err != nil {
		return err
	}
	trust := map[string]any{"authority": map[string]any{"resourceStatus": "trust",
		"wholeCores": map[string]any{"namespaces": []string{namespace}}}}
	for _, n := range p.nodes {
		if err := p.startDaemonOn(ctx, n, trust); err != nil {
			return err
		}
	}
	if err := p.startScheduler(ctx); err != nil {
		return err
	}
	return p.free(ctx)
}

// startScheduler runs it as the chart does, with the chart's rights, but for the lease.
func (p *pair) startScheduler(ctx context.Context) error {
	program, err := p.buildScheduler(ctx)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(schedulerRules)
	if err != nil {
		return err
	}
	var rules []any
	if err := yaml.Unmarshal(text, &rules); err != nil {
		return err
	}
	if err := p.bind(ctx, ours, rules); err != nil {
		return err
	}
	client, err := p.UserKubeconfig(ours)
	if err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
		"clientConnection": map[string]any{"kubeconfig": client},
		"leaderElection":   map[string]any{"leaderElect": false},
		"profiles": []any{map[string]any{"schedulerName": ours, "plugins": map[string]any{
			"multiPoint": map[string]any{"enabled": []any{map[string]any{"name": "Quietcore", "weight": 100}}},
			"bind":       map[string]any{"enabled": []any{map[string]any{"name": "Quietcore"}}},
		}}},
	})
	if err != nil {
		return err
	}
	file := filepath.Join(p.Dir(), ours+".json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return err
	}
	return p.Run(program, "--config="+file, "--secure-port=0")
}

// close leaves the cluster as it was; the scheduler ends with the control plane.
func (p *pair) close(ctx context.Context) error {
	err := p.DeletePods(ctx, namespace)
	if n := p.nodes[secondName]; n != nil {
		err = errors.Join(err, n.Close(), p.Delete(ctx, "/api/v1/nodes/"+secondName),
			p.Delete(ctx, topologies+"/"+secondName))
	}
	return errors.Join(err, p.node.Signal(ctx, machine.Daemon, int(syscall.SIGKILL)))
}

// empty removes all pods, and returns when the nodes say so.
func (p *pair) empty(ctx context.Context) error {
	if err := p.DeletePods(ctx, namespace); err != nil {
		return err
	}
	return p.free(ctx)
}

// free waits until both nodes publish that nobody owns anything.
func (p *pair) free(ctx context.Context) error {
	for name := range p.nodes {
		err := cluster.Until(ctx, refusalLimit, func(ctx context.Context) error {
			var t topologyObject
			if err := p.Get(ctx, topologies+"/"+name, &t); err != nil {
				return err
			}
			allocs, err := t.allocs()
			if err == nil && (t.Metadata.Annotations[ledgerKey] == "" || len(allocs) > 0) {
				err = fmt.Errorf("node %s publishes %d owners and the ledger %q", name, len(allocs),
					t.Metadata.Annotations[ledgerKey])
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// create makes a pod for a scheduler, on a certain node if one is named.
func (b *bench) create(ctx context.Context, k *kubelet.Pod, by, on string) error {
	k.Namespace = namespace
	object := cluster.PodObject(k)
	spec := object["spec"].(map[string]any)
	spec["schedulerName"] = by
	if on != "" {
		spec["nodeSelector"] = map[string]any{"kubernetes.io/hostname": on}
	}
	return b.Create(ctx, cluster.PodsPath(namespace), object, nil)
}

// placed waits until a pod is bound, or its scheduler has said why it is not.
func (b *bench) placed(ctx context.Context, name string) (node, why string, err error) {
	pod, err := b.WaitPod(ctx, namespace, name, func(c *cluster.Pod) bool {
		why = ""
		for _, is := range c.Status.Conditions {
			if is.Type == "PodScheduled" && is.Status == "False" {
				why = is.Message
			}
		}
		return c.Spec.NodeName != "" || why != ""
	})
	return pod.Spec.NodeName, why, err
}

// runs creates a pod with quietcore-scheduler, and compares what it was told with the cgroup of its container.
func (p *pair) runs(ctx context.Context, k *kubelet.Pod, on string) (node, cpus string, err error) {
	if err := p.create(ctx, k, ours, on); err != nil {
		return "", "", err
	}
	node, why, err := p.placed(ctx, k.Name)
	if err == nil && node == "" {
		err = fmt.Errorf("pod %s has no node: %s", k.Name, why)
	}
	if err != nil {
		return "", "", err
	}
	pod, err := p.WaitRunning(ctx, namespace, k.Name)
	if err != nil {
		return "", "", err
	}
	return p.compared(ctx, pod)
}

func (p *pair) compared(ctx context.Context, pod *cluster.Pod) (node, cpus string, err error) {
	node = pod.Spec.NodeName
	n := p.nodes[node]
	if n == nil {
		return node, "", fmt.Errorf("pod %s is on node %q", pod.Key(), node)
	}
	if _, err := settleOn(ctx, n); err != nil {
		return node, "", err
	}
	place, err := n.CPUs(ctx, pod)
	if err != nil {
		return node, "", err
	}
	cpus = place[pod.Key()+"/main"]
	if pod.Metadata.Labels["koordinator.sh/qosClass"] != "LSR" {
		return node, cpus, nil
	}
	return node, cpus, toldOf(pod, cpus)
}

// toldOf fails if a pod runs on other CPUs than its scheduler wrote.
func toldOf(pod *cluster.Pod, cpus string) error {
	var told struct{ CPUSet string }
	if text := pod.Metadata.Annotations[statusKey]; text != "" {
		if err := json.Unmarshal([]byte(text), &told); err != nil {
			return fmt.Errorf("annotation %s of pod %s: %w", statusKey, pod.Key(), err)
		}
	}
	if cpus == "" || told.CPUSet != cpus {
		return fmt.Errorf("pod %s on %s was told CPUs %q and runs on %q", pod.Key(), pod.Spec.NodeName, told.CPUSet,
			cpus)
	}
	return nil
}

// with adds annotations to a pod.
func with(k *kubelet.Pod, annotations ...string) *kubelet.Pod {
	k.Annotations = map[string]string{}
	for i := 0; i < len(annotations); i += 2 {
		k.Annotations[annotations[i]] = annotations[i+1]
	}
	return k
}

// refusedOn waits until a node has refused a pod, and returns the line that says so first: the daemon's Event or
// kubelet's, which comes late where kubelet's own call has run out of time.
func (p *pair) refusedOn(ctx context.Context, name, node string, words ...string) (string, error) {
	on, why, err := p.placed(ctx, name)
	if err != nil {
		return "", err
	}
	if on != node {
		return "", fmt.Errorf("pod %s is on %q (%s), want %s, so that it is refused", name, on, why, node)
	}
	return p.describeRefusal(ctx, namespace, name, words...)
}

// wholeCores is scenario 1: four CPUs are free on the first node, one of each core. The second has
// more requested of it, and whole cores.
func (p *pair) wholeCores(ctx context.Context) error {
	for i := range 4 {
		k := with(owner(fmt.Sprintf("spread-%d", i), "LSR", 1), smtKey, "none", specKey,
			`{"preferredCPUBindPolicy":"SpreadByPCPUs","preferredCPUExclusivePolicy":"PCPULevel"}`)
		if _, _, err := p.runs(ctx, k, cluster.NodeName); err != nil {
			return err
		}
	}
	if _, _, err := p.runs(ctx, with(owner("half", "LSR", 4), smtKey, "align"), secondName); err != nil {
		return err
	}
	web := burstable("web")
	web.Containers[0].RequestMilli = 900
	if _, _, err := p.runs(ctx, web, secondName); err != nil {
		return err
	}
	if err := p.create(ctx, with(owner("theirs", "LSR", 2), smtKey, "align"), stock, ""); err != nil {
		return err
	}
	line, err := p.refusedOn(ctx, "theirs", cluster.NodeName, "SMTAlignmentError")
	if err != nil {
		return err
	}
	p.note("the stock scheduler sends a pod of whole cores to "+cluster.NodeName, "%s", line)
	node, cpus, err := p.runs(ctx, with(owner("ours", "LSR", 2), smtKey, "align"), "")
	if err == nil && (node != secondName || !wholeCore(cpus)) {
		err = fmt.Errorf("the pod of whole cores is on %s, CPUs %s", node, cpus)
	}
	p.note("quietcore-scheduler sends the same pod to "+node, "it runs on CPUs %s", cpus)
	return err
}

// oneNUMANode is scenario 2.
func (p *pair) oneNUMANode(ctx context.Context) error {
	const single = `{"numaTopologyPolicy":"SingleNUMANode"}`
	for i, cpus := range []int64{3, 2} {
		k := with(owner(fmt.Sprintf("there-%d", i), "LSR", cpus), numaKey, single, smtKey, "none")
		if _, _, err := p.runs(ctx, k, cluster.NodeName); err != nil {
			return err
		}
	}
	node, cpus, err := p.runs(ctx, with(owner("single", "LSR", 3), numaKey, single, smtKey, "none"), "")
	if err == nil && node != secondName {
		err = fmt.Errorf("the pod of one NUMA node is on %s", node)
	}
	if err != nil {
		return err
	}
	p.note("3 CPUs of one NUMA node", "on %s, CPUs %s", node, cpus)
	if err := p.create(ctx, with(owner("large", "LSR", 5), numaKey, single, smtKey, "none"), ours, ""); err != nil {
		return err
	}
	node, why, err := p.placed(ctx, "large")
	if err == nil && (node != "" || !strings.Contains(why, "0/2 nodes") || !strings.Contains(why, "5 CPUs")) {
		err = fmt.Errorf("5 CPUs of one NUMA node are on %q: %s", node, why)
	}
	p.note("5 CPUs of one NUMA node of 4", "Pending: %s", why)
	return err
}

// bindTo binds a pod as another scheduler does.
func (p *pair) bindTo(ctx context.Context, k *kubelet.Pod, node, status string) error {
	if err := p.create(ctx, k, "another", ""); err != nil {
		return err
	}
	meta := map[string]any{"name": k.Name, "namespace": namespace}
	if status != "" {
		meta["annotations"] = map[string]string{statusKey: status}
	}
	return p.Create(ctx, cluster.PodsPath(namespace)+"/"+k.Name+"/binding", map[string]any{"apiVersion": "v1",
		"kind": "Binding", "metadata": meta, "target": map[string]any{"kind": "Node", "name": node}}, nil)
}

// others are scenarios 9 and 14: of two pods on the same CPUs the node refuses the second, and says so
// where users look; what a tenant writes into resource-status has no effect.
func (p *pair) others(ctx context.Context) error {
	_, cpus, err := p.runs(ctx, owner("first", "LSR", 2), cluster.NodeName)
	if err != nil {
		return err
	}
	again := fmt.Sprintf(`{"cpuset":%q}`, cpus)
	if err := p.bindTo(ctx, owner("second", "LSR", 2), cluster.NodeName, again); err != nil {
		return err
	}
	line, err := p.refusedOn(ctx, "second", cluster.NodeName, "InsufficientCPUs", "owned by another pod")
	if err != nil {
		return err
	}
	p.note("another scheduler takes CPUs "+cpus+" once more", "%s", line)
	var said string
	if _, err := p.WaitPod(ctx, namespace, "second", func(c *cluster.Pod) bool {
		for _, is := range c.Status.Conditions {
			if is.Type == refusedByNode && is.Status == "True" {
				said = is.Message
			}
		}
		return said != ""
	}); err != nil {
		return err
	}
	p.note("the pod's condition "+refusedByNode, "%s", said)
	node, forged, err := p.runs(ctx, with(owner("forged", "LSR", 2), statusKey, again), cluster.NodeName)
	if err == nil && forged == cpus {
		err = fmt.Errorf("the tenant's CPUs %s are given twice", cpus)
	}
	p.note("a tenant's own resource-status, CPUs "+cpus, "on %s it runs on CPUs %s", node, forged)
	return err
}

// sameChoice is scenario 15: the node chooses the CPUs that the scheduler chose, one pod after the other.
func (p *pair) sameChoice(ctx context.Context) error {
	wishes := func() []*kubelet.Pod {
		return []*kubelet.Pod{with(owner("aligned", "LSR", 2), smtKey, "align"),
			with(owner("alone", "LSR", 1), smtKey, "isolate"), with(owner("odd", "LSR", 1), smtKey, "none")}
	}
	var told, chosen []string
	for _, k := range wishes() {
		_, cpus, err := p.runs(ctx, k, secondName)
		if err != nil {
			return err
		}
		told = append(told, cpus)
	}
	if err := p.empty(ctx); err != nil {
		return err
	}
	for _, k := range wishes() {
		if err := p.bindTo(ctx, k, secondName, ""); err != nil {
			return err
		}
		pod, err := p.WaitRunning(ctx, namespace, k.Name)
		if err != nil {
			return err
		}
		place, err := p.nodes[secondName].CPUs(ctx, pod)
		if err != nil {
			return err
		}
		chosen = append(chosen, place[pod.Key()+"/main"])
	}
	if !slices.Equal(told, chosen) {
		return fmt.Errorf("the scheduler chose %q, the node chooses %q", told, chosen)
	}
	p.note("the scheduler's choice, and the node's own", "%q", told)
	return nil
}
