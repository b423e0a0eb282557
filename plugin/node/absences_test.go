package node

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/policy"
)

// What absences makes of a row of looks, without a tree.
func TestAnEndNeedsAgreement(t *testing.T) {
	pod := func(uid string, owner bool) member {
		return member{id: uid, uid: uid, path: "kubepods/pod" + uid, owner: owner}
	}
	members := []member{
		pod("a", true), pod("b", true), pod("c", false), pod("d", false),
		{id: "x", uid: "c", path: "kubepods/podc/x", container: true},
	}
	see := func(names ...string) listings {
		return listings{"kubepods": {names: names}, "kubepods/podc": {names: []string{"x"}}}
	}
	every := []string{"poda", "podb", "podc", "podd"}
	without := func(gone ...string) listings {
		return see(slices.DeleteFunc(slices.Clone(every), func(name string) bool {
			return slices.Contains(gone, name)
		})...)
	}
	failed := see()
	failed["kubepods"] = children{err: errors.New("input/output error")}
	noContainer := see(every...)
	noContainer["kubepods/podc"] = children{names: nil}
	type step struct {
		seen  listings
		only  map[string]bool
		named map[string]bool
		ended string
		blind bool
	}
	for _, c := range []struct {
		name  string
		ready func([]member)
		steps []step
	}{
		{name: "twice in a row", steps: []step{{seen: without("poda")}, {seen: without("poda"), ended: "[a]"}}},
		{name: "there in between", steps: []step{{seen: without("poda")}, {seen: see(every...)},
			{seen: without("poda")}}},
		{name: "a listing that fails says nothing", steps: []step{{seen: without("poda")}, {seen: failed, blind: true},
			{seen: without("poda")}}},
		{name: "named since", steps: []step{{seen: without("poda")},
			{seen: without("poda"), named: map[string]bool{"a": true}}, {seen: without("poda"), ended: "[a]"}}},
		{name: "most owners at once", steps: []step{{seen: without("poda", "podb"), blind: true},
			{seen: without("poda", "podb"), blind: true}, {seen: without("poda")}}},
		{name: "most owners, announced", ready: func(m []member) {
			m[0].ending, m[1].ending = true, true
		}, steps: []step{{seen: without("poda", "podb")}, {seen: without("poda", "podb"), ended: "[a b]"}}},
		{name: "all pods", steps: []step{{seen: without(every...), blind: true}}},
		{name: "looks count apart", steps: []step{{seen: without("poda")},
			{seen: without("poda"), only: map[string]bool{"a": true}},
			{seen: without("poda"), only: map[string]bool{"a": true}, ended: "[a]"}}},
		{name: "a look is at those that end", steps: []step{{seen: without("poda"), only: map[string]bool{"b": true}},
			{seen: without("poda"), only: map[string]bool{"b": true}}}},
		{name: "a container", steps: []step{{seen: noContainer}, {seen: noContainer, ended: "[x]"}}},
		{name: "a container of a pod that was not listed", steps: []step{{seen: listings{"kubepods": {names: every}}},
			{seen: listings{"kubepods": {names: every}}}}},
		{name: "nobody lists the parent", steps: []step{{seen: listings{}}, {seen: listings{}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			list := slices.Clone(members)
			if c.ready != nil {
				c.ready(list)
			}
			p := absences{}
			for i, s := range c.steps {
				ended := []string{}
				for _, m := range p.look(list, s.seen, s.only, s.named) {
					ended = append(ended, m.id)
				}
				if want := s.ended; fmt.Sprint(ended) != want && !(want == "" && len(ended) == 0) ||
					(p.blind != "") != s.blind {
					t.Errorf("look %d: ended %v, blind %q; want %q and blind %t", i, ended, p.blind, s.ended, s.blind)
				}
			}
		})
	}
}

// When the listings are not believed.
func TestBlindness(t *testing.T) {
	pod := func(path string, owner bool) member { return member{id: path, uid: path, path: path, owner: owner} }
	names := func(n ...string) children { return children{names: n} }
	all := []member{pod("kubepods/pa", true), pod("kubepods/pb", true), pod("kubepods/pc", true),
		pod("kubepods/burstable/pd", false), pod("kubepods/burstable/pe", false),
		{id: "x", uid: "kubepods/pa", path: "kubepods/pa/x", container: true}, {id: "nowhere", uid: "nowhere"}}
	for _, c := range []struct {
		name string
		seen listings
		says string
	}{
		{"all is there", listings{"kubepods": names("burstable", "pa", "pb", "pc"),
			"kubepods/burstable": names("pd", "pe")}, ""},
		{"one owner lacks", listings{"kubepods": names("burstable", "pa", "pb"),
			"kubepods/burstable": names("pd", "pe")}, ""},
		{"two of three owners lack", listings{"kubepods": names("burstable", "pa"),
			"kubepods/burstable": names("pd", "pe")},
			"2 of 3 pods with CPUs of their own"},
		{"a slice cannot be listed", listings{"kubepods": names("burstable", "pa", "pb", "pc"),
			"kubepods/burstable": {err: errors.New("no such file")}},
			"kubepods/burstable, in which pods run, cannot be listed"},
		{"a slice was not listed", listings{"kubepods": names("burstable", "pa", "pb", "pc")}, ""},
		{"all of a slice lack", listings{"kubepods": names("burstable", "pa", "pb", "pc"),
			"kubepods/burstable": names()}, "all 2 pods in kubepods/burstable"},
		{"all lack", listings{"kubepods": names(), "kubepods/burstable": names()}, "all 5 pods"},
		{"containers say nothing", listings{"kubepods": names("burstable", "pa", "pb", "pc"),
			"kubepods/burstable": names("pd", "pe"), "kubepods/pa": names()},
			""},
	} {
		if got := blindness(all, c.seen); (got == "") != (c.says == "") || !strings.Contains(got, c.says) {
			t.Errorf("%s: blind because %q, want %q", c.name, got, c.says)
		}
	}
}

func TestTheClassOfAKubeletSlice(t *testing.T) {
	for path, want := range map[string]policy.QoS{
		"kubepods": policy.Guaranteed, "kubepods/burstable": policy.Burstable, "kubepods/besteffort": policy.BestEffort,
		"kubepods.slice": policy.Guaranteed, "kubepods.slice/kubepods-burstable.slice": policy.Burstable,
		"kubepods.slice/kubepods-besteffort.slice": policy.BestEffort, "kubepods/system": "", "system.slice": "",
		"/": "",
	} {
		if got, is := qosIn(path); got != want || is != (want != "") {
			t.Errorf("%s: %q, %t; want %q", path, got, is, want)
		}
	}
}

// Suspects are pods by their names in kubelet's slices that no member is and that the
// runtime did not name.
func TestSuspects(t *testing.T) {
	members := []member{{id: "a", uid: "a", path: "kubepods/poda"}, {id: "c", uid: "c", path: "elsewhere/podc"},
		{id: "x", uid: "d", path: "kubepods/podd", container: true}}
	seen := listings{
		"kubepods":           {names: []string{"burstable", "poda", "podb", "podc", "podd", "podnew"}},
		"kubepods/burstable": {names: []string{"pode", "scope"}},
		"kubepods/system":    {names: []string{"podf"}},
	}
	var got []string
	for _, p := range unknownPods(members, seen, map[string]bool{"new": true}) {
		got = append(got, fmt.Sprint(p.UID, " ", p.CgroupPath, " ", p.QoS))
	}
	want := []string{"e kubepods/burstable/pode Burstable", "b kubepods/podb Guaranteed", "d kubepods/podd Guaranteed"}
	if !slices.Equal(got, want) {
		t.Errorf("suspects are %q, want %q", got, want)
	}
	many := make([]string, maxFound+10)
	for i := range many {
		many[i] = fmt.Sprintf("pod%04d", i)
	}
	if got := unknownPods(nil, listings{"kubepods": {names: many}}, nil); len(got) != maxFound {
		t.Errorf("%d pods are looked after, want at most %d", len(got), maxFound)
	}
}

// A suspect is one that runs, seen so in two rounds in a row by a reader that is believed.
func TestUnannouncedPodsAreSeenTwice(t *testing.T) {
	list := []policy.FoundPod{{UID: "a", CgroupPath: "kubepods/poda"}}
	full := listings{"kubepods/poda": {names: []string{"c"}}}
	empty := listings{"kubepods/poda": {}}
	failed := listings{"kubepods/poda": {err: errors.New("input/output error")}}
	type round struct {
		list  []policy.FoundPod
		seen  listings
		blind string
		found bool
	}
	for name, rounds := range map[string][]round{
		"twice":                {{list, full, "", false}, {list, full, "", true}, {list, full, "", true}},
		"nothing runs in it":   {{list, full, "", false}, {list, empty, "", false}, {list, full, "", false}},
		"it cannot be listed":  {{list, full, "", false}, {list, failed, "", false}, {list, full, "", false}},
		"it was not suspected": {{list, full, "", false}, {nil, full, "", false}, {list, full, "", false}},
		"the reader is blind":  {{list, full, "", false}, {list, full, "blind", false}, {list, full, "", false}},
	} {
		var p absences
		for i, r := range rounds {
			p.blind = r.blind
			found := p.unannounced(r.list, r.seen)
			if len(found) > 0 != r.found {
				t.Errorf("%s, round %d: found are %+v", name, i, found)
			}
			if r.found && (len(found[0].Containers) != 1 || found[0].Containers[0] != "kubepods/poda/c") {
				t.Errorf("%s: in it are %v", name, found[0].Containers)
			}
		}
	}
}

// The slices to list are kubelet's usual ones, and those of another root in which pods are.
func TestKubeletSlicesOfPods(t *testing.T) {
	got := kubeletSlices([]member{{path: "kind/kubepods/burstable/poda"}, {path: "system/podb"},
		{path: "c/kubepods.slice/kubepods-podc.slice"}})
	for _, want := range []string{"kubepods", "kubepods/burstable", "kubepods.slice/kubepods-besteffort.slice",
		"kind/kubepods", "kind/kubepods/besteffort", "c/kubepods.slice/kubepods-burstable.slice"} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is not listed: %v", want, got)
		}
	}
	if slices.Contains(got, "system") {
		t.Errorf("what is not kubelet's is listed: %v", got)
	}
}
