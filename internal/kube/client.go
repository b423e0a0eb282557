// Package kube is the daemon's connection to the API server. A [Client] follows the
// pods and the labels of this node, and writes Events.
//
// No handler of the container runtime waits for it. Facts reads a local map and Notify
// adds to a bounded queue; neither takes a lock that is held during a request. Run
// makes all requests until its context ends. If the API server is absent, slow or
// refuses, Run backs off and logs a line every ten minutes. The last known state stays
// in force meanwhile.
//
// Of a pod only its policy.PodFacts are kept, a few dozen bytes. Lists are decoded pod
// by pod, so that no tenant's annotations fill the memory.
package kube

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/quietcore/quietcore/policy"
)

// Options configure a Client. Node is required.
type Options struct {
	// Kubeconfig is a file; empty: the pod's service account.
	Kubeconfig string
	// Node is the name of the Node object.
	Node string
	// Version is part of the user agent.
	Version string
	Log     *slog.Logger
	Now     func() time.Time
	// Report counts a request. what is "pods", "node", "events" or a Custom's part. result is "ok",
	// "error", "forbidden", "notfound", "timeout" or "dropped"; the last is an Event
	// that was given up before it was sent.
	Report func(what, result string)
	// OnFacts is called for every pod whose facts are new or changed, by the UID that
	// the runtime knows. It may block, which delays following this node's pods. Nil:
	// pods are not followed.
	OnFacts func(context.Context, policy.PodFacts)
	// OnLabels is called with the Node's labels below node.koordinator.sh/ when they
	// are first seen and when they change. Nil: the Node is not followed.
	OnLabels func(context.Context, map[string]string)
	// OnLent is called with the Node's lent CPUs at every change of the Node, and with
	// the zero value when it is deleted. OnBatch is called when Batch changes. Neither
	// may block. Nil: not called.
	OnLent  func(LentNode)
	OnBatch func()
	// OnMode is called with the Node's annotation AnnMode when the Node is first seen and when that changes; empty: it
	// has none. Of a Node that is gone the last one counts. It may block. Nil: not called. It does not have the Node
	// followed.
	OnMode func(ctx context.Context, value string)
	// OnAllLabels is called with all labels of the Node, when they are first seen and when they change. It must not
	// block, nor change them. Nil: not called.
	OnAllLabels func(map[string]string)
	// OnStartupTaint is called with the Node's taints StartupTaint at every change of the Node; none: it has none, or
	// is gone. It must not block. Nil: not called.
	OnStartupTaint func([]Taint)
	// Customs are followed, too.
	Customs []*Custom
}

// AnnMode is the Node's annotation that says what the mode of the daemon is to be.
const AnnMode = "quietcore.dev/mode"

func (o *Options) followsNode() bool {
	return o.OnLabels != nil || o.OnLent != nil || o.OnAllLabels != nil || o.OnStartupTaint != nil
}

// Client follows one node's objects and writes Events. Its methods are safe for
// concurrent use; Run must be called at most once.
type Client struct {
	o      Options
	health *health
	pods   *pods
	node   *node
	queue  *queue

	dial sync.Mutex // guards link; Facts and Notify never take it
	link *link

	// What tests replace: how long real pauses are.
	backoff wait.Backoff
	after   func(time.Duration) <-chan time.Time
	qps     float32
}

// NodeUID returns the UID of the Node object when last seen; empty before.
func (c *Client) NodeUID() types.UID {
	if uid := c.node.uid.Load(); uid != nil {
		return *uid
	}
	return ""
}

// The parts of the API that the daemon uses, as Report names them.
const (
	partPods   = "pods"
	partNode   = "node"
	partEvents = "events"
)

// ErrNoNode says that the name of this Node is unknown.
var ErrNoNode = errors.New(
	"the Node's name is not known, so nothing is read from or written to the API server: set node.name or the " +
		"environment variable NODE_NAME")

// Available says whether an API server is configured: by a kubeconfig, or by the
// service account that kubelet mounts into a pod.
func Available(kubeconfig string) bool {
	if kubeconfig != "" {
		return true
	}
	if os.Getenv("KUBERNETES_SERVICE_HOST") == "" || os.Getenv("KUBERNETES_SERVICE_PORT") == "" {
		return false
	}
	_, err := os.Stat(serviceAccountToken)
	return err == nil
}

const serviceAccountToken = "/var/run/secrets/kubernetes.io/serviceaccount/token"

// New makes a client. It neither reads files nor sends requests; Run copes with missing
// or wrong credentials.
func New(o Options) (*Client, error) {
	if o.Node == "" {
		return nil, ErrNoNode
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Report == nil {
		o.Report = func(string, string) {}
	}
	if o.Version == "" {
		o.Version = "dev"
	}
	c := &Client{o: o, health: newHealth(&o), backoff: defaultBackoff(), after: time.After, qps: requestsPerSecond}
	c.pods = newPods(o.Node, o.OnFacts)
	c.pods.batch.changed = o.OnBatch
	c.node = &node{name: o.Node, take: o.OnLabels, lent: o.OnLent, mode: o.OnMode, all: o.OnAllLabels,
		taints: o.OnStartupTaint, health: c.health}
	c.queue = newQueue(o.Node, o.Now, func() { o.Report(partEvents, resultDropped) })
	if o.OnFacts != nil {
		c.health.expect(partPods)
	}
	if o.followsNode() {
		c.health.expect(partNode)
	}
	for _, k := range o.Customs {
		c.health.expect(k.Part)
	}
	return c, nil
}

// defaultBackoff is the delay between attempts to list and watch: 0.5 s, doubled up to
// 30 s, with a random addition of up to the same, so that a cluster's daemons do not
// return at once.
func defaultBackoff() wait.Backoff {
	const first, most = 500 * time.Millisecond, 30 * time.Second
	steps := int(math.Ceil(math.Log2(float64(most)/float64(first)))) + 1
	return wait.Backoff{Duration: first, Factor: 2, Jitter: 1, Steps: steps, Cap: most}
}

// Facts returns what the API server reports of a pod; ok is false if it has not
// reported it. It never blocks.
func (c *Client) Facts(uid string) (facts policy.PodFacts, ok bool) { return c.pods.facts(uid) }

// Notify queues a notice, to be written as an Event. It never blocks: a repeated notice
// is counted, and if there are too many the oldest of the namespace that has most is dropped.
func (c *Client) Notify(n policy.Notice) { c.queue.put(n) }

// State is empty while everything can be followed and written; else what cannot, since
// when and why.
func (c *Client) State() string { return c.health.state() }

// REST returns the configuration of this client's requests, for other clients of the
// API server. It reads the credentials, so it may fail now and succeed later.
func (c *Client) REST() (*rest.Config, error) {
	l, err := c.connect()
	if err != nil {
		return nil, err
	}
	config := rest.CopyConfig(l.config)
	config.Timeout = requestTimeout
	return config, nil
}

// Run follows objects and writes Events until ctx ends.
func (c *Client) Run(ctx context.Context) {
	// client-go would log each attempt; health logs a failure once.
	ctx = klog.NewContext(ctx, logr.Discard())
	var parts sync.WaitGroup
	if c.o.OnFacts != nil {
		parts.Go(func() { c.follow(ctx, c.podFeed(), &podStore{pods: c.pods, ctx: ctx}) })
	}
	if c.o.followsNode() {
		parts.Go(func() { c.follow(ctx, c.nodeFeed(), &nodeStore{node: c.node, ctx: ctx}) })
	}
	for _, k := range c.o.Customs {
		parts.Go(func() { c.followCustom(ctx, k) })
	}
	parts.Go(func() { c.sendEvents(ctx) })
	parts.Wait()
	c.dial.Lock()
	defer c.dial.Unlock()
	if c.link != nil {
		utilnet.CloseIdleConnectionsFor(c.link.transport)
	}
}
