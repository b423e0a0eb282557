package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/quietcore/quietcore/e2e/kubernetes/cluster"
	"github.com/quietcore/quietcore/e2e/machine"
)

// pluginDoc has the rights and the policy of users with read access only.
const pluginDoc = "docs/kubectl.md"

// refusedText is of the policy's own message.
const refusedText = "members of quietcore-readers may run"

// asked: kubectl-quietcore works for a user with the rights that its documentation
// gives, and these rights are good for nothing else.
func (b *bench) asked(ctx context.Context, daemon *cluster.Pod, pods []*cluster.Pod) ([]figure, error) {
	plugin, err := machine.BuildGo(ctx, b.options.Cache, "./cmd/kubectl-quietcore", "kubectl-quietcore")
	if err != nil {
		return nil, err
	}
	rights, err := readerRights()
	if err != nil {
		return nil, err
	}
	if _, err := b.Kubectl(ctx, rights, "apply", "-f", "-"); err != nil {
		return nil, err
	}
	kubeconfig, err := b.UserKubeconfig("reader", "quietcore-readers")
	if err != nil {
		return nil, err
	}
	exec := func(flags []string, command ...string) error {
		args := append([]string{"--kubeconfig", kubeconfig, "exec", "-n", release}, flags...)
		_, err := runAs(ctx, b.KubectlPath(), append(append(args, daemon.Metadata.Name, "--"), command...)...)
		return err
	}
	// A policy holds some seconds after it was written.
	err = cluster.Until(ctx, refusalLimit, func(context.Context) error {
		return wantRefused(exec(nil, "/quietcore", "version"))
	})
	if err != nil {
		return nil, err
	}
	for _, e := range [][]string{{"/quietcore", "restore"}, {"/quietcore", "run"}, {"/bin/sh"},
		{"/quietcore", "status", "--socket=/tmp/x"}} {
		if err := wantRefused(exec(nil, e...)); err != nil {
			return nil, err
		}
	}
	if err := wantRefused(exec([]string{"-i"}, "/quietcore", "status")); err != nil {
		return nil, err
	}
	ask := func(args ...string) ([]byte, error) {
		return runAs(ctx, plugin, append([]string{"--kubectl", b.KubectlPath(), "--kubeconfig", kubeconfig, "-n",
			release},
			args...)...)
	}
	began := time.Now()
	text, err := ask("map", "-o", "json")
	if err != nil {
		return nil, err
	}
	took := time.Since(began)
	if !json.Valid(text) || !bytes.Contains(text, []byte(cluster.NodeName)) {
		return nil, fmt.Errorf("kubectl quietcore map -o json says %.300q", text)
	}
	for _, p := range pods {
		if text, err = ask("explain", p.Key()); err != nil {
			return nil, err
		}
		if !bytes.Contains(text, []byte(p.Metadata.Name)) {
			return nil, fmt.Errorf("kubectl quietcore explain %s says %.300q", p.Key(), text)
		}
	}
	if _, err := ask("explain", namespace+"/nobody"); err == nil || !strings.Contains(err.Error(), "nobody") {
		return nil, fmt.Errorf("a pod that is nowhere is explained: %w", err)
	}
	if _, err := ask("incidents"); err != nil {
		return nil, err
	}
	if text, err = ask("map", "--draw"); err != nil {
		return nil, err
	}
	b.say("kubectl quietcore map --draw\n%s", text)
	// Debian's kernel denies counters to processes with CAP_PERFMON alone, and says so.
	if err := b.doctor(ctx, daemon, "kernel.perf_event_paranoid is 3, and above 2"); err != nil {
		return nil, err
	}
	if _, err := b.node.Exec(ctx, "busybox", "sysctl", "-w", "kernel.perf_event_paranoid=2"); err != nil {
		return nil, err
	}
	return []figure{{Name: "kubectl quietcore map, by one who may do nothing else", Value: seconds(took)}}, nil
}

// doctor finds no fault with a node on which all is well, neither from the daemon's
// pod nor from the node, but for what the daemon lacks there.
func (b *bench) doctor(ctx context.Context, daemon *cluster.Pod, degraded string) error {
	inPod, err := b.Kubectl(ctx, "", "exec", "-n", release, daemon.Metadata.Name, "--", "/quietcore", "doctor", "-o",
		"json")
	if err != nil {
		return fmt.Errorf("%w: %s", err, inPod)
	}
	onNode, err := b.node.Exec(ctx, daemonBinary, "doctor", "--all", "-o", "json")
	if err != nil {
		return fmt.Errorf("%w: %s", err, onNode.Stdout)
	}
	for where, text := range map[string]string{"the pod": inPod, "the node": onNode.Stdout} {
		var said struct {
			Findings []struct{ ID, Level, What string }
		}
		if err := json.Unmarshal([]byte(text), &said); err != nil {
			return fmt.Errorf("doctor in %s: %w: %.300s", where, err, text)
		}
		seen, why := map[string]string{}, ""
		for _, f := range said.Findings {
			if seen[f.ID] = f.Level; f.ID == "daemon.degraded" {
				why = f.What
			}
			if f.Level != "ok" {
				b.say("doctor in %s: %s %s: %s", where, f.Level, f.ID, f.What)
			}
			if f.Level == "error" {
				return fmt.Errorf("doctor in %s: %s: %s", where, f.ID, f.What)
			}
		}
		if !strings.Contains(why, degraded) {
			return fmt.Errorf("doctor in %s: what does not work is %q, want %q", where, why, degraded)
		}
		// What is right here and would be reported otherwise if it were not looked at.
		for _, id := range []string{"kernel", "btf", "instances"} {
			if seen[id] != "ok" {
				return fmt.Errorf("doctor in %s says of %s %q, want ok: %.2000s", where, id, seen[id], text)
			}
		}
	}
	return nil
}

func readerRights() (string, error) {
	yaml, err := firstYAML(pluginDoc)
	return strings.ReplaceAll(yaml, "quietcore-system", release), err
}

// firstYAML is the first block of YAML on a page of the documentation.
func firstYAML(page string) (string, error) {
	text, err := os.ReadFile(page)
	if err != nil {
		return "", err
	}
	_, yaml, found := strings.Cut(string(text), "```yaml\n")
	yaml, _, ended := strings.Cut(yaml, "```")
	if !found || !ended {
		return "", fmt.Errorf("%s has no block of YAML", page)
	}
	return yaml, nil
}

func wantRefused(err error) error {
	switch {
	case err == nil:
		return errors.New("a reader may run more than the three questions")
	case !strings.Contains(err.Error(), refusedText):
		return fmt.Errorf("want a refusal by the policy: %w", err)
	}
	return nil
}

func runAs(ctx context.Context, program string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("%s %s: %w: %s %.1000s", program, strings.Join(args, " "), err,
			strings.TrimSpace(stderr.String()), out)
	}
	return out, nil
}
