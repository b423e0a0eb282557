package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"syscall"
	"time"

	"github.com/quietcore/quietcore/e2e/kubelet"
	"github.com/quietcore/quietcore/e2e/kubernetes/cluster"
	"github.com/quietcore/quietcore/e2e/machine"
	"github.com/quietcore/quietcore/internal/control"
)

// namespace is that of the proofs' own pods.
const namespace = "proof"

// grid is the smallest machine with room for owners on both sockets and for the pools:
// every CPU more slows the emulation of all.
var grid = machine.Grid{Sockets: 2, NodesPerSocket: 1, L3PerNode: 1, CoresPerL3: 2, ThreadsPerCore: 2}

// bench is the cluster with the daemon on its node.
type bench struct {
	*cluster.Plane
	node    *cluster.Node
	binary  string // the daemon's, on this host
	options *options
	stderr  io.Writer

	deployed  bool     // whether the chart may be there
	manifests []string // of static pods that may be there
}

// Where things are in the guest.
const (
	daemonBinary = "/usr/bin/quietcore"
	daemonConfig = "/etc/quietcore/config.yaml"
	daemonClient = "/etc/quietcore/kubeconfig"
	daemonSocket = "/run/quietcore/quietcore.sock"
)

// daemonUser is the daemon's user at the API server where no chart has deployed it. The
// chart's own names are taken by the chart.
const daemonUser = "quietcore-program"

func newBench(ctx context.Context, o *options, bin *cluster.Binaries, stderr io.Writer) (*bench, error) {
	binary, err := machine.BuildGo(ctx, o.Cache, "./cmd/quietcore", "quietcore")
	if err != nil {
		return nil, err
	}
	b := &bench{options: o, stderr: stderr}
	if b.Plane, err = cluster.Start(ctx, cluster.Options{Binaries: bin}); err != nil {
		return nil, err
	}
	b.say("the API server is ready after %.1f s", b.Plane.Ready.Seconds())
	if err := b.join(ctx, binary); err != nil {
		return nil, errors.Join(fmt.Errorf("%w\n%s", err, b.Diagnosis(ctx)), b.Close())
	}
	return b, nil
}

func (b *bench) join(ctx context.Context, binary string) error {
	files, err := images(ctx, b.options)
	if err != nil {
		return err
	}
	b.binary = binary
	files[strings.TrimPrefix(daemonBinary, "/")] = binary
	sampler, err := machine.BuildGo(ctx, b.options.Cache, "./e2e/sampler", "sampler")
	if err != nil {
		return err
	}
	files[strings.TrimPrefix(samplerPath, "/")] = sampler
	b.node, err = b.Join(ctx, cluster.NodeName, machine.Options{
		Grid: grid, Driver: kubelet.Driver(b.options.Driver), Runtime: machine.Runtime(b.options.runtime),
		Cache: b.options.Cache, Progress: b.stderr,
		Files: files,
	}, nil)
	if err != nil {
		return err
	}
	if b.options.trace {
		b.node.Trace(func(what string, took time.Duration) {
			fmt.Fprintf(b.stderr, "%8.1f ms  %.100s\n", float64(took.Microseconds())/1000, what)
		})
	}
	b.say("the guest answered after %.1f s, the node is ready %.1f s after kubelet's start", b.node.Booted.Seconds(),
		b.node.Ready.Seconds())
	if err := b.EnsureNamespace(ctx, namespace, nil); err != nil {
		return err
	}
	if err := b.grant(ctx); err != nil {
		return err
	}
	return b.startDaemon(ctx)
}

func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.stderr, "kubernetes: "+format+"\n", args...)
}

// Close ends the guest and the control plane.
func (b *bench) Close() error {
	var err error
	if b.node != nil {
		err = b.node.Close()
	}
	return errors.Join(err, b.Plane.Close())
}

// Diagnosis describes the state of both after a failure.
func (b *bench) Diagnosis(ctx context.Context) string {
	text := b.Plane.Diagnosis()
	if b.node != nil {
		text += b.node.Diagnosis(ctx)
	}
	return text
}

// role is what the daemon may do, as the chart grants it.
var role = []any{
	map[string]any{"apiGroups": []string{""}, "resources": []string{"pods", "nodes"},
		"verbs": []string{"get", "list", "watch"}},
	map[string]any{"apiGroups": []string{"", "events.k8s.io"}, "resources": []string{"events"},
		"verbs": []string{"create", "patch", "update"}},
	map[string]any{"apiGroups": []string{"topology.node.k8s.io"}, "resources": []string{"noderesourcetopologies"},
		"verbs": []string{"get", "list", "watch", "create", "update", "patch"}},
	map[string]any{"apiGroups": []string{"resource.k8s.io"}, "resources": []string{"resourceclaims"},
		"verbs": []string{"get"}},
	map[string]any{"apiGroups": []string{"resource.k8s.io"}, "resources": []string{"resourceslices"},
		"verbs": []string{"list", "create", "patch", "delete"}},
}

func (b *bench) grant(ctx context.Context) error { return b.bind(ctx, daemonUser, role) }

// bind gives a user rights in the whole cluster.
func (b *bench) bind(ctx context.Context, user string, rules []any) error {
	const rbac = "/apis/rbac.authorization.k8s.io/v1/"
	meta := map[string]any{"name": user}
	if err := b.Create(ctx, rbac+"clusterroles", map[string]any{"metadata": meta, "rules": rules}, nil); err != nil {
		return err
	}
	return b.Create(ctx, rbac+"clusterrolebindings", map[string]any{
		"metadata": meta,
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
		"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}},
	}, nil)
}

// startDaemon runs the daemon as a service of the node, next to containerd.
func (b *bench) startDaemon(ctx context.Context) error { return b.startDaemonOn(ctx, b.node, nil) }

// startDaemonOn does it on any node, with more in its configuration.
func (b *bench) startDaemonOn(ctx context.Context, n *cluster.Node, more map[string]any) error {
	client, err := b.GuestKubeconfig(daemonUser)
	if err != nil {
		return err
	}
	if err := n.WriteFile(ctx, daemonClient, client); err != nil {
		return err
	}
	config := map[string]any{
		"apiVersion": "quietcore.dev/v1alpha1", "node": map[string]any{"name": n.Name},
		"kubernetes": map[string]any{"kubeconfig": daemonClient},
	}
	maps.Copy(config, more)
	text, err := json.Marshal(config)
	if err != nil {
		return err
	}
	if err := n.WriteFile(ctx, daemonConfig, string(text)); err != nil {
		return err
	}
	if err := n.Start(ctx, machine.Daemon, daemonBinary, "run", "--config", daemonConfig); err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, daemonLimit)
	defer cancel()
	if err := n.WaitSocket(wait, daemonSocket); err != nil {
		return fmt.Errorf("%w\n%s", err, n.LogTail(ctx, machine.Daemon, 3000))
	}
	_, err = settleOn(ctx, n)
	return err
}

func (b *bench) killDaemon(ctx context.Context) error {
	return b.node.Signal(ctx, machine.Daemon, int(syscall.SIGKILL))
}

// restartDaemon kills the daemon and starts it with more in its configuration.
func (b *bench) restartDaemon(ctx context.Context, more map[string]any) error {
	if err := b.killDaemon(ctx); err != nil {
		return err
	}
	return b.startDaemonOn(ctx, b.node, more)
}

// daemonLimit bounds how long a daemon may take to be there and idle.
const daemonLimit = 2 * time.Minute

// settle returns when the daemon has nothing left to write.
func (b *bench) settle(ctx context.Context) (*control.Status, error) { return settleOn(ctx, b.node) }

func settleOn(ctx context.Context, n *cluster.Node) (*control.Status, error) {
	status := &control.Status{}
	err := cluster.Until(ctx, daemonLimit, func(ctx context.Context) error {
		code, body, err := n.HTTP(ctx, daemonSocket, "GET", "/v1/status", nil)
		if err != nil {
			return err
		}
		*status = control.Status{}
		if err := json.Unmarshal(body, status); err != nil || code != 200 {
			return fmt.Errorf("the daemon's status: code %d: %w", code, err)
		}
		if !status.Settled {
			return fmt.Errorf("the daemon is not idle: connected %t, synchronised %t", status.Connected,
				status.Synchronised)
		}
		return nil
	})
	return status, err
}

// start creates a pod and returns it running.
func (b *bench) start(ctx context.Context, p *kubelet.Pod) (*cluster.Pod, error) {
	if p.Namespace == "" {
		p.Namespace = namespace
	}
	if err := b.CreatePod(ctx, p); err != nil {
		return nil, err
	}
	return b.WaitRunning(ctx, p.Namespace, p.Name)
}

// startAll creates pods one after the other, since their order matters.
func (b *bench) startAll(ctx context.Context, specs ...*kubelet.Pod) ([]*cluster.Pod, error) {
	var out []*cluster.Pod
	for _, s := range specs {
		p, err := b.start(ctx, s)
		if err != nil {
			return out, err
		}
		out = append(out, p)
	}
	return out, nil
}

// place waits until the daemon is idle and reads where the pods are.
func (b *bench) place(ctx context.Context, pods ...*cluster.Pod) (cluster.Placement, error) {
	if _, err := b.settle(ctx); err != nil {
		return nil, err
	}
	return b.node.CPUs(ctx, pods...)
}

// hold reads the placement of pods repeatedly while during runs; it must never change.
// It returns how often it read.
func (b *bench) hold(ctx context.Context, before cluster.Placement, pods []*cluster.Pod,
	during func(context.Context) error) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- during(ctx) }()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for looks := 0; ; looks++ {
		now, err := b.node.CPUs(ctx, pods...)
		if err == nil {
			err = before.Moved(now)
		}
		if err != nil {
			cancel()
			return looks, errors.Join(err, ignoreCancel(<-done))
		}
		select {
		case err := <-done:
			if err == nil && looks < 3 {
				err = fmt.Errorf("looked %d times only", looks)
			}
			return looks, err
		case <-tick.C:
		}
	}
}

func ignoreCancel(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// pass is for what is watched for a span of time.
func pass(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Broken says why the guest is lost, or nil.
func (b *bench) Broken() error { return b.node.Broken() }

// Clean restores the node to one with the daemon only.
func (b *bench) Clean(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if b.node.Broken() != nil {
		return nil
	}
	if err := b.removeManifests(ctx); err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	if err := b.DeletePods(ctx, namespace); err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	if err := b.setLabels(ctx, nil); err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	if err := b.undeploy(ctx); err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	if err := b.node.Forget(ctx); err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	if running, _, err := b.node.Running(ctx, machine.Daemon); err != nil || running {
		return err
	}
	return b.startDaemon(ctx)
}

// nodeLabels are those that the daemon reads.
var nodeLabels = []string{bindPolicy, topologyPolicy, "node.koordinator.sh/numa-allocate-strategy"}

// setLabels gives the Node these of the labels that the daemon reads, and no others.
func (b *bench) setLabels(ctx context.Context, labels map[string]string) error {
	patch := map[string]any{}
	for _, l := range nodeLabels {
		patch[l] = nil
	}
	for l, v := range labels {
		patch[l] = v
	}
	return b.Patch(ctx, "/api/v1/nodes/"+cluster.NodeName, map[string]any{"metadata": map[string]any{"labels": patch}})
}
