package policy

import (
	"fmt"
	"testing"
	"time"

	"github.com/quietcore/quietcore/topology"
)

// crowded is a node of 512 CPUs with n containers, a tenth of them in pods that
// own CPUs.
func crowded(b *testing.B, n int) (*Machine, time.Time) {
	b.Helper()
	return crowdedWith(b, n, func(*topology.Topology) Config { return Config{} })
}

func crowdedWith(b *testing.B, n int, cfg func(*topology.Topology) Config) (*Machine, time.Time) {
	b.Helper()
	t, err := topology.Grid{Sockets: 2, NodesPerSocket: 4, L3PerNode: 4, CoresPerL3: 8, ThreadsPerCore: 2,
		Numbering: topology.Split}.Build()
	if err != nil {
		b.Fatal(err)
	}
	m, err := New(t, cfg(t))
	if err != nil {
		b.Fatal(err)
	}
	now := time.Unix(1e9, 0)
	for i := range n {
		class, milli := "", int64(300) // together no more than the owners leave
		if i%10 == 0 {
			class, milli = "LSR", 2000
		}
		create(b, m, now, fmt.Sprintf("pod-%04d", i), class, milli)
	}
	return m, now
}

func create(b *testing.B, m *Machine, now time.Time, name, class string, milli int64) {
	r := Resources{RequestMilli: milli, LimitMilli: milli}
	p := Pod{UID: name, Sandbox: name, Namespace: "default", Name: name, QoS: Guaranteed, Resources: &r, CreatedAt: now}
	if class != "" {
		p.Labels = map[string]string{LabelClass: class}
	}
	if _, err := m.Step(now, PodRun{Pod: p}); err != nil {
		b.Fatal(err)
	}
	if _, err := m.Step(now, ContainerCreate{Pod: p, Container: Container{ID: name, Sandbox: name, Name: "main",
		Resources: r}}); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkCreate is one pod coming and going beside a thousand containers. One
// op is three steps: sandbox, container, and the pod removed.
func BenchmarkCreate(b *testing.B) {
	for _, class := range []string{"LS", "LSR"} {
		b.Run(class, func(b *testing.B) {
			m, now := crowded(b, 1000)
			b.ReportAllocs()
			for b.Loop() {
				create(b, m, now, "newcomer", class, 4000)
				if _, err := m.Step(now, PodRemoved{Sandbox: "newcomer"}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/3, "µs/step")
		})
	}
}

// BenchmarkSynchronize is a start of the daemon beside a thousand containers.
func BenchmarkSynchronize(b *testing.B) {
	m, now := crowded(b, 1000)
	checkpoint := m.Checkpoint()
	for b.Loop() {
		fresh, err := New(m.topo, Config{})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := fresh.Step(now, checkpoint); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPrepare is a claim that is prepared and unprepared beside 400 containers and 32 other claims, with a
// share of each NUMA node for claims. One op is two steps. BenchmarkCreateBesideClaims is BenchmarkCreate there.
func BenchmarkPrepare(b *testing.B) {
	m, now := crowdedByClaims(b)
	b.ReportAllocs()
	for b.Loop() {
		prepareOn(b, m, now, "next", 99)
		if _, err := m.Step(now, ClaimUnprepared{UID: "next"}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/2, "µs/step")
}

func BenchmarkCreateBesideClaims(b *testing.B) {
	for _, class := range []string{"LS", "LSR"} {
		b.Run(class, func(b *testing.B) {
			m, now := crowdedByClaims(b)
			b.ReportAllocs()
			for b.Loop() {
				create(b, m, now, "newcomer", class, 4000)
				if _, err := m.Step(now, PodRemoved{Sandbox: "newcomer"}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/3, "µs/step")
		})
	}
}

func crowdedByClaims(b *testing.B) (*Machine, time.Time) {
	m, now := crowdedWith(b, 400, func(t *topology.Topology) (cfg Config) {
		for i := range t.Nodes() {
			cfg.ClaimShares = append(cfg.ClaimShares, ClaimShare{Within: t.Nodes()[i].CPUs, CPUs: 12})
		}
		return cfg
	})
	for i := range 32 {
		prepareOn(b, m, now, fmt.Sprint("claim-", i), i)
	}
	return m, now
}

// prepareOn prepares a claim of a pod, for two CPUs of a NUMA node.
func prepareOn(b *testing.B, m *Machine, now time.Time, uid string, pod int) {
	e := ClaimPrepared{UID: uid, Namespace: "default", Name: uid, Pods: []string{fmt.Sprintf("pod-%04d", pod)}}
	nodes := m.topo.Nodes()
	e.Requests = []ClaimRequest{{Device: "numa", Within: nodes[pod%len(nodes)].CPUs, CPUs: 2}}
	if _, err := m.Step(now, e); err != nil {
		b.Fatal(err)
	}
}
