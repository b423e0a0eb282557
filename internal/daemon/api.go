package daemon

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"

	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/kube"
	"github.com/quietcore/quietcore/internal/kubelet"
	"github.com/quietcore/quietcore/internal/ledger"
	"github.com/quietcore/quietcore/internal/lend"
	"github.com/quietcore/quietcore/internal/metrics"
	"github.com/quietcore/quietcore/internal/nrt"
	"github.com/quietcore/quietcore/internal/rollout/agent"
	"github.com/quietcore/quietcore/internal/startuptaint"
	"github.com/quietcore/quietcore/policy"
)

type apiOptions struct {
	config  *config.Config
	version string
	node    *node
	kubelet *kubelet.Reconciler
	labels  *labels
	mode    func(context.Context, string) // takes the Node's annotation
	agent   *agent.Agent                  // follows policies; nil: none are
	proven  *proven
	metrics *metrics.Metrics
	log     *slog.Logger
}

// apiServer is what speaks with the API server. Any of it may be missing or silent;
// nothing that answers the runtime waits for it.
type apiServer struct {
	o        apiOptions
	current  func() *config.Config // the configuration in force
	client   *kube.Client          // nil: no API server
	topology *nrt.Publisher        // nil: not published
	stamp    ledger.Stamp          // of what the topology says; its Run's
	lent     *lend.Publisher       // nil: nothing is published, or withdrawn
	claims   *claims
	server   *lend.Server          // marks pods; nil: nothing may be written
	taint    *startuptaint.Remover // nil: taints are left alone
	broken   string                // why there is no client
	started  time.Time
	begun    *begun // until it has, nothing is written to the API server
}

func newAPIServer(o apiOptions, current func() *config.Config) *apiServer {
	a := &apiServer{o: o, current: current, started: time.Now(), begun: newBegun()}
	if err := a.connect(); err != nil {
		// Pods are placed without it.
		a.broken = err.Error()
		o.log.Warn("nothing is read from or written to the API server", "why", err)
	}
	a.claims = newClaims(a)
	a.takeOver(o.config)
	return a
}

// takeOver has another configuration in force. Where nothing is enforced any more, what pods have of lent CPUs stays
// theirs, and no more is lent.
func (a *apiServer) takeOver(cfg *config.Config) {
	enforce := cfg.Mode == config.Enforce
	if enforce {
		a.begun.now()
	}
	if a.topology != nil {
		a.topology.Changed()
	}
	if a.lent == nil {
		return
	}
	a.lent.AlsoKoordinator(cfg.Reclaim.Koordinator)
	switch {
	case cfg.Reclaim.Mode != config.SwitchEnforce:
		a.lent.Withdraw() // what an earlier daemon published too
	case !enforce:
		a.lent.Offer(0)
	}
}

func (a *apiServer) connect() error {
	cfg := a.o.config
	k := cfg.Kubernetes
	if k.API == config.APIOff || !kube.Available(k.Kubeconfig) {
		return nil
	}
	client, err := kube.New(a.clientOptions())
	if err != nil {
		return err
	}
	a.client = client
	if k.Topology.Enabled {
		a.topology = nrt.New(nrt.Options{
			API: nrt.NewLazyAPI(client.REST), Source: a.describe, Log: a.o.log,
			Report:    func(result string) { a.o.metrics.APIRequest("topology", result) },
			Published: a.o.metrics.TopologyPublished,
		})
	}
	if k.StartupTaint {
		a.taint = startuptaint.New(startuptaint.Options{
			API: startuptaint.NewServer(client.REST), Node: cfg.NodeName(), Log: a.o.log,
			Ready:  func() bool { return a.o.node.Connected() && a.o.node.Synchronised() },
			Report: func(result string) { a.o.metrics.APIRequest("node", result) },
		})
	}
	a.server = lend.NewServer(client.REST)
	a.lent = lend.New(lend.Options{
		API: a.server, Node: cfg.NodeName(), Bound: client.Batch, AlsoKoordinator: cfg.Reclaim.Koordinator,
		Log: a.o.log,
		Report: func(result string) {
			a.o.metrics.APIRequest("lending", result)
		}, Repaired: a.o.metrics.LendingRepaired,
	})
	return nil
}

func (a *apiServer) clientOptions() kube.Options {
	cfg := a.o.config
	k := cfg.Kubernetes
	o := kube.Options{
		Kubeconfig: k.Kubeconfig, Node: cfg.NodeName(), Version: a.o.version, Log: a.o.log, Now: time.Now,
		Report: a.o.metrics.APIRequest,
		OnBatch: func() {
			if a.lent != nil {
				a.lent.Changed()
			}
		},
	}
	o.OnMode = a.o.mode
	if a.o.agent != nil {
		o.OnAllLabels, o.Customs = a.o.agent.Labels, a.o.agent.Customs()
	}
	if k.Pods {
		o.OnFacts = a.takeFacts
	}
	if k.Labels {
		o.OnLabels = a.o.labels.take
	}
	if k.StartupTaint {
		o.OnStartupTaint = func(list []kube.Taint) {
			if a.taint != nil {
				a.taint.Observe(list)
			}
		}
	}
	// Where nothing is lent, the Node is not followed for what an earlier daemon may
	// have left there alone: the right to read it is not given then.
	if k.Labels || cfg.Reclaim.Mode == config.SwitchEnforce {
		o.OnLent = func(n kube.LentNode) {
			if a.lent != nil {
				a.lent.Observe(n)
			}
		}
	}
	return o
}

func (a *apiServer) takeFacts(ctx context.Context, f policy.PodFacts) {
	if err := a.o.node.Submit(ctx, f); err != nil {
		a.o.log.Debug("what the API server says of a pod is not taken over", "uid", f.UID, "err", err)
	}
}

// facts asks what is known of a pod; nil: nothing is.
func (a *apiServer) facts(cfg *config.Config) func(uid string) (policy.PodFacts, bool) {
	if a.client == nil || !cfg.Kubernetes.Pods {
		return nil
	}
	return a.client.Facts
}

// events writes Events; nil: none are written.
func (a *apiServer) events(cfg *config.Config) func(policy.Notice) {
	if a.client == nil || !cfg.Kubernetes.Events {
		return nil
	}
	return func(n policy.Notice) {
		if a.current().Mode == config.Enforce { // else it only would be so
			a.client.Notify(n)
		}
	}
}

func (a *apiServer) Run(ctx context.Context) {
	var runs []func(context.Context)
	if a.client != nil {
		runs = append(runs, a.client.Run)
	}
	if a.topology != nil {
		runs = append(runs, a.begun.run(a.topology.Run))
	}
	if a.lent != nil {
		runs = append(runs, a.begun.run(a.lent.Run))
	}
	if a.taint != nil {
		runs = append(runs, a.taint.Run) // in mode observe, too: else nothing would start there
	}
	together(ctx, append(runs, a.begun.run(a.claims.run))...)
}

func (a *apiServer) Health() map[string]string {
	why := map[string]string{metrics.FeatureAPIServer: a.broken, metrics.FeatureDRA: a.claimsState()}
	if a.client != nil {
		why[metrics.FeatureAPIServer] = a.client.State()
	}
	if a.taint != nil {
		why[metrics.FeatureTaint] = a.taint.State()
	}
	if a.topology != nil && a.writes() {
		why[metrics.FeatureTopology] = a.topology.State()
	}
	if a.lent != nil && a.writes() && a.current().Reclaim.Mode == config.SwitchEnforce {
		why[metrics.FeatureLent] = a.lent.State()
	}
	return why
}

// writes reports whether what the API server has is kept up to date.
func (a *apiServer) writes() bool { return a.current().Mode == config.Enforce }

// claimsState says why claims are not served; empty: they are, or nobody asked for it.
func (a *apiServer) claimsState() string {
	if a.claims.driver != nil && !a.begun.has() {
		return "dra.mode is on and mode is observe, which gives no CPUs: no claim is served"
	}
	return a.claims.state()
}

// topologyChanged is called at every change of what the node's NodeResourceTopology
// says, and its ResourceSlices.
func (a *apiServer) topologyChanged() {
	a.claims.changed()
	if a.topology != nil {
		a.topology.Changed()
	}
}

// topologyAge is for how long the node's NodeResourceTopology has not been known to
// be right; 0: it is, or nothing writes it.
func (a *apiServer) topologyAge(now time.Time) time.Duration {
	if a.topology == nil || !a.writes() || a.topology.State() == "" {
		return 0
	}
	if age, ever := a.topology.Age(); ever {
		return max(age, 0)
	}
	return now.Sub(a.started)
}

// describe is the node's NodeResourceTopology as it should be now.
func (a *apiServer) describe() *v1alpha2.NodeResourceTopology {
	if !a.o.node.Synchronised() || !a.writes() {
		return nil // what runs is not known yet
	}
	cfg, known := a.current(), a.o.kubelet.Known()
	k := cfg.Node.Kubelet
	snapshot := a.o.node.Snapshot()
	in := nrt.Input{
		Node: cfg.NodeName(), NodeUID: a.client.NodeUID(), ManagedBy: cfg.Kubernetes.Topology.ManagedBy,
		Snapshot: snapshot, SharedFloor: cfg.Pools.SharedFloor,
		Capacity:  nrt.ReadHugepages(os.DirFS(cfg.Sysfs.Root)),
		Alignment: policy.LabelledAlignment(a.o.labels.or(cfg.Node.Labels)), Taken: known.Inventory.Taken,
		Kubelet: nrt.Kubelet{
			CPUManagerPolicy: k.CPUManagerPolicy.String(), Options: k.Options,
			TopologyPolicy: k.TopologyManagerPolicy.String(), TopologyScope: k.TopologyManagerScope.String(),
		},
	}
	in.Ledger, in.Generation = a.stamp.Of(snapshot)
	in.Refused, in.Alive = a.o.node.Refused(), time.Now()
	in.Pairs = a.o.proven.pairs(in.Alive)
	if own := known.Config; own != nil {
		in.Kubelet = nrt.Kubelet{
			CPUManagerPolicy: own.CPUManagerPolicy, Options: own.Options, TopologyPolicy: own.TopologyPolicy,
			TopologyScope: own.TopologyScope,
		}
		in.Reserved = own.ReservedMemory
	}
	if name := known.State.PolicyName; name != "" {
		in.Kubelet.CPUManagerPolicy = name // a flag of kubelet's shows only there
	}
	for node, devices := range known.Inventory.Devices {
		if in.Capacity[node] == nil {
			in.Capacity[node] = map[string]int64{}
		}
		for name, n := range devices {
			in.Capacity[node][name] = n
		}
	}
	return nrt.Build(in)
}

// evictions asks for the eviction of antagonists that were capped again and again.
type evictions struct {
	queue *lend.Queue // nil: none are evicted
}

func newEvictions(cfg *config.Config, api *apiServer, log *slog.Logger) evictions {
	if cfg.CPI.EvictAfter == 0 || cfg.CPI.Mode != config.CPIEnforce || cfg.Mode == config.Observe || api.server == nil {
		return evictions{}
	}
	return evictions{lend.NewQueue(lend.NewEvictor(lend.EvictorOptions{
		API: api.server, Reason: lend.ReasonInterference, Log: log, Report: api.evictionEnded,
	}), log)}
}

func (e evictions) Run(ctx context.Context) {
	if e.queue != nil {
		e.queue.Run(ctx)
	}
}

// evictionEnded counts the request that there was of an eviction with that result.
func (a *apiServer) evictionEnded(result string) {
	if request := lend.RequestResult(result); request != "" {
		a.o.metrics.APIRequest("eviction", request)
	}
}
