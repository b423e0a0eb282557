package daemon

import (
	"context"
	"log/slog"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cdi"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/kubelet"
	"github.com/quietcore/quietcore/internal/metrics"
	"github.com/quietcore/quietcore/plugin"
	"github.com/quietcore/quietcore/policy"
)

// kubeletReader follows what kubelet is configured to do, what its static policy
// pinned, what devices it gave to containers, and what DRA drivers gave to claims. Any of them may be missing.
type kubeletReader struct {
	log        *slog.Logger
	reconciler *kubelet.Reconciler
	watcher    *kubelet.Watcher // of its configuration; nil: not read
	state      *plugin.Kubelet  // of its CPU manager; nil: not read
	devices    *kubelet.Devices // nil: not asked
	poller     *kubelet.Poller  // nil with devices
	claims     *cdi.Specs
}

func newKubeletReader(cfg *config.Config, n *node, log *slog.Logger) *kubeletReader {
	k := &kubeletReader{log: log, reconciler: &kubelet.Reconciler{
		Submit: func(ctx context.Context, e policy.Event) error { return n.Submit(ctx, e) },
		Online: func() cpuset.Set { return n.Snapshot().Topology.Online() },
		Log:    log,
	}}
	k.claims = cdi.New(cdi.Options{Dirs: cdi.Dirs(), Log: log,
		Take: func(ctx context.Context, e policy.ForeignClaims) error { return n.Submit(ctx, e) }})
	from := cfg.Node.Kubelet
	if from.ConfigFile != "" {
		k.watcher = &kubelet.Watcher{File: from.ConfigFile, DropIns: from.ConfigDir, Take: k.reconciler.TakeConfig,
			Log: log}
	}
	if from.StateFile != "" {
		k.state = &plugin.Kubelet{Path: from.StateFile, Log: log, Take: k.reconciler.TakeState}
	}
	return k
}

// connect has kubelet asked for devices, and taken called after each answer.
func (k *kubeletReader) connect(cfg *config.Config, taken func()) (err error) {
	socket := cfg.Node.Kubelet.PodResources
	if socket == "" {
		return nil
	}
	if k.devices, err = kubelet.NewDevices(socket, time.Now); err != nil {
		return err
	}
	k.poller = kubelet.NewPoller(k.devices, func(ctx context.Context, found kubelet.Inventory) {
		if err := k.reconciler.TakeInventory(ctx, found); err != nil {
			k.log.Warn("kubelet's configuration is not taken over", "err", err)
		}
		taken()
	})
	return nil
}

// foresee lets the first pods after a start find kubelet's configuration in force.
// What is wrong with it is for its watcher to report.
func (k *kubeletReader) foresee(cfg *config.Config, o *plugin.Options) {
	if k.watcher == nil {
		return
	}
	found, err := kubelet.Load(cfg.Node.Kubelet.ConfigFile, cfg.Node.Kubelet.ConfigDir)
	if err != nil {
		return
	}
	with := o.Config
	with.Kubelet = found.Policy(found.ReservedCPUs)
	if _, err := policy.New(o.Topology, with); err == nil {
		o.Config = with
	}
}

// nodesOf asks on which NUMA nodes a pod's devices are; nil: kubelet is not asked.
func (k *kubeletReader) nodesOf() func(ctx context.Context, namespace, pod string) (cpuset.Set, error) {
	if k.devices == nil {
		return nil
	}
	return k.devices.NodesOf
}

// changed is called at every change of the snapshot.
func (k *kubeletReader) changed() {
	if k.poller != nil {
		k.poller.Changed()
	}
}

// fresh reports whether what kubelet's files say now has been looked at.
func (k *kubeletReader) fresh() bool {
	return (k.state == nil || k.state.Fresh()) && (k.watcher == nil || k.watcher.Fresh())
}

func (k *kubeletReader) Run(ctx context.Context) {
	runs := []func(context.Context){k.claims.Watch}
	if k.watcher != nil {
		runs = append(runs, k.watcher.Watch)
	}
	if k.state != nil {
		runs = append(runs, k.state.Watch)
	}
	if k.poller != nil {
		runs = append(runs, k.poller.Run)
	}
	together(ctx, runs...)
}

func (k *kubeletReader) Health() map[string]string {
	if k.watcher == nil {
		return nil
	}
	return map[string]string{metrics.FeatureKubelet: k.watcher.State()}
}

func (k *kubeletReader) close() {
	if k.devices != nil {
		_ = k.devices.Close() // it only ever read
	}
}
