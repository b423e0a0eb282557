// Package daemon is `quietcore run`: the parts of the daemon, what each is made of,
// and what runs them.
//
// A part has a Run, which ends with its context, and a Health, which names what of it
// does not work. Parts get what they need from their constructors and do not know the
// daemon: a part that is missing or silent stops no other. The plugin asks some parts
// (what the API server knows of a pod, where a pod's devices are), so it is made after
// them: they have it as a *node, which is complete before anything runs.
package daemon

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
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/metrics"
	"github.com/quietcore/quietcore/internal/page"
	"github.com/quietcore/quietcore/internal/serve"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/internal/usage"
	"github.com/quietcore/quietcore/plugin"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/sysfs"
	"github.com/quietcore/quietcore/topology"
)

// Options are what a daemon is started with.
type Options struct {
	File    string // of the configuration; empty: the defaults hold
	Version string
	Log     io.Writer
	Hooks   Hooks // nil in production
	// Doctor and Bundle answer for this daemon what the commands of these names do; nil: nobody does.
	Doctor func(context.Context) (any, error)
	Bundle func(ctx context.Context, w io.Writer, hashNames bool) error
}

// Hooks are for tests of a whole daemon.
type Hooks interface {
	// Prepare changes what the plugin and the store of its state are made of.
	Prepare(*plugin.Options, *state.Store)
	// Listen names a socket of the tests, and what answers there.
	Listen(*plugin.Plugin) (socket string, h http.Handler)
}

// InvalidError is about a configuration that is wrong, or does not fit this machine.
type InvalidError struct{ Err error }

func (e *InvalidError) Error() string { return e.Err.Error() }
func (e *InvalidError) Unwrap() error { return e.Err }

// node is the plugin for parts that are made before it.
type node struct{ *plugin.Plugin }

// part is something that runs beside the others until ctx ends.
type part interface {
	Run(ctx context.Context)
	// Health says of each feature that does not work why. It may be called before Run.
	Health() map[string]string
}

// daemon is what its parts have in common, and the parts.
type daemon struct {
	options Options
	cfg     running
	level   slog.LevelVar
	log     *slog.Logger
	metrics *metrics.Metrics
	health  *metrics.Health

	node      *node
	kubelet   *kubeletReader
	labels    *labels
	api       *apiServer
	counting  *renewable[*counting]
	lending   *renewable[*lending]
	incidents incidentStore
	hardware  *plugin.Hardware
	parts     []part
}

// Run is the daemon until ctx ends, or until something ends that it cannot do without.
func Run(ctx context.Context, o Options) error {
	cfg, err := config.Load(o.File)
	if err != nil {
		return &InvalidError{err}
	}
	d := &daemon{options: o, node: &node{}}
	d.level.Set(cfg.Log.Level.Slog())
	d.log = NewLog(o.Log, cfg.Log.Format, &d.level)
	klog.SetSlogLogger(d.log) // client-go logs by it
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(plugin.GCPercent)
	}
	lock, err := state.TakeLock(cfg.State.Dir)
	if err != nil {
		return err
	}
	defer lock.Release()
	file := cfg
	d.cfg.begin(file, readModes(file.State.Dir, d.log))
	t, err := readTopology(file.Sysfs.Root, d.log)
	if err != nil {
		return err
	}
	cfg = d.resume(file, t)
	d.undoBandwidth(cfg)
	d.metrics = metrics.New(o.Version, d.stats)
	d.metrics.Reloaded(time.Now(), nil) // it was good, or there was none
	cgroups := openTree(cfg, d.metrics, d.log)
	defer cgroups.close()
	if err := d.build(cfg, t, cgroups); err != nil {
		return err
	}
	defer d.kubelet.close()
	return d.serve(ctx, cfg)
}

// NewLog makes the log that a configuration asks for.
func NewLog(w io.Writer, format config.LogFormat, level slog.Leveler) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	if format == config.LogJSON {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

func readTopology(root string, log *slog.Logger) (*topology.Topology, error) {
	t, warnings, err := sysfs.Read(os.DirFS(root))
	if err != nil {
		return nil, fmt.Errorf("read topology of %s: %w", root, err)
	}
	for _, w := range warnings {
		log.Warn("topology", "warning", w.String())
	}
	log.Info("topology", "cpus", t.Online().String(), "cores", len(t.Cores()), "nodes", len(t.Nodes()),
		"sockets", len(t.Sockets()))
	return t, nil
}

// build makes the parts, each from those before it.
func (d *daemon) build(cfg *config.Config, t *topology.Topology, cgroups *tree) error {
	d.kubelet = newKubeletReader(cfg, d.node, d.log)
	d.labels = &labels{node: d.node, log: d.log}
	proven := newProven()
	d.follow(cfg)
	d.api = newAPIServer(apiOptions{
		config: cfg, version: d.options.Version, node: d.node, kubelet: d.kubelet.reconciler, labels: d.labels,
		mode: d.takeAnnotation, agent: d.cfg.followed.agent, proven: proven, metrics: d.metrics, log: d.log,
	}, d.cfg.Load)
	if err := d.kubelet.connect(cfg, d.api.topologyChanged); err != nil {
		return err
	}
	notices := notifier{log: d.log, event: d.api.events(cfg)}
	d.incidents = newIncidentStore(cfg)
	d.incidents.day = newDay(d.dayOptions(cfg))
	d.lending = newRenewable(d.makeLending(cfg, cgroups, notices, nil), func(cfg *config.Config, l *lending) *lending {
		return d.makeLending(cfg, cgroups, notices, l)
	})
	d.counting = newRenewable(d.makeCounting(cfg, cgroups, notices, proven, nil),
		func(cfg *config.Config, c *counting) *counting {
			return d.makeCounting(cfg, cgroups, notices, proven, c)
		})
	o := d.pluginOptions(cfg, t, cgroups)
	made, err := plugin.New(o)
	if err != nil {
		return &InvalidError{err}
	}
	d.node.Plugin = made
	d.hardware = &plugin.Hardware{Root: cfg.Sysfs.Root, Plugin: made, Log: d.log}
	d.lending.now().build()
	d.parts = []part{
		enforcement{made, cgroups}, d.kubelet, d.api, d.lending, d.counting, silent{d.hardware.Watch},
		silent{d.watchConfig}, silent{d.followMode}, policyPart{&d.cfg.followed},
		silent{d.incidents.begun.run(d.incidents.Run)}, d.incidents.day, d.page(cfg),
	}
	d.health = metrics.NewHealth(time.Now, made.Beat)
	d.health.Require("not registered with the runtime", made.Connected)
	d.health.Require("what runs is not taken over yet", made.Synchronised)
	d.health.Require("the policy is frozen after an internal error, see the log", func() bool {
		return made.Frozen() == ""
	})
	for _, p := range d.parts {
		d.health.Watch(p.Health)
	}
	d.health.Look()
	return nil
}

func (d *daemon) pluginOptions(cfg *config.Config, t *topology.Topology, cgroups *tree) plugin.Options {
	o := plugin.Options{
		Topology: t, Config: cfg.Policy(), Observe: cfg.Mode == config.Observe, Metrics: d.metrics, Log: d.log,
		Socket: cfg.NRI.Socket, Name: cfg.NRI.Name, Index: cfg.NRI.Index, CPUsEnv: cfg.Inject.CPUsEnv,
		Changed: func() { d.api.topologyChanged(); d.kubelet.changed() },
		Facts:   d.api.facts(cfg), Notify: d.api.events(cfg), Devices: d.kubelet.nodesOf(),
		Claims: d.kubelet.claims.Look,
	}
	o.Config.NodeLabels = withArch(o.Config.NodeLabels)
	cgroups.enter(&o)
	d.kubelet.foresee(cfg, &o)
	o.Config.ClaimShares = d.api.firstShares(t, &o.Config)
	d.labels.policy = o.Config
	store := &state.Store{
		Dir: cfg.State.Dir, Node: cfg.NodeName(), BootID: state.ReadBootID(), Now: time.Now, Uptime: state.Uptime,
	}
	if d.options.Hooks != nil {
		d.options.Hooks.Prepare(&o, store)
	}
	found := store.Load()
	if found.Reason != "" {
		d.log.Warn("the state file is not used; the kernel and the runtime are asked instead", "why", found.Reason,
			"aside", found.Aside)
	}
	o.Store, o.Saved = store, found.Snapshot
	said := d.cfg.modes.now()
	o.Undo = said.undoes(d.cfg.file.Load().Mode)
	return o
}

// dayOptions say where the facts of the report come from. None is asked before everything is made.
func (d *daemon) dayOptions(cfg *config.Config) dayOptions {
	return dayOptions{
		node: d.node, config: d.cfg.Load, incidents: d.incidents.Store, file: dayFile(cfg), log: d.log,
		usage: func(cgroups map[string]string) []usage.Reading {
			return d.counting.now().readUsage(cgroups)
		},
		lending: func() *page.Lending { return d.lending.now().measured() },
		counts:  func() string { return d.counting.now().why() },
	}
}

// bestEffortFloor is what best effort keeps of its pool.
func (d *daemon) bestEffortFloor(s *policy.Snapshot) int {
	return cmp.Or(d.cfg.Load().Pools.BEFloor, s.Topology.ThreadsPerCore())
}

// serve runs the parts and answers questions until ctx ends.
func (d *daemon) serve(ctx context.Context, cfg *config.Config) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	runs, err := d.listen(cfg, stop)
	if err != nil {
		return err
	}
	for _, p := range d.parts {
		runs = append(runs, p.Run)
	}
	runs = append(runs, func(ctx context.Context) { d.health.Run(ctx, d.log) },
		func(ctx context.Context) { unmapUnneeded(ctx, d.log) })
	together(ctx, append(runs, func(ctx context.Context) {
		if <-ctx.Done(); errors.Is(context.Cause(ctx), context.Canceled) {
			d.log.Info("ending; every placement stays as it is")
		}
	})...)
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// serving answers on a listener until its context ends.
type serving func(context.Context, net.Listener, http.Handler) error

// listen opens what the daemon is asked by, and returns what answers there. A server
// that fails ends the daemon.
func (d *daemon) listen(cfg *config.Config, stop func(error)) (runs []func(context.Context), err error) {
	on := func(serve serving, l net.Listener, h http.Handler) {
		runs = append(runs, func(ctx context.Context) {
			if err := serve(ctx, l, h); err != nil {
				stop(err)
			}
		})
	}
	server := &control.Server{
		Metrics: metrics.Handler(d.metrics, d.health),
		Plugin:  d.node.Plugin, Config: d.cfg.Load, RestartRequired: d.cfg.restartRequired, Fresh: d.fresh,
		Mode: d.modeNow, SetMode: d.setMode, Policy: d.policyNow,
		Performance: func() control.Performance { return d.counting.now().report() },
		Usage:       func(view *policy.Snapshot) map[string]control.Used { return d.counting.now().used(view) },
		Lending:     func(ctx context.Context) *control.Lending { return d.lending.now().report(ctx) },
		Incidents:   d.incidents.Store, Reports: d.incidents.day.reports(),
		About: control.About{
			Version: d.options.Version, Doctor: d.options.Doctor, Bundle: d.options.Bundle,
			Degraded: func() map[string]string { return d.health.Ready().Degraded },
		},
	}
	l, err := control.Listen(cfg.Socket)
	if err != nil {
		return nil, err
	}
	on(control.Serve, l, server.Handler())
	if d.options.Hooks != nil {
		socket, handler := d.options.Hooks.Listen(d.node.Plugin)
		d.log.Warn("this daemon takes events for tests", "socket", socket)
		if l, err = control.Listen(socket); err != nil {
			return nil, err
		}
		on(control.Serve, l, handler)
	}
	// What follows is worth less than pods that start in their places: where it cannot be
	// served, the log says so.
	try := func(what, address string, limits serve.Limits, open func(net.Listener)) {
		if address == "" {
			return
		}
		l, err := serve.Listen(address, limits)
		if err != nil {
			d.log.Error("no "+what+" are served", "listen", address, "err", err)
			return
		}
		open(l)
	}
	try("probes", cfg.Health.Listen, d.probesLimits(), func(l net.Listener) { on(serveProbes, l, d.health.Probes()) })
	try("metrics", cfg.Listen, metricsLimits(), func(l net.Listener) {
		if l, h := d.remoteServer(cfg, l, server); l != nil {
			on(serveMetrics, l, h)
		}
	})
	server.Confined = d.confine(cfg) // it reads nothing of it before it runs
	return runs, nil
}

// probesLimits keep places for the node's own addresses, which kubelet asks from. What
// they are is read once: a pod's routes and its node's addresses stay.
func (d *daemon) probesLimits() serve.Limits {
	interfaces, err := net.InterfaceAddrs()
	if err != nil {
		d.log.Warn("the node's own addresses are not known, and have no places of their own for probes", "err", err)
	}
	own := serve.OwnAddresses(os.DirFS("/proc/net"), interfaces, strings.Split(os.Getenv("NODE_IPS"), ","))
	return serve.Limits{All: 16, FromOne: 4, Rate: 4, Own: 4, IsOwn: own}
}

// serveProbes has one request a connection: kubelet makes a new one for each probe.
func serveProbes(ctx context.Context, l net.Listener, h http.Handler) error {
	const ask, take = 2 * time.Second, 2 * time.Second
	return serve.Serve(ctx, l, h, serve.Times{Request: ask, Answer: take})
}

// fresh reports whether all that files say now has been looked at.
func (d *daemon) fresh() bool { return d.hardware.Fresh() && d.kubelet.fresh() }

// page is the part that shows the node to browsers.
func (d *daemon) page(cfg *config.Config) part {
	o := page.Options{
		History: func(id string) []sample.Sample { return d.counting.now().history(id) },
		Node:    cfg.NodeName(), Version: d.options.Version, Log: d.log,
		Look: func() page.Look {
			return page.Look{
				Snapshot: d.node.Snapshot(), Connected: d.node.Connected(), Synchronised: d.node.Synchronised(),
				Observe: d.cfg.Load().Mode == config.Observe, Unpinned: d.node.Unpinned(),
				Performance: d.counting.now().report(), Lending: d.lending.now().measured(),
			}
		},
		Load: loadFrom(procStat), Report: d.incidents.day.last, Incidents: d.incidents.Store,
	}
	return &pageServer{options: o, listen: cfg.Page.Listen, log: d.log}
}

// stats are the daemon's state in numbers, for a scrape.
func (d *daemon) stats() (metrics.Stats, bool) {
	if d.node.Plugin == nil {
		return metrics.Stats{}, false
	}
	now, cfg := time.Now(), d.cfg.Load()
	view := d.node.Snapshot()
	s := metrics.FromSnapshot(view, now)
	s.Unpinned, s.Unsaved, s.Stale = d.node.Unpinned(), d.node.Unsaved(), d.api.topologyAge(now)
	s.Connected = d.node.Connected()
	s.SharedFloor = cmp.Or(cfg.Pools.SharedFloor, view.Topology.ThreadsPerCore())
	s.Modes = metrics.Modes{
		Mode: string(cfg.Mode), CPI: string(cfg.CPI.Mode), Reclaim: string(cfg.Reclaim.Mode),
		Suppression: string(cfg.Suppress.Mode),
	}
	said := d.modeNow()
	s.Source, s.Undoing = said.Source, said.Undoing
	s.Lending, s.RestartRequired = d.lending.now().stats(), len(d.cfg.restartRequired())
	return s, true
}
