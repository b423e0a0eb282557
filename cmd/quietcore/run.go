package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/incidents"
	"github.com/quietcore/quietcore/internal/metrics"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/plugin"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/sysfs"
	"github.com/quietcore/quietcore/topology"
)

func newRun() *cobra.Command {
	var file, testSocket, failAt string
	var late time.Duration
	cmd := &cobra.Command{
		Use:   "run",
		Short: "the daemon: register with the runtime and place every pod",
		Long: `Registers with the container runtime through NRI and gives every container its CPUs.
It keeps running when the runtime goes away, and containers keep running where they are
when it does. One daemon runs on a node. SIGTERM ends it and leaves every placement.`,
		Example: "  quietcore run --config /etc/quietcore/config.yaml",
		Args:    noArgs,
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration file; without one the defaults hold")
	cmd.Flags().StringVar(&testSocket, "test-socket", "", "take events for tests on this socket")
	cmd.Flags().StringVar(&failAt, "fail-at", "",
		"POINT[:N]: kill this daemon when it passes that point for the Nth time")
	cmd.Flags().DurationVar(&late, "test-late", 0, "let owners start at once and the others leave that much later")
	for _, flag := range []string{"test-socket", "fail-at", "test-late"} {
		_ = cmd.Flags().MarkHidden(flag) // it exists: defined above
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := config.Load(file)
		if err != nil {
			return usageError{err}
		}
		if late != 0 && testSocket == "" {
			return usage("--test-late is for tests and wants --test-socket")
		}
		d := &daemon{file: file, testSocket: testSocket, late: late}
		if d.at, err = failingAt(failAt, testSocket); err != nil {
			return err
		}
		d.cfg.Store(cfg)
		d.level.Set(cfg.Log.Level.Slog())
		d.log = newLog(cmd.ErrOrStderr(), cfg.Log.Format, &d.level)
		klog.SetSlogLogger(d.log) // client-go has a word now and then
		return d.run(cmd.Context())
	}
	return cmd
}

func newLog(w io.Writer, format config.LogFormat, level slog.Leveler) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	if format == config.LogJSON {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// failingAt is for tests of what a daemon leaves that is killed: nothing of it may
// run on, not even a deferred function.
func failingAt(point, testSocket string) (func(plugin.Point), error) {
	switch {
	case point == "":
		return nil, nil
	case testSocket == "":
		return nil, usage("--fail-at is for tests and wants --test-socket")
	}
	at, err := plugin.FailAt(point, func() {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the signal is on its way
	})
	if err != nil {
		return nil, usage("--fail-at: %w", err)
	}
	return at, nil
}

// daemon wires the parts together; it decides nothing.
type daemon struct {
	file, testSocket string
	at               func(plugin.Point) // nil but in tests
	late             time.Duration      // 0 but in tests
	cfg              atomic.Pointer[config.Config]
	level            slog.LevelVar
	log              *slog.Logger

	plugin  *plugin.Plugin
	metrics *metrics.Metrics
	health  *metrics.Health
	cluster *cluster
	cpi     *performance
	lending *lending
	// incidents is nil where nothing is kept of them.
	incidents *incidents.Store
	notify    func(policy.Notice) // an Event; nil: nobody writes them
	kubelet   *plugin.Kubelet
	cpus      *plugin.Hardware
}

func (d *daemon) run(ctx context.Context) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(plugin.GCPercent)
	}
	cfg := d.cfg.Load()
	lock, err := state.TakeLock(cfg.State.Dir)
	if err != nil {
		return err
	}
	defer lock.Release()
	t, err := d.readTopology(cfg.Sysfs.Root)
	if err != nil {
		return err
	}
	d.metrics = metrics.New(version, d.stats)
	d.metrics.Reloaded(time.Now(), nil) // it was good, or there was none
	d.health = metrics.NewHealth(time.Now, func() time.Time { return d.plugin.Beat() })
	d.health.Require("not registered with the runtime", func() bool { return d.plugin.Connected() })
	d.health.Require("what runs is not taken over yet", func() bool { return d.plugin.Synchronised() })
	o := plugin.Options{
		Topology: t, Config: cfg.Policy(), Observe: cfg.Mode == config.Observe,
		Metrics: d.metrics, Log: d.log, Socket: cfg.NRI.Socket, Name: cfg.NRI.Name, Index: cfg.NRI.Index, At: d.at,
		Late: d.late,
	}
	closeTree := d.openTree(cfg, &o)
	defer closeTree()
	d.lending = newLending(d, cfg, o.Flat)
	d.incidents = newIncidentStore(cfg)
	d.cpi = newPerformance(d, cfg, o.Reader != nil, o.Flat)
	d.openState(cfg, &o)
	if d.cluster, err = newCluster(d, cfg, &o); err != nil {
		return err
	}
	defer d.cluster.close()
	d.notify = o.Notify
	if d.plugin, err = plugin.New(o); err != nil {
		return usageError{err}
	}
	d.health.Watch(metrics.FeatureCgroups, d.plugin.Blind)
	d.lending.open(d.cluster.client)
	d.watchers(cfg)
	return d.serve(ctx, cfg)
}

func (d *daemon) readTopology(root string) (*topology.Topology, error) {
	t, warnings, err := sysfs.Read(os.DirFS(root))
	if err != nil {
		return nil, fmt.Errorf("read topology of %s: %w", root, err)
	}
	for _, w := range warnings {
		d.log.Warn("topology", "warning", w.String())
	}
	online := t.Online()
	d.log.Info("topology", "cpus", online.String(), "cores", len(t.Cores()), "nodes", len(t.Nodes()), "sockets",
		len(t.Sockets()))
	return t, nil
}

// openTree opens the cgroups. Without them pinning goes on through the replies to
// the runtime; what is missing is said.
func (d *daemon) openTree(cfg *config.Config, o *plugin.Options) func() {
	tree, err := cgroup.Open(cfg.Cgroup.Root)
	if err != nil {
		d.health.Degraded(metrics.FeatureCgroups, err.Error())
		d.log.Error("cgroups are not written: pods are pinned at creation only, and the pools do not give way", "err",
			err)
		return func() {}
	}
	o.Driver, o.Reader, o.Flat = tree, tree, tree.V1()
	if cfg.Cgroup.Driver == config.DriverCgroups {
		return func() { tree.Close() }
	}
	units := cgroup.NewSystemd(tree, cgroup.BusOptions{Socket: cfg.Cgroup.Bus, Report: d.systemdAnswered})
	router := cgroup.NewRouter(tree, units)
	router.UnitsOnly = cfg.Cgroup.Driver == config.DriverSystemd
	o.Driver, o.Recorded = router, router.Recorded
	return func() { units.Close(); tree.Close() }
}

// systemdAnswered keeps metrics and health on how systemd fares. Its silence is
// told, and the daemon stays ready: what runs stays where it is, and a pod that
// starts is placed by the runtime's own call.
func (d *daemon) systemdAnswered(result string, err error) {
	d.metrics.SystemdCall(result)
	why := ""
	if result != "ok" {
		why = err.Error()
	}
	d.health.Degraded(metrics.FeatureSystemd, why)
}

func (d *daemon) openState(cfg *config.Config, o *plugin.Options) {
	store := &state.Store{Dir: cfg.State.Dir, Node: cfg.NodeName(), BootID: state.ReadBootID(), Now: time.Now,
		Uptime: state.Uptime, At: plugin.AtStage(d.at)}
	found := store.Load()
	if found.Reason != "" {
		d.log.Warn("the state file is not used; the kernel and the runtime are asked instead", "why", found.Reason,
			"aside", found.Aside)
	}
	if o.Observe {
		return // observing writes nothing at all
	}
	o.Store, o.Saved = store, found.Snapshot
}

func (d *daemon) watchers(cfg *config.Config) {
	if path := cfg.Node.Kubelet.StateFile; path != "" {
		d.kubelet = &plugin.Kubelet{Path: path, Log: d.log, Take: d.cluster.stated}
	}
	d.cpus = &plugin.Hardware{Root: cfg.Sysfs.Root, Plugin: d.plugin, Log: d.log}
}

// serve runs the parts until ctx ends or one that cannot be done without fails.
func (d *daemon) serve(ctx context.Context, cfg *config.Config) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var parts sync.WaitGroup
	defer parts.Wait()
	serveOn := func(serve serving, l net.Listener, h http.Handler) {
		parts.Go(func() {
			if err := serve(ctx, l, h); err != nil {
				stop(err)
			}
		})
	}
	if err := d.listen(cfg, serveOn); err != nil {
		stop(err)
		return err
	}
	if d.incidents != nil {
		parts.Go(func() { d.incidents.Run(ctx) })
	}
	for _, part := range append(append(d.cluster.parts(), d.lending.parts()...), d.plugin.Run, d.cpi.run, d.cpus.Watch,
		d.watchKubelet, d.watchConfig, d.servePage) {
		parts.Go(func() { part(ctx) })
	}
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	d.log.Info("ending; every placement stays as it is")
	return nil
}

// serving answers on a listener until its context ends.
type serving func(context.Context, net.Listener, http.Handler) error

func (d *daemon) listen(cfg *config.Config, serveOn func(serving, net.Listener, http.Handler)) error {
	server := &control.Server{Plugin: d.plugin, Config: d.cfg.Load, Fresh: d.fresh, Performance: d.cpi.report,
		Usage: d.cpi.used, Lending: d.lending.report}
	if d.incidents != nil {
		server.Incidents = d.incidents
	}
	l, err := control.Listen(cfg.Socket)
	if err != nil {
		return err
	}
	serveOn(control.Serve, l, server.Handler())
	if d.testSocket != "" {
		d.log.Warn("this daemon takes events for tests", "socket", d.testSocket)
		if l, err = control.Listen(d.testSocket); err != nil {
			return err
		}
		serveOn(control.Serve, l, server.TestHandler())
	}
	if cfg.Listen == "" {
		return nil
	}
	if l, err = metrics.Listen(cfg.Listen); err != nil {
		// Metrics are worth less than pods that start in their places.
		d.log.Error("no metrics and no probes are served", "listen", cfg.Listen, "err", err)
		return nil
	}
	serveOn(metrics.Serve, l, metrics.Handler(d.metrics, d.health))
	return nil
}

func (d *daemon) fresh() bool {
	return d.cpus.Fresh() && (d.kubelet == nil || d.kubelet.Fresh())
}

func (d *daemon) stats() (metrics.Stats, bool) {
	if d.plugin == nil {
		return metrics.Stats{}, false
	}
	now, cfg := time.Now(), d.cfg.Load()
	view := d.plugin.Snapshot()
	s := metrics.FromSnapshot(view, now)
	s.Unpinned, s.Unsaved, s.Stale = d.plugin.Unpinned(), d.plugin.Unsaved(), d.cluster.stale(now)
	s.Connected = d.plugin.Connected()
	s.SharedFloor = cmp.Or(cfg.Pools.SharedFloor, view.Topology.ThreadsPerCore())
	begun := d.lending.cfg // a mode takes effect at a start
	s.Modes = metrics.Modes{Mode: string(begun.Mode), CPI: string(begun.CPI.Mode), Reclaim: string(begun.Reclaim.Mode),
		Suppression: string(begun.Suppress.Mode)}
	s.Lending = d.lending.stats()
	return s, true
}

func (d *daemon) watchKubelet(ctx context.Context) {
	if d.kubelet != nil {
		d.kubelet.Watch(ctx)
	}
}

// watchConfig takes over a changed file; a bad one changes nothing.
func (d *daemon) watchConfig(ctx context.Context) {
	if d.file == "" {
		return
	}
	err := config.Watch(ctx, d.file, func(next *config.Config, err error) {
		if err == nil {
			err = d.reload(ctx, next)
		}
		d.metrics.Reloaded(time.Now(), err)
		if err != nil {
			d.log.Error("the configuration is refused; the one from before stays", "err", err)
		}
	})
	if err != nil {
		d.log.Warn("the configuration is not reloaded", "err", err)
	}
}

// reload takes over what a running daemon can, and names what waits for a restart.
func (d *daemon) reload(ctx context.Context, next *config.Config) error {
	running := d.cfg.Load()
	merged := running.Reloaded(next)
	if !config.SamePolicy(running, merged) {
		if err := d.cluster.reconfigure(ctx, merged.Policy()); err != nil {
			return err
		}
	}
	d.level.Set(merged.Log.Level.Slog())
	d.cfg.Store(merged)
	changes, err := config.Changes(running, next)
	if err != nil {
		return err
	}
	var changed []string
	for _, c := range changes {
		if c.Restart {
			d.log.Warn(c.Key + " changed: takes effect after a restart")
			continue
		}
		changed = append(changed, c.Key)
	}
	if len(changed) > 0 {
		d.log.Info("the configuration is taken over", "changed", changed)
	}
	return nil
}
