package main

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"

	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/kube"
	"github.com/quietcore/quietcore/internal/kubelet"
	"github.com/quietcore/quietcore/internal/metrics"
	"github.com/quietcore/quietcore/internal/nrt"
	"github.com/quietcore/quietcore/plugin"
	"github.com/quietcore/quietcore/policy"
)

// cluster is kubelet and the API server as far as the daemon hears of them. Any part
// may be missing or silent; nobody who answers the runtime waits for one.
type cluster struct {
	d         *daemon
	observe   bool
	node      string
	sysfsRoot string
	managedBy string

	client   *kube.Client     // nil: no API server
	topology *nrt.Publisher   // nil: not published
	config   *kubelet.Watcher // nil: not read
	devices  *kubelet.Devices // nil: not asked
	changed  chan struct{}    // something that the inventory may follow
	started  time.Time

	// turn is held while the policy takes over labels, or a configuration with them: the
	// older ones must not come last. It is taken before mu.
	turn sync.Mutex

	mu        sync.Mutex
	kubelet   *kubelet.Config // nil: not known yet
	state     policy.KubeletState
	inventory kubelet.Inventory
	labels    map[string]string // nil: the API server has not spoken
	reserved  bool              // which CPUs kubelet reserves was missing when it was last looked for
}

// inventoryEvery is how often kubelet is asked for all of its devices, inventoryPause
// how long at least it is left alone.
const (
	inventoryEvery = time.Minute
	inventoryPause = 5 * time.Second
	inventoryLimit = 10 * time.Second
)

// newCluster gives the plugin what it may ask and whom it tells.
func newCluster(d *daemon, cfg *config.Config, o *plugin.Options) (*cluster, error) {
	c := &cluster{
		d: d, observe: cfg.Mode == config.Observe, node: cfg.NodeName(), sysfsRoot: cfg.Sysfs.Root,
		managedBy: cfg.Kubernetes.Topology.ManagedBy, changed: make(chan struct{}, 1), started: time.Now(),
	}
	o.CPUsEnv = cfg.Inject.CPUsEnv
	o.Changed = c.stirred
	k := cfg.Node.Kubelet
	if k.ConfigFile != "" {
		c.config = &kubelet.Watcher{File: k.ConfigFile, DropIns: k.ConfigDir, Take: c.configured, Log: d.log}
		d.health.Watch(metrics.FeatureKubelet, c.config.State)
		foresee(k, o)
	}
	if k.PodResources != "" {
		var err error
		if c.devices, err = kubelet.NewDevices(k.PodResources, time.Now); err != nil {
			return nil, err
		}
		o.Devices = c.devices.NodesOf
	}
	if err := c.connect(cfg, o); err != nil {
		// Pods are placed without it; what is missing is said.
		d.health.Degraded(metrics.FeatureAPIServer, err.Error())
		d.log.Warn("nothing is read from or written to the API server", "why", err)
	}
	return c, nil
}

// foresee lets the first pods after a start find kubelet's configuration in force.
// What is wrong with it is said by its watcher.
func foresee(k config.Kubelet, o *plugin.Options) {
	sources, err := kubelet.Read(k.ConfigFile, k.ConfigDir)
	if err != nil {
		return
	}
	found, err := kubelet.Parse(sources...)
	if err != nil {
		return
	}
	with := o.Config
	with.Kubelet = found.Policy(found.ReservedCPUs)
	if _, err := policy.New(o.Topology, with); err == nil {
		o.Config = with
	}
}

func (c *cluster) connect(cfg *config.Config, o *plugin.Options) error {
	k := cfg.Kubernetes
	if k.API == config.APIOff || !kube.Available(k.Kubeconfig) {
		return nil
	}
	options := kube.Options{
		Kubeconfig: k.Kubeconfig, Node: c.node, Version: version, Log: c.d.log, Now: time.Now,
		Report: c.d.metrics.APIRequest,
	}
	if k.Pods {
		options.OnFacts = c.learned
	}
	if k.Labels {
		options.OnLabels = c.labelled
	}
	c.d.lending.connect(&options)
	client, err := kube.New(options)
	if err != nil {
		return err
	}
	c.client = client
	c.d.health.Watch(metrics.FeatureAPIServer, client.State)
	if k.Pods {
		o.Facts = client.Facts
	}
	if c.observe {
		return nil // observing writes nothing at all
	}
	if k.Events {
		o.Notify = client.Notify
	}
	if k.Topology.Enabled {
		c.topology = nrt.New(nrt.Options{
			API: &lateAPI{client: client}, Source: c.describe, Log: c.d.log,
			Report:    func(result string) { c.d.metrics.APIRequest("topology", result) },
			Published: c.d.metrics.TopologyPublished,
		})
		c.d.health.Watch(metrics.FeatureTopology, c.topology.State)
	}
	return nil
}

func (c *cluster) close() {
	if c.devices != nil {
		_ = c.devices.Close() // it only ever read
	}
}

// parts are what runs beside the plugin.
func (c *cluster) parts() []func(context.Context) {
	var parts []func(context.Context)
	if c.config != nil {
		parts = append(parts, c.config.Watch)
	}
	if c.client != nil {
		parts = append(parts, c.client.Run)
	}
	if c.topology != nil {
		parts = append(parts, c.topology.Run)
	}
	if c.devices != nil {
		parts = append(parts, c.takeInventory)
	}
	return parts
}

func (c *cluster) learned(ctx context.Context, f policy.PodFacts) {
	if err := c.d.plugin.Submit(ctx, f); err != nil {
		c.d.log.Debug("what the API server says of a pod is not taken over", "uid", f.UID, "err", err)
	}
}

// labelled takes over the Node's labels. Those of the configuration stood in for them.
func (c *cluster) labelled(ctx context.Context, labels map[string]string) {
	c.turn.Lock()
	defer c.turn.Unlock()
	c.mu.Lock()
	c.labels = labels
	c.mu.Unlock()
	if err := c.d.plugin.TakeLabels(ctx, labels); err != nil {
		c.d.log.Warn("the Node's labels are not taken over", "err", err)
	}
}

// overlay is the configuration's policy with what the cluster knows better.
func (c *cluster) overlay(p policy.Config) policy.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.labels != nil {
		p.NodeLabels = c.labels
	}
	return p
}

// reconfigure takes over the policy of a configuration.
func (c *cluster) reconfigure(ctx context.Context, p policy.Config) error {
	c.turn.Lock()
	defer c.turn.Unlock()
	return c.d.plugin.Reconfigure(ctx, c.overlay(p))
}

// configured takes over kubelet's configuration.
func (c *cluster) configured(ctx context.Context, k kubelet.Config) error {
	c.mu.Lock()
	c.kubelet = &k
	c.mu.Unlock()
	return c.tellKubelet(ctx)
}

// stated takes over kubelet's CPU manager state.
func (c *cluster) stated(ctx context.Context, s policy.KubeletState) error {
	if err := c.d.plugin.Submit(ctx, s); err != nil {
		return err
	}
	c.mu.Lock()
	c.state = s
	again := c.reserved
	c.mu.Unlock()
	if again {
		return c.tellKubelet(ctx)
	}
	return nil
}

// tellKubelet gives the policy kubelet's configuration with the CPUs that kubelet
// reserves, which need not be written in it.
func (c *cluster) tellKubelet(ctx context.Context) error {
	online := c.d.plugin.Snapshot().Topology.Online()
	c.mu.Lock()
	if c.kubelet == nil {
		c.mu.Unlock()
		return nil
	}
	reserved, known := c.kubelet.Reserved(online, c.inventory.CPUs, c.state)
	said := !known && !c.reserved
	c.reserved = !known
	k, count := c.kubelet.Policy(reserved), c.kubelet.ReservedCount()
	c.mu.Unlock()
	if said {
		c.d.log.Warn(
			"kubelet reserves CPUs and nothing says which; name them in reservedSystemCPUs of its configuration, or "+
				"in ours as reserved.cpus", "count", count)
	}
	return c.d.plugin.Submit(ctx, policy.KubeletConfigured{Kubelet: k})
}

// stirred is called at every change of the snapshot.
func (c *cluster) stirred() {
	if c.topology != nil {
		c.topology.Changed()
	}
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// takeInventory follows what kubelet gave to containers.
func (c *cluster) takeInventory(ctx context.Context) {
	for {
		c.lookAtDevices(ctx)
		if !pause(ctx, inventoryPause, nil) || !pause(ctx, inventoryEvery, c.changed) {
			return
		}
	}
}

func (c *cluster) lookAtDevices(ctx context.Context) {
	asking, cancel := context.WithTimeout(ctx, inventoryLimit)
	defer cancel()
	found, err := c.devices.Inventory(asking)
	if err != nil {
		return // no kubelet, or an old one: NUMA nodes are published without devices
	}
	c.mu.Lock()
	c.inventory = found
	again := c.reserved
	c.mu.Unlock()
	if again {
		if err := c.tellKubelet(ctx); err != nil {
			c.d.log.Warn("kubelet's configuration is not taken over", "err", err)
		}
	}
	if c.topology != nil {
		c.topology.Changed()
	}
}

// pause waits for a time or an early end; false: ctx ended.
func pause(ctx context.Context, d time.Duration, early <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-early:
	}
	return true
}

// stale is for how long nothing is known to have said what is so in the node's
// NodeResourceTopology; 0: it does, or nobody writes it.
func (c *cluster) stale(now time.Time) time.Duration {
	if c == nil || c.topology == nil || c.topology.State() == "" {
		return 0
	}
	if age, ever := c.topology.Age(); ever {
		return max(age, 0)
	}
	return now.Sub(c.started)
}

// describe is the node's NodeResourceTopology as it should be now.
func (c *cluster) describe() *v1alpha2.NodeResourceTopology {
	if !c.d.plugin.Synchronised() {
		return nil // what runs is not known yet
	}
	cfg := c.d.cfg.Load()
	in := nrt.Input{
		Node: c.node, ManagedBy: c.managedBy, Snapshot: c.d.plugin.Snapshot(), SharedFloor: cfg.Pools.SharedFloor,
		Capacity: nrt.ReadHugepages(os.DirFS(c.sysfsRoot)),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k, labels := cfg.Node.Kubelet, cfg.Node.Labels
	in.Kubelet = nrt.Kubelet{
		CPUManagerPolicy: k.CPUManagerPolicy.String(), Options: k.Options,
		TopologyPolicy: k.TopologyManagerPolicy.String(), TopologyScope: k.TopologyManagerScope.String(),
	}
	if own := c.kubelet; own != nil {
		in.Kubelet = nrt.Kubelet{CPUManagerPolicy: own.CPUManagerPolicy, Options: own.Options,
			TopologyPolicy: own.TopologyPolicy, TopologyScope: own.TopologyScope}
		in.Reserved = own.ReservedMemory
	}
	if said := c.state.PolicyName; said != "" {
		in.Kubelet.CPUManagerPolicy = said // a flag of kubelet's shows only there
	}
	if c.labels != nil {
		labels = c.labels
	}
	if c.client != nil {
		in.NodeUID = c.client.NodeUID()
	}
	in.Alignment = policy.LabelledAlignment(labels)
	for node, devices := range c.inventory.Devices {
		if in.Capacity[node] == nil {
			in.Capacity[node] = map[string]int64{}
		}
		for name, n := range devices {
			in.Capacity[node][name] = n
		}
	}
	in.Taken = c.inventory.Taken
	return nrt.Build(in)
}

// lateAPI connects when it is first needed: the credentials may not be there yet.
type lateAPI struct {
	client *kube.Client

	mu  sync.Mutex
	api nrt.API
}

func (l *lateAPI) connected() (nrt.API, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.api != nil {
		return l.api, nil
	}
	rest, err := l.client.REST()
	if err == nil {
		l.api, err = nrt.NewAPI(rest)
	}
	return l.api, err
}

func (l *lateAPI) Versions(ctx context.Context) ([]string, error) {
	api, err := l.connected()
	if err != nil {
		return nil, err
	}
	return api.Versions(ctx)
}

func (l *lateAPI) Get(ctx context.Context, version, name string) (*v1alpha2.NodeResourceTopology, error) {
	api, err := l.connected()
	if err != nil {
		return nil, err
	}
	return api.Get(ctx, version, name)
}

func (l *lateAPI) Apply(ctx context.Context, version string, o nrt.Applied) (*v1alpha2.NodeResourceTopology, error) {
	api, err := l.connected()
	if err != nil {
		return nil, err
	}
	return api.Apply(ctx, version, o)
}
