package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/e2e/kubelet"
	"github.com/quietcore/quietcore/e2e/kubernetes/cluster"
)

const (
	topologies = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
	allocsKey  = "node.koordinator.sh/pod-cpu-allocs"
	sharedKey  = "node.koordinator.sh/cpu-shared-pools"
	bePoolsKey = "node.koordinator.sh/be-cpu-shared-pools"
	managerKey = "kubelet.koordinator.sh/cpu-manager-policy"
	detailKey  = "node.koordinator.sh/cpu-topology"
)

// topologyObject is the part of a NodeResourceTopology that schedulers read.
type topologyObject struct {
	Metadata struct {
		Name, ResourceVersion string
		Labels, Annotations   map[string]string
	}
	Zones []struct {
		Name, Type string
		Resources  []struct{ Name, Capacity, Allocatable, Available string }
	}
	Attributes []struct{ Name, Value string }
}

// attribute is empty where the object has none of the name.
func (t *topologyObject) attribute(name string) string {
	for _, a := range t.Attributes {
		if a.Name == name {
			return a.Value
		}
	}
	return ""
}

// alloc is a pod's CPUs in the annotation.
type alloc struct {
	Namespace, Name, UID, CPUSet string
	ManagedByKubelet             bool
}

func (t *topologyObject) allocs() ([]alloc, error) {
	var out []alloc
	err := json.Unmarshal([]byte(t.Metadata.Annotations[allocsKey]), &out)
	return out, err
}

// pool is the union of what an annotation says of each NUMA node.
func (t *topologyObject) pool(key string) (string, error) {
	var parts []struct{ CPUSet string }
	if err := json.Unmarshal([]byte(t.Metadata.Annotations[key]), &parts); err != nil {
		return "", fmt.Errorf("annotation %s is %q: %w", key, t.Metadata.Annotations[key], err)
	}
	var all cpuset.Set
	for _, p := range parts {
		s, err := cpuset.Parse(p.CPUSet)
		if err != nil {
			return "", err
		}
		all = all.Or(s)
	}
	return all.String(), nil
}

// report: what the node reports to schedulers and users matches the kernel.
func report(ctx context.Context, b *bench) ([]figure, error) {
	if err := b.deploy(ctx, firstTag, nil, nil); err != nil {
		return nil, err
	}
	pods, err := b.startAll(ctx, burstable("web"), bestEffort("batch"), owner("lsr", "LSR", 2))
	if err != nil {
		return nil, err
	}
	place, err := b.place(ctx, pods...)
	if err != nil {
		return nil, err
	}
	var last topologyObject
	err = cluster.Until(ctx, refusalLimit, func(ctx context.Context) error {
		last = topologyObject{}
		if err := b.Get(ctx, topologies+"/"+cluster.NodeName, &last); err != nil {
			return err
		}
		return last.agrees(pods, place)
	})
	if err != nil {
		return nil, err
	}
	figures := []figure{{Name: allocsKey, Value: last.Metadata.Annotations[allocsKey]},
		{Name: sharedKey, Value: last.Metadata.Annotations[sharedKey]}}
	for _, z := range last.Zones {
		for _, r := range z.Resources {
			if r.Name == "cpu" {
				figures = append(figures, figure{Name: z.Name + " cpu, capacity allocatable available",
					Value: r.Capacity + " " + r.Allocatable + " " + r.Available})
			}
		}
	}
	event, err := b.refusalEvent(ctx)
	if err != nil {
		return figures, err
	}
	running, err := b.topologyLatency(ctx)
	if err != nil {
		return figures, err
	}
	changed, err := b.labelLatency(ctx)
	if err != nil {
		return figures, err
	}
	return append(figures, figure{Name: "Event of the daemon", Value: event},
		figure{Name: "NodeResourceTopology after the pod runs, median", Value: seconds(running)},
		figure{Name: "NodeResourceTopology after a Node label, median", Value: seconds(changed)}), nil
}

// agrees compares with the kernel; pods are one of the shared pool, one of the
// best-effort pool and an owner.
func (t *topologyObject) agrees(pods []*cluster.Pod, place cluster.Placement) error {
	at := func(i int) string { return place[pods[i].Key()+"/main"] }
	shared, err := t.pool(sharedKey)
	if err != nil {
		return err
	}
	be, err := t.pool(bePoolsKey)
	if err != nil {
		return err
	}
	allocs, err := t.allocs()
	if err != nil {
		return err
	}
	var errs []error
	if shared != at(0) {
		errs = append(errs, fmt.Errorf("the shared pool is %q in the object and %q in the kernel", shared, at(0)))
	}
	if be != at(1) {
		errs = append(errs, fmt.Errorf("the best-effort pool is %q in the object and %q in the kernel", be, at(1)))
	}
	if len(allocs) != 1 || allocs[0].UID != pods[2].Metadata.UID || allocs[0].CPUSet != at(2) ||
		allocs[0].ManagedByKubelet {
		errs = append(errs, fmt.Errorf("the owners are %+v in the object, and %s with CPUs %q in the kernel", allocs,
			pods[2].Key(), at(2)))
	}
	if len(t.Zones) != grid.Sockets {
		errs = append(errs, fmt.Errorf("the object has %d zones, the machine %d NUMA nodes", len(t.Zones),
			grid.Sockets))
	}
	for _, key := range []string{managerKey, detailKey} {
		if t.Metadata.Annotations[key] == "" {
			errs = append(errs, fmt.Errorf("annotation %s is empty", key))
		}
	}
	return errors.Join(errs...)
}

// refusalEvent returns the daemon's own Event about a pod that it refused.
func (b *bench) refusalEvent(ctx context.Context) (string, error) {
	k := owner("many", "LSR", 2)
	k.Annotations = map[string]string{"quietcore.dev/smt": "sideways"}
	k.Namespace = namespace
	if err := b.CreatePod(ctx, k); err != nil {
		return "", err
	}
	var found string
	err := cluster.Until(ctx, refusalLimit, func(ctx context.Context) error {
		var p cluster.Pod
		if err := b.Get(ctx, cluster.PodsPath(namespace)+"/"+k.Name, &p); err != nil {
			return err
		}
		events, err := b.eventsOf(ctx, &p)
		if err != nil {
			return err
		}
		for _, e := range events {
			if e.Reason == "InvalidAnnotation" {
				found = e.Type + " " + e.Reason + " " + e.Message
				return nil
			}
		}
		return fmt.Errorf("no Event with reason InvalidAnnotation among the pod's: %+v", events)
	})
	return found, errors.Join(err, b.DeletePod(ctx, namespace, k.Name))
}

// topologyLatency is the time from the moment at which the API says that an owner runs
// to the one at which the object has its CPUs, the median of several owners. Below zero
// the object was first.
func (b *bench) topologyLatency(ctx context.Context) (time.Duration, error) {
	var times []time.Duration
	for i := range b.options.pods {
		k := owner(fmt.Sprintf("timed-%d", i), "LSR", 2)
		k.Namespace = namespace
		took, err := b.oneLatency(ctx, k)
		if err != nil {
			return 0, err
		}
		times = append(times, took)
	}
	return median(times), nil
}

func (b *bench) oneLatency(ctx context.Context, k *kubelet.Pod) (time.Duration, error) {
	watch, cancel := context.WithTimeout(ctx, refusalLimit)
	defer cancel()
	shown := b.onTopology(watch, func(t *topologyObject) (bool, error) {
		allocs, err := t.allocs()
		return slices.ContainsFunc(allocs, func(a alloc) bool { return a.Name == k.Name }), err
	})
	if err := b.CreatePod(ctx, k); err != nil {
		return 0, err
	}
	_, err := b.WaitRunning(watch, namespace, k.Name)
	running := time.Now()
	seen := <-shown
	if err = errors.Join(err, seen.err); err != nil {
		return 0, err
	}
	if err := b.DeletePod(ctx, namespace, k.Name); err != nil {
		return 0, err
	}
	return seen.at.Sub(running), b.node.Forget(ctx)
}

// labelLatency is the time from the answer to a Node label's change to the object that
// says so: through the daemon's watch, its coalescing and its write.
func (b *bench) labelLatency(ctx context.Context) (time.Duration, error) {
	var times []time.Duration
	for i := range b.options.pods {
		labels, want := map[string]string{topologyPolicy: "SingleNUMANode"}, "single-numa-node"
		if i%2 == 1 {
			labels, want = nil, "none"
		}
		watch, cancel := context.WithTimeout(ctx, refusalLimit)
		shown := b.onTopology(watch, func(t *topologyObject) (bool, error) {
			return t.attribute("topologyManagerPolicy") == want, nil
		})
		err := b.setLabels(ctx, labels)
		asked := time.Now()
		seen := <-shown
		cancel()
		if err = errors.Join(err, seen.err); err != nil {
			return 0, fmt.Errorf("topologyManagerPolicy %s in the object: %w", want, err)
		}
		times = append(times, seen.at.Sub(asked))
	}
	return median(times), b.setLabels(ctx, nil)
}

// observation is when something was observed, or why it was not.
type observation struct {
	at  time.Time
	err error
}

// onTopology watches the node's object until it is as wanted.
func (b *bench) onTopology(ctx context.Context, wanted func(*topologyObject) (bool, error)) <-chan observation {
	out := make(chan observation, 1)
	go func() {
		err := b.Watch(ctx, topologies+"?watch=1&fieldSelector=metadata.name%3D"+cluster.NodeName, func(_ string,
			object json.RawMessage) (bool, error) {
			var t topologyObject
			if err := json.Unmarshal(object, &t); err != nil {
				return false, err
			}
			return wanted(&t)
		})
		out <- observation{at: time.Now(), err: err}
	}()
	return out
}
