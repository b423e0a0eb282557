package policy

import (
	"testing"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/topology"
)

// withIsolated is one NUMA node of eight CPUs in cores of two, of which the kernel isolates 4-7.
func withIsolated(t testing.TB, cfg Config) *Machine {
	t.Helper()
	topo, err := topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2}.Build()
	if err == nil {
		topo, err = topo.WithIsolated(cpuset.Of(4, 5, 6, 7))
	}
	if err != nil {
		t.Fatal(err)
	}
	cfg.Authority.Namespaces = map[Power][]string{PowerIsolatedCPUs: {"default"}, PowerWholeCores: {"default"}}
	m, err := New(topo, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func ofIsolated(name string, milli int64, more ...string) Pod {
	annotations := map[string]string{AnnIsolated: isolatedOnly}
	for i := 0; i+1 < len(more); i += 2 {
		annotations[more[i]] = more[i+1]
	}
	return lsr(name, milli, annotations)
}

// TestIsolatedCPUs: a pod that asks for isolated CPUs gets these and no others, and
// any other pod gets none of them.
func TestIsolatedCPUs(t *testing.T) {
	plain := func(name string, milli int64) Pod { return lsr(name, milli, nil) }
	status := func(cpus string) []string { return []string{AnnStatus, `{"cpuset":"` + cpus + `"}`} }
	trusted := Config{Authority: Authority{TrustStatus: true}}
	for _, c := range []struct {
		name string
		cfg  Config
		pods []Pod
		want string // where the last is, or how it is refused
	}{
		{"asks", Config{}, []Pod{ofIsolated("a", 2000)}, "4-5"},
		{"does not ask", Config{}, []Pod{plain("a", 2000), plain("b", 1000)},
			"InsufficientCPUs: giving 1 CPUs away exclusively would leave the shared pool 1 of its 2 CPUs and its " +
				"floor is 2"},
		{"too many", Config{}, []Pod{ofIsolated("a", 3000), ofIsolated("b", 2000)},
			"InsufficientCPUs: 2 CPUs are asked for and 1 of 8 are free (annotation quietcore.dev/isolated-cpus: the " +
				"kernel isolates CPUs 4-7, and of these 7 are free)"},
		{"the shared pool loses nothing", Config{}, []Pod{ls("web", 4000, nil), ofIsolated("b", 4000)}, "4-7"},
		{"reserved ones are not given", Config{Reserved: cpuset.Of(4)}, []Pod{ofIsolated("a", 4000)},
			"InsufficientCPUs: 4 CPUs are asked for and 3 of 8 are free (annotation quietcore.dev/isolated-cpus: the " +
				"kernel isolates CPUs 4-7, and of these 5-7 are free)"},
		{"the system's are not given", Config{System: System{CPUs: cpuset.Of(6, 7)}}, []Pod{ofIsolated("a", 2000)},
			"4-5"},
		{"isolate: its siblings are isolated ones, too", Config{}, []Pod{ofIsolated("a", 2000, AnnSMT, "isolate")},
			"4,6 beside 5,7"},
		{"a word that is none", Config{}, []Pod{lsr("a", 2000, map[string]string{AnnIsolated: "true"})},
			`InvalidAnnotation: annotation quietcore.dev/isolated-cpus is "true"; it must be required`},
		{"a scheduler's choice", trusted, []Pod{ofIsolated("a", 2000, status("6-7")...)}, "6-7"},
		{"a scheduler's wrong choice", trusted, []Pod{ofIsolated("a", 2000, status("2,7")...)},
			"InsufficientCPUs: annotation scheduling.koordinator.sh/resource-status gives CPUs 2,7; of these 2 are " +
				"not isolated"},
		{"a scheduler's choice for one that does not ask", trusted,
			[]Pod{lsr("a", 2000, map[string]string{AnnStatus: `{"cpuset":"6-7"}`})},
			"InsufficientCPUs: annotation scheduling.koordinator.sh/resource-status gives CPUs 6-7; of these 6-7 are " +
				"isolated"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, got := withIsolated(t, c.cfg), ""
			for _, p := range c.pods {
				if got = refusal(m, PodRun{Pod: p}); got == "" && p.Labels[LabelClass] != "" {
					got = owns(m, p.UID)
				}
			}
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// TestIsolatedCPUsOfNamedContainers, which own theirs and leave the rest of the pod in the pool.
func TestIsolatedCPUsOfNamedContainers(t *testing.T) {
	m := withIsolated(t, Config{})
	p := ofIsolated("a", 3000, AnnContainers, "main")
	told(t, m, PodRun{Pod: p})
	told(t, m, containerOf(p, "main", Resources{2000, 2000}))
	told(t, m, containerOf(p, "side", Resources{1000, 1000}))
	s := m.Snapshot()
	for _, c := range s.Containers {
		want := map[string]string{"main": "4-5", "side": "0-3"}[c.Name]
		if got := s.CPUs(c); got.String() != want {
			t.Errorf("%s runs on %s, want %s", c.Name, got, want)
		}
	}
}

// TestIsolatedCPUsAreNoHelp: an owner of isolated CPUs has nothing that the shared pool could
// have, when hardware takes the pool's last CPU, and keeps them to itself even then.
func TestIsolatedCPUsAreNoHelp(t *testing.T) {
	m := withIsolated(t, Config{})
	old, young := lsr("old", 2000, nil), ofIsolated("young", 2000)
	old.CreatedAt, young.CreatedAt = young.CreatedAt.Add(1), young.CreatedAt.Add(2)
	told(t, m, PodRun{Pod: old})
	told(t, m, PodRun{Pod: young})
	told(t, m, Hardware{Online: cpuset.Of(0, 1, 4, 5, 6, 7)})
	shared := m.Snapshot().Shared
	if a, b := owns(m, "old"), owns(m, "young"); a != "nothing" || b != "4-5" || shared.String() != "0-1" {
		t.Errorf("the old one owns %s, the young one %s, shared is %s", a, b, shared)
	}
	told(t, m, PodRemoved{Sandbox: "old"})
	told(t, m, Hardware{Online: cpuset.Of(4, 5, 6, 7)})
	s, own := m.Snapshot(), owns(m, "young")
	if s.Shared.String() != "6-7" || s.BE.String() != "6-7" || !s.Overlap || own != "4-5" {
		t.Errorf("shared %s, best effort %s, owned %s", s.Shared, s.BE, own)
	}
}

// A pod that waits for isolated CPUs does not block pods that take others, and heals only by those.
func TestWaitingForIsolatedCPUs(t *testing.T) {
	m := withIsolated(t, Config{Degrade: true})
	told(t, m, PodRun{Pod: ofIsolated("a", 3000)})
	told(t, m, PodRun{Pod: ofIsolated("b", 2000)})
	if l := m.Snapshot().Ledger; len(m.waiting) != 1 || l.Waiting != 0 {
		t.Errorf("%d wait, for %d CPUs of the shared pool", len(m.waiting), l.Waiting)
	}
	told(t, m, PodRemoved{Sandbox: "a"})
	if got := owns(m, "b"); got != "4-5" {
		t.Errorf("it owns %s", got)
	}
}
