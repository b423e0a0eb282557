package ledger

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// machines are of every shape that the text has a field for.
func machines(t testing.TB) map[string]*topology.Topology {
	t.Helper()
	all := map[string]*topology.Topology{}
	for name, g := range map[string]topology.Grid{
		"small": {Sockets: 2, CoresPerL3: 4, ThreadsPerCore: 2},
		"256":   {Sockets: 2, NodesPerSocket: 4, L3PerNode: 4, CoresPerL3: 4, ThreadsPerCore: 2},
		"512": {Sockets: 2, NodesPerSocket: 4, L3PerNode: 4, CoresPerL3: 8, ThreadsPerCore: 2,
			Numbering: topology.Split},
	} {
		topo, err := g.Build()
		if err != nil {
			t.Fatal(err)
		}
		all[name] = topo
	}
	var cpus []topology.CPU
	for i := range 24 { // 8 performance cores of two threads, 8 efficiency cores; numbers with holes
		c := topology.CPU{ID: 2 * i, Core: 10 + i/2, L3: 7, Node: 3}
		if i >= 16 {
			c.Core, c.Kind, c.Node, c.Socket = 100+i, topology.Efficiency, 9, 4
			c.L3 = 8
		}
		cpus = append(cpus, c)
	}
	odd, err := topology.New(cpus, topology.Options{Offline: cpuset.Of(2, 46, 60), Isolated: cpuset.Of(44),
		Memory: map[int]uint64{3: 1 << 30, 5: 1 << 31, 9: 1 << 30}, Distances: map[int]map[int]int{
			3: {3: 10, 5: 17, 9: 32}, 5: {3: 17, 5: 10, 9: 28}, 9: {3: 33, 5: 28, 9: 10}}})
	if err != nil {
		t.Fatal(err)
	}
	all["odd"] = odd
	return all
}

func pod(rng *rand.Rand, n int) policy.Pod {
	milli := int64(1000 * (1 + rng.IntN(4)))
	r := policy.Resources{RequestMilli: milli, LimitMilli: milli}
	p := policy.Pod{UID: fmt.Sprintf("uid-%d", n), Sandbox: fmt.Sprintf("sandbox-%d", n), Namespace: "default",
		Name: fmt.Sprintf("pod-%d", n), QoS: policy.Guaranteed, Resources: &r, Labels: map[string]string{},
		Annotations: map[string]string{}}
	pick := func(words ...string) string { return words[rng.IntN(len(words))] }
	if class := pick("LSE", "LSR", "LSR", "LS", ""); class != "" {
		p.Labels[policy.LabelClass] = class
	}
	if smt := pick("", "", "isolate", "roundup", "align"); smt != "" {
		p.Annotations[policy.AnnSMT] = smt
	}
	p.Annotations[policy.AnnSpec] = fmt.Sprintf(`{"preferredCPUBindPolicy":%q,"preferredCPUExclusivePolicy":%q}`,
		pick("Default", "FullPCPUs", "SpreadByPCPUs"), pick("Default", "None", "PCPULevel", "NUMANodeLevel"))
	p.Annotations[policy.AnnNUMASpec] = fmt.Sprintf(`{"numaTopologyPolicy":%q,"singleNUMANodeExclusive":%q}`,
		pick("", "Restricted", "SingleNUMANode", "BestEffort"), pick("", "", "Preferred", "Required"))
	return p
}

func rules() policy.Config {
	return policy.Config{
		Reserved: cpuset.Of(0), SharedFloor: 3,
		Allocation: policy.Allocation{Bind: cpuallocator.SpreadByPCPUs, Strategy: cpuallocator.LeastAllocated},
		Authority: policy.Authority{Profile: policy.ProfileOpen, MaxCPUs: map[string]int{"*": 200}, TrustStatus: true,
			Namespaces: map[policy.Power][]string{policy.PowerUnmanaged: {"kube-system"}, policy.PowerWholeCores: {}}},
		Kubelet:    policy.Kubelet{Options: map[string]string{"distribute-cpus-across-numa": "true"}},
		NodeLabels: map[string]string{policy.LabelStrategy: "MostAllocated", "kubernetes.io/os": "linux"},
	}
}

// TestTheSameAnswers: who has read the annotations answers every pod as the node will.
func TestTheSameAnswers(t *testing.T) {
	for name, topo := range machines(t) {
		claims := policy.Config{Authority: policy.Authority{Profile: policy.ProfileOpen}}
		claims.ClaimShares = []policy.ClaimShare{{Within: topo.Online(), CPUs: topo.Online().Count() / 3}}
		for _, cfg := range []policy.Config{{Authority: claims.Authority}, rules(), claims} {
			m, err := policy.New(topo, cfg)
			if err != nil {
				t.Fatal(err)
			}
			decoder, rng := NewDecoder(), rand.New(rand.NewPCG(1, 2))
			var first *Node
			placed := 0
			for n := range 40 {
				if n%4 == 2 { // it may be refused
					_, _ = m.Step(time.Unix(int64(n), 0), policy.ClaimPrepared{UID: fmt.Sprint("claim-", n),
						Requests: []policy.ClaimRequest{{Device: "all", Within: topo.Online(), CPUs: 1 + rng.IntN(4)}}})
				}
				node := through(t, decoder, topo, m.Snapshot().Ledger)
				if first == nil {
					first = node
				}
				if node.Topology != first.Topology || node.Ledger.Rules != first.Ledger.Rules {
					t.Fatalf("%s: an equal machine or equal rules were made twice", name)
				}
				trial, err := policy.NewTrial(node.Topology, *node.Ledger.Rules)
				if err != nil {
					t.Fatal(err)
				}
				p := pod(rng, n)
				var o policy.Offer
				a, want := trial.Applicant(&p)
				if want == nil {
					s := policy.Standing{Ledger: node.Ledger, SharedMilli: m.Snapshot().Ledger.SharedMilli}
					want = trial.Judge(a, s, &o)
				}
				_, err = m.Step(time.Unix(int64(n), 0), policy.PodRun{Pod: p})
				var got *policy.Refusal
				if errors.As(err, &got); (want == nil) != (got == nil) || got != nil && *got != *want {
					t.Fatalf("%s, pod %d %v %v: read: %v; the node: %v", name, n, p.Labels, p.Annotations, want, got)
				}
				if got == nil {
					placed++
					if h := a.Holding(&o); h.Owns() && held(m, p.UID) != h {
						t.Fatalf("%s: read: %+v; the node: %+v", name, h, held(m, p.UID))
					}
				}
			}
			if placed < 3 {
				t.Errorf("%s: only %d pods were placed", name, placed)
			}
		}
	}
}

func held(m *policy.Machine, uid string) policy.Holding {
	for _, h := range m.Snapshot().Ledger.Holdings {
		if h.UID == uid {
			return h
		}
	}
	return policy.Holding{}
}

func through(t testing.TB, d *Decoder, topo *topology.Topology, l *policy.Ledger) *Node {
	t.Helper()
	text, err := Encode(topo, l, 7)
	if err != nil {
		t.Fatal(err)
	}
	node, err := d.Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	want := append([]policy.Holding{}, l.Holdings...)
	for i := range want {
		want[i].Pod = "" // nothing is decided by it
	}
	if node.Generation != 7 || !reflect.DeepEqual(node.Ledger.Holdings, want) ||
		node.Ledger.Booked != l.Booked || node.Ledger.Kept != l.Kept || node.Ledger.SharedMilli != l.SharedMilli {
		t.Fatalf("came back as %+v; was %+v", node.Ledger, l)
	}
	return node
}

// TestSize: what every node of a cluster adds to the API server.
func TestSize(t *testing.T) {
	topo := machines(t)["512"]
	m, err := policy.New(topo, policy.Config{Authority: policy.Authority{Profile: policy.ProfileOpen}})
	if err != nil {
		t.Fatal(err)
	}
	r := policy.Resources{RequestMilli: 4000, LimitMilli: 4000}
	for n := range 100 {
		p := policy.Pod{UID: fmt.Sprintf("0f34a2c6-8a57-4d3e-9d5a-%012d", n), Sandbox: fmt.Sprint(n), Namespace: "shop",
			Name: fmt.Sprintf("checkout-7d9c6f8b5-%05d", n), QoS: policy.Guaranteed, Resources: &r,
			Labels: map[string]string{policy.LabelClass: "LSR"}}
		if _, err := m.Step(time.Unix(0, 0), policy.PodRun{Pod: p}); err != nil {
			t.Fatal(err)
		}
	}
	text, err := Encode(topo, m.Snapshot().Ledger, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("512 CPUs, 100 owners: machine %d bytes, rules %d, ledger %d", len(text[AnnMachine]), len(text[AnnRules]),
		len(text[AnnLedger]))
	if len(text[AnnMachine]) > 4<<10 || len(text[AnnRules]) > 1<<10 || len(text[AnnLedger]) > 20<<10 {
		t.Error("more than was meant")
	}
}

// TestWhatCannotBe: texts of other versions, and of nobody's machine, are refused.
func TestWhatCannotBe(t *testing.T) {
	topo := machines(t)["small"]
	m, err := policy.New(topo, policy.Config{})
	if err != nil {
		t.Fatal(err)
	}
	good, err := Encode(topo, m.Snapshot().Ledger, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewDecoder().Decode(nil); !errors.Is(err, ErrNone) {
		t.Errorf("no annotations: %v", err)
	}
	for _, c := range []struct{ key, text, want string }{
		{AnnMachine, "2:abc", "not known to this version"},
		{AnnMachine, "1:abc", "machine"},
		{AnnMachine, "", "not known"},
		{AnnMachine, strings.Repeat("x", maxMachine+1), "at most"},
		{AnnRules, `{"v":2}`, "not known to this version"},
		{AnnRules, `{"v":1,"allocation":{"bind":"x"}}`, "rules"},
		{AnnLedger, `{"v":2}`, "not known to this version"},
		{AnnLedger, `{"v":1,"booked":"99"}`, "cannot be"},
		{AnnLedger, `{"v":1,"pods":[{"uid":"a","cpus":"1"},{"uid":"a","cpus":"2"}]}`, "cannot hold"},
		{AnnLedger, `{"v":1,"pods":[{"uid":"a","cpus":"16"}]}`, "cannot hold"},
		{AnnLedger, `{"v":1,"pods":[{"uid":"a","nodes":"2"}]}`, "cannot hold"},
		{AnnLedger, `{"v":1,"pods":[{"uid":"a"}]}`, "cannot hold"},
		{AnnLedger, `{"v":1,"pods":[{"uid":"a","cpus":"1","requested":-1}]}`, "cannot hold"},
	} {
		bad := maps.Clone(good)
		bad[c.key] = c.text
		if _, err := NewDecoder().Decode(bad); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %.60q: %v, want %q", c.key, c.text, err, c.want)
		}
	}
	more := maps.Clone(good)
	more[AnnLedger] = strings.Replace(good[AnnLedger], "{", `{"later":{"a":[1]},`, 1)
	if _, err := NewDecoder().Decode(more); err != nil {
		t.Errorf("a field of a later version: %v", err)
	}
}

// FuzzDecode: annotations may be anybody's. What is read can be asked.
func FuzzDecode(f *testing.F) {
	for _, topo := range machines(f) {
		m, err := policy.New(topo, rules())
		if err != nil {
			f.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(3, 4))
		for n := range 6 {
			_, _ = m.Step(time.Unix(0, 0), policy.PodRun{Pod: pod(rng, n)}) // some are refused
		}
		text, err := Encode(topo, m.Snapshot().Ledger, 1)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text[AnnMachine], text[AnnRules], text[AnnLedger])
	}
	p := pod(rand.New(rand.NewPCG(5, 6)), 99)
	f.Fuzz(func(_ *testing.T, machine, rules, ledger string) {
		n, err := NewDecoder().Decode(map[string]string{AnnMachine: machine, AnnRules: rules, AnnLedger: ledger})
		if err != nil {
			return
		}
		trial, err := policy.NewTrial(n.Topology, *n.Ledger.Rules)
		if err != nil {
			return
		}
		a, refusal := trial.Applicant(&p)
		if refusal != nil {
			return
		}
		var o policy.Offer
		_ = trial.Judge(a, policy.Standing{Ledger: n.Ledger, SharedMilli: n.Ledger.SharedMilli}, &o)
	})
}
