package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/e2e/kubernetes/cluster"
)

// dynamicConfig offers to claims what owners and the shared pool's floor leave.
var dynamicConfig = map[string]any{"dra": map[string]any{"mode": "on", "share": "dynamic", "nodeAllocatable": true}}

// nodeSize is the number of CPUs of each NUMA node of the grid.
const nodeSize = 4

// dynamic is the proof at work.
type dynamic struct {
	*claiming
	near, far int // the NUMA nodes of pod lsr and the other one
}

// claimsDynamic: what claims are offered follows owners by annotation as they come and go. Where kube-scheduler has not
// heard of one, the node refuses the claim with the numbers, nobody moves, and the claim is met when the owner is gone.
func claimsDynamic(ctx context.Context, b *bench) ([]figure, error) {
	d := &dynamic{claiming: &claiming{bench: b}}
	err := d.ready(ctx)
	for _, part := range []func(context.Context) error{d.follows, d.avoids, d.vetoed} {
		if err == nil {
			err = part(ctx)
		}
	}
	ctx = context.WithoutCancel(ctx)
	return d.out, errors.Join(err, b.setRole(ctx, role), d.finish(ctx), d.SetGates(ctx, ""), d.kubeletWith(ctx, nil))
}

// ready has the whole cluster count claims, and all of the node offered.
func (d *dynamic) ready(ctx context.Context) error {
	if err := d.SetGates(ctx, allocatableGate+"=true"); err != nil {
		return err
	}
	if err := d.restartDaemon(ctx, dynamicConfig); err != nil {
		return err
	}
	if err := d.kubeletWith(ctx, map[string]any{"featureGates": map[string]bool{allocatableGate: true}}); err != nil {
		return err
	}
	if err := d.class(ctx); err != nil {
		return err
	}
	if _, err := d.offered(ctx, offers(nodeSize, nodeSize)); err != nil {
		return err
	}
	return d.mapsOf(ctx, "a share that is dynamic", true, "")
}

// offers is what the node's slices say; a NUMA node with nothing to offer is not in them.
func offers(cpus ...int) string {
	var devices []string
	for i, n := range cpus {
		if n > 0 {
			devices = append(devices, fmt.Sprintf("%s with %d CPUs", numaNodes[i], n))
		}
	}
	return strings.Join(devices, ", ")
}

// untilOffered waits until so many CPUs are offered of the two NUMA nodes.
func (d *dynamic) untilOffered(ctx context.Context, after string, near, far int) error {
	cpus := make([]int, len(numaNodes))
	cpus[d.near], cpus[d.far] = near, far
	began := time.Now()
	what, err := d.offered(ctx, offers(cpus...))
	d.note("offered after "+after, "%q, %s later", what, seconds(time.Since(began)))
	return err
}

// follows: an owner's CPUs are no longer offered, with those of the floor; when it goes they are again.
func (d *dynamic) follows(ctx context.Context) (err error) {
	if d.web, err = d.start(ctx, burstable("web")); err != nil {
		return err
	}
	if err := d.own(ctx); err != nil {
		return err
	}
	if err := d.untilOffered(ctx, "an owner of 2 CPUs", nodeSize-2, nodeSize); err != nil {
		return err
	}
	// Owners may have all of it: the last core is the shared pool's.
	if _, err := d.start(ctx, owner("greedy", "LSR", nodeSize)); err != nil {
		return err
	}
	if err := d.untilOffered(ctx, "an owner of all that was left", 0, 0); err != nil {
		return err
	}
	if err := d.DeletePod(ctx, namespace, "greedy"); err != nil {
		return err
	}
	return d.untilOffered(ctx, "its end", nodeSize-2, nodeSize)
}

// own starts pod lsr, with two CPUs.
func (d *dynamic) own(ctx context.Context) (err error) {
	if d.lsr, err = d.start(ctx, owner("lsr", "LSR", 2)); err != nil {
		return err
	}
	place, err := d.place(ctx, d.lsr)
	if err != nil {
		return err
	}
	cpus, err := cpuset.Parse(place[d.lsr.Key()+"/main"])
	for cpu := range cpus.All() {
		d.near, d.far = cpu/nodeSize, 1-cpu/nodeSize
	}
	return err
}

// avoids: a claim of a whole NUMA node goes where no owner is. Then the floor leaves nothing, until the owner ends.
func (d *dynamic) avoids(ctx context.Context) error {
	if err := d.template(ctx, "quad", nodeSize); err != nil {
		return err
	}
	pod := fromTemplate(claimPod("one", "main"), "quad")
	if err := d.Create(ctx, cluster.PodsPath(namespace), pod, nil); err != nil {
		return err
	}
	one, err := d.WaitRunning(ctx, namespace, "one")
	if err != nil {
		return err
	}
	place, err := d.place(ctx, one, d.web, d.lsr)
	if err != nil {
		return err
	}
	cpus := place[one.Key()+"/main"]
	d.note("CPUs of a claim beside an owner and the shared pool", "%s, %s, %s", cpus, place[d.lsr.Key()+"/main"],
		place[d.web.Key()+"/main"])
	if err := disjoint(cpus, place[d.lsr.Key()+"/main"], place[d.web.Key()+"/main"]); err != nil {
		return err
	}
	if err := d.untilOffered(ctx, "a claim of the other NUMA node", 0, nodeSize); err != nil {
		return err
	}
	for _, name := range []string{"lsr", "one"} {
		if err := d.DeletePod(ctx, namespace, name); err != nil {
			return err
		}
	}
	d.lsr = nil
	return d.untilOffered(ctx, "the end of both", nodeSize, nodeSize)
}

// vetoed: the API server takes no slices from the daemon, and an owner comes. So kube-scheduler gives a claim the whole
// NUMA node on which the owner is.
func (d *dynamic) vetoed(ctx context.Context) error {
	if err := d.setRole(ctx, role[:len(role)-1]); err != nil { // without resourceslices
		return err
	}
	if err := d.own(ctx); err != nil {
		return err
	}
	before, err := d.place(ctx, d.web, d.lsr)
	if err != nil {
		return err
	}
	at := map[string]any{"selectors": []any{map[string]any{"cel": map[string]any{"expression": fmt.Sprintf(
		"device.attributes['%s'].numaNode == %d", claimDriver, d.near)}}}}
	if err := d.templateWith(ctx, "there", nodeSize, at, nil); err != nil {
		return err
	}
	late := fromTemplate(claimPod("late", "main"), "there")
	if err := d.Create(ctx, cluster.PodsPath(namespace), late, nil); err != nil {
		return err
	}
	line, err := d.describeRefusal(ctx, namespace, "late", "FailedPrepareDynamicResources",
		fmt.Sprintf("%d CPUs are asked for", nodeSize))
	if err != nil {
		return err
	}
	d.note("a claim of CPUs that an owner took unheard", "%s", line)
	now, err := d.place(ctx, d.web, d.lsr)
	if err != nil {
		return err
	}
	if err := errors.Join(before.Moved(now), d.setRole(ctx, role)); err != nil {
		return err
	}
	if err := d.untilOffered(ctx, "the API server takes slices again", nodeSize-2, nodeSize); err != nil {
		return err
	}
	if err := d.DeletePod(ctx, namespace, "lsr"); err != nil {
		return err
	}
	d.lsr = nil
	began := time.Now()
	pod, err := d.WaitRunning(ctx, namespace, "late")
	if err != nil {
		return err
	}
	place, err := d.place(ctx, pod, d.web)
	if err != nil {
		return err
	}
	d.note("the owner gone to the refused claim's pod running", "%s, on CPUs %s", seconds(time.Since(began)),
		place[pod.Key()+"/main"])
	return disjoint(place[pod.Key()+"/main"], place[d.web.Key()+"/main"])
}

// setRole changes what the daemon may do at the API server.
func (b *bench) setRole(ctx context.Context, rules []any) error {
	return b.Patch(ctx, "/apis/rbac.authorization.k8s.io/v1/clusterroles/"+daemonUser, map[string]any{"rules": rules})
}
