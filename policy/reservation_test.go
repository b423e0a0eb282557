package policy

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpuset"
)

// kept is what a newer version left of a pod.
func kept(name string, qos QoS, cpus cpuset.Set) Pod {
	return Pod{UID: name, Sandbox: name, Namespace: "default", Name: name, QoS: qos,
		Recovered: &Recovered{From: fromState, CPUs: &cpus, Reservation: &Reservation{
			Kind: "claim", Entries: []json.RawMessage{json.RawMessage(`{"kind":"claim","later":1}`)},
		}}}
}

func mustStep(t testing.TB, m *Machine, events ...Event) {
	t.Helper()
	for _, e := range events {
		if _, err := m.Step(time.Unix(0, 0), e); err != nil {
			t.Fatalf("%T: %v", e, err)
		}
	}
}

// What a newer version gave stays its pod's, whatever happens, until the pod is gone.
func TestAReservationIsKeptUntilItsPodIsGone(t *testing.T) {
	four := Resources{RequestMilli: 4000, LimitMilli: 4000}
	eight := Resources{RequestMilli: 8000, LimitMilli: 8000}
	booked := KubeletState{PolicyName: "static",
		Entries: map[string]map[string]cpuset.Set{"k": {"main": cpuset.Range(12, 13)}}}
	for _, qos := range []QoS{Guaranteed, Burstable, BestEffort} {
		t.Run(string(qos), func(t *testing.T) {
			m := small(t, Config{})
			mine := cpuset.Range(2, 5)
			d := decided(t, m, Synchronized{
				Pods:       []Pod{lsr("old", 4000, nil), kept("k", qos, mine)},
				Containers: []Container{{ID: "c", Sandbox: "k", Name: "main", Resources: four}},
			})
			if p := d.pods["k"]; p.Need.Own == nil || *p.Need.Own != mine || p.QuotaOurs {
				t.Errorf("its pod is decided as %+v", p)
			}
			if c := d.containers["c"]; c.Need.Own == nil || *c.Need.Own != mine || c.QuotaOurs {
				t.Errorf("its container is decided as %+v", c)
			}
			for _, e := range []Event{
				ContainerUpdate{ID: "c", Resources: &eight}, PodResized{Sandbox: "k", Resources: eight},
				PodFacts{UID: "k", Resources: eight}, booked, KubeletState{},
				Hardware{Online: cpuset.Range(4, 15)}, Hardware{Online: cpuset.Range(0, 15)}, ContainerStopped{ID: "c"},
				PodRun{Pod: lsr("young", 4000, nil)}, Reconfigured{Config: Config{}},
			} {
				mustStep(t, m, e)
				s := m.Snapshot()
				if got := m.pods["k"].grant.cpus; got != mine || s.Shared.Intersects(&mine) || s.BE.Intersects(&mine) {
					t.Errorf("%T: it has %s, shared is %s, best effort %s", e, got, s.Shared, s.BE)
				}
			}
			if _, err := m.Step(time.Unix(0, 0), PodRun{Pod: lsr("large", 6000, nil)}); err == nil {
				t.Error("CPUs that are reserved were given away")
			}
			published := false
			for _, o := range m.Snapshot().Owners {
				published = published || o.PodUID == "k" && o.CPUs == mine && o.Reservation == "claim" && !o.ByKubelet
			}
			if !published {
				t.Errorf("it is not among the owners: %+v", m.Snapshot().Owners)
			}
			again := small(t, Config{})
			mustStep(t, again, m.Checkpoint())
			if a, b := checkpointText(t, m), checkpointText(t, again); a != b {
				t.Errorf("after a restart:\n%s\nbefore:\n%s", b, a)
			}
			mustStep(t, m, PodRemoved{Sandbox: "k"})
			if s := m.Snapshot(); !mine.SubsetOf(&s.Shared) {
				t.Errorf("its pod is gone, and the shared pool is %s", s.Shared)
			}
		})
	}
}

func checkpointText(t testing.TB, m *Machine) string {
	t.Helper()
	text, err := json.Marshal(m.Checkpoint())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A pod that is not there any more when the daemon starts reserves nothing.
func TestAReservationOfAPodThatIsGone(t *testing.T) {
	m := small(t, Config{})
	mustStep(t, m, Synchronized{Pods: []Pod{kept("k", Burstable, cpuset.Range(2, 5))}}, Synchronized{})
	if s := m.Snapshot(); s.Shared.Count() != 16 || len(s.Owners) != 0 {
		t.Errorf("shared is %s, owners are %+v", s.Shared, s.Owners)
	}
}

// A reservation goes before what others were found to have, and comes without CPUs that
// the machine does not have.
func TestAReservationGoesFirst(t *testing.T) {
	m := small(t, Config{})
	other := lsr("other", 4000, nil)
	found := cpuset.Range(4, 7)
	other.Recovered = &Recovered{From: "kernel", CPUs: &found}
	mustStep(t, m, Synchronized{Pods: []Pod{other, kept("k", Burstable, cpuset.Of(4, 5, 99))}})
	if k := owns(m, "k"); k != "4-5" {
		t.Errorf("the reservation is %s, want 4-5", k)
	}
	both := m.pods["k"].grant.cpus.And(m.pods["other"].grant.cpus)
	if !both.IsEmpty() {
		t.Errorf("CPUs %s have two owners", both)
	}
}

// The shared pool does not live on reserved CPUs while an owner of ours can make room.
func TestAReservationIsNotWhatTheSharedPoolTakes(t *testing.T) {
	m := small(t, Config{})
	mustStep(t, m, Synchronized{Pods: []Pod{kept("k", Burstable, cpuset.Range(0, 5))}},
		PodRun{Pod: lsr("a", 8000, nil)})
	all := m.pods["a"].grant.cpus.Or(m.pods["k"].grant.cpus)
	mustStep(t, m, Hardware{Online: all})
	if k, a := owns(m, "k"), owns(m, "a"); k != "0-5" || a != "8-13" {
		t.Errorf("the reservation is %s, the younger owner has %s, want 0-5 and 8-13", k, a)
	}
}

// Where no CPU is left for the shared pool it runs on others' CPUs; those are not free.
func TestOthersCPUsAreNotFreeBecauseTheSharedPoolRunsThere(t *testing.T) {
	all := cpuset.Range(0, 15)
	pinned := Pod{UID: "p", Sandbox: "p", Namespace: "default", Name: "p", QoS: Guaranteed}
	for name, events := range map[string][]Event{
		"reserved": {Synchronized{Pods: []Pod{kept("k", Burstable, all)}}},
		"kubelet's": {PodRun{Pod: pinned},
			KubeletState{PolicyName: "static", Entries: map[string]map[string]cpuset.Set{"p": {"main": all}}}},
	} {
		m := small(t, Config{})
		mustStep(t, m, events...)
		if !m.Snapshot().Overlap {
			t.Fatalf("%s: the shared pool is %s", name, m.Snapshot().Shared)
		}
		if _, err := m.Step(time.Unix(0, 0), PodRun{Pod: lsr("a", 4000, nil)}); err == nil {
			t.Errorf("%s: CPUs %s were given twice", name, owns(m, "a"))
		}
	}
}

// TestTheMemoryOfAReservation is left as it is: what this version narrowed it could not write
// down in entries that it saves as it found them, and a restart would forget it.
func TestTheMemoryOfAReservation(t *testing.T) {
	m := machineOf(t, 2, 2, Config{Memory: MemoryStrict})
	d := decided(t, m, Synchronized{
		Pods:       []Pod{kept("k", Guaranteed, cpuset.Range(0, 1)), lsr("own", 2000, nil)},
		Containers: []Container{{ID: "c", Sandbox: "k", Name: "main", Resources: Resources{2000, 2000}}},
	})
	if p, c := d.pods["k"].Mems, d.containers["c"].Mems; p != nil || c != nil || d.pods["own"].Mems == nil {
		t.Errorf("memory of the pod is %v, of its container %v, of the owner beside it %v", p, c, d.pods["own"].Mems)
	}
	for _, p := range m.Checkpoint().Pods {
		if p.UID == "k" && p.Recovered.Narrowed != nil {
			t.Errorf("narrowed are %q", p.Recovered.Narrowed)
		}
	}
}
