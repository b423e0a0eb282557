package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/quietcore/quietcore/e2e/kubernetes/cluster"
	"github.com/quietcore/quietcore/e2e/machine"
)

// readersGroup may ask the daemons, by the chart's Role.
const readersGroup = "quietcore-readers"

// readers are the chart's values for it.
func readers() map[string]any {
	return map[string]any{"reader": map[string]any{"subjects": []any{map[string]any{"kind": "Group",
		"name": readersGroup}}}}
}

// asked: kubectl-quietcore works for a user with a client certificate and the chart's Role, who can neither run
// programs in the daemon's pod nor read it without a token of readers.
func (b *bench) asked(ctx context.Context, daemon *cluster.Pod, pods []*cluster.Pod) ([]figure, error) {
	plugin, err := machine.BuildGo(ctx, b.options.Cache, "./cmd/kubectl-quietcore", "kubectl-quietcore")
	if err != nil {
		return nil, err
	}
	if err := b.node.ReachPod(ctx, daemon.Status.PodIP); err != nil {
		return nil, err
	}
	kubeconfig, err := b.UserKubeconfig("reader", readersGroup)
	if err != nil {
		return nil, err
	}
	if err := b.onlyAsks(ctx, daemon, kubeconfig); err != nil {
		return nil, err
	}
	ask := func(args ...string) ([]byte, error) {
		return runAs(ctx, plugin, append([]string{"--kubeconfig", kubeconfig, "--daemon-namespace", release},
			args...)...)
	}
	began := time.Now()
	text, err := ask("status", "-o", "json")
	if err != nil {
		return nil, err
	}
	took := time.Since(began)
	if !json.Valid(text) || !bytes.Contains(text, []byte(cluster.NodeName)) {
		return nil, fmt.Errorf("kubectl quietcore status -o json says %.300q", text)
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
	for _, args := range [][]string{{"incidents"}, {"incidents", "top"}, {"top"}, {"doctor"},
		{"bundle", "--all", "--dir", b.Dir()}, {"map"}, {"map", "--draw"}, {"status"}} {
		if text, err = ask(args...); err != nil {
			return nil, err
		}
		b.say("kubectl quietcore %s\n%s", strings.Join(args, " "), text)
	}
	// Debian's kernel denies counters to processes with CAP_PERFMON alone, and says so.
	if err := b.doctor(ctx, daemon, "kernel.perf_event_paranoid is 3, and above 2"); err != nil {
		return nil, err
	}
	if _, err := b.node.Exec(ctx, "busybox", "sysctl", "-w", "kernel.perf_event_paranoid=2"); err != nil {
		return nil, err
	}
	return []figure{{Name: "kubectl quietcore status, by one who may do nothing else", Value: seconds(took)}}, nil
}

// onlyAsks wants a user to be refused what is not asking.
func (b *bench) onlyAsks(ctx context.Context, daemon *cluster.Pod, kubeconfig string) error {
	pod := daemon.Metadata.Name
	// What kubectl says of a 401 is its own.
	loggedOut := regexp.MustCompile(`(?i)unauthorized|logged in|credentials|bearer token`)
	forbidden := regexp.MustCompile(`(?i)forbidden`)
	proxy := fmt.Sprintf("/api/v1/namespaces/%s/pods/https:%s:9464/proxy", release, pod)
	for _, c := range []struct {
		args []string
		want *regexp.Regexp
	}{
		{[]string{"exec", "-n", release, pod, "--", "/quietcore", "status"}, forbidden},
		{[]string{"get", "secrets", "-n", release}, forbidden},
		{[]string{"create", "token", "quietcore", "-n", release}, forbidden},
		// The API server reaches the daemon, which is not shown the user's login.
		{[]string{"get", "--raw", proxy + "/quietcore/v1/status"}, loggedOut},
		{[]string{"get", "--raw", proxy + "/metrics"}, loggedOut},
	} {
		var allowed []byte
		// A daemon that is slow to answer, as on a busy emulated machine, has not refused.
		err := cluster.Until(ctx, time.Minute, func(ctx context.Context) error {
			out, err := runAs(ctx, b.KubectlPath(), append([]string{"--kubeconfig", kubeconfig}, c.args...)...)
			if err == nil {
				allowed = append(out, '\n')
			}
			if err == nil || c.want.MatchString(err.Error()) {
				return nil
			}
			return err
		})
		if err != nil || allowed != nil {
			return fmt.Errorf("kubectl %s by a reader: %w, want %s: %.300q", strings.Join(c.args, " "), err, c.want,
				allowed)
		}
	}
	return nil
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
