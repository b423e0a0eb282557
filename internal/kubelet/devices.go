package kubelet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/quietcore/quietcore/cpuset"
)

const (
	// askFor bounds a request that a starting container waits for.
	askFor = 100 * time.Millisecond
	// listFor bounds other requests.
	listFor = 5 * time.Second
	// pauseFor is the pause after a timeout, so that a kubelet that hangs does not
	// delay every container.
	pauseFor = 5 * time.Second
	// noGetFor is how long Get is not tried again on a kubelet without it.
	noGetFor = 10 * time.Minute
	// maxAnswer is the limit of kubelet's own clients.
	maxAnswer = 16 << 20
)

// ErrPaused says that kubelet was not asked, since it did not answer recently.
var ErrPaused = errors.New("kubelet's PodResources API did not answer recently; requests are paused for some seconds")

// Devices is a client of kubelet's PodResources API. It is safe for concurrent use.
type Devices struct {
	conn   *grpc.ClientConn
	client podresources.PodResourcesListerClient
	now    func() time.Time
	bound  time.Duration // askFor

	mu     sync.Mutex // guards what follows
	paused time.Time  // no requests before
	noGet  time.Time  // no Get before
}

// NewDevices makes a client for a unix socket, which need not exist yet. It does no I/O
// before the first request. now may be nil.
func NewDevices(socket string, now func() time.Time) (*Devices, error) {
	if now == nil {
		now = time.Now
	}
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond,
			Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second}, MinConnectTimeout: time.Second}))
	if err != nil {
		return nil, fmt.Errorf("client of kubelet's PodResources API at %s: %w", socket, err)
	}
	return &Devices{conn: conn, client: podresources.NewPodResourcesListerClient(conn), now: now, bound: askFor}, nil
}

// Close ends the connection.
func (d *Devices) Close() error { return d.conn.Close() }

// NodesOf returns the IDs of the NUMA nodes that a pod's devices are on; none if it has
// no devices or they have no affinity. It takes at most 100 ms, less if ctx ends
// earlier.
func (d *Devices) NodesOf(ctx context.Context, namespace, pod string) (cpuset.Set, error) {
	if d.waiting(&d.paused) {
		return cpuset.Set{}, ErrPaused
	}
	ctx, cancel := context.WithTimeout(ctx, d.bound)
	defer cancel()
	p, err := d.pod(ctx, namespace, pod)
	if err != nil {
		d.pauseIfLate(err)
		return cpuset.Set{}, fmt.Errorf("devices of pod %s/%s: %w", namespace, pod, err)
	}
	var nodes cpuset.Set
	for _, c := range p.GetContainers() {
		for _, dev := range c.GetDevices() {
			for _, n := range nodesOf(dev.GetTopology()) {
				nodes.Add(n)
			}
		}
	}
	return nodes, nil
}

func (d *Devices) waiting(until *time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now().Before(*until)
}

func (d *Devices) put(until *time.Time, wait time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	*until = d.now().Add(wait)
}

func (d *Devices) pauseIfLate(err error) {
	if status.Code(err) == codes.DeadlineExceeded || errors.Is(err, context.DeadlineExceeded) {
		d.put(&d.paused, pauseFor)
	}
}

// pod requests one pod, or all from a kubelet that lacks Get.
func (d *Devices) pod(ctx context.Context, namespace, name string) (*podresources.PodResources, error) {
	if !d.waiting(&d.noGet) {
		r, err := d.client.Get(ctx, &podresources.GetPodResourcesRequest{PodNamespace: namespace, PodName: name})
		if err == nil {
			return r.GetPodResources(), nil
		}
		if status.Code(err) != codes.Unimplemented && !strings.Contains(status.Convert(err).Message(),
			"Get method disabled") {
			return nil, err
		}
		d.put(&d.noGet, noGetFor)
	}
	r, err := d.client.List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return nil, err
	}
	for _, p := range r.GetPodResources() {
		if p.GetNamespace() == namespace && p.GetName() == name {
			return p, nil
		}
	}
	return nil, errors.New("kubelet does not list it")
}

// nodesOf returns the plausible NUMA node IDs.
func nodesOf(t *podresources.TopologyInfo) []int {
	var ids []int
	for _, n := range t.GetNodes() {
		if id := n.GetID(); id >= 0 && id < cpuset.MaxCPUs {
			ids = append(ids, int(id))
		}
	}
	return ids
}

// Inventory is what kubelet knows of NUMA nodes, in pieces or bytes, by NUMA node ID
// and resource name. A device near several nodes counts for each of them.
type Inventory struct {
	Devices map[int]map[string]int64 // allocatable
	Taken   map[int]map[string]int64 // devices, memory and hugepages of containers
	// CPUs are those that the static policy may give away, all but the reserved ones;
	// empty under the policy none.
	CPUs cpuset.Set
}

// Inventory requests everything. It may take some seconds.
func (d *Devices) Inventory(ctx context.Context) (Inventory, error) {
	ctx, cancel := context.WithTimeout(ctx, listFor)
	defer cancel()
	all, err := d.client.GetAllocatableResources(ctx, &podresources.AllocatableResourcesRequest{})
	if err != nil {
		return Inventory{}, fmt.Errorf("kubelet's allocatable resources: %w", err)
	}
	given, err := d.client.List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return Inventory{}, fmt.Errorf("resources of kubelet's pods: %w", err)
	}
	i := Inventory{Devices: map[int]map[string]int64{}, Taken: map[int]map[string]int64{}}
	count(i.Devices, all.GetDevices())
	for _, id := range all.GetCpuIds() {
		if id >= 0 && id < cpuset.MaxCPUs {
			i.CPUs.Add(int(id))
		}
	}
	for _, p := range given.GetPodResources() {
		for _, c := range p.GetContainers() {
			count(i.Taken, c.GetDevices())
			for _, m := range c.GetMemory() {
				nodes := nodesOf(m.GetTopology())
				for _, n := range nodes {
					// The division of a block over several nodes is unknown.
					add(i.Taken, n, m.GetMemoryType(), (int64(min(m.GetSize(), 1<<62))+
						int64(len(nodes))-1)/int64(len(nodes)))
				}
			}
		}
	}
	return i, nil
}

func count(to map[int]map[string]int64, devices []*podresources.ContainerDevices) {
	for _, d := range devices {
		for _, n := range nodesOf(d.GetTopology()) {
			add(to, n, d.GetResourceName(), int64(len(d.GetDeviceIds())))
		}
	}
}

func add(to map[int]map[string]int64, node int, name string, n int64) {
	if to[node] == nil {
		to[node] = map[string]int64{}
	}
	if sum := to[node][name] + n; sum >= to[node][name] {
		to[node][name] = sum
	}
}
