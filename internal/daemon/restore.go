package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/kube"
	"github.com/quietcore/quietcore/internal/lend"
	"github.com/quietcore/quietcore/internal/metrics"
	"github.com/quietcore/quietcore/internal/resctrl"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/plugin"
	"github.com/quietcore/quietcore/policy"
)

// Restore undoes what the daemon did to what runs. The daemon must have ended.
func Restore(ctx context.Context, o Options) ([]plugin.Restored, error) {
	cfg, err := config.Load(o.File)
	if err != nil {
		return nil, &InvalidError{err}
	}
	log := NewLog(o.Log, cfg.Log.Format, nil)
	lock, err := state.TakeLock(cfg.State.Dir)
	var running *state.BusyError
	if errors.As(err, &running) {
		return nil, fmt.Errorf("%w; end the daemon first", err)
	}
	if err != nil {
		return nil, err
	}
	defer lock.Release()
	t, err := readTopology(cfg.Sysfs.Root, log)
	if err != nil {
		return nil, err
	}
	m := metrics.New(o.Version, func() (metrics.Stats, bool) { return metrics.Stats{}, false })
	store := &state.Store{Dir: cfg.State.Dir, Node: cfg.NodeName(), BootID: state.ReadBootID(), Now: time.Now}
	options := plugin.Options{
		Topology: t, Saved: store.Load().Snapshot, Log: log, Metrics: m,
		Socket: cfg.NRI.Socket, Name: cfg.NRI.Name, Index: cfg.NRI.Index,
	}
	cgroups := openTree(cfg, m, log)
	defer cgroups.close()
	cgroups.enter(&options)
	kubelet, err := kubeletState(cfg.Node.Kubelet.StateFile)
	if err != nil {
		return nil, err
	}
	// First, so that no pod comes for CPUs that nothing looks after any more.
	lent := lentCPUs{cfg, o.Version, log}
	unpublished := lent.withdraw(ctx)
	found, err := plugin.Restore(ctx, options, kubelet)
	for _, r := range found {
		err = errors.Join(err, r.Err)
	}
	err = errors.Join(err, resctrl.Clear(resctrl.Dir(cmp.Or(cfg.CPI.Resctrl, usualResctrl))))
	if err != nil {
		return found, fmt.Errorf("not everything is restored, and the state is kept for another try: %w", err)
	}
	return found, errors.Join(unpublished, store.Forget())
}

// usualResctrl is where resctrl is, if an earlier configuration used it.
const usualResctrl = "/sys/fs/resctrl"

// lentCPUs are those that an earlier daemon may have published in the Node's status.
type lentCPUs struct {
	cfg     *config.Config
	version string
	log     *slog.Logger
}

// withdraw takes them from the Node. Where nothing was to be lent, an API server that
// cannot be asked is no failure: it is only logged.
func (l lentCPUs) withdraw(ctx context.Context) error {
	cfg := l.cfg
	err := l.clear(ctx)
	switch {
	case err == nil:
		return nil
	case cfg.Reclaim.Mode == config.SwitchEnforce:
		return fmt.Errorf(
			"lent CPUs may still be published in Node %s, and pods come for them; docs/lending-api.md says how to "+
				"take them away by hand: %w", cfg.NodeName(), err)
	}
	l.log.Warn("it is not known whether an earlier daemon left lent CPUs in the Node's status", "node",
		cfg.NodeName(), "why", err)
	return nil
}

func (l lentCPUs) clear(ctx context.Context) error {
	cfg := l.cfg
	k := cfg.Kubernetes
	if k.API == config.APIOff || !kube.Available(k.Kubeconfig) {
		if cfg.Reclaim.Mode != config.SwitchEnforce {
			return nil
		}
		return errors.New("there is no API server to ask")
	}
	ctx, cancel := context.WithTimeout(ctx, clearLimit)
	defer cancel()
	client, err := kube.New(kube.Options{Kubeconfig: k.Kubeconfig, Node: cfg.NodeName(), Version: l.version, Log: l.log,
		Now: time.Now})
	if err != nil {
		return err
	}
	node, err := client.ReadNode(ctx)
	if err != nil {
		return err
	}
	pods, err := client.ListBatch(ctx)
	if err != nil {
		return err
	}
	cleared, err := lend.Clear(ctx, lend.NewServer(client.REST), cfg.NodeName(), node, pods)
	if err != nil || !cleared.Changed {
		return err
	}
	l.log.Info("lent CPUs are taken from the Node's status", "node", cfg.NodeName(), "milli",
		max(cleared.Was.Own, cleared.Was.Koordinator), "requested", cleared.Was.Bound)
	if cleared.Now.Koordinator > 0 {
		l.log.Warn(
			"pods request CPUs by Koordinator's name, and kubelet fails them where it is missing: run restore again "+
				"when they have ended", "milli", cleared.Now.Koordinator)
	}
	return nil
}

// clearLimit bounds the questions to the API server.
const clearLimit = 30 * time.Second

// kubeletState is what kubelet's static policy pinned; nothing where there is no
// such file.
func kubeletState(path string) (policy.KubeletState, error) {
	if path == "" {
		return policy.KubeletState{}, nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return policy.KubeletState{}, nil
	}
	if err != nil {
		return policy.KubeletState{}, err
	}
	return plugin.ParseKubeletState(text)
}
