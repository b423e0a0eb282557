package state

import (
	"encoding/json"
	"testing"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
)

// withOwners has two entries of one pod and one of another, each with what a newer daemon
// may have written.
func withOwners(t *testing.T) Snapshot {
	t.Helper()
	s := example()
	for _, text := range []string{
		`{"kind":"claim","uid":"u4","cpus":"4-5","device":{"pool":"numa-0"}}`,
		`{"kind":"claim","uid":"u4","cpus":"6"}`,
		`{"kind":"team","uid":"u5","cpus":"9","members":["a","b"]}`,
	} {
		var o Owner
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			t.Fatal(err)
		}
		s.Owners = append(s.Owners, o)
	}
	return s
}

// A file is in the lowest format that holds it, so that an older daemon reads it unless
// it would give the CPUs of an owner away.
func TestTheFormatFollowsTheOwners(t *testing.T) {
	for _, c := range []struct {
		name string
		s    Snapshot
		want int
	}{{"no newer kind", example(), 1}, {"a newer kind", withOwners(t), 2}, {"claims", withClaims(), 3}} {
		text, err := encode(c.s, "node-a", "boot-1", noon)
		if err != nil {
			t.Fatal(err)
		}
		e, got, err := decode(text)
		if err != nil || e.Version != c.want {
			t.Errorf("%s: format %d, want %d: %v", c.name, e.Version, c.want, err)
		}
		if d := diff(c.s, got); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
	}
}

// What the policy keeps of an owner is saved as it was read, however many sandboxes its
// pod has.
func TestOwnersAreSavedAgain(t *testing.T) {
	s := withOwners(t)
	var c policy.Synchronized
	for uid, p := range s.Places() {
		if p.Reservation == nil {
			continue
		}
		for _, sandbox := range []string{"first", "second"} {
			c.Pods = append(c.Pods, policy.Pod{UID: uid, Sandbox: uid + sandbox, Recovered: p.Recovered()})
		}
	}
	again := Of(c, 1)
	if len(again.Pods) != 0 {
		t.Errorf("reservations are saved as pods, too: %+v", again.Pods)
	}
	count := map[string]int{}
	for _, list := range [][]Owner{s.Owners, again.Owners} {
		for _, o := range list {
			count[string(o.Entry)]++
		}
	}
	for entry, n := range count {
		if n != 2 {
			t.Errorf("%s is in %d of the two snapshots", entry, n)
		}
	}
	recorded := policy.Pod{UID: "u", Recovered: &policy.Recovered{Reservation: &policy.Reservation{Kind: "claim"}}}
	if o := Of(policy.Synchronized{Pods: []policy.Pod{recorded}}, 1).Owners; len(o) != 1 || o[0].UID != "u" ||
		o[0].Kind != "claim" {
		t.Errorf("a reservation without entries is saved as %+v", o)
	}
}

// One pod's owners are one place; a pod that is in both lists against the rule loses none
// of its CPUs.
func TestPlaces(t *testing.T) {
	s := withOwners(t)
	s.Owners = append(s.Owners, Owner{Kind: "team", UID: "u1", CPUs: cpuset.Of(12)})
	places := s.Places()
	for uid, want := range map[string]struct{ cpus, kind string }{
		"u1": {"0-3,8,12", "team"}, "u2": {"", ""}, "u4": {"4-6", "claim"}, "u5": {"9", "team"},
	} {
		p, kind := places[uid], ""
		if p.Reservation != nil {
			kind = p.Reservation.Kind
		}
		if p.CPUs.String() != want.cpus || kind != want.kind {
			t.Errorf("%s has CPUs %s of kind %q, want %+v", uid, p.CPUs, kind, want)
		}
	}
}

func TestOwnersWithoutNameAreRefused(t *testing.T) {
	for _, o := range []Owner{{Kind: "claim"}, {UID: "u"}} {
		s := Snapshot{Owners: []Owner{o}}
		if text, err := encode(s, "", "", noon); err != nil {
			t.Fatal(err)
		} else if _, _, err := decode(text); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}

// Containers that own CPUs find their places again. A version that does not know the kind
// keeps their CPUs as a reservation, as this one does where the pod has other kinds as well.
func TestContainersAreOwners(t *testing.T) {
	own, other, idle := cpuset.Range(0, 1), cpuset.Of(4), cpuset.Of(5)
	want := &policy.Recovered{From: "state file", Several: true, Owners: []policy.RecoveredContainer{
		{Container: "main", Recovered: policy.Recovered{CPUs: &own, From: "state file", Request: 2, Reasons: "r"}},
		{Container: "side", Recovered: policy.Recovered{From: "state file", Request: 3, Degraded: "x: y", Since: noon}},
		{Container: "work", Recovered: policy.Recovered{CPUs: &other, Withheld: &idle, From: "state file", Request: 1}},
	}}
	narrowed := *want
	narrowed.Narrowed = []string{"main"}
	pod := policy.Pod{UID: "u", Sandbox: "s", Namespace: "n", Name: "p", Recovered: &narrowed, CreatedAt: noon}
	again := pod
	again.Sandbox = "t"
	s := Of(policy.Synchronized{Pods: []policy.Pod{pod, again}}, 1)
	if len(s.Pods) != 0 || len(s.Owners) != 3 || s.format() != formatOwners {
		t.Fatalf("saved as %+v", s)
	}
	text, err := encode(s, "node-a", "boot-1", noon)
	if err != nil {
		t.Fatal(err)
	}
	_, loaded, err := decode(text)
	if err != nil {
		t.Fatal(err)
	}
	place := loaded.Places()["u"]
	if d := diff(want, place.Recovered()); d != "" || len(place.Narrowed) != 1 || !place.CreatedAt.Equal(noon) ||
		place.CPUs.String() != "0-1,4-5" {
		t.Errorf("%+v: %s", place, d)
	}
	loaded.Owners = append(loaded.Owners, Owner{Kind: "claim", UID: "u", CPUs: cpuset.Of(9)})
	if p := loaded.Places()["u"]; p.Containers != nil || p.Reservation == nil || p.CPUs.String() != "0-1,4-5,9" ||
		p.Reservation.Kind != "claim, container" || len(p.Reservation.Entries) != 4 {
		t.Errorf("beside a kind that is not known: %+v", p)
	}
	loaded.Owners = []Owner{{Kind: "container", UID: "u", CPUs: cpuset.Of(9)}}
	if p := loaded.Places()["u"]; p.Reservation == nil {
		t.Errorf("an entry without a container: %+v", p)
	}
}

// A pod whose containers own nothing needs no newer format.
func TestContainersWithoutCPUs(t *testing.T) {
	r := &policy.Recovered{Owners: []policy.RecoveredContainer{{Container: "main",
		Recovered: policy.Recovered{Degraded: "InsufficientCPUs: none"}}}}
	s := Of(policy.Synchronized{Pods: []policy.Pod{{UID: "u", Recovered: r}}}, 1)
	if s.format() != formatPods || len(s.Pods) != 1 || s.Pods[0].Degraded != "InsufficientCPUs: none" {
		t.Errorf("saved as %+v", s)
	}
}
