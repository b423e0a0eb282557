package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/quietcore/quietcore/internal/cmdtest"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/kube"
	"github.com/quietcore/quietcore/internal/metrics"
	"github.com/quietcore/quietcore/internal/rollout"
	"github.com/quietcore/quietcore/internal/rollout/agent"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/sysfs/sysfstest"
	"github.com/quietcore/quietcore/topology"
)

// follows is a simulated daemon's part that follows policies, as the daemon has it; nil where there is no real API
// server.
type follows struct {
	agent *agent.Agent
	lacks atomic.Pointer[string] // what does not work; nil: nothing
}

// follow has a simulated daemon follow policies until ctx ends. took hears of each that it takes over.
func (d *simulated) follow(ctx context.Context, t *testing.T, kubeconfig string, spread time.Duration,
	took func(*config.Config)) (stop func()) {
	t.Helper()
	var client *kube.Client
	tick := time.NewTicker(time.Second)
	log := slog.New(slog.DiscardHandler)
	d.agent = agent.New(agent.Options{Node: d.node, API: agent.NewAPI(func() (*rest.Config, error) {
		return client.REST()
	}), Log: log, Now: time.Now, Tick: tick.C, Random: rand.Uint64, Spread: spread,
		NodeUID: func() types.UID { return client.NodeUID() },
		Keep:    func(rollout.Applied) error { return nil },
		Report:  func(string, error) {},
		Apply: func(ctx context.Context, says []byte) error {
			err := d.takeOver(ctx, says)
			if err == nil {
				took(d.cfg.Load())
			}
			return err
		},
		Lacks: func() map[string]string {
			if what := d.lacks.Load(); what != nil {
				return map[string]string{metrics.FeatureLending: *what}
			}
			return nil
		}})
	client, err := kube.New(kube.Options{Node: d.node, Log: log, Kubeconfig: kubeconfig, OnAllLabels: d.agent.Labels,
		Customs: d.agent.Customs()})
	if err != nil {
		t.Fatal(err)
	}
	var parts sync.WaitGroup
	parts.Go(func() { client.Run(ctx) })
	parts.Go(func() { d.agent.Run(ctx) })
	return func() { parts.Wait(); tick.Stop() }
}

// takeOver has in force what a policy says; nil: the file alone.
func (d *simulated) takeOver(ctx context.Context, says []byte) error {
	next := &d.file
	if says != nil {
		var err error
		if next, err = d.file.With(says); err != nil {
			return err
		}
	}
	if err := d.plugin.Reconfigure(ctx, next.Policy()); err != nil {
		return err
	}
	if d.cfg.Swap(next).Mode != next.Mode {
		if next.Mode != config.Observe {
			d.plugin.Enforce()
			return nil
		}
		return d.plugin.Observe(ctx)
	}
	return nil
}

func (d *simulated) mode() control.Mode {
	m := control.Mode{Mode: string(d.cfg.Load().Mode), Source: "file"}
	if d.cfg.Load() != &d.file {
		m.Source = "policy"
	}
	return m
}

func (d *simulated) policy() *control.FollowedPolicy {
	if d.agent == nil {
		return nil
	}
	r := d.agent.Report()
	out := &control.FollowedPolicy{Policy: r.Policy, Revision: r.Revision, State: string(r.State), Why: r.Why}
	if r.Applied != nil {
		out.Applied, out.AppliedRevision = r.Applied.Policy, r.Applied.Revision
	}
	return out
}

func (d *simulated) degraded() map[string]string {
	if d.agent == nil || d.agent.Problem() == "" {
		return nil
	}
	return map[string]string{metrics.FeaturePolicy: d.agent.Problem()}
}

// process is `quietcore run` on a machine in files, with a runtime's side of NRI and a pod that owns two CPUs.
type process struct {
	simulated // as far as its pod at the API server goes
	pid       int
	control.Client
}

// start runs one until the test ends.
func start(t *testing.T, program, node, kubeconfig string, port int) *process {
	t.Helper()
	topo, err := topology.Grid{Sockets: 2, CoresPerL3: 4, ThreadsPerCore: 2}.Build()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	d := &process{simulated: simulated{node: node, pod: "quietcore-" + node, port: port, owners: 1},
		Client: control.Client{Socket: filepath.Join(dir, "run", "q.sock")}}
	if err := os.CopyFS(filepath.Join(dir, "sys"), sysfstest.Tree(topo)); err != nil {
		t.Fatal(err)
	}
	pods := []cmdtest.Pod{{Namespace: "shop", Name: "db-" + node, UID: "uid-" + node, Class: string(policy.LSR),
		CPUs: 2}}
	cmdtest.Cgroups(t, filepath.Join(dir, "cgroup"), topo.Online().String(), pods)
	t.Cleanup(cmdtest.Runtime(t, filepath.Join(dir, "nri.sock"), pods).Stop)
	text := fmt.Sprintf(`apiVersion: quietcore.dev/v1alpha1
state: {dir: %[1]s/state}
socket: %[1]s/run/q.sock
listen: 0.0.0.0:%[2]d
health: {listen: ''}
page: {listen: ''}
nri: {socket: %[1]s/nri.sock}
cgroup: {root: %[1]s/cgroup}
sysfs: {root: %[1]s/sys}
node: {name: %[3]s, kubelet: {stateFile: '', configFile: '', podResources: ''}}
kubernetes: {policy: true, kubeconfig: %[4]s, nodeResourceTopology: {enabled: false}}
cpi: {mode: observe}
`, dir, port, node, kubeconfig)
	cmdtest.Write(t, filepath.Join(dir, "config.yaml"), text)
	log := &cmdtest.Log{}
	cmd := exec.Command(program, "run", "--config", filepath.Join(dir, "config.yaml"))
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d.pid = cmd.Process.Pid
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", node, err)
		}
		if t.Failed() {
			t.Logf("%s: %s", node, log)
		}
	})
	return d
}
