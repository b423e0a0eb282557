package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/quietcore/quietcore/cpuset"
)

// fakeKubelet answers on a real unix socket. A method that is nil is not
// implemented, as in an old kubelet.
type fakeKubelet struct {
	podresources.UnimplementedPodResourcesListerServer
	get  func(context.Context, *podresources.GetPodResourcesRequest) (*podresources.GetPodResourcesResponse, error)
	list func(context.Context) (*podresources.ListPodResourcesResponse, error)
	all  *podresources.AllocatableResourcesResponse

	gets, lists atomic.Int64
}

func (f *fakeKubelet) Get(ctx context.Context, r *podresources.GetPodResourcesRequest) (
	*podresources.GetPodResourcesResponse, error) {
	f.gets.Add(1)
	if f.get == nil {
		return f.UnimplementedPodResourcesListerServer.Get(ctx, r)
	}
	return f.get(ctx, r)
}

func (f *fakeKubelet) List(ctx context.Context, r *podresources.ListPodResourcesRequest) (
	*podresources.ListPodResourcesResponse, error) {
	f.lists.Add(1)
	if f.list == nil {
		return f.UnimplementedPodResourcesListerServer.List(ctx, r)
	}
	return f.list(ctx)
}

func (f *fakeKubelet) GetAllocatableResources(context.Context,
	*podresources.AllocatableResourcesRequest) (*podresources.AllocatableResourcesResponse, error) {
	return f.all, nil
}

func (f *fakeKubelet) serve(t *testing.T, socket string) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(s, f)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); <-done })
}

func socket(t *testing.T) string { return filepath.Join(t.TempDir(), "kubelet.sock") }

// clock stands still until it is moved.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.at }
func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func client(t *testing.T, socket string) (*Devices, *clock) {
	t.Helper()
	c := &clock{at: time.Unix(1e9, 0)}
	d, err := NewDevices(socket, c.now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	d.bound = 30 * time.Second // a busy machine is not what is tested
	return d, c
}

func on(nodes ...int64) *podresources.TopologyInfo {
	t := &podresources.TopologyInfo{}
	for _, n := range nodes {
		t.Nodes = append(t.Nodes, &podresources.NUMANode{ID: n})
	}
	return t
}

func device(name string, t *podresources.TopologyInfo, ids ...string) *podresources.ContainerDevices {
	return &podresources.ContainerDevices{ResourceName: name, DeviceIds: ids, Topology: t}
}

func podWith(namespace, name string, devices ...*podresources.ContainerDevices) *podresources.PodResources {
	return &podresources.PodResources{Namespace: namespace, Name: name,
		Containers: []*podresources.ContainerResources{{Name: "app", Devices: devices}}}
}

func TestDevicesOfAPod(t *testing.T) {
	f := &fakeKubelet{get: func(_ context.Context,
		r *podresources.GetPodResourcesRequest) (*podresources.GetPodResourcesResponse, error) {
		switch r.PodNamespace + "/" + r.PodName {
		case "default/gpu":
			return &podresources.GetPodResourcesResponse{PodResources: podWith("default", "gpu",
				device("v/gpu", on(1), "a"), device("v/nic", on(1, 2), "b"), device("v/none", nil, "c"),
				device("v/odd", on(-1, 1<<40), "d"))}, nil
		case "default/plain":
			return &podresources.GetPodResourcesResponse{PodResources: podWith("default", "plain")}, nil
		case "default/empty":
			return &podresources.GetPodResourcesResponse{}, nil
		}
		return nil, fmt.Errorf("pod %s in namespace %s not found", r.PodName, r.PodNamespace)
	}}
	path := socket(t)
	f.serve(t, path)
	d, _ := client(t, path)
	for pod, want := range map[string]string{"gpu": "1-2", "plain": "", "empty": ""} {
		got, err := d.NodesOf(t.Context(), "default", pod)
		if err != nil || got.String() != want {
			t.Errorf("%s: nodes %q, error %v, want %q", pod, got, err, want)
		}
	}
	if _, err := d.NodesOf(t.Context(), "default", "unknown"); err == nil {
		t.Error("an unknown pod has devices")
	}
	if f.lists.Load() != 0 {
		t.Error("a kubelet with Get was asked for a list")
	}
}

func TestKubeletWithoutGet(t *testing.T) {
	list := func(context.Context) (*podresources.ListPodResourcesResponse, error) {
		return &podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{podWith("other",
			"gpu", device("v/gpu", on(0), "a")), podWith("default", "gpu", device("v/gpu", on(1), "b"))}}, nil
	}
	for name, get := range map[string]func(context.Context,
		*podresources.GetPodResourcesRequest) (*podresources.GetPodResourcesResponse, error){
		"older than it": nil,
		"switched off": func(context.Context, *podresources.GetPodResourcesRequest) (
			*podresources.GetPodResourcesResponse, error) {
			return nil, errors.New("PodResources API Get method disabled")
		},
	} {
		f := &fakeKubelet{get: get, list: list}
		path := socket(t)
		f.serve(t, path)
		d, clock := client(t, path)
		for range 3 {
			got, err := d.NodesOf(t.Context(), "default", "gpu")
			if err != nil || got != cpuset.Of(1) {
				t.Errorf("%s: nodes %q, error %v", name, got, err)
			}
		}
		if f.gets.Load() != 1 || f.lists.Load() != 3 {
			t.Errorf("%s: %d gets and %d lists, want 1 and 3", name, f.gets.Load(), f.lists.Load())
		}
		clock.pass(noGetFor) // kubelet may be a newer one by now
		if _, err := d.NodesOf(t.Context(), "default", "nowhere"); err == nil {
			t.Errorf("%s: a pod that is not listed has devices", name)
		}
		if f.gets.Load() != 2 {
			t.Errorf("%s: Get was not tried again", name)
		}
	}
}

func TestSocketAbsentAndBack(t *testing.T) {
	path := socket(t)
	d, _ := client(t, path)
	start := time.Now()
	if _, err := d.NodesOf(t.Context(), "default", "gpu"); err == nil || errors.Is(err, ErrPaused) {
		t.Errorf("error is %v", err)
	}
	if took := time.Since(start); took > d.bound/2 {
		t.Errorf("an absent socket was waited for %s", took)
	}
	if _, err := d.Inventory(t.Context()); err == nil {
		t.Error("an absent socket has an inventory")
	}
	f := &fakeKubelet{get: func(context.Context, *podresources.GetPodResourcesRequest) (
		*podresources.GetPodResourcesResponse, error) {
		return &podresources.GetPodResourcesResponse{PodResources: podWith("default", "gpu",
			device("v/gpu", on(1), "a"))}, nil
	}}
	f.serve(t, path)
	eventually(t, "the socket that came is used", func() bool {
		got, err := d.NodesOf(t.Context(), "default", "gpu")
		return err == nil && got == cpuset.Of(1)
	})
}

// A kubelet that accepts and never answers costs one caller its bound, and the
// next ones nothing.
func TestKubeletHangs(t *testing.T) {
	f := &fakeKubelet{get: func(ctx context.Context,
		_ *podresources.GetPodResourcesRequest) (*podresources.GetPodResourcesResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	path := socket(t)
	f.serve(t, path)
	d, clock := client(t, path)
	d.bound = askFor
	start := time.Now()
	if _, err := d.NodesOf(t.Context(), "default", "gpu"); err == nil || errors.Is(err, ErrPaused) {
		t.Errorf("error is %v", err)
	}
	if took := time.Since(start); took > 50*askFor {
		t.Errorf("a hanging kubelet was waited for %s, the bound is %s", took, askFor)
	}
	for range 1000 {
		if _, err := d.NodesOf(t.Context(), "default", "gpu"); !errors.Is(err, ErrPaused) {
			t.Fatalf("error is %v, want a pause", err)
		}
	}
	asked := f.gets.Load()
	clock.pass(pauseFor)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.NodesOf(ctx, "default", "gpu"); err == nil {
		t.Error("a cancelled question was answered")
	}
	if _, err := d.NodesOf(t.Context(), "default", "gpu"); err == nil || errors.Is(err, ErrPaused) {
		t.Errorf("after the pause the error is %v", err)
	}
	if f.gets.Load() == asked {
		t.Error("kubelet was not asked again after the pause")
	}
}

func TestSocketOfSomebodyElse(t *testing.T) {
	path := socket(t)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			c.Close()
		}
	}()
	d, _ := client(t, path)
	if _, err := d.NodesOf(t.Context(), "default", "gpu"); err == nil {
		t.Error("a socket that speaks no gRPC answered")
	}
}

func TestInventory(t *testing.T) {
	f := &fakeKubelet{
		all: &podresources.AllocatableResourcesResponse{
			CpuIds: []int64{2, 3, -1, 1 << 40},
			Devices: []*podresources.ContainerDevices{device("v/nic", on(0), "a", "b"), device("v/nic", on(1), "c"),
				device("v/gpu", on(0, 1), "g"), device("v/flat", nil, "x")},
		},
		list: func(context.Context) (*podresources.ListPodResourcesResponse, error) {
			p := podWith("default", "p", device("v/nic", on(0), "a"))
			p.Containers[0].Memory = []*podresources.ContainerMemory{{MemoryType: "memory", Size: 1 << 30,
				Topology: on(0)}, {MemoryType: "hugepages-2Mi", Size: 5, Topology: on(0, 1)}}
			return &podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{p,
				podWith("default", "q")}}, nil
		},
	}
	path := socket(t)
	f.serve(t, path)
	d, _ := client(t, path)
	got, err := d.Inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := Inventory{
		Devices: map[int]map[string]int64{0: {"v/nic": 2, "v/gpu": 1}, 1: {"v/nic": 1, "v/gpu": 1}},
		Taken: map[int]map[string]int64{0: {"v/nic": 1, "memory": 1 << 30, "hugepages-2Mi": 3},
			1: {"hugepages-2Mi": 3}},
		CPUs: cpuset.Of(2, 3),
	}
	if d := cmp.Diff(want, got, sets()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func BenchmarkNodesOfPaused(b *testing.B) {
	d, err := NewDevices("/nonexistent/kubelet.sock", nil)
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	d.put(&d.paused, time.Hour)
	for b.Loop() {
		_, _ = d.NodesOf(b.Context(), "default", "gpu")
	}
}
