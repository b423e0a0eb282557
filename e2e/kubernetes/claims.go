package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/e2e/kubelet"
	"github.com/quietcore/quietcore/e2e/kubernetes/cluster"
	"github.com/quietcore/quietcore/e2e/machine"
	"github.com/quietcore/quietcore/internal/control"
)

const (
	resourceAPI   = "/apis/resource.k8s.io/v1"
	templates     = resourceAPI + "/namespaces/" + namespace + "/resourceclaimtemplates"
	claimDriver   = "cpu.quietcore.dev"
	claimTemplate = "pair" // of claims for a pair of CPUs
	pairSize      = 2
)

// claimConfig offers half of the eight CPUs to claims: a pair of each NUMA node.
var claimConfig = map[string]any{"dra": map[string]any{"mode": "on", "share": "4"}}

// claiming is the proof at work.
type claiming struct {
	*bench
	web, lsr, one, two *cluster.Pod
	templates          []string
	out                []figure
}

func (c *claiming) note(name string, format string, args ...any) {
	c.out = append(c.out, figure{Name: name, Value: fmt.Sprintf(format, args...)})
	c.say("claims: %s: %s", name, fmt.Sprintf(format, args...))
}

// resourceSlice is the part of one that kube-scheduler reads.
type resourceSlice struct {
	Metadata struct{ Name, UID string }
	Spec     struct {
		Driver  string
		Devices []struct {
			Name     string
			Capacity map[string]struct{ Value string }
		}
	}
}

// offer has the daemon offer CPUs, and makes what pods claim them by.
func (c *claiming) offer(ctx context.Context) error { return c.offerBy(ctx, claimConfig) }

func (c *claiming) offerBy(ctx context.Context, config map[string]any) error {
	began := time.Now()
	if err := c.restartDaemon(ctx, config); err != nil {
		return err
	}
	what, err := c.published(ctx)
	if err != nil {
		return err
	}
	c.note("daemon started to its ResourceSlice", "%s: %s", seconds(time.Since(began)), what)
	if err := c.class(ctx); err != nil {
		return err
	}
	return c.template(ctx, claimTemplate, pairSize)
}

// class makes the DeviceClass, as the chart does.
func (c *claiming) class(ctx context.Context) error {
	return c.Create(ctx, resourceAPI+"/deviceclasses", map[string]any{
		"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": map[string]any{"name": claimDriver},
		"spec": map[string]any{"selectors": []any{map[string]any{"cel": map[string]any{
			"expression": "device.driver == '" + claimDriver + "'"}}}},
	}, nil)
}

// template makes a template of claims for so many CPUs.
func (c *claiming) template(ctx context.Context, name string, cpus int) error {
	return c.templateWith(ctx, name, cpus, nil, nil)
}

// templateWith does it with more in the request, and with opaque parameters.
func (c *claiming) templateWith(ctx context.Context, name string, cpus int, more, parameters map[string]any) error {
	c.templates = append(c.templates, name)
	exactly := map[string]any{"deviceClassName": claimDriver,
		"capacity": map[string]any{"requests": map[string]any{"cpu": fmt.Sprint(cpus)}}}
	maps.Copy(exactly, more)
	devices := map[string]any{"requests": []any{map[string]any{"name": "cpus", "exactly": exactly}}}
	if parameters != nil {
		devices["config"] = []any{map[string]any{"opaque": map[string]any{"driver": claimDriver,
			"parameters": parameters}}}
	}
	return c.Create(ctx, templates, map[string]any{
		"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
		"metadata": map[string]any{"name": name}, "spec": map[string]any{"spec": map[string]any{"devices": devices}},
	}, nil)
}

// published waits until the node's slices offer a pair of each NUMA node.
func (c *claiming) published(ctx context.Context) (what string, err error) {
	return c.offered(ctx, "numa-0 with 2 CPUs, numa-1 with 2 CPUs")
}

// slices are the node's.
func (c *claiming) slices(ctx context.Context) ([]resourceSlice, error) {
	var list struct{ Items []resourceSlice }
	err := c.Get(ctx, resourceAPI+"/resourceslices", &list)
	return list.Items, err
}

func (c *claiming) offered(ctx context.Context, want string) (what string, err error) {
	err = cluster.Until(ctx, refusalLimit, func(ctx context.Context) error {
		list, err := c.slices(ctx)
		if err != nil {
			return err
		}
		var devices []string
		for _, s := range list {
			for _, d := range s.Spec.Devices {
				devices = append(devices, d.Name+" with "+d.Capacity["cpu"].Value+" CPUs")
			}
		}
		if what = strings.Join(devices, ", "); what != want {
			return fmt.Errorf("the node's ResourceSlices offer %q, want %q", what, want)
		}
		return nil
	})
	return what, err
}

// besideOwners: owners by annotation take no CPU that is offered to claims, even while none has it.
func (c *claiming) besideOwners(ctx context.Context) error {
	pods, err := c.startAll(ctx, burstable("web"), owner("lsr", "LSR", 2))
	if err != nil {
		return err
	}
	c.web, c.lsr = pods[0], pods[1]
	greedy := owner("greedy", "LSR", 4)
	greedy.Namespace = namespace
	if err := c.CreatePod(ctx, greedy); err != nil {
		return err
	}
	line, err := c.describeRefusal(ctx, namespace, greedy.Name, "FailedCreatePodSandBox", "kept for claims")
	if err != nil {
		return err
	}
	c.note("an owner by annotation of more than claims leave", "%s", line)
	return c.DeletePod(ctx, namespace, greedy.Name)
}

// claimPod is a pod whose containers share one claim; the last one does without where there are several.
func claimPod(name string, containers ...string) map[string]any {
	k := &kubelet.Pod{Name: name, Namespace: namespace}
	for _, c := range containers {
		k.Containers = append(k.Containers, kubelet.Container{Name: c})
	}
	o := cluster.PodObject(k)
	spec := o["spec"].(map[string]any)
	spec["resourceClaims"] = []any{map[string]any{"name": "cpus", "resourceClaimTemplateName": claimTemplate}}
	list := spec["containers"].([]any)
	for i, one := range list {
		if i == 0 || i < len(list)-1 {
			one.(map[string]any)["resources"] = map[string]any{"claims": []any{map[string]any{"name": "cpus"}}}
		}
	}
	return o
}

func (c *claiming) startClaiming(ctx context.Context, name string, containers ...string) (*cluster.Pod, error) {
	if err := c.Create(ctx, cluster.PodsPath(namespace), claimPod(name, containers...), nil); err != nil {
		return nil, err
	}
	return c.WaitRunning(ctx, namespace, name)
}

// fromTemplate has a pod of claimPod claim by another template.
func fromTemplate(o map[string]any, template string) map[string]any {
	o["spec"].(map[string]any)["resourceClaims"] = []any{map[string]any{"name": "cpus",
		"resourceClaimTemplateName": template}}
	return o
}

// alone: containers with a claim have its CPUs, to themselves; the others of their pod run with everybody, where the
// runtime says which containers have the claim.
func (c *claiming) alone(ctx context.Context) (err error) {
	began := time.Now()
	if c.one, err = c.startClaiming(ctx, "one", "main"); err != nil {
		return err
	}
	c.note("API create to running with a claim", "%s", seconds(time.Since(began)))
	if c.two, err = c.startClaiming(ctx, "two", "main", "second", "helper"); err != nil {
		return err
	}
	status, err := c.settle(ctx)
	if err != nil {
		return err
	}
	place, err := c.node.CPUs(ctx, c.pods()...)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(place)) {
		c.note("CPUs of "+name, "%s", place[name])
	}
	one, two, web := place[c.one.Key()+"/main"], place[c.two.Key()+"/main"], place[c.web.Key()+"/main"]
	if second := place[c.two.Key()+"/second"]; second != two {
		return fmt.Errorf("two containers that share a claim run on CPUs %s and %s", two, second)
	}
	beside := web
	if !c.tellsDevices() {
		beside = two
	}
	if helper := place[c.two.Key()+"/helper"]; helper != beside {
		return fmt.Errorf("the container without the claim runs on CPUs %s, want %s: the shared pool is %s, its pod's "+
			"claim has %s", helper, beside, web, two)
	}
	if given := givenTo(status, "one"); given != one || !wholeCore(one) {
		return fmt.Errorf("pod one runs on CPUs %s, its claim was given %s, want a core", one, given)
	}
	if given := givenTo(status, "two"); given != two || !wholeCore(two) {
		return fmt.Errorf("pod two runs on CPUs %s, its claim was given %s, want a core", two, given)
	}
	if qos := c.one.Status.QOSClass; qos != kubelet.BestEffort {
		return fmt.Errorf("pod one is %s for Kubernetes, want one that requests nothing", qos)
	}
	for _, s := range status.Containers {
		if s.Class == "BE" {
			return fmt.Errorf("container %s/%s is best effort", s.Pod, s.Container)
		}
	}
	return disjoint(one, two, web, place[c.lsr.Key()+"/main"])
}

// tellsDevices reports whether the runtime passes on the CDI devices of containers by NRI.
func (b *bench) tellsDevices() bool { return b.options.runtime == string(machine.Containerd) }

// named: of a claim that names containers these have the CPUs, with any runtime; the others run with everybody.
func (c *claiming) named(ctx context.Context) (err error) {
	if err := c.templateWith(ctx, "named", pairSize, nil, map[string]any{"apiVersion": "quietcore.dev/v1alpha1",
		"kind": "CPUClaimParameters", "containers": []string{"main", "second"}}); err != nil {
		return err
	}
	if err := c.DeletePod(ctx, namespace, "two"); err != nil {
		return err
	}
	o := fromTemplate(claimPod("two", "main", "second", "helper"), "named")
	if err := c.Create(ctx, cluster.PodsPath(namespace), o, nil); err != nil {
		return err
	}
	if c.two, err = c.WaitRunning(ctx, namespace, "two"); err != nil {
		return err
	}
	place, err := c.place(ctx, c.pods()...)
	if err != nil {
		return err
	}
	main, second, web := place[c.two.Key()+"/main"], place[c.two.Key()+"/second"], place[c.web.Key()+"/main"]
	helper := place[c.two.Key()+"/helper"]
	c.note("CPUs of two containers that a claim names, and of one that it does not", "%s and %s, %s", main, second,
		helper)
	if main != second || helper != web {
		return fmt.Errorf("containers that a claim names run on CPUs %s and %s, the other one on %s, and the shared "+
			"pool is %s", main, second, helper, web)
	}
	return disjoint(main, web, place[c.one.Key()+"/main"], place[c.lsr.Key()+"/main"])
}

func (c *claiming) pods() []*cluster.Pod {
	return slices.DeleteFunc([]*cluster.Pod{c.web, c.lsr, c.one, c.two}, func(p *cluster.Pod) bool { return p == nil })
}

// givenTo is what the daemon says that the claim of a pod has; the API server names such a claim after its pod.
func givenTo(s *control.Status, pod string) string {
	var cpus cpuset.Set
	for _, v := range s.Claims {
		if strings.HasPrefix(v.Name, pod+"-") {
			for _, r := range v.Requests {
				cpus.AddSet(&r.CPUs)
			}
		}
	}
	return cpus.String()
}

// disjoint fails for lists of CPUs that have some in common.
func disjoint(lists ...string) error {
	var all cpuset.Set
	for _, list := range lists {
		cpus, err := cpuset.Parse(list)
		if err != nil {
			return err
		}
		if cpus.IsEmpty() || cpus.Intersects(&all) {
			return fmt.Errorf("of CPU lists %q one is empty or shares CPUs with another", lists)
		}
		all.AddSet(&cpus)
	}
	return nil
}

// tooMany: a claim of more than is left is not scheduled.
func (c *claiming) tooMany(ctx context.Context) error {
	if err := c.Create(ctx, cluster.PodsPath(namespace), claimPod("three", "main"), nil); err != nil {
		return err
	}
	line, err := c.describeRefusal(ctx, namespace, "three", "FailedScheduling", "claim")
	if err != nil {
		return err
	}
	c.note("a claim above what is left", "%s", line)
	return c.DeletePod(ctx, namespace, "three")
}

// unmoved: nothing moves while during runs, no container is replaced, and no claim comes or goes.
func (c *claiming) unmoved(ctx context.Context, during func(context.Context) error) (looks int, err error) {
	before, err := c.place(ctx, c.pods()...)
	if err != nil {
		return 0, err
	}
	was, err := c.settle(ctx)
	if err != nil {
		return 0, err
	}
	if looks, err = c.hold(ctx, before, c.pods(), during); err != nil {
		return looks, err
	}
	now, err := c.settle(ctx)
	if err != nil {
		return looks, err
	}
	if was, now := given(was), given(now); !maps.Equal(was, now) {
		return looks, fmt.Errorf("the claims had CPUs %v and have %v", was, now)
	}
	return looks, c.sameContainers(ctx, c.pods())
}

// given is what each claim has of each device.
func given(s *control.Status) map[string]string {
	all := map[string]string{}
	for _, v := range s.Claims {
		for _, r := range v.Requests {
			all[v.UID+" "+r.Device] = r.CPUs.String()
		}
	}
	return all
}

// wipes is after how long kubelet deletes the slices of a driver whose socket is gone.
const wipes = 30 * time.Second

// daemonRestarts: in less time than kubelet waits for a driver, the slices stay the same objects.
func (c *claiming) daemonRestarts(ctx context.Context) error {
	before, err := c.slices(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	looks, err := c.unmoved(ctx, func(ctx context.Context) error { return c.restartDaemon(ctx, claimConfig) })
	if err != nil {
		return err
	}
	took := time.Since(began)
	what, err := c.published(ctx)
	if err != nil {
		return err
	}
	c.note("looks over the daemon's death, nothing moved", "%d in %s; ResourceSlices: %s", looks, seconds(took), what)
	after, err := c.slices(ctx)
	same := slices.EqualFunc(before, after, func(a, b resourceSlice) bool { return a.Metadata == b.Metadata })
	if err == nil && took < wipes && !same {
		err = fmt.Errorf("the ResourceSlices were %+v before the daemon's death and are %+v", before, after)
	}
	c.note("ResourceSlices are the same objects", "%t", same)
	return err
}

// runtimeRestarts: the daemon is without the runtime, and takes over what runs once it is back.
func (c *claiming) runtimeRestarts(ctx context.Context) error {
	looks, err := c.unmoved(ctx, func(ctx context.Context) error {
		if err := c.node.KillRuntime(ctx); err != nil {
			return err
		}
		if err := c.node.StartRuntime(ctx); err != nil {
			return err
		}
		return pass(afterwards)(ctx)
	})
	c.note("looks over the runtime's death, nothing moved", "%d", looks)
	return err
}

// kubeletRestarts: kubelet deletes the slices of drivers that it does not find again, and prepares every claim anew.
func (c *claiming) kubeletRestarts(ctx context.Context) error {
	looks, err := c.unmoved(ctx, func(ctx context.Context) error {
		if err := c.node.StopKubelet(ctx); err != nil {
			return err
		}
		if err := c.node.StartKubelet(ctx); err != nil {
			return err
		}
		if err := c.node.WaitReady(ctx); err != nil {
			return err
		}
		return pass(afterwards)(ctx)
	})
	if err != nil {
		return err
	}
	what, err := c.published(ctx)
	c.note("looks over kubelet's restart, nothing moved", "%d; ResourceSlices: %s", looks, what)
	return err
}

// givenBack: a pod that is deleted leaves its CPUs to the shared pool.
func (c *claiming) givenBack(ctx context.Context) error {
	place, err := c.place(ctx, c.pods()...)
	if err != nil {
		return err
	}
	free, err := cpuset.Parse(place[c.one.Key()+"/main"])
	if err != nil {
		return err
	}
	if err := c.DeletePod(ctx, namespace, "one"); err != nil {
		return err
	}
	began := time.Now()
	c.one = nil
	if err := c.untilShared(ctx, free); err != nil {
		return err
	}
	c.note("pod gone from the API to its claim's CPUs in the shared pool", "%s", seconds(time.Since(began)))
	return nil
}

// beforeTheSandbox: a claim that is prepared for a pod that cannot start yet keeps its CPUs through the daemon's death.
// Without its network plugin the runtime starts no sandbox, and kubelet prepares claims before it asks for one.
func (c *claiming) beforeTheSandbox(ctx context.Context) (err error) {
	const plugin, away = "/opt/cni/bin/ptp", "/opt/cni/bin/ptp.away"
	if _, err := c.node.Exec(ctx, "busybox", "mv", plugin, away); err != nil {
		return err
	}
	late := claimPod("late", "main")
	late["spec"].(map[string]any)["hostNetwork"] = false
	given, err := c.preparedOnly(ctx, late)
	if _, back := c.node.Exec(context.WithoutCancel(ctx), "busybox", "mv", away, plugin); err != nil || back != nil {
		return errors.Join(err, back)
	}
	pod, err := c.WaitRunning(ctx, namespace, "late")
	if err != nil {
		return err
	}
	place, err := c.place(ctx, append(c.pods(), pod)...)
	if err != nil {
		return err
	}
	if cpus := place[pod.Key()+"/main"]; cpus != given {
		return fmt.Errorf("a claim was given CPUs %s before its pod's sandbox, and the pod runs on %s", given, cpus)
	}
	c.note("CPUs of a claim through the daemon's death before the sandbox", "%s", given)
	return disjoint(given, place[c.two.Key()+"/main"], place[c.web.Key()+"/main"], place[c.lsr.Key()+"/main"])
}

// preparedOnly creates a pod, waits until its claim has CPUs, and kills the daemon.
func (c *claiming) preparedOnly(ctx context.Context, pod map[string]any) (given string, err error) {
	if err := c.Create(ctx, cluster.PodsPath(namespace), pod, nil); err != nil {
		return "", err
	}
	if err := cluster.Until(ctx, refusalLimit, func(ctx context.Context) error {
		status, err := c.settle(ctx)
		if err != nil {
			return err
		}
		if given = givenTo(status, "late"); given == "" {
			return errors.New("the claim of pod late has no CPUs")
		}
		return nil
	}); err != nil {
		return "", err
	}
	if _, err := c.describeRefusal(ctx, namespace, "late", "FailedCreatePodSandBox", "ptp"); err != nil {
		return "", err
	}
	if err := c.restartDaemon(ctx, claimConfig); err != nil {
		return "", err
	}
	status, err := c.settle(ctx)
	if err != nil {
		return "", err
	}
	if now := givenTo(status, "late"); now != given {
		return "", fmt.Errorf("a claim without a sandbox had CPUs %s before the daemon's death and has %q", given, now)
	}
	return given, nil
}

// documented: the claim and the pod of the documentation work as they stand there.
func (c *claiming) documented(ctx context.Context) error {
	if err := c.DeletePod(ctx, namespace, "late"); err != nil {
		return err
	}
	objects, err := firstYAML("docs/dra.md")
	if err != nil {
		return err
	}
	objects = strings.ReplaceAll(objects, "IMAGE", machine.Image)
	if _, err := c.Kubectl(ctx, objects, "apply", "-n", namespace, "-f", "-"); err != nil {
		return err
	}
	pod, err := c.WaitRunning(ctx, namespace, "app")
	if err != nil {
		return err
	}
	place, err := c.place(ctx, pod)
	if err != nil {
		return err
	}
	cpus := place[pod.Key()+"/main"]
	said, err := c.node.Exec(ctx, daemonBinary, "explain", pod.Key())
	if err != nil {
		return err
	}
	c.note("quietcore explain of the documentation's pod", "%s", strings.Join(strings.Fields(said.Stdout), " "))
	if !wholeCore(cpus) || !strings.Contains(said.Stdout, "gave it CPUs "+cpus) {
		return fmt.Errorf("the documentation's pod runs on CPUs %s, want a core and explain to say so: %s", cpus,
			said.Stdout)
	}
	return nil
}

// finish fails if anything of the claims is left once their pods are gone, and has the daemon without them again.
func (c *claiming) finish(ctx context.Context) error {
	err := c.DeletePods(ctx, namespace)
	if err == nil {
		err = cluster.Until(ctx, freeLimit, func(ctx context.Context) error {
			status, err := c.settle(ctx)
			if err != nil {
				return err
			}
			specs, err := c.node.Exec(ctx, "busybox", "ls", "/var/run/cdi")
			if err == nil && (len(status.Claims) > 0 || strings.TrimSpace(string(specs.Stdout)) != "") {
				err = fmt.Errorf("pods are gone, left are claims %+v and CDI specs %q", status.Claims, specs.Stdout)
			}
			return err
		})
	}
	if err == nil {
		c.note("left of the claims when their pods are gone", "nothing")
	}
	for _, name := range c.templates {
		err = errors.Join(err, ignoreMissing(c.Delete(ctx, templates+"/"+name)))
	}
	return errors.Join(err, ignoreMissing(c.Delete(ctx, resourceAPI+"/deviceclasses/"+claimDriver)),
		c.restartDaemon(ctx, nil))
}

func ignoreMissing(err error) error {
	if cluster.Refused(err, 404) {
		return nil
	}
	return err
}
