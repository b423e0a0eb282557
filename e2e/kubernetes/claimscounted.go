package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/quietcore/quietcore/e2e/kubernetes/cluster"
)

const allocatableGate = "DRANodeAllocatableResources"

// countedConfig is claimConfig with Kubernetes counting claims.
var countedConfig = map[string]any{"dra": map[string]any{"mode": "on", "share": "4", "nodeAllocatable": true}}

// claimsCounted: Kubernetes counts claims among the node's CPUs where all of it has the feature gate, and the daemon
// says where it has not. Either way the shared pool is asked for nothing that claims have.
func claimsCounted(ctx context.Context, b *bench) ([]figure, error) {
	c := &claiming{bench: b}
	err := c.offerBy(ctx, countedConfig)
	for _, part := range []func(context.Context) error{c.noGate, c.gateOfServer, c.gateOfAll, c.fits, c.countedOnce} {
		if err == nil {
			err = part(ctx)
		}
	}
	ctx = context.WithoutCancel(ctx)
	return c.out, errors.Join(err, c.finish(ctx), c.SetGates(ctx, ""), c.kubeletWith(ctx, nil))
}

func (c *claiming) kubeletWith(ctx context.Context, config map[string]any) error {
	if err := c.node.StopKubelet(ctx); err != nil {
		return err
	}
	if err := c.node.Configure(ctx, config); err != nil {
		return err
	}
	if err := c.node.StartKubelet(ctx); err != nil {
		return err
	}
	return c.node.WaitReady(ctx)
}

func (c *claiming) noGate(ctx context.Context) error {
	return c.mapped(ctx, "no gate", false, "drops nodeAllocatableResources")
}

func (c *claiming) gateOfServer(ctx context.Context) error {
	if err := c.SetGates(ctx, allocatableGate+"=true"); err != nil {
		return err
	}
	if err := c.kubeletWith(ctx, nil); err != nil { // the driver looks when it comes back
		return err
	}
	return c.mapped(ctx, "a gate but in kubelet", false, "refuses nodeAllocatableResources")
}

func (c *claiming) gateOfAll(ctx context.Context) error {
	if err := c.kubeletWith(ctx, map[string]any{"featureGates": map[string]bool{allocatableGate: true}}); err != nil {
		return err
	}
	return c.mapped(ctx, "a gate everywhere", true, "")
}

// mapped waits until the node's devices map their CPUs or do not, and the daemon says why not.
func (c *claiming) mapped(ctx context.Context, where string, want bool, says string) error {
	if _, err := c.published(ctx); err != nil {
		return err
	}
	return c.mapsOf(ctx, where, want, says)
}

// mapsOf does it whatever the devices offer.
func (c *claiming) mapsOf(ctx context.Context, where string, want bool, says string) error {
	var said string
	err := cluster.Until(ctx, refusalLimit, func(ctx context.Context) error {
		var list struct{ Items []json.RawMessage }
		if err := c.Get(ctx, resourceAPI+"/resourceslices", &list); err != nil {
			return err
		}
		n := 0
		for _, s := range list.Items {
			n += strings.Count(string(s), `"nodeAllocatableResources":{"cpu":{"mapping":{"capacityKey":"cpu"`)
		}
		if (n == len(numaNodes)) != want || n > 0 && !want {
			return fmt.Errorf("%d devices map their CPUs on the node's, want that: %t", n, want)
		}
		out, err := c.node.Exec(ctx, "busybox", "sh", "-c", daemonBinary+" doctor --all || true")
		if err != nil {
			return err
		}
		said = ""
		for l := range strings.Lines(out.Stdout) {
			if strings.Contains(l, "nodeAllocatableResources") {
				said = strings.Join(strings.Fields(l), " ")
			}
		}
		if !strings.Contains(said, says) || (said == "") != (says == "") {
			return fmt.Errorf("doctor says %q, want %q", said, says)
		}
		return nil
	})
	c.note("doctor with "+where, "%q", said)
	return err
}

// numaNodes have a device each.
var numaNodes = [2]string{"numa-0", "numa-1"}

// requesting is a pod with a claim that requests CPUs, too.
func requesting(name, cpu string) map[string]any {
	o := claimPod(name, "main")
	main := o["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)
	main["resources"].(map[string]any)["requests"] = map[string]any{"cpu": cpu}
	return o
}

// fits: kube-scheduler counts a claim with its pod's request, and what is both does not fit although either would.
func (c *claiming) fits(ctx context.Context) (err error) {
	if c.web, err = c.start(ctx, burstable("web")); err != nil {
		return err
	}
	if err := c.Create(ctx, cluster.PodsPath(namespace), requesting("large", "7"), nil); err != nil {
		return err
	}
	line, err := c.describeRefusal(ctx, namespace, "large", "FailedScheduling", "Insufficient cpu")
	if err != nil {
		return err
	}
	c.note("a claim of 2 CPUs and a request of 7 on 8 CPUs", "%s", line)
	if err := c.DeletePod(ctx, namespace, "large"); err != nil {
		return err
	}
	if c.one, err = c.startClaiming(ctx, "one", "main"); err != nil {
		return err
	}
	if err := c.Create(ctx, cluster.PodsPath(namespace), requesting("two", "2"), nil); err != nil {
		return err
	}
	if c.two, err = c.WaitRunning(ctx, namespace, "two"); err != nil {
		return err
	}
	for _, p := range []*cluster.Pod{c.one, c.two} {
		if err := c.noted(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// noted fails unless a pod's status has its claim's CPUs, and notes the weight that kubelet gave the pod.
func (c *claiming) noted(ctx context.Context, p *cluster.Pod) error {
	var pod struct {
		Status struct {
			NodeAllocatableResourceClaimStatuses []struct {
				Containers []string
				Mapping    []struct{ Name, Quantity string }
			}
		}
	}
	if err := c.Get(ctx, cluster.PodsPath(namespace)+"/"+p.Metadata.Name, &pod); err != nil {
		return err
	}
	got := fmt.Sprint(pod.Status.NodeAllocatableResourceClaimStatuses)
	if want := fmt.Sprintf("[{[main] [{cpu %d}]}]", pairSize); got != want {
		return fmt.Errorf("the status of pod %s counts %s for claims, want %s", p.Metadata.Name, got, want)
	}
	weight, err := c.node.ReadFile(ctx, path.Dir(c.node.ContainerDir(p, &p.Status.ContainerStatuses[0]))+"/cpu.weight")
	c.note("weight of pod "+p.Metadata.Name, "%s", strings.TrimSpace(weight))
	return err
}

// countedOnce: claims have four of the eight CPUs, and pods request 2.1 of the other four. So an owner of one CPU fits;
// were claims counted with requests, it would be refused. The daemon was killed before, and reads the pods anew.
func (c *claiming) countedOnce(ctx context.Context) error {
	looks, err := c.unmoved(ctx, func(ctx context.Context) error { return c.restartDaemon(ctx, countedConfig) })
	if err != nil {
		return err
	}
	c.note("looks over the daemon's death, nothing moved", "%d", looks)
	if c.lsr, err = c.start(ctx, owner("lsr", "LSR", 1)); err != nil {
		return err
	}
	place, err := c.place(ctx, c.pods()...)
	if err != nil {
		return err
	}
	one, two, web := place[c.one.Key()+"/main"], place[c.two.Key()+"/main"], place[c.web.Key()+"/main"]
	lsr := place[c.lsr.Key()+"/main"]
	c.note("CPUs of two claims, an owner and the shared pool", "%s and %s, %s, %s", one, two, lsr, web)
	return disjoint(one, two, lsr, web)
}
