package driver

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"sigs.k8s.io/yaml"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cdi"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/dra"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

const uid = "0f9c2b1e-5a4d-4c3b-8f7e-6d5c4b3a2f1e"

const claimText = `
metadata: {namespace: ns, name: c1, uid: ` + uid + `}
status:
  reservedFor: [{resource: pods, name: p, uid: pod1}]
  allocation:
    devices:
      results:
      - {request: cpus, driver: cpu.quietcore.dev, pool: n1, device: numa-1, consumedCapacity: {cpu: "2"}}
      - {request: more, driver: cpu.quietcore.dev, pool: n1, device: numa-0, consumedCapacity: {cpu: "2"}}
`

// server is an API server in memory.
type server struct {
	mu     sync.Mutex
	claims map[string]*resourceapi.ResourceClaim
	slices map[string]resourceapi.ResourceSlice
	drops  bool // it does not know consumable capacity
	gates  gates
	writes int
	lists  int // of slices
	fails  error
}

func (s *server) Claim(_ context.Context, namespace, name string) (*resourceapi.ResourceClaim, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.claims[namespace+"/"+name]; c != nil {
		return c.DeepCopy(), s.fails
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "resourceclaims"}, name)
}

func (s *server) Slices(_ context.Context, node string) (list []resourceapi.ResourceSlice, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists++
	for _, name := range slices.Sorted(maps.Keys(s.slices)) {
		if one := s.slices[name]; *one.Spec.NodeName == node {
			list = append(list, *one.DeepCopy())
		}
	}
	return list, s.fails
}

func (s *server) Apply(_ context.Context, slice *resourceapi.ResourceSlice) (*resourceapi.ResourceSlice, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := slice.DeepCopy()
	for i := range kept.Spec.Devices {
		if s.drops {
			kept.Spec.Devices[i].AllowMultipleAllocations = nil
		}
		if err := s.gates.admit(&kept.Spec.Devices[i]); err != nil {
			return nil, err
		}
	}
	s.slices[kept.Name] = *kept
	s.writes++
	return kept.DeepCopy(), s.fails
}

func (s *server) Delete(_ context.Context, slice string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.slices, slice)
	s.writes++
	return s.fails
}

// decider is the policy, which gives the first CPUs.
type decider struct {
	mu    sync.Mutex
	given map[string][]cpuset.Set
	fails error
	used  bool // a pod on the node has the claim
}

func (p *decider) Prepare(_ context.Context, e policy.ClaimPrepared) ([]cpuset.Set, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fails != nil {
		return nil, p.fails
	}
	var all []cpuset.Set
	for _, r := range e.Requests {
		all = append(all, r.Within)
	}
	p.given[e.UID] = all
	return all, nil
}

func (p *decider) Unprepare(_ context.Context, e policy.ClaimUnprepared) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.fails != nil:
		return p.fails
	case e.IfUnused && p.used:
		return errors.New("a pod has it")
	}
	delete(p.given, e.UID)
	return nil
}

// world is a driver with all that it speaks to.
type world struct {
	api     *server
	policy  *decider
	driver  *Driver
	dir     string
	topo    *topology.Topology
	share   config.Share
	maps    bool // dra.nodeAllocatable
	foreign string
	told    atomic.Int32    // how often that another driver came or went
	unknown bool            // what runs on the node is not known
	known   map[string]bool // by kubelet
	unread  error
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		api: &server{claims: map[string]*resourceapi.ResourceClaim{},
			slices: map[string]resourceapi.ResourceSlice{}},
		policy: &decider{given: map[string][]cpuset.Set{}}, dir: t.TempDir(), share: "50%",
	}
	claim := &resourceapi.ResourceClaim{}
	if err := yaml.UnmarshalStrict([]byte(claimText), claim); err != nil {
		t.Fatal(err)
	}
	w.api.claims["ns/c1"] = claim
	w.topo = withCores(t, 4)
	w.driver = New(Options{
		Policy: w.policy, API: w.api, Log: slog.New(slog.DiscardHandler),
		Specs: cdi.Own{Dir: filepath.Join(w.dir, "cdi")}, PluginDir: filepath.Join(w.dir, "plugin"), RegistryDir: w.dir,
		Claims: w.policy.claims, Known: func() (map[string]bool, error) { return w.known, w.unread },
		NodeUID: func() string { return "node-uid" }, Foreign: func(context.Context) string { return w.foreign },
		Beside: func() { w.told.Add(1) },
		Node: func() *dra.Node {
			if w.unknown {
				return nil
			}
			return dra.NewNode(dra.Options{Name: "n1", Topology: w.topo, By: config.DevicesNUMA, Share: w.share,
				Allocatable: w.maps})
		},
	})
	return w
}

// withCores is a machine with two NUMA nodes of so many cores, each with two threads.
func withCores(t *testing.T, cores int) *topology.Topology {
	t.Helper()
	grid := topology.Grid{Sockets: 2, NodesPerSocket: 1, L3PerNode: 1, CoresPerL3: cores, ThreadsPerCore: 2}
	topo, err := grid.Build()
	if err != nil {
		t.Fatal(err)
	}
	return topo
}

// run runs the driver until the test ends.
func (w *world) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.driver.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}

// eventually waits for what goroutines and sockets do.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 3000 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s: not within half a minute", what)
}

func dial(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func asked() []*drapb.Claim { return []*drapb.Claim{{Namespace: "ns", Name: "c1", Uid: uid}} }

// kubelet finds the driver, takes it in, and has a claim prepared and unprepared, over real sockets.
func TestAsKubeletDoes(t *testing.T) {
	w := newWorld(t)
	// what a killed daemon leaves
	for _, dir := range []string{"plugin", "cdi"} {
		if err := os.MkdirAll(filepath.Join(w.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, socket := range []string{w.driver.registrySocket(), w.driver.claimsSocket()} {
		if err := os.WriteFile(socket, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.run(t)
	eventually(t, "sockets", func() bool { return strings.Contains(w.driver.State(), "not taken the driver in") })
	registry := registration.NewRegistrationClient(dial(t, w.driver.registrySocket()))
	info, err := registry.GetInfo(t.Context(), &registration.InfoRequest{}, grpc.WaitForReady(true))
	if err != nil || info.GetType() != "DRAPlugin" || info.GetName() != "cpu.quietcore.dev" ||
		info.GetEndpoint() != w.driver.claimsSocket() ||
		!slices.Equal(info.GetSupportedVersions(), []string{"v1.DRAPlugin", "v1.DRAResourceHealth",
			"v1alpha1.DRAResourceHealth"}) {
		t.Fatalf("%v, %v", info, err)
	}
	if _, err := registry.NotifyRegistrationStatus(t.Context(),
		&registration.RegistrationStatus{Error: "name taken"}); err != nil {
		t.Fatal(err)
	}
	if got := w.driver.State(); got != "kubelet refuses the driver: name taken" {
		t.Errorf("refused: %s", got)
	}
	if _, err := registry.NotifyRegistrationStatus(t.Context(),
		&registration.RegistrationStatus{PluginRegistered: true}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "taken in", func() bool { return w.driver.State() == "" })

	plugin := drapb.NewDRAPluginClient(dial(t, info.GetEndpoint()))
	for range 2 { // again after a restart of kubelet
		r, err := plugin.NodePrepareResources(t.Context(), &drapb.NodePrepareResourcesRequest{Claims: asked()})
		if err != nil || r.Claims[uid].GetError() != "" || len(r.Claims[uid].GetDevices()) != 2 {
			t.Fatalf("prepare: %v, %v", r, err)
		}
		second := r.Claims[uid].Devices[1]
		if second.GetDeviceName() != "numa-0" || second.GetPoolName() != "n1" ||
			!slices.Equal(second.GetRequestNames(), []string{"more"}) ||
			!slices.Equal(second.GetCdiDeviceIds(), []string{policy.ClaimDevice(uid, 1)}) {
			t.Errorf("second device: %v", second)
		}
	}
	spec := filepath.Join(w.dir, "cdi", "quietcore.dev-cpu-"+uid+".json")
	if _, err := os.Stat(spec); err != nil || len(w.policy.given[uid]) != 2 {
		t.Errorf("spec: %v; given %v", err, w.policy.given)
	}
	for range 2 {
		r, err := plugin.NodeUnprepareResources(t.Context(), &drapb.NodeUnprepareResourcesRequest{Claims: asked()})
		if err != nil || r.Claims[uid].GetError() != "" {
			t.Fatalf("unprepare: %v, %v", r, err)
		}
	}
	if _, err := os.Stat(spec); err == nil || len(w.policy.given) != 0 {
		t.Errorf("spec: %v; given %v", err, w.policy.given)
	}
}

// What cannot be prepared leaves no spec, and kubelet is told why.
func TestClaimsThatAreNotPrepared(t *testing.T) {
	for _, c := range []struct {
		name, want string
		change     func(*world)
	}{
		{"the daemon has just started", "what runs on the node is not known yet", func(w *world) { w.unknown = true }},
		{"it is gone", "not found", func(w *world) { delete(w.api.claims, "ns/c1") }},
		{"it was replaced", "it was replaced: its UID is other", func(w *world) {
			w.api.claims["ns/c1"].UID = "other"
		}},
		{"no API server", "read it from the API server: gone", func(w *world) { w.api.fails = errors.New("gone") }},
		{"another node's", "pool", func(w *world) {
			w.api.claims["ns/c1"].Status.Allocation.Devices.Results[0].Pool = "n2"
		}},
		{"the policy refuses", "3 CPUs are free", func(w *world) { w.policy.fails = errors.New("3 CPUs are free") }},
		{"no specs can be written", "CDI spec of claim", func(w *world) {
			w.driver.o.Specs.Dir = filepath.Join(w.dir, "file", "cdi")
			_ = os.WriteFile(filepath.Join(w.dir, "file"), nil, 0o600)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			c.change(w)
			r, err := claims{d: w.driver}.NodePrepareResources(t.Context(),
				&drapb.NodePrepareResourcesRequest{Claims: asked()})
			got := r.GetClaims()[uid]
			if err != nil || !strings.Contains(got.GetError(), c.want) || len(got.GetDevices()) > 0 ||
				!strings.HasPrefix(got.GetError(), "claim ns/c1 is not prepared: ") {
				t.Errorf("%v, %v", r, err)
			}
			if left, _ := filepath.Glob(filepath.Join(w.dir, "cdi", "*")); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// A claim whose CPUs the policy still holds keeps its spec: kubelet asks again.
func TestAnUnprepareThatFails(t *testing.T) {
	w := newWorld(t)
	if err := w.driver.o.Specs.Write(uid, 1); err != nil {
		t.Fatal(err)
	}
	w.policy.fails = errors.New("not saved")
	r, err := claims{d: w.driver}.NodeUnprepareResources(t.Context(),
		&drapb.NodeUnprepareResourcesRequest{Claims: asked()})
	if got := r.GetClaims()[uid].GetError(); err != nil || got != "claim ns/c1 is not unprepared: not saved" {
		t.Errorf("%s, %v", got, err)
	}
	if left, _ := filepath.Glob(filepath.Join(w.dir, "cdi", "*")); len(left) != 1 {
		t.Errorf("left: %v", left)
	}
}

// Beside another driver for CPUs ours opens no socket and publishes nothing.
func TestBesideAnotherDriver(t *testing.T) {
	w := newWorld(t)
	w.foreign = "dra.cpu is here"
	w.run(t)
	eventually(t, "the sentence", func() bool { return w.driver.State() == w.foreign })
	if !w.driver.IsBeside() || w.told.Load() != 1 {
		t.Errorf("beside another driver: %v, told %d times, want once", w.driver.IsBeside(), w.told.Load())
	}
	if _, err := os.Stat(w.driver.registrySocket()); err == nil || w.api.writes > 0 {
		t.Errorf("socket: %v, %d writes", err, w.api.writes)
	}
}

func TestPublish(t *testing.T) {
	w := newWorld(t)
	p := newPublisher(w.driver)
	at := func(what string, writes int, generation int64, state string) {
		t.Helper()
		before := w.api.writes
		p.attempt(t.Context())
		list, _ := w.api.Slices(t.Context(), "n1")
		if got := w.api.writes - before; got != writes || len(list) != 1 ||
			list[0].Spec.Pool.Generation != generation || list[0].Spec.Pool.ResourceSliceCount != 1 ||
			!strings.Contains(w.driver.slices, state) || (w.driver.slices == "") != (state == "") {
			t.Fatalf("%s: %d writes, state %q, %+v", what, got, w.driver.slices, list)
		}
	}
	at("first", 1, 1, "")
	at("again", 0, 1, "")
	w.share = "4"
	at("another share", 1, 2, "")
	delete(w.api.slices, "n1-cpu.quietcore.dev-0")
	at("kubelet has wiped it", 1, 1, "")
	stale := w.api.slices["n1-cpu.quietcore.dev-0"]
	stale.Name, stale.Spec.Pool.Generation = "n1-cpu.quietcore.dev-1", 7
	w.api.slices[stale.Name] = stale
	at("one too many", 2, 8, "")
	p = newPublisher(w.driver)
	at("a new daemon", 0, 8, "")
	w.api.drops = true
	w.share = "6"
	at("fields are dropped", 1, 9, "drops fields")
	at("and not written again", 0, 9, "drops fields")
	w.api.fails = errors.New("gone")
	at("no API server", 0, 9, "ResourceSlices are not written: list them: gone")
	w.api.fails = nil
	at("it is back", 0, 9, "drops fields")
	w.unknown = true
	at("not known", 0, 9, "drops fields")
	owner := w.api.slices["n1-cpu.quietcore.dev-0"].OwnerReferences
	if len(owner) != 1 || owner[0].UID != "node-uid" {
		t.Errorf("owner %v", owner)
	}
}

func TestSliceNames(t *testing.T) {
	long := strings.Repeat("a", 199) + "." + strings.Repeat("b", 53)
	for node, want := range map[string]string{
		"n1": "n1-cpu.quietcore.dev-3",
		long: strings.Repeat("a", 199) + "-",
	} {
		if got := sliceName(node, 3); !strings.HasPrefix(got, want) || len(got) > 253 {
			t.Errorf("%s has %s", node, got)
		}
	}
	if sliceName(long, 0) == sliceName(long[:252]+"c", 0) {
		t.Error("two nodes have one name")
	}
}
