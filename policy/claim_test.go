package policy

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
)

// prepared is a claim for n CPUs of a device, reserved for pods.
func prepared(uid, within string, n int, pods ...string) ClaimPrepared {
	cpus, err := cpuset.Parse(within)
	if err != nil {
		panic(err)
	}
	return ClaimPrepared{UID: uid, Namespace: "default", Name: "cpus-" + uid, Pods: pods,
		Requests: []ClaimRequest{{Device: "node0", Within: cpus, CPUs: n}}}
}

// giving steps a machine and returns what the last ClaimGiven of each claim says. No pool may have its CPUs by then,
// nor get them later in the step.
func giving(t *testing.T, m *Machine, e Event) map[string]string {
	t.Helper()
	decisions, err := m.Step(time.Unix(1, 0), e)
	if err != nil {
		t.Fatal(err)
	}
	var given cpuset.Set
	pools, got := map[PoolID]cpuset.Set{}, map[string]string{}
	for _, p := range m.UsedPools() {
		pools[p.ID] = p.CPUs
	}
	for _, d := range decisions {
		switch d := d.(type) {
		case SetPool:
			if d.CPUs.Intersects(&given) {
				t.Fatalf("pool %s has %s, given were %s", d.ID, d.CPUs, given)
			}
			delete(pools, d.ID)
			pools[d.ID] = d.CPUs
		case ClaimGiven:
			var all []string
			for _, cpus := range d.CPUs {
				given.AddSet(&cpus)
				all = append(all, cpus.String())
			}
			got[d.UID] = strings.Join(all, " ")
		case DropClaim:
			got[d.UID] = "dropped"
		}
	}
	for id, cpus := range pools {
		if cpus.Intersects(&given) {
			t.Fatalf("pool %s has %s, given were %s", id, cpus, given)
		}
	}
	return got
}

func TestClaimLife(t *testing.T) {
	m := machineOf(t, 2, 4, Config{}) // CPUs 0-7 and 8-15 are NUMA nodes, each even one and the next a core
	step := stepper(t, m)
	if got := giving(t, m, prepared("x", "0-7", 2, "ml")); got["x"] != "0-1" {
		t.Fatalf("given %v", got)
	}
	if s := m.Snapshot(); s.Shared.String() != "2-15" || s.BE != s.Shared || s.Exclusive.String() != "0-1" {
		t.Fatalf("shared %s, be %s, exclusive %s", s.Shared, s.BE, s.Exclusive)
	}
	if got := giving(t, m, prepared("x", "0-7", 2, "ml")); got["x"] != "0-1" {
		t.Fatalf("prepared again it has %v", got)
	}
	step(claimed("ml"))
	v := viewOf(t, m, "ml")
	if cpus := m.Snapshot().CPUs(v); v.Class != LS || cpus.String() != "0-1" || v.MayCap ||
		v.Claims != "default/cpus-x" ||
		!strings.Contains(v.Why, `claim default/cpus-x gave it CPUs 0-1 of device "node0"`) {
		t.Fatalf("class %s on %s, may be capped %t, claims %s: %s", v.Class, cpus, v.MayCap, v.Claims, v.Why)
	}
	other := prepared("x", "8-15", 2, "ml")
	if _, err := m.Step(time.Unix(1, 0), other); err != nil {
		t.Fatal(err) // the device's CPUs may change, its name does not
	}
	other.Requests[0].Device = "node1"
	if _, err := m.Step(time.Unix(1, 0), other); err == nil || !strings.Contains(err.Error(), "other devices") {
		t.Fatalf("for another device: %v", err)
	}
	step(claimed("other"))
	if v := viewOf(t, m, "other"); v.Class != BE || v.Claims != "" || m.Snapshot().CPUs(v).String() != "2-15" {
		t.Fatalf("another pod is %s on %s", v.Class, m.Snapshot().CPUs(v))
	}
	want := []ClaimView{{UID: "x", Namespace: "default", Name: "cpus-x", Pods: []string{"ml"},
		Requests: []ClaimPart{{Device: "node0", Asked: 2, CPUs: cpuset.Of(0, 1)}}}}
	if got := m.Snapshot().Claims; !reflect.DeepEqual(got, want) {
		t.Fatalf("listed %+v", got)
	}
	if o := m.Snapshot().Owners; len(o) > 0 {
		t.Fatalf("as a pod that owns CPUs is listed %+v", o[0])
	}
	if h := m.Snapshot().Ledger.Holdings; len(h) != 1 || h[0].Kind != KindClaim || h[0].UID != "x" ||
		h[0].CPUs.String() != "0-1" || h[0].Namespace != "default" || h[0].Pod != "cpus-x" {
		t.Fatalf("the scheduler sees %+v", h)
	}
	step(ContainerStopped{ID: "c-ml"})
	if s := m.Snapshot(); s.Shared.String() != "2-15" {
		t.Fatalf("between two runs the shared pool has %s", s.Shared)
	}
	if got := giving(t, m, ClaimUnprepared{UID: "x"}); got["x"] != "dropped" {
		t.Fatalf("unprepared: %v", got)
	}
	if s := m.Snapshot(); s.Shared.String() != "0-15" || s.BE != s.Shared || len(s.Claims)+len(s.Ledger.Holdings) > 0 {
		t.Fatalf("after it shared %s, be %s, claims %v", s.Shared, s.BE, s.Claims)
	}
	if got := giving(t, m, ClaimUnprepared{UID: "x"}); len(got) != 0 {
		t.Fatalf("unprepared again: %v", got)
	}
}

func TestClaimRequests(t *testing.T) {
	isolate, spread, spares := cpuallocator.SMTIsolate, cpuallocator.SpreadByPCPUs, Config{}
	spares.Authority.Profile = ProfileOpen
	alone := func(r *ClaimRequest) { r.SMT = &isolate }
	of := func(within string, n int, change func(*ClaimRequest)) ClaimPrepared {
		e := prepared("x", within, n)
		if change != nil {
			change(&e.Requests[0])
		}
		return e
	}
	two := of("0-7", 2, nil)
	two.Requests = append(two.Requests, prepared("", "8-15", 3).Requests...)
	twice := of("0-7", 5, nil)
	twice.Requests = append(twice.Requests, prepared("", "0-7", 4).Requests...)
	most := Config{Authority: Authority{MaxCPUs: map[string]int{"default": 3}}}
	strict := Config{Authority: Authority{Profile: ProfileStrict}}
	for _, c := range []struct {
		name        string
		cfg         Config
		e           ClaimPrepared
		want, wrong string
		held        string // withheld
	}{
		{"of one device", Config{}, of("8-15", 3, nil), "8-10", "", ""},
		{"all of it", Config{}, of("8-15", 8, nil), "8-15", "", ""},
		{"of two devices", Config{}, two, "0-1 8-10", "", ""},
		{"one CPU of each core", Config{}, of("0-7", 2, func(r *ClaimRequest) { r.Bind = &spread }), "0,2", "", ""},
		{"isolated", spares, of("0-7", 2, alone), "0,2", "", "1,3"},
		{"isolated without the power", Config{}, of("0-7", 2, alone), "",
			"Unauthorized", ""},
		{"the node isolates", Config{Allocation: Allocation{SMT: isolate}}, of("0-7", 2, nil), "0,2", "", "1,3"},
		{"more than the device has", Config{}, of("8-15", 9, nil), "", "InsufficientCPUs", ""},
		{"more than the device has in two requests", Config{}, twice, "", "3 of 16 are free", ""},
		{"all CPUs", Config{}, of("0-15", 16, nil), "",
			"would leave the shared pool 0 of its 16 CPUs and its floor is 2", ""},
		{"all but the floor", Config{}, of("0-15", 14, nil), "0-13", "", ""},
		{"more than its namespace may", most, of("0-7", 4, nil), "", "would own 4 exclusive CPUs and may own 3", ""},
		{"from a namespace that may not", strict, of("0-7", 2, nil), "", "Unauthorized", ""},
		{"reserved CPUs", Config{Reserved: cpuset.Of(0, 1)}, of("0-7", 6, nil), "2-7", "", ""},
		{"too few beside reserved CPUs", Config{Reserved: cpuset.Of(0, 1)}, of("0-7", 7, nil), "",
			"6 of 16 are free", ""},
		{"none", Config{}, of("0-7", 0, nil), "", "InvalidRequest", ""},
		{"of a device without CPUs", Config{}, of("", 1, nil), "", "InvalidRequest", ""},
		{"without requests", Config{}, ClaimPrepared{UID: "x"}, "", "InvalidRequest", ""},
		{"without a UID", Config{}, prepared("", "0-7", 1), "", "InvalidRequest", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := machineOf(t, 2, 4, c.cfg)
			m.cfg.Authority.Profile = c.cfg.Authority.Profile
			if c.wrong != "" {
				_, err := m.Step(time.Unix(1, 0), c.e)
				if err == nil || !strings.Contains(string(err.(*Refusal).Code)+": "+err.Error(), c.wrong) {
					t.Fatalf("answered %v, want %s", err, c.wrong)
				}
				if s := m.Snapshot(); !s.Exclusive.IsEmpty() || len(s.Claims) > 0 {
					t.Fatalf("refused, and has %s", s.Exclusive)
				}
				return
			}
			if got := giving(t, m, c.e); got["x"] != c.want {
				t.Fatalf("given %q, want %q", got["x"], c.want)
			}
			if s := m.Snapshot(); s.Withheld.String() != c.held {
				t.Fatalf("withheld %s, want %s", s.Withheld, c.held)
			}
		})
	}
}

// runs is a container of pod "ml".
func runs(name string, devices ...string) ContainerCreate {
	e := claimed("ml", devices...)
	e.Container.Name, e.Container.ID = name, "c-"+name
	return e
}

func TestContainersOfAClaim(t *testing.T) {
	named := prepared("x", "0-7", 2, "ml")
	named.Requests[0].Containers = []string{"main"}
	split := prepared("x", "0-7", 2, "ml")
	split.Requests = append(split.Requests, prepared("", "8-15", 2).Requests...)
	split.Requests[0].Containers, split.Requests[1].Containers = []string{"main"}, []string{"side"}
	x, y := ClaimDevice("x", 0), ClaimDevice("y", 0)
	for _, c := range []struct {
		name       string
		events     []Event
		main, side string
	}{
		{"of a runtime that names no devices",
			[]Event{prepared("x", "0-7", 2, "ml"), runs("main"), runs("side")}, "0-1", "0-1"},
		{"of one that does",
			[]Event{prepared("x", "0-7", 2, "ml"), runs("main", x), runs("side")}, "0-1", "2-15"},
		{"the one with the claim comes last",
			[]Event{prepared("x", "0-7", 2, "ml"), runs("side"), runs("main", x)}, "0-1", "2-15"},
		{"in the claim's parameters",
			[]Event{named, runs("main"), runs("side")}, "0-1", "2-15"},
		{"a request each",
			[]Event{split, runs("main"), runs("side")}, "0-1", "8-9"},
		{"two claims", []Event{prepared("x", "0-7", 2, "ml"), prepared("y", "8-15", 2, "ml"), runs("main", x, y),
			runs("side", y)}, "0-1,8-9", "8-9"},
		{"a claim that came later", []Event{runs("main"), runs("side"), prepared("x", "0-7", 2, "ml")},
			"0-1", "0-1"},
		{"a claim that is reserved later", []Event{prepared("x", "0-7", 2), runs("main"), runs("side"),
			prepared("x", "0-7", 2, "ml")}, "0-1", "0-1"},
		{"a claim that is reserved for others", []Event{prepared("x", "0-7", 2, "others"), runs("main"),
			runs("side")}, "2-15", "2-15"},
		{"beside another driver's", []Event{prepared("x", "0-7", 2, "ml"), claimsOf(t, map[string]string{"f": "8"}),
			runs("main", x, "f"), runs("side", "f")}, "0-1,8", "8"},
		{"a device that is said to be another driver's", []Event{claimsOf(t, map[string]string{x: "8"}),
			runs("main"), runs("side")}, "0-15", "0-15"},
		{"a claim that is gone", []Event{prepared("x", "0-7", 2, "ml"), runs("main", x), runs("side"),
			ClaimUnprepared{UID: "x"}}, "0-15", "0-15"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := machineOf(t, 2, 4, Config{})
			mirror := newMirror(m)
			for i, e := range c.events {
				decisions, err := m.Step(time.Unix(int64(i), 0), e)
				if err != nil {
					t.Fatal(err)
				}
				mirror.take(t, decisions)
			}
			s := m.Snapshot()
			for _, v := range s.Containers {
				want := map[string]string{"main": c.main, "side": c.side}[v.Name]
				if cpus := s.CPUs(v); cpus.String() != want {
					t.Errorf("container %s runs on %s, want %s: %s", v.Name, cpus, want, v.Why)
				}
				if d := mirror.containers[v.ID]; (d.Need.Own == nil) != (v.Need.Own == nil) ||
					d.Need.Own != nil && *d.Need.Own != *v.Need.Own || d.Why != v.Why {
					t.Errorf("container %s was decided to need %+v, it needs %+v", v.Name, d.Need, v.Need)
				}
			}
			for _, d := range mirror.containers {
				if d.Foreign != strings.Contains(c.name, "beside another") {
					t.Errorf("container %s is left to another driver: %t", d.Container.Name, d.Foreign)
				}
			}
		})
	}
}

// Claims and owners by annotation never get each other's CPUs, and a claim's floor counts what pods request.
func TestClaimsBesideOwners(t *testing.T) {
	m := machineOf(t, 1, 4, Config{}) // CPUs 0-7
	step := stepper(t, m)
	owner := lsr("owner", 2000, nil)
	step(PodRun{Pod: owner})
	if got := giving(t, m, prepared("x", "0-7", 2)); got["x"] != "2-3" {
		t.Fatalf("given %v beside %s", got, m.pods["owner"].grant.cpus)
	}
	web := Pod{UID: "web", Sandbox: "s-web", Namespace: "default", Name: "web", QoS: Burstable,
		Resources: &Resources{RequestMilli: 3000, LimitMilli: NoLimit}}
	step(PodRun{Pod: web})
	_, err := m.Step(time.Unix(1, 0), prepared("y", "0-7", 2))
	if err == nil || !strings.Contains(err.Error(),
		`claim default/cpus-y, device "node0": giving 2 CPUs away exclusively would leave the shared pool 2 of its `+
			`4 CPUs; its pods request 3000m`) {
		t.Fatalf("answered %v", err)
	}
	if got := giving(t, m, prepared("y", "0-7", 1)); got["y"] != "4" {
		t.Fatalf("given %v", got)
	}
	second := lsr("second", 2000, nil)
	if _, err := m.Step(time.Unix(1, 0), PodRun{Pod: second}); err == nil {
		t.Fatal("an owner took CPUs that claims have, or the shared pool's")
	}
	giving(t, m, ClaimUnprepared{UID: "x"})
	step(PodRun{Pod: second})
	if cpus := m.pods["second"].grant.cpus; cpus.String() != "2-3" {
		t.Fatalf("it has %s", cpus)
	}
}

// A checkpoint, and a record, bring an empty machine to the same claims; prepared again they keep their CPUs.
func TestClaimsSurviveARestart(t *testing.T) {
	cfg := Config{Authority: Authority{Profile: ProfileOpen}}
	isolate := cpuallocator.SMTIsolate
	x := prepared("x", "0-7", 2, "ml")
	x.Requests[0].SMT = &isolate
	m := machineOf(t, 2, 4, cfg)
	step := stepper(t, m)
	step(prepared("w", "0-7", 1))
	step(x)
	step(prepared("y", "8-15", 2))
	step(claimed("ml"))
	step(PodRun{Pod: lsr("owner", 2000, nil)})
	step(ClaimUnprepared{UID: "w"}) // x is not where it would be placed now
	text, err := json.Marshal(m.Checkpoint())
	if err != nil {
		t.Fatal(err)
	}
	var restored Synchronized
	if err := json.Unmarshal(text, &restored); err != nil {
		t.Fatal(err)
	}
	r := NewRecorder(10)
	r.Rebase(m, time.Unix(1, 0))
	var replayed []Event
	for _, record := range r.Latest() {
		replayed = append(replayed, record.Event())
	}
	for name, events := range map[string][]Event{"checkpoint": {restored}, "record": replayed} {
		again := machineOf(t, 2, 4, cfg)
		for _, e := range events {
			if _, err := again.Step(time.Unix(1, 0), e); err != nil {
				t.Fatal(name, err)
			}
		}
		before, after := m.Snapshot(), again.Snapshot()
		if was, is := describe(before), describe(after); was != is || !reflect.DeepEqual(before.Claims, after.Claims) ||
			!reflect.DeepEqual(before.Ledger.Holdings, after.Ledger.Holdings) {
			t.Fatalf("%s:\n%s\nwas:\n%s", name, is, was)
		}
		if got := giving(t, again, x); got["x"] != "2,4" {
			t.Fatalf("%s: prepared again it has %v", name, got)
		}
		if next, err := json.Marshal(again.Checkpoint()); err != nil || string(next) != string(text) {
			t.Fatalf("%s: saved again %s, was %s (%v)", name, next, text, err)
		}
	}
}

// What kubelet booked for a pod that runs in a pool takes no CPU from a claim, while a restart does not know the pod
// yet.
func TestAClaimSurvivesBookingsOfPodsThatAreKnownLater(t *testing.T) {
	m := machineOf(t, 1, 2, Config{})
	step := stepper(t, m)
	step(claimed("plain"))
	step(prepared("x", "0-3", 2))
	pinned := KubeletState{PolicyName: "static",
		Entries: map[string]map[string]cpuset.Set{"plain": {"main": m.Snapshot().Shared}}}
	step(pinned)
	before := describe(m.Snapshot())
	again := machineOf(t, 1, 2, Config{})
	restart := stepper(t, again)
	restart(pinned)
	restart(m.Checkpoint())
	if after := describe(again.Snapshot()); after != before {
		t.Fatalf("before\n%s\nafter\n%s", before, after)
	}
}

// Of a claim that lost its CPUs while no daemon ran nothing is doubled, and prepared again it gets others.
func TestRecoveredClaimGivesWay(t *testing.T) {
	m := machineOf(t, 2, 4, Config{})
	step := stepper(t, m)
	step(prepared("x", "0-7", 2, "ml"))
	saved := m.Checkpoint()
	again := machineOf(t, 2, 4, Config{})
	stepper(t, again)(PodRun{Pod: lsr("owner", 2000, nil)})
	saved.Pods = []Pod{lsr("owner", 2000, nil)}
	notices := stepper(t, again)(saved)
	if len(notices) != 1 || !strings.HasPrefix(notices[0], "AllocationLost: claim default/cpus-x has no CPUs") {
		t.Fatalf("reported %q", notices)
	}
	stepper(t, again)(claimed("ml"))
	if v := viewOf(t, again, "ml"); v.Class != LS || again.Snapshot().CPUs(v) != again.Snapshot().Shared {
		t.Fatalf("it is %s and runs on %s", v.Class, again.Snapshot().CPUs(v))
	}
	if got := giving(t, again, prepared("x", "0-7", 2, "ml")); got["x"] != "2-3" {
		t.Fatalf("prepared again it has %v", got)
	}
	if cpus := again.Snapshot().CPUs(viewOf(t, again, "ml")); cpus.String() != "2-3" {
		t.Fatalf("its container runs on %s", cpus)
	}
}

// CPUs that go offline stay the claim's.
func TestClaimAndHotplug(t *testing.T) {
	m := machineOf(t, 2, 4, Config{})
	step := stepper(t, m)
	step(prepared("x", "0-7", 2, "ml"))
	step(claimed("ml"))
	on := func() string { s := m.Snapshot(); return s.CPUs(viewOf(t, m, "ml")).String() }
	online := m.topo.Online()
	step(Hardware{Online: online.Minus(cpuset.Of(1))})
	if got := on(); got != "0" {
		t.Fatalf("with CPU 1 offline it runs on %s", got)
	}
	step(Hardware{Online: online.Minus(cpuset.Of(0, 1))})
	if got := on(); got != "2-15" {
		t.Fatalf("with both offline it runs on %s", got)
	}
	step(Hardware{Online: online})
	if s := m.Snapshot(); on() != "0-1" || s.Shared.String() != "2-15" {
		t.Fatalf("with both back it runs on %s, and the shared pool on %s", on(), s.Shared)
	}
}

// Of what claims may have owners leave as much as claims do not have yet.
func TestClaimShares(t *testing.T) {
	share := func(within string, n int) ClaimShare {
		return ClaimShare{Within: prepared("", within, 1).Requests[0].Within, CPUs: n}
	}
	cfg := Config{ClaimShares: []ClaimShare{share("0-7", 4), share("8-15", 2)}}
	m := machineOf(t, 2, 4, cfg)
	step := stepper(t, m)
	kept := func(want string) {
		t.Helper()
		s := m.Snapshot()
		if s.Kept.String() != want || s.Ledger.Kept.String() != want {
			t.Fatalf("kept for claims are %s, the scheduler sees %s, want %s", s.Kept, s.Ledger.Kept, want)
		}
		if s.Kept.And(s.Shared) != s.Kept {
			t.Fatalf("of %s the shared pool has %s", s.Kept, s.Kept.And(s.Shared))
		}
	}
	kept("4-7,14-15")
	step(PodRun{Pod: lsr("six", 6000, nil)})
	if cpus := m.pods["six"].grant.cpus; cpus.String() != "8-13" {
		t.Fatalf("an owner of 6 CPUs has %s", cpus)
	}
	big := lsr("big", 6000, nil)
	if _, err := m.Step(time.Unix(1, 0), PodRun{Pod: big}); err == nil ||
		!strings.Contains(err.Error(), "4 of 16 are free (CPUs 4-7,14-15 are kept for claims)") {
		t.Fatalf("answered %v", err)
	}
	if got := giving(t, m, prepared("x", "0-7", 3)); got["x"] != "0-2" {
		t.Fatalf("given %v", got)
	}
	kept("7,14-15")
	if _, err := m.Step(time.Unix(1, 0), prepared("y", "0-7", 2)); err == nil || !strings.Contains(err.Error(),
		`claim default/cpus-y, device "node0": 2 CPUs would be taken, and of the 4 that claims may have of it `+
			`(dra.share) 1 are left`) {
		t.Fatalf("answered %v", err)
	}
	if got := giving(t, m, prepared("y", "0-7", 1)); got["y"] != "4" {
		t.Fatalf("given %v", got)
	}
	kept("14-15")
	giving(t, m, ClaimUnprepared{UID: "x"})
	kept("5-7,14-15")
	trusted := lsr("trusted", 2000, map[string]string{AnnStatus: `{"cpuset":"6-7"}`})
	m.cfg.Authority.TrustStatus = true
	if _, err := m.Step(time.Unix(1, 0), PodRun{Pod: trusted}); err == nil ||
		!strings.Contains(err.Error(), "6-7 are kept for claims") {
		t.Fatalf("a scheduler's choice of CPUs for claims was answered %v", err)
	}
}

// What owners had before claims were given a share stays theirs, and is kept once they end.
func TestClaimShareBesideOwners(t *testing.T) {
	m := machineOf(t, 1, 4, Config{})
	step := stepper(t, m)
	step(PodRun{Pod: lsr("owner", 4000, nil)})
	cfg := m.cfg
	cfg.ClaimShares = []ClaimShare{{Within: m.topo.Known(), CPUs: 6}}
	step(Reconfigured{Config: cfg})
	if s := m.Snapshot(); s.Kept.String() != "4-7" {
		t.Fatalf("kept are %s", s.Kept)
	}
	if _, err := m.Step(time.Unix(1, 0), PodRun{Pod: lsr("next", 1000, nil)}); err == nil {
		t.Fatal("the next owner took a CPU that claims may have")
	}
	step(PodRemoved{Sandbox: "owner"})
	if s := m.Snapshot(); s.Kept.String() != "2-7" {
		t.Fatalf("kept are %s", s.Kept)
	}
}

// A claim is no pod that uses a NUMA node: singleNUMANodeExclusive keeps nobody off its node, here or in a trial.
func TestAClaimBarsNoNUMANode(t *testing.T) {
	m := machineOf(t, 2, 4, Config{})
	step := stepper(t, m)
	step(prepared("x", "0-15", 9)) // of both nodes
	in := claimed("alone").Pod
	in.QoS, in.Resources = Burstable, &Resources{RequestMilli: 1000, LimitMilli: NoLimit}
	in.Annotations = map[string]string{
		AnnNUMASpec: `{"numaTopologyPolicy":"SingleNUMANode","singleNUMANodeExclusive":"Required"}`}
	ledger := m.Snapshot().Ledger
	trial, err := NewTrial(m.topo, *ledger.Rules)
	if err != nil {
		t.Fatal(err)
	}
	a, refusal := trial.Applicant(&in)
	if refusal != nil {
		t.Fatal(refusal)
	}
	var o Offer
	if refusal = trial.Judge(a, Standing{Ledger: ledger}, &o); refusal != nil {
		t.Error(refusal)
	}
	step(PodRun{Pod: in})
}

// A claim that was found to be forgotten keeps its CPUs as long as a pod on the node may have it.
func TestAForgottenClaimIsGivenBackOnlyWhenUnused(t *testing.T) {
	forgotten := ClaimUnprepared{UID: "x", IfUnused: true}
	for _, c := range []struct {
		name, pod string // UID of the pod that it is reserved for
		before    []Event
		refused   string
	}{
		{"nobody has it", "gone", []Event{PodRun{Pod: claimed("other").Pod}}, ""},
		{"a pod has it", "one", []Event{PodRun{Pod: claimed("one").Pod}}, "is on the node"},
		{"a pod that was not announced has it", "one",
			[]Event{Unannounced{Pods: []FoundPod{{UID: "one", CgroupPath: "/kubepods/podone"}}}}, "never announced"},
	} {
		m := machineOf(t, 1, 4, Config{})
		step := stepper(t, m)
		e := prepared("x", "0-7", 2)
		e.Pods = []string{c.pod}
		step(e)
		for _, e := range c.before {
			step(e)
		}
		_, err := m.Step(time.Unix(1, 0), forgotten)
		if (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%s: answered %v", c.name, err)
		}
		if given := len(m.claims) == 0; given != (c.refused == "") {
			t.Errorf("%s: given back %v", c.name, given)
		}
		step(ClaimUnprepared{UID: "x"}) // kubelet's own request is never refused
		if len(m.claims) > 0 {
			t.Errorf("%s: kubelet's request was not carried out", c.name)
		}
	}
}

// Owners leave the shared pool its floor beside what is kept for claims, so that no claim is refused for it.
func TestOwnersLeaveTheFloorBesideTheShare(t *testing.T) {
	m := machineOf(t, 1, 4, Config{})
	cfg := m.cfg
	cfg.ClaimShares = []ClaimShare{{Within: m.topo.Known(), CPUs: 4}}
	step := stepper(t, m)
	step(Reconfigured{Config: cfg})
	step(PodRun{Pod: lsr("two", 2000, nil)})
	if _, err := m.Step(time.Unix(1, 0), PodRun{Pod: lsr("more", 2000, nil)}); err == nil || !strings.Contains(
		err.Error(), "would leave the shared pool 0 of its 6 CPUs once claims have the 4 that are kept for them, and "+
			"its floor is 2") {
		t.Fatalf("an owner of the floor's CPUs was answered %v", err)
	}
	giving(t, m, prepared("x", "0-7", 2))
	giving(t, m, prepared("y", "0-7", 2))
	if got := m.Snapshot().Shared.Count(); got != 2 {
		t.Errorf("the shared pool has %d CPUs", got)
	}
}

// A runtime that has named one container with a claim names all: a restart while that container is gone does not put
// the pod's others on the claim's CPUs.
func TestARestartWithoutTheContainerThatHasTheClaim(t *testing.T) {
	m := machineOf(t, 2, 4, Config{})
	step := stepper(t, m)
	for _, e := range []Event{prepared("x", "0-7", 2, "ml"), runs("main", ClaimDevice("x", 0)), runs("side")} {
		step(e)
	}
	if !m.Checkpoint().Claims[0].Named {
		t.Fatal("it is not saved that the runtime names the containers")
	}
	text, err := json.Marshal(m.Checkpoint())
	if err != nil {
		t.Fatal(err)
	}
	var saved Synchronized
	if err := json.Unmarshal(text, &saved); err != nil {
		t.Fatal(err)
	}
	saved.Containers = slices.DeleteFunc(saved.Containers, func(c Container) bool { return c.Name == "main" })
	for i := range saved.Pods {
		saved.Pods[i].Claims = nil
	}
	again := machineOf(t, 2, 4, Config{})
	stepper(t, again)(saved)
	s := again.Snapshot()
	for _, v := range s.Containers {
		if cpus := s.CPUs(v); v.Name != "side" || cpus != s.Shared {
			t.Errorf("container %s runs on %s, the shared pool is %s", v.Name, cpus, s.Shared)
		}
	}
	if len(s.Containers) != 1 {
		t.Errorf("there are %d containers", len(s.Containers))
	}
}
