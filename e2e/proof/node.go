package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/quietcore/quietcore/e2e/kubelet"
	"github.com/quietcore/quietcore/e2e/machine"
	"github.com/quietcore/quietcore/e2e/sampler/sweep"
	"github.com/quietcore/quietcore/e2e/scenario"
	"github.com/quietcore/quietcore/e2e/wire"
	"github.com/quietcore/quietcore/internal/script"
)

const (
	samplerPath = "/usr/bin/sampler"
	cgroupRoot  = "/sys/fs/cgroup"
	// spinPath names the busy threads: the kernel calls a script's process by the
	// script's name.
	spinPath = "/usr/bin/spin"
)

// spin never sleeps. It enters the cgroup itself, so no process of it was ever
// busy anywhere else.
const spin = `#!/bin/sh
echo $$ > "$1/cgroup.procs"
while :; do :; done
`

// node is the guest and what runs on it for the present proof.
type node struct {
	*scenario.Guest
	options *options
	stderr  io.Writer
	player  *scenario.Player
	spins   []string // names of busy processes
	// next is the binary of a daemon that takes turns with the present one: each follows the
	// other when that was killed at a point. Empty: the same daemon follows.
	next    string
	scraped time.Time
}

// scrapeEvery is slower than the four connections a second that the daemon's listener of
// metrics takes from one address.
const scrapeEvery = 300 * time.Millisecond

// metrics returns what the daemon's /metrics answers, after the pause that its listener asks for.
func (n *node) metrics(ctx context.Context) (string, error) {
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case <-time.After(time.Until(n.scraped.Add(scrapeEvery))):
	}
	out, err := n.Exec(ctx, samplerPath, "get", "http://127.0.0.1:9464/metrics")
	n.scraped = time.Now()
	if err != nil {
		return "", err
	}
	return out.Stdout, nil
}

func boot(ctx context.Context, o *options, stderr io.Writer) (*node, error) {
	return bootOf(ctx, o, stderr, machine.Options{})
}

// bootOf boots a machine that is not as those of other proofs are.
func bootOf(ctx context.Context, o *options, stderr io.Writer, m machine.Options) (*node, error) {
	bin, err := machine.BuildGo(ctx, o.Cache, "./e2e/sampler", "sampler")
	if err != nil {
		return nil, err
	}
	m.Grid, m.Driver, m.Suite, m.Cache, m.Progress = grid, kubelet.Driver(o.Driver), o.kernel, o.Cache, stderr
	files := map[string]string{strings.TrimPrefix(samplerPath, "/"): bin}
	maps.Copy(files, m.Files)
	m.Files = files
	g, err := scenario.Boot(ctx, scenario.BootOptions{Machine: m, Daemon: true})
	if err != nil {
		return nil, err
	}
	n := &node{Guest: g, options: o, stderr: stderr}
	if o.trace {
		g.Trace(func(what string, took time.Duration) { fmt.Fprintf(stderr, "%8.3f s %s\n", took.Seconds(), what) })
	}
	_, err = g.Files(ctx, wire.FileAction{Do: wire.FileWrite, Path: spinPath, Data: []byte(spin), Mode: 0o755})
	if err != nil {
		g.Close()
		return nil, err
	}
	return n, nil
}

// on plays a proof on a machine of its own.
func on(m machine.Options, play func(context.Context, *node) ([]figure, error)) func(context.Context,
	*node) ([]figure, error) {
	return func(ctx context.Context, other *node) ([]figure, error) {
		n, err := bootOf(ctx, other.options, other.stderr, m)
		if err != nil {
			return nil, err
		}
		defer n.Close()
		figures, err := play(ctx, n)
		if err != nil {
			fmt.Fprintln(other.stderr, n.Diagnosis(context.WithoutCancel(ctx)))
		}
		return figures, err
	}
}

func (n *node) minutes() time.Duration {
	return time.Duration(n.options.minutes * float64(time.Minute))
}

// fresh makes the guest a node on which nothing ever ran, with a new daemon.
func (n *node) fresh(ctx context.Context) error {
	return n.configured(ctx, "{authority: {profile: open}}")
}

// configured is fresh with a configuration, in YAML on one line.
func (n *node) configured(ctx context.Context, config string) error {
	text := fmt.Sprintf(
		"topology: {grid: {sockets: %d, nodesPerSocket: %d, l3PerNode: %d, coresPerL3: %d, threadsPerCore: "+
			"%d}}\nconfig: %s\nsteps: []\n",
		grid.Sockets, grid.NodesPerSocket, grid.L3PerNode, grid.CoresPerL3, grid.ThreadsPerCore, config)
	s, err := scenario.Parse("proof", []byte(text))
	if err != nil {
		return err
	}
	n.player, err = scenario.NewPlayer(ctx, n.Guest, s)
	return err
}

// Clean ends what a proof started next to the pods; the next fresh node wipes those.
func (n *node) Clean(ctx context.Context) error {
	err := n.stopSpins(ctx)
	for _, name := range []string{samplerName, refuserName, rivalName, secondName} {
		err = errors.Join(err, n.Signal(ctx, name, int(syscall.SIGKILL)))
	}
	return err
}

// restart ends the daemon with kill -9 and starts one with these flags.
func (n *node) restart(ctx context.Context, flags ...string) error {
	if err := n.KillDaemon(ctx); err != nil {
		return err
	}
	return n.StartDaemon(ctx, flags...)
}

// workload is a pod with one container, main.
type workload struct {
	sweep.Pod
	qos         string // empty: by the requests
	milli       int64  // request
	limit       int64
	annotations map[string]string
	job         string // what made it, as a label
}

// owner is a pod that owns whole CPUs.
func owner(class sweep.Class, cpus int, name string) workload {
	milli := int64(cpus) * 1000
	return workload{Pod: sweep.Pod{Class: class, Size: cpus, Name: name}, milli: milli, limit: milli}
}

func (w workload) of(qos string) workload {
	w.qos = qos
	return w
}

func (w workload) isolated() workload {
	w.Isolated = true
	return w.annotated("quietcore.dev/smt", "isolate")
}

func (w workload) annotated(key, value string) workload {
	w.annotations = map[string]string{key: value}
	return w
}

func shared(name string, milli int64) workload {
	return workload{Pod: sweep.Pod{Class: sweep.LS, Name: name}, milli: milli}
}

func (w workload) limited(milli int64) workload {
	w.limit = milli
	return w
}

func bestEffort(name string) workload {
	return workload{Pod: sweep.Pod{Class: sweep.BE, Name: name}}
}

// step is the workload's creation as a step of a script. JSON is YAML.
func (w workload) step() (string, error) {
	labels := map[string]string{"koordinator.sh/qosClass": strings.ToUpper(string(w.Class))}
	if w.job != "" {
		labels[jobLabel] = w.job
	}
	c := script.Create{
		Pod: w.Name, Namespace: "default", UID: w.UID(), Annotations: w.annotations,
		Labels:     labels,
		Containers: []script.Container{{Name: "main", RequestMilli: w.milli, LimitMilli: w.limit}},
	}
	text, err := json.Marshal(c)
	if err != nil {
		return "", err
	}
	if w.qos != "" {
		text = append(text[:len(text)-1], fmt.Sprintf(`,"kubernetesQoS":%q}`, w.qos)...)
	}
	return "create: " + string(text), nil
}

// create starts the pod as kubelet would and returns what is then on the node.
func (n *node) create(ctx context.Context, w workload) (*script.Line, error) {
	step, err := w.step()
	if err != nil {
		return nil, err
	}
	line, err := n.player.Do(ctx, step)
	if err == nil && line.Error != nil {
		err = fmt.Errorf("pod %s: %s: %s", w.Name, line.Error.Code, line.Error.Message)
	}
	return line, err
}

func (n *node) remove(ctx context.Context, name string) (*script.Line, error) {
	return n.player.Do(ctx, fmt.Sprintf("remove: {pod: %s}", name))
}

// containerID asks the runtime; of several the one that runs.
func (n *node) containerID(ctx context.Context, w workload) (string, error) {
	list, err := n.CRI().ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{
		LabelSelector: map[string]string{"io.kubernetes.pod.uid": w.UID()},
		State:         &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING},
	}})
	if err != nil {
		return "", err
	}
	if len(list.Containers) != 1 {
		return "", fmt.Errorf("pod %s has %d running containers, want 1", w.Name, len(list.Containers))
	}
	return list.Containers[0].Id, nil
}

// picture is what the kernel has in effect, by file below the cgroup root.
func (n *node) picture(ctx context.Context) (map[string]string, error) {
	out, err := n.Exec(ctx, samplerPath, "picture")
	if err != nil {
		return nil, err
	}
	p := map[string]string{}
	return p, json.Unmarshal([]byte(out.Stdout), &p)
}

// cgroupOf is the cgroup of the pod's container, below the root.
func (n *node) cgroupOf(ctx context.Context, w workload) (string, error) {
	id, err := n.containerID(ctx, w)
	if err != nil {
		return "", err
	}
	all, err := n.picture(ctx)
	if err != nil {
		return "", err
	}
	for file := range all {
		if dir := path.Dir(file); strings.Contains(path.Base(dir), id) {
			return dir, nil
		}
	}
	return "", fmt.Errorf("container %s of pod %s has no cgroup", id, w.Name)
}

// difference names the first few files of two pictures that are not the same.
func difference(now, want map[string]string) string {
	var out []string
	for _, file := range slices.Sorted(maps.Keys(want)) {
		if now[file] != want[file] {
			out = append(out, fmt.Sprintf("%s is %q, was %q", file, now[file], want[file]))
		}
	}
	for _, file := range slices.Sorted(maps.Keys(now)) {
		if _, known := want[file]; !known {
			out = append(out, file+" is new")
		}
	}
	if len(out) > 4 {
		out = append(out[:4], fmt.Sprintf("and %d more", len(out)-4))
	}
	return strings.Join(out, "; ")
}

// spin starts busy processes in the pod's container.
func (n *node) spin(ctx context.Context, w workload, count int) error {
	dir, err := n.cgroupOf(ctx, w)
	if err != nil {
		return err
	}
	for i := range count {
		name := fmt.Sprintf("spin-%s-%d", w.Name, i)
		if err := n.Start(ctx, name, spinPath, cgroupRoot+"/"+dir); err != nil {
			return err
		}
		n.spins = append(n.spins, name)
	}
	return nil
}

func (n *node) stopSpins(ctx context.Context) error {
	var err error
	for _, name := range n.spins {
		err = errors.Join(err, n.Signal(ctx, name, int(syscall.SIGKILL)))
	}
	n.spins = nil
	return err
}
