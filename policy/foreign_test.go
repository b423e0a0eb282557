package policy

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quietcore/quietcore/cpuset"
)

// drawClaims is what the specs of another driver say now.
func (l *life) drawClaims(t *rapid.T) {
	e := ForeignClaims{Devices: map[string]cpuset.Set{}}
	free := l.m.Snapshot().Topology.Known()
	for _, device := range []string{"a", "b", "c"} {
		if rapid.Bool().Draw(t, "listed") {
			cpus := l.someCPUs(t, "claimed").And(free)
			free = free.Minus(cpus)
			e.Devices[device] = cpus
		}
	}
	_ = l.step(t, e)
}

// checkClaims: what other drivers gave is in no pool and no owner's, and a container with a claim runs on its CPUs and
// is not best effort for its Kubernetes class.
func (l *life) checkClaims(t rapid.TB, s *Snapshot) {
	t.Helper()
	if in := s.Shared.Or(s.BE).Or(s.Reserved).Or(s.System).And(s.Foreign); !in.IsEmpty() && !s.Overlap {
		t.Fatalf("pools have claimed CPUs %s\n%s", in, describe(s))
	}
	for id, h := range l.m.exclusive {
		if all := h.grant.all(); all.Intersects(&s.Foreign) {
			t.Fatalf("%s owns %s, of which %s are claimed\n%s", id, all, all.And(s.Foreign), describe(s))
		}
	}
	var all cpuset.Set
	for _, c := range l.m.foreign {
		all.AddSet(&c.cpus)
	}
	online := s.Topology.Online()
	if nobodys := all.And(online).Minus(s.Exclusive).Minus(s.Withheld); !nobodys.IsEmpty() {
		t.Fatalf("claimed CPUs %s are nobody's\n%s", nobodys, describe(s))
	}
	for device, c := range l.m.foreign {
		if !c.listed && !l.m.claimedDevices()[device] {
			t.Fatalf("claim %s stays without a spec and without a pod", device)
		}
	}
	claimed := s.Foreign.Or(claimedIn(s))
	for _, c := range s.Containers {
		p := l.m.pods[c.PodUID]
		if p.claims[c.Name] == nil || p.unread {
			continue
		}
		if c.Class == BE && p.labels[LabelClass] != string(BE) {
			t.Fatalf("%s/%s has a claim and is best effort\n%s", c.Pod, c.Name, describe(s))
		}
		if own, ok := l.m.claimNeed(p, c.Name); ok != (c.Need.Own != nil && *c.Need.Own == own) && p.followsClaims() {
			t.Fatalf("%s/%s has claimed CPUs %s, decided is %s\n%s", c.Pod, c.Name, own, s.CPUs(c), describe(s))
		}
		if c.MayCap && !p.in.capped && p.labels[LabelClass] != string(BE) {
			t.Fatalf("%s/%s has a claim and may be capped\n%s", c.Pod, c.Name, describe(s))
		}
		if cpus := s.CPUs(c); c.Need.Own != nil && !p.owns() && !p.kubelet && !cpus.SubsetOf(&claimed) {
			t.Fatalf("%s/%s runs on %s, claimed are %s\n%s", c.Pod, c.Name, cpus, claimed, describe(s))
		}
	}
}

func claimsOf(t *testing.T, devices map[string]string) ForeignClaims {
	t.Helper()
	e := ForeignClaims{Devices: map[string]cpuset.Set{}}
	for device, list := range devices {
		cpus, err := cpuset.Parse(list)
		if err != nil {
			t.Fatal(err)
		}
		e.Devices[device] = cpus
	}
	return e
}

func claimed(uid string, devices ...string) ContainerCreate {
	return ContainerCreate{
		Pod: Pod{UID: uid, Sandbox: "s-" + uid, Namespace: "default", Name: uid, QoS: BestEffort,
			Resources: &Resources{LimitMilli: NoLimit}},
		Container: Container{ID: "c-" + uid, Sandbox: "s-" + uid, Name: "main",
			Resources: Resources{LimitMilli: NoLimit},
			Claims:    devices},
	}
}

// stepper steps a machine and fails on a refusal.
func stepper(t *testing.T, m *Machine) func(Event) []string {
	return func(e Event) (notices []string) {
		t.Helper()
		decisions, err := m.Step(time.Unix(1, 0), e)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range decisions {
			if n, ok := d.(Notice); ok {
				notices = append(notices, n.Reason+": "+n.Message)
			}
		}
		return notices
	}
}

func viewOf(t *testing.T, m *Machine, pod string) *ContainerView {
	t.Helper()
	for _, c := range m.Snapshot().Containers {
		if c.Pod == pod {
			return c
		}
	}
	t.Fatalf("no container of %s", pod)
	return nil
}

func TestClaimOfAnotherDriver(t *testing.T) {
	m := machineOf(t, 2, 4, Config{ProtectRequest: true})
	step := stepper(t, m)
	step(claimsOf(t, map[string]string{"x": "2-3", "y": "4"}))
	if s := m.Snapshot(); s.Shared.String() != "0-1,5-15" || s.BE != s.Shared || s.Foreign.String() != "2-4" {
		t.Fatalf("unconfirmed claims leave shared %s, be %s, foreign %s", s.Shared, s.BE, s.Foreign)
	}
	step(claimed("ml", "x"))
	v := viewOf(t, m, "ml")
	if cpus := m.Snapshot().CPUs(v); v.Class != LS || cpus.String() != "2-3" || v.MayCap ||
		!strings.Contains(v.Why, "by a claim") {
		t.Fatalf("class %s on %s, may be capped %t: %s", v.Class, cpus, v.MayCap, v.Why)
	}
	if _, err := m.Step(time.Unix(1, 0), CapVerdict{ID: "c-ml", Milli: 100, For: time.Second}); err == nil {
		t.Fatal("it was capped")
	}
	step(claimed("plain"))
	if v := viewOf(t, m, "plain"); v.Class != BE {
		t.Fatalf("a pod without a claim is %s", v.Class)
	}
	step(claimsOf(t, nil)) // the specs are gone before the pod is
	if s := m.Snapshot(); s.Foreign.String() != "2-3" || s.Shared.Has(2) {
		t.Fatalf("a running claim's CPUs are in the pool: foreign %s, shared %s", s.Foreign, s.Shared)
	}
	step(ContainerStopped{ID: "c-ml"})
	if s := m.Snapshot(); s.Foreign.String() != "2-3" {
		t.Fatalf("between two runs it has %s", s.Foreign)
	}
	step(PodRemoved{Sandbox: "s-ml"})
	if s := m.Snapshot(); !s.Foreign.IsEmpty() || s.Shared.String() != "0-15" {
		t.Fatalf("after its end foreign %s, shared %s", s.Foreign, s.Shared)
	}
}

// A claim on CPUs that are owned here takes none of them away, and has them when they are free.
func TestClaimOnOwnedCPUs(t *testing.T) {
	m := machineOf(t, 2, 4, Config{})
	step := stepper(t, m)
	owner := claimed("owner")
	owner.Pod.Labels, owner.Pod.QoS = map[string]string{LabelClass: string(LSR)}, Guaranteed
	owner.Pod.Resources = &Resources{RequestMilli: 2000, LimitMilli: 2000}
	owner.Container.Resources = *owner.Pod.Resources
	step(owner)
	has := m.Snapshot().CPUs(viewOf(t, m, "owner"))
	notices := step(ForeignClaims{Devices: map[string]cpuset.Set{"x": has.Or(cpuset.Of(9))}})
	if len(notices) != 1 || !strings.HasPrefix(notices[0], "ForeignClaimOverlaps: ") {
		t.Fatalf("reported: %q", notices)
	}
	step(claimed("ml", "x"))
	if cpus := m.Snapshot().CPUs(viewOf(t, m, "ml")); cpus.String() != "9" {
		t.Fatalf("the claim has %s beside owner of %s", cpus, has)
	}
	if cpus := m.Snapshot().CPUs(viewOf(t, m, "owner")); cpus != has {
		t.Fatalf("the owner was moved from %s to %s", has, cpus)
	}
	step(PodRemoved{Sandbox: "s-owner"})
	if cpus := m.Snapshot().CPUs(viewOf(t, m, "ml")); cpus != has.Or(cpuset.Of(9)) {
		t.Fatalf("after the owner's end the claim has %s", cpus)
	}
}

// A record of a machine brings an empty one to the same claims, those without a spec too.
func TestClaimsAreRecorded(t *testing.T) {
	m := machineOf(t, 2, 4, Config{})
	step := stepper(t, m)
	step(claimsOf(t, map[string]string{"x": "2-3", "y": "4"}))
	step(claimed("ml", "x"))
	step(claimsOf(t, map[string]string{"y": "4"}))
	r := NewRecorder(10)
	r.Rebase(m, time.Unix(1, 0))
	again := machineOf(t, 2, 4, Config{})
	for _, record := range r.Latest() {
		if _, err := again.Step(record.At, record.Event()); err != nil {
			t.Fatal(err)
		}
	}
	s := again.Snapshot()
	if a, b := describe(m.Snapshot()), describe(s); a != b || s.Foreign.String() != "2-4" {
		t.Fatalf("recorded:\n%s\nreplayed:\n%s", a, b)
	}
	stepper(t, again)(PodRemoved{Sandbox: "s-ml"})
	if s = again.Snapshot(); s.Foreign.String() != "4" {
		t.Fatalf("after the pod's end foreign %s", s.Foreign)
	}
}

// A claimed CPU that is offline is withheld from its siblings' owner neither here nor by a scheduler's trial.
func TestTrialKnowsOfflineClaims(t *testing.T) {
	m := machineOf(t, 1, 4, Config{})
	step := stepper(t, m)
	online := m.topo.Online()
	sibling := m.topo.Siblings(cpuset.Of(online.First())).Minus(cpuset.Of(online.First()))
	step(ForeignClaims{Devices: map[string]cpuset.Set{"x": sibling}})
	step(Hardware{Online: online.Minus(sibling)})
	ledger := m.Snapshot().Ledger
	trial, err := NewTrial(m.topo, *ledger.Rules)
	if err != nil {
		t.Fatal(err)
	}
	next := lsr("next", 1000, map[string]string{AnnSMT: "isolate"})
	a, refusal := trial.Applicant(&next)
	if refusal != nil {
		t.Fatal(refusal)
	}
	var o Offer
	if refusal = trial.Judge(a, Standing{Ledger: ledger}, &o); refusal != nil {
		t.Fatal(refusal)
	}
	step(PodRun{Pod: next})
	h := m.pods[next.UID].every()[0]
	if o.CPUs != h.grant.cpus || o.Withheld != h.grant.withheld {
		t.Fatalf("offered %s, withheld %s; given %s, withheld %s", o.CPUs, o.Withheld, h.grant.cpus, h.grant.withheld)
	}
	if o.Withheld.Intersects(&sibling) {
		t.Fatalf("the claimed %s are withheld: %s", sibling, o.Withheld)
	}
}

// CPUs that owners have beyond their requests go back to a pool that is too small: of these, not what another driver
// claimed, which would be the claim's.
func TestWhatIsClaimedIsNotTakenBack(t *testing.T) {
	m := machineOf(t, 1, 2, Config{})
	step := stepper(t, m)
	step(PodRun{Pod: lsr("owner", 1000, map[string]string{AnnSMT: "isolate"})})
	h := m.pods[lsr("owner", 1000, nil).UID].every()[0]
	withheld := h.grant.withheld
	if withheld.Count() != 1 {
		t.Fatalf("withheld are %s", withheld)
	}
	step(ForeignClaims{Devices: map[string]cpuset.Set{"x": withheld}})
	plain := lsr("plain", 3000, nil)
	plain.Labels = nil
	step(PodRun{Pod: plain})
	if h.grant.withheld != withheld {
		t.Errorf("of %s, which is claimed, the owner has %s left", withheld, h.grant.withheld)
	}
}
