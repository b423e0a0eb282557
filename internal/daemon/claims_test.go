package daemon

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/dra"
	"github.com/quietcore/quietcore/internal/kube"
	"github.com/quietcore/quietcore/internal/metrics"
	"github.com/quietcore/quietcore/plugin"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// Our driver does not start beside another one for CPUs, whichever sign of it there is.
func TestForeignDrivers(t *testing.T) {
	for _, c := range []struct{ name, file, text, want string }{
		{"an empty node", "", "", ""},
		{"other plugins", "registry/gpu.example.com-reg.sock", "", ""},
		{"our own socket", "registry/cpu.quietcore.dev-reg.sock", "", ""},
		{"dra-driver-cpu", "registry/dra.cpu-reg.sock", "", "driver dra.cpu has a socket"},
		{"its claims", "cdi/a.json", `{"kind":"dra.k8s.io/cpu","devices":[{"name":"claim-a"}]}`,
			"CDI specs of kind dra.k8s.io/cpu"},
		{"a GPU's claims", "cdi/a.json", `{"kind":"example.com/gpu","devices":[{"name":"a"}]}`, ""},
		{"our own claims", "cdi/a.json", `{"kind":"quietcore.dev/cpu","devices":[{"name":"a-0"}]}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if strings.HasPrefix(c.file, "cdi") && os.Getuid() != 0 {
				if os.Getenv("QUIETCORE_CI") == "1" {
					t.Fatal("only root's specs are believed, and CI is root")
				}
				t.Skip("only root's specs are believed: needs root")
			}
			dir := t.TempDir()
			registry, specs := filepath.Join(dir, "registry"), filepath.Join(dir, "cdi")
			for _, d := range []string{registry, specs} {
				if err := os.Mkdir(d, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if c.file != "" {
				if err := os.WriteFile(filepath.Join(dir, c.file), []byte(c.text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			got := foreignDriver(t.Context(), registry, []string{specs}, slog.New(slog.DiscardHandler))
			if !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// Whether claims are served depends on three things of the configuration.
func TestWhereClaimsAreServed(t *testing.T) {
	for _, c := range []struct {
		name   string
		mode   config.DRAMode
		daemon config.Mode
		api    bool
		serves bool
		state  string
	}{
		{"off", config.DRAOff, config.Enforce, true, false, ""},
		{"on", config.DRAOn, config.Enforce, true, true, "not started yet"},
		{"on, observing", config.DRAOn, config.Observe, true, false, "mode is observe"},
		{"on, no API server", config.DRAOn, config.Enforce, false, false, "no API server"},
	} {
		cfg := config.Default()
		cfg.DRA.Mode, cfg.Mode = c.mode, c.daemon
		a := &apiServer{o: apiOptions{config: &cfg, node: &node{}, log: slog.New(slog.DiscardHandler)},
			begun: newBegun()}
		if c.api {
			client, err := kube.New(kube.Options{Node: "n1"})
			if err != nil {
				t.Fatal(err)
			}
			a.client = client
		}
		a.claims = newClaims(a)
		a.takeOver(&cfg)
		got := a.Health()[metrics.FeatureDRA]
		if serves := a.claims.driver != nil && a.begun.has(); serves != c.serves ||
			!strings.Contains(got, c.state) || (got == "") != (c.state == "") {
			t.Errorf("%s: serves %v, %q", c.name, serves, got)
		}
		if a.devices(nil) != nil {
			t.Errorf("%s: devices are known before what runs is", c.name)
		}
	}
}

// twoNodes is a machine of two NUMA nodes of eight CPUs.
func twoNodes(t *testing.T) *topology.Topology {
	t.Helper()
	machine, err := topology.Grid{Sockets: 2, NodesPerSocket: 1, L3PerNode: 1, CoresPerL3: 4, ThreadsPerCore: 2}.Build()
	if err != nil {
		t.Fatal(err)
	}
	return machine
}

// A daemon that serves claims leaves dra.share to them from its first decision on; another one nothing.
func TestOwnersLeaveTheShareToClaims(t *testing.T) {
	for _, c := range []struct {
		mode config.DRAMode
		want string
	}{{config.DRAOn, "5-7,13-15"}, {config.DRAOff, ""}} {
		cfg := config.Default()
		cfg.DRA.Mode, cfg.DRA.Share = c.mode, "6"
		cfg.State.Dir, cfg.Cgroup.Root = t.TempDir(), filepath.Join(t.TempDir(), "none")
		log := NewLog(t.Output(), config.LogText, nil)
		d := &daemon{node: &node{}, log: log}
		d.cfg.begin(&cfg, readModes(cfg.State.Dir, log))
		d.metrics = metrics.New("", d.stats)
		client, err := kube.New(kube.Options{Node: "n1"})
		if err != nil {
			t.Fatal(err)
		}
		d.kubelet, d.labels = newKubeletReader(&cfg, d.node, log), &labels{node: d.node, log: log}
		d.api = &apiServer{begun: newBegun(), client: client, o: apiOptions{
			config: &cfg, node: d.node, labels: d.labels, log: log}}
		d.api.claims = newClaims(d.api)
		d.api.takeOver(&cfg)
		o := d.pluginOptions(&cfg, twoNodes(t), openTree(&cfg, d.metrics, log))
		machine, err := policy.New(o.Topology, o.Config)
		if err != nil {
			t.Fatal(err)
		}
		if got := machine.Snapshot().Kept.String(); got != c.want {
			t.Errorf("dra.mode %s: kept for claims are CPUs %q, want %q", c.mode, got, c.want)
		}
	}
}

// What is left to claims follows the devices, and a configuration that is taken over does not end it.
func TestTheShareFollowsTheDevices(t *testing.T) {
	machine := twoNodes(t)
	log := NewLog(t.Output(), config.LogText, nil)
	nri := config.Default().NRI
	p, err := plugin.New(plugin.Options{
		Topology: machine, Log: log, Observe: true, Socket: filepath.Join(t.TempDir(), "nri.sock"), Name: nri.Name,
		Index: nri.Index,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { p.Run(ctx) })
	l := &labels{node: &node{p}, log: log}
	shared := make(chan []policy.ClaimShare)
	var devices []*dra.Node
	for _, share := range []config.Share{"6", "6", "2", "2"} {
		devices = append(devices, dra.NewNode(dra.Options{Name: "n1", Topology: machine, By: config.DevicesNUMA,
			Share: share}))
	}
	beside := false // another driver comes with the last change
	c := &claims{
		stale: make(chan struct{}, 1), log: log,
		beside: func() bool { return beside },
		devices: func() *dra.Node {
			node := devices[0]
			devices = devices[1:]
			return node
		},
		share: func(ctx context.Context, s []policy.ClaimShare) error {
			err := l.share(ctx, s)
			shared <- s
			return err
		},
	}
	running.Go(func() { c.shareOut(ctx) })
	for i, want := range []int{6, 6, 2, 0} {
		if i > 0 {
			beside = want == 0
			c.stale <- struct{}{}
		}
		select {
		case s := <-shared:
			n := 0
			for _, share := range s {
				n += share.CPUs
			}
			if n != want {
				t.Fatalf("owners leave %d CPUs to claims, want %d", n, want)
			}
		case <-time.After(time.Minute):
			t.Fatal("nothing is shared out")
		}
		if got := p.Snapshot().Kept.Count(); got != want {
			t.Fatalf("kept for claims are %d CPUs, want %d", got, want)
		}
		if err := l.reconfigure(ctx, policy.Config{}); err != nil {
			t.Fatal(err)
		}
		if got := p.Snapshot().Kept.Count(); got != want {
			t.Fatalf("kept for claims are %d CPUs after a change of the configuration, want %d", got, want)
		}
	}
}

// What devices offer follows owners and claims: what a claim could have now, and what claims have.
func TestWhatOwnersLeaveIsOffered(t *testing.T) {
	m, err := policy.New(twoNodes(t), policy.Config{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	cfg.DRA.Share = config.ShareDynamic
	a := &apiServer{o: apiOptions{config: &cfg}}
	claim := func(uid, device string, cpus int) policy.Event {
		d, ok := a.devicesOf(m.Snapshot(), nil).Device(device)
		if !ok {
			t.Fatalf("no device %s", device)
		}
		return policy.ClaimPrepared{UID: uid, Namespace: "default", Name: uid, Pods: []string{"pod-" + uid},
			Requests: []policy.ClaimRequest{{Device: device, Within: d.CPUs, CPUs: cpus}}}
	}
	owner := policy.PodRun{Pod: policy.Pod{UID: "db", Sandbox: "sb-db", Namespace: "default", Name: "db",
		QoS: policy.Guaranteed, Labels: map[string]string{policy.LabelClass: string(policy.LSR)},
		Resources: &policy.Resources{RequestMilli: 6000, LimitMilli: 6000}}}
	offered := func(when string, want ...int) {
		t.Helper()
		for i, d := range a.devicesOf(m.Snapshot(), nil).Devices {
			if d.Offered != want[i] {
				t.Errorf("%s: device %s offers %d, want %d", when, d.Name, d.Offered, want[i])
			}
		}
	}
	step := func(e policy.Event) error {
		_, err := m.Step(time.Unix(1, 0), e)
		return err
	}
	offered("at first", 8, 8)
	for _, e := range []policy.Event{claim("a", "numa-0", 8), owner} {
		if err := step(e); err != nil {
			t.Fatal(err)
		}
	}
	offered("a claim of 8, an owner of 6, and the floor is 2", 8, 0)
	err = step(claim("b", "numa-1", 2))
	if err == nil || !strings.Contains(err.Error(), "would leave the shared pool 0 of its 2 CPUs and its floor is 2") {
		t.Errorf("a claim that the scheduler placed before it heard of the owner: %v", err)
	}
	if err := step(policy.ClaimUnprepared{UID: "a"}); err != nil {
		t.Fatal(err)
	}
	offered("the claim is gone", 8, 2)
}

// Reserved CPUs are in no device, even while a claim owns them that had them before.
func TestReservedCPUsAreInNoDevice(t *testing.T) {
	m, err := policy.New(twoNodes(t), policy.Config{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	cfg.DRA.Share = "100%"
	a := &apiServer{o: apiOptions{config: &cfg}}
	all := a.devicesOf(m.Snapshot(), nil).Devices[0].CPUs
	reserved := policy.Config{Reserved: cpuset.Of(all.First())}
	for _, e := range []policy.Event{
		policy.ClaimPrepared{UID: "a", Namespace: "default", Name: "a", Pods: []string{"p"},
			Requests: []policy.ClaimRequest{{Device: "numa-0", Within: all, CPUs: all.Count()}}},
		policy.Reconfigured{Config: reserved},
	} {
		if _, err := m.Step(time.Unix(1, 0), e); err != nil {
			t.Fatal(err)
		}
	}
	now := m.Snapshot()
	if got := now.Claims[0].Requests[0].CPUs; !reserved.Reserved.SubsetOf(&got) {
		t.Fatalf("the claim has CPUs %s and lost the reserved ones, %s", got, reserved.Reserved)
	}
	if got := a.devicesOf(now, nil).Devices[0].CPUs; got != all.Minus(reserved.Reserved) {
		t.Errorf("the device has CPUs %s, and %s are reserved", got, reserved.Reserved)
	}
}
