package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/kube"
	"github.com/quietcore/quietcore/internal/lend"
	"github.com/quietcore/quietcore/internal/metrics"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/plugin"
	"github.com/quietcore/quietcore/policy"
)

func newRestore() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "undo what the daemon did to what runs, before it is uninstalled",
		Long: `Gives every container back the CPUs and the CFS quota that the kernel, kubelet and the
runtime alone would have given it: masks of slices, pods and containers, lifted quotas,
caps, and what the runtime has stored. Nothing is restarted. The daemon must have ended;
the runtime must run. Pins of kubelet's static policy stay. What the Node says of lent
CPUs is taken away where the API server can be reached.

What no longer is needed is forgotten: the state file is removed once all is restored.
docs/enforcement.md says what a kernel may refuse to give back.`,
		Example: "  quietcore restore --config /etc/quietcore/config.yaml",
		Args:    noArgs,
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration file of the daemon; without one the defaults hold")
	format := output(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := config.Load(file)
		if err != nil {
			return usageError{err}
		}
		d := &daemon{file: file, log: newLog(cmd.ErrOrStderr(), cfg.Log.Format, nil)}
		found, err := d.restore(cmd, cfg)
		if err != nil && len(found) == 0 {
			return err // it has not begun
		}
		if *format == "json" {
			return errors.Join(restoredJSON(cmd.OutOrStdout(), found), err)
		}
		return errors.Join(restoredText(cmd.OutOrStdout(), found), err)
	}
	return cmd
}

func (d *daemon) restore(cmd *cobra.Command, cfg *config.Config) ([]plugin.Restored, error) {
	lock, err := state.TakeLock(cfg.State.Dir)
	var running *state.BusyError
	if errors.As(err, &running) {
		return nil, fmt.Errorf("%w; end the daemon first", err)
	}
	if err != nil {
		return nil, err
	}
	defer lock.Release()
	t, err := d.readTopology(cfg.Sysfs.Root)
	if err != nil {
		return nil, err
	}
	d.metrics = metrics.New(version, func() (metrics.Stats, bool) { return metrics.Stats{}, false })
	d.health = metrics.NewHealth(time.Now, time.Now)
	store := &state.Store{Dir: cfg.State.Dir, Node: cfg.NodeName(), BootID: state.ReadBootID(), Now: time.Now}
	o := plugin.Options{
		Topology: t, Saved: store.Load().Snapshot, Log: d.log, Metrics: d.metrics,
		Socket: cfg.NRI.Socket, Name: cfg.NRI.Name, Index: cfg.NRI.Index,
	}
	closeTree := d.openTree(cfg, &o)
	defer closeTree()
	kubelet, err := kubeletState(cfg.Node.Kubelet.StateFile)
	if err != nil {
		return nil, err
	}
	// First, so that no pod comes for CPUs that nobody looks after any more.
	unlent := d.takeBackLent(cmd.Context(), cfg)
	found, err := plugin.Restore(cmd.Context(), o, kubelet)
	for _, r := range found {
		err = errors.Join(err, r.Err)
	}
	if err != nil {
		return found, fmt.Errorf("not everything is restored, and the state is kept for another try: %w", err)
	}
	return found, errors.Join(unlent, store.Forget())
}

// takeBackLent takes from the Node what was published of lent CPUs. Where nothing was
// to be lent an API server that cannot be asked is no failure: it is only said.
func (d *daemon) takeBackLent(ctx context.Context, cfg *config.Config) error {
	err := d.clearLent(ctx, cfg)
	switch {
	case err == nil:
		return nil
	case cfg.Reclaim.Mode == config.SwitchEnforce:
		return fmt.Errorf(
			"lent CPUs may still be published in Node %s, and pods come for them; docs/lending-api.md says how to "+
				"take them away by hand: %w", cfg.NodeName(), err)
	}
	d.log.Warn("nobody could look whether an earlier daemon left lent CPUs in the Node's status", "node",
		cfg.NodeName(), "why", err)
	return nil
}

func (d *daemon) clearLent(ctx context.Context, cfg *config.Config) error {
	k := cfg.Kubernetes
	if k.API == config.APIOff || !kube.Available(k.Kubeconfig) {
		if cfg.Reclaim.Mode != config.SwitchEnforce {
			return nil
		}
		return errors.New("there is no API server to ask")
	}
	ctx, cancel := context.WithTimeout(ctx, clearLimit)
	defer cancel()
	client, err := kube.New(kube.Options{Kubeconfig: k.Kubeconfig, Node: cfg.NodeName(), Version: version, Log: d.log,
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
	d.log.Info("lent CPUs are taken from the Node's status", "node", cfg.NodeName(), "milli",
		max(cleared.Was.Own, cleared.Was.Koordinator), "requested", cleared.Was.Bound)
	if cleared.Now.Koordinator > 0 {
		d.log.Warn(
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

func restoredText(w io.Writer, found []plugin.Restored) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	same, masked := 0, 0
	for i := range found {
		r := &found[i]
		if r.StillMasked {
			masked++
		}
		if r.Err == nil && !r.Changed() {
			same++
			continue
		}
		fmt.Fprintf(table, "%s\tCPUs %s -> %s\tquota %s -> %s\t%s\n", safe(r.Name), r.Was, r.CPUs, quotaOf(r.QuotaWas),
			quotaOf(r.Quota), problem(r.Err))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	failed := 0
	for i := range found {
		if found[i].Err != nil {
			failed++
		}
	}
	fmt.Fprintf(w, "%d restored, %d were as they should be, %d not restored\n", len(found)-same-failed, same, failed)
	if masked > 0 {
		fmt.Fprintf(w,
			"%d cgroups keep a mask of all CPUs that are online now: CPUs that come later are theirs only after a "+
				"restart of the pod\n", masked)
	}
	return nil
}

func quotaOf(q cgroup.Quota) string {
	if q.Milli() < 0 {
		return "none"
	}
	return fmt.Sprintf("%dm", q.Milli())
}

func problem(err error) string {
	if err == nil {
		return ""
	}
	return "NOT RESTORED: " + safe(err.Error())
}

func restoredJSON(w io.Writer, found []plugin.Restored) error {
	type line struct {
		Name          string `json:"name"`
		Cgroup        string `json:"cgroup"`
		CPUsWere      string `json:"cpusWere"`
		CPUs          string `json:"cpus"`
		QuotaMilliWas int64  `json:"quotaMilliWas"`
		QuotaMilli    int64  `json:"quotaMilli"`
		StillMasked   bool   `json:"stillMasked"`
		Error         string `json:"error,omitempty"`
	}
	encode := json.NewEncoder(w)
	encode.SetEscapeHTML(false)
	for _, r := range found {
		l := line{
			Name: r.Name, Cgroup: r.Path, CPUsWere: r.Was.String(), CPUs: r.CPUs.String(),
			QuotaMilliWas: r.QuotaWas.Milli(), QuotaMilli: r.Quota.Milli(), StillMasked: r.StillMasked,
		}
		if r.Err != nil {
			l.Error = r.Err.Error()
		}
		if err := encode.Encode(l); err != nil {
			return err
		}
	}
	return nil
}
