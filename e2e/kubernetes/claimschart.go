package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/quietcore/quietcore/e2e/kubernetes/cluster"
	"github.com/quietcore/quietcore/e2e/machine"
)

// coresClass is the chart's DeviceClass of whole cores.
const coresClass = "cores." + claimDriver

// claimsChart: the chart's own driver, with the rights that the chart gives it, meets the chart's examples, and its
// class of whole cores refuses a part of one.
func claimsChart(ctx context.Context, b *bench) ([]figure, error) {
	c := &claiming{bench: b}
	err := c.deploy(ctx, firstTag, claimConfig, nil)
	for _, part := range []func(context.Context) error{c.offeredByChart, c.examples, c.partOfACore} {
		if err == nil {
			err = part(ctx)
		}
	}
	ctx = context.WithoutCancel(ctx)
	_, gone := c.Kubectl(ctx, "", "delete", "pods,resourceclaims,resourceclaimtemplates", "--all", "-n", namespace,
		"--timeout=120s")
	return c.out, errors.Join(err, gone)
}

func (c *claiming) offeredByChart(ctx context.Context) error {
	what, err := c.published(ctx)
	if err != nil {
		return err
	}
	classes, err := c.Kubectl(ctx, "", "get", "deviceclasses", "-o", "name")
	if err != nil {
		return err
	}
	c.note("the chart's driver offers, by classes", "%s, by %s", what, strings.Join(strings.Fields(
		strings.ReplaceAll(classes, "deviceclass.resource.k8s.io/", "")), ", "))
	return nil
}

// examples: a pod with CPUs of its own, and two that share a core, as they are in the chart but for the image, and for
// how many CPUs are shared: the node offers two of each NUMA node.
func (c *claiming) examples(ctx context.Context) error {
	for _, name := range []string{"cpu-claim.yaml", "cpu-claim-shared.yaml"} {
		text, err := os.ReadFile(filepath.Join(chartDir, "examples", name))
		if err != nil {
			return err
		}
		example := strings.NewReplacer("image: IMAGE", "image: "+machine.Image+"\n      imagePullPolicy: Never",
			`cpu: "8"`, `cpu: "2"`).Replace(string(text))
		if _, err := c.Kubectl(ctx, example, "apply", "-n", namespace, "-f", "-"); err != nil {
			return err
		}
	}
	var pods []*cluster.Pod
	for _, name := range []string{"app", "first", "second"} {
		pod, err := c.WaitRunning(ctx, namespace, name)
		if err != nil {
			return err
		}
		pods = append(pods, pod)
	}
	place, err := c.place(ctx, pods...)
	if err != nil {
		return err
	}
	app, first, second := place[pods[0].Key()+"/main"], place[pods[1].Key()+"/main"], place[pods[2].Key()+"/main"]
	c.note("CPUs of the examples' pods: app, and first and second, which share", "%s, and %s and %s", app, first,
		second)
	if first != second || !wholeCore(app) || !wholeCore(first) {
		return fmt.Errorf("pod app runs on CPUs %s, first and second on %s and %s, want a core, and another that both "+
			"share", app, first, second)
	}
	return disjoint(app, first)
}

func (c *claiming) partOfACore(ctx context.Context) error {
	if err := c.DeletePod(ctx, namespace, "app"); err != nil {
		return err
	}
	if err := c.Create(ctx, templates, map[string]any{
		"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": map[string]any{"name": "half"},
		"spec": map[string]any{"spec": map[string]any{"devices": map[string]any{"requests": []any{map[string]any{
			"name": "cpus", "exactly": map[string]any{"deviceClassName": coresClass,
				"capacity": map[string]any{"requests": map[string]any{"cpu": "1"}}}}}}}}}, nil); err != nil {
		return err
	}
	pod := fromTemplate(claimPod("half", "main"), "half")
	if err := c.Create(ctx, cluster.PodsPath(namespace), pod, nil); err != nil {
		return err
	}
	line, err := c.describeRefusal(ctx, namespace, "half", "FailedPrepareDynamicResources", "core")
	c.note("1 CPU of the class of whole cores", "%s", line)
	return err
}
