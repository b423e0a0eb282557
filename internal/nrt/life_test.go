package nrt

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// TestLives checks, through random lives of a node, that what is published is
// consistent in itself and with the pools.
func TestLives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		topo, err := topology.Grid{
			Sockets: rapid.IntRange(1, 2).Draw(t, "sockets"), NodesPerSocket: rapid.IntRange(1, 2).Draw(t, "nodes"),
			CoresPerL3: rapid.IntRange(1, 4).Draw(t, "cores"), ThreadsPerCore: rapid.IntRange(1, 2).Draw(t, "threads"),
		}.Build()
		if err != nil {
			t.Fatal(err)
		}
		cfg := policy.Config{Degrade: rapid.Bool().Draw(t, "degrade")}
		cfg.Allocation.SMT = rapid.SampledFrom([]cpuallocator.SMT{cpuallocator.SMTNone, cpuallocator.SMTIsolate,
			cpuallocator.SMTRoundUp}).Draw(t, "smt")
		if rapid.Bool().Draw(t, "reserve") {
			cfg.Reserved, cfg.ReservedStrict = cpuset.Of(0), rapid.Bool().Draw(t, "strict")
		}
		pm, err := policy.New(topo, cfg)
		if err != nil {
			t.Skip("the machine is too small for its configuration")
		}
		m := &machine{Machine: pm}
		check(t, m)
		pods, entries := 0, map[string]map[string]cpuset.Set{}
		t.Repeat(map[string]func(*rapid.T){
			"run": func(t *rapid.T) {
				pods++
				class := rapid.SampledFrom([]string{"LSE", "LSR", "LS", "BE", ""}).Draw(t, "class")
				_ = m.run(fmt.Sprint(pods), class, int64(rapid.IntRange(1, 5).Draw(t, "cpus"))) // may be refused
			},
			"stop": func(t *rapid.T) {
				_ = m.step(policy.ContainerStopped{ID: fmt.Sprint("id-", rapid.IntRange(0, pods).Draw(t, "pod"))})
			},
			"remove": func(t *rapid.T) {
				_ = m.step(policy.PodRemoved{Sandbox: fmt.Sprint("sandbox-", rapid.IntRange(0, pods).Draw(t, "pod"))})
			},
			"online": func(t *rapid.T) {
				var online cpuset.Set
				for cpu := range topo.CPUs() {
					if rapid.IntRange(0, 3).Draw(t, "on") > 0 {
						online.Add(cpu)
					}
				}
				_ = m.step(policy.Hardware{Online: online}) // refused where nothing is left
			},
			"kubelet": func(t *rapid.T) {
				known := topo.Known()
				if rapid.Bool().Draw(t, "forget") {
					clear(entries)
				} else {
					uid := fmt.Sprint("uid-", rapid.IntRange(0, pods+1).Draw(t, "pod"))
					entries[uid] = map[string]cpuset.Set{"app": cpuset.Of(rapid.IntRange(0, known.Count()-1).Draw(t,
						"cpu"))}
				}
				copied := map[string]map[string]cpuset.Set{}
				for uid, e := range entries {
					copied[uid] = e
				}
				_ = m.step(policy.KubeletState{PolicyName: "static", Entries: copied})
			},
			"": func(t *rapid.T) { check(t, m) },
		})
	})
}

func check(t *rapid.T, m *machine) {
	s := m.Snapshot()
	o := Build(Input{Node: "n", Snapshot: s})
	shared, be := sumOf(t, o.Annotations[AnnSharedPools]), sumOf(t, o.Annotations[AnnBEPools])
	if shared != s.Shared || be != s.BE {
		t.Fatalf("the pools of the zones add up to %s and %s, they are %s and %s", shared, be, s.Shared, s.BE)
	}
	var allocs []PodAlloc
	decode1(t, o.Annotations[AnnAllocs], &allocs)
	class := map[string]policy.Class{}
	for _, c := range s.Containers {
		class[c.PodUID] = c.Class
	}
	var owned cpuset.Set
	for _, a := range allocs {
		cpus := parse(t, a.CPUSet)
		if class[a.UID] == policy.LSE && (cpus.Intersects(&shared) || cpus.Intersects(&be)) {
			t.Fatalf("CPUs of LSE pod %s (%s) are in a pool: shared %s, be %s", a.UID, cpus, shared, be)
		}
		if !a.ManagedByKubelet && owned.Intersects(&cpus) {
			t.Fatalf("CPUs %s of %s have two owners", cpus, a.UID)
		}
		owned.AddSet(&cpus)
	}
	var r Reservation
	decode1(t, o.Annotations[AnnReservation], &r)
	var p ManagerPolicy
	decode1(t, o.Annotations[AnnManagerPolicy], &p)
	reserved, held := parse(t, r.ReservedCPUs), parse(t, p.ReservedCPUs)
	if !s.Withheld.SubsetOf(&reserved) {
		t.Fatalf("withheld %s is not reserved (%s)", s.Withheld, reserved)
	}
	// What Koordinator's scheduler takes for free, less our floor, is what is
	// available: nothing is counted twice and nothing forgotten.
	online := s.Topology.Online()
	taken := owned.Or(reserved).Or(held)
	left := max(0, s.Shared.Count()-s.Topology.ThreadsPerCore())
	var sum int64
	for i, z := range o.Zones {
		cpu := z.Resources[0]
		on := s.Topology.Nodes()[i].CPUs.And(online)
		if cpu.Allocatable.Value() != int64(on.Count()) {
			t.Fatalf("%s: allocatable %s, %d CPUs are on", z.Name, cpu.Allocatable.String(), on.Count())
		}
		if want := min(left, on.Minus(taken).Count()); cpu.Available.Value() != int64(want) {
			t.Fatalf("%s: available %s, want %d: on %s, taken %s, left %d", z.Name, cpu.Available.String(), want, on,
				taken, left)
		}
		sum += cpu.Available.Value()
	}
	if most := online.Minus(taken).Count(); sum > int64(most) {
		t.Fatalf("the zones have %d CPUs available, there are %d", sum, most)
	}
	body, err := encode(o, V1alpha2)
	if err != nil {
		t.Fatal(err)
	}
	again, err := decode(body, nil)
	if err != nil {
		t.Fatal(err)
	}
	if second, _ := encode(again, V1alpha2); string(second) != string(body) {
		t.Fatalf("after a round trip (-want +got):\n%s", cmp.Diff(string(body), string(second)))
	}
}

func decode1(t *rapid.T, text string, v any) {
	if err := json.Unmarshal([]byte(text), v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

func parse(t *rapid.T, list string) cpuset.Set {
	s, err := cpuset.Parse(list)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func sumOf(t *rapid.T, text string) cpuset.Set {
	var pools []SharedPool
	decode1(t, text, &pools)
	var sum cpuset.Set
	for _, p := range pools {
		cpus := parse(t, p.CPUSet)
		if sum.Intersects(&cpus) {
			t.Fatalf("CPUs %s are in two pools of %s", cpus, text)
		}
		sum.AddSet(&cpus)
	}
	return sum
}
