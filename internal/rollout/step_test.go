package rollout

import (
	"fmt"
	"testing"
	"time"
)

var start = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

func viewOf(t *testing.T, spec string, change func(*View)) Step {
	t.Helper()
	p := policyOf(t, "p", spec)
	p.Generation = 3
	v := View{Now: start, Node: "n", Labels: map[string]string{}, Read: true, Policies: []Policy{p},
		Applied: Applied{Policy: "p", Generation: 2, Config: []byte(`{"mode":"enforce"}`), Settled: true}}
	if change != nil {
		change(&v)
	}
	return Decide(&v)
}

// What a daemon does in each situation, one by one.
func TestDecide(t *testing.T) {
	const spec = `{"config":{"mode":"enforce","cpi":{"mode":"off"}},"rollout":{"maxUnavailable":2,"settleFor":"10s"}}`
	inForce := func(v *View) {
		v.Applied = Applied{Policy: "p", Generation: 3, Config: v.Policies[0].Config, Since: start.Add(-time.Minute)}
	}
	turn := func(node string, place int, generation int64, failed string) Turn {
		return Turn{Name: "p.0", UID: "u-" + node, Policy: "p", Node: node, Place: place, Generation: generation,
			Failed: failed, Sure: true}
	}
	for _, c := range []struct {
		name  string
		view  func(*View)
		act   Act
		state State
		why   string
	}{
		{"nothing is known", func(v *View) { v.Read = false }, Nothing, Unknown, ""},
		{"the labels are not", func(v *View) { v.Labels = nil }, Nothing, Unknown, ""},
		{"there is a place", nil, Take, Waiting, ""},
		{"the other place is taken", func(v *View) { v.Turns = []Turn{turn("a", 0, 3, "")} }, Take, Waiting, ""},
		{"all are taken", func(v *View) { v.Turns = []Turn{turn("a", 0, 3, ""), turn("b", 1, 2, "")} }, Nothing,
			Waiting, ""},
		{"all are taken, by places of before", func(v *View) {
			v.Turns = []Turn{turn("a", 8, 3, ""), turn("b", 9, 2, "")}
		}, Nothing, Waiting, ""},
		{"another node has failed", func(v *View) { v.Turns = []Turn{turn("a", 0, 3, "no D-Bus")} }, Nothing, Halted,
			"node a: no D-Bus"},
		{"another has failed with another revision", func(v *View) { v.Turns = []Turn{turn("a", 0, 2, "x")} }, Take,
			Waiting, ""},
		{"places of another policy do not count", func(v *View) {
			v.Turns = []Turn{turn("a", 0, 3, "x"), turn("b", 1, 3, "")}
			v.Turns[0].Policy, v.Turns[1].Policy = "q", "q"
		}, Take, Waiting, ""},
		{"it is its turn", func(v *View) { v.Turns = []Turn{turn("n", 0, 3, "")} }, Apply, Settling, ""},
		{"it may not be any more", func(v *View) {
			v.Turns = []Turn{turn("n", 0, 3, "")}
			v.Turns[0].Sure = false
		}, Renew, Waiting, ""},
		{"it failed with the revision before", func(v *View) { v.Turns = []Turn{turn("n", 0, 2, "x")} }, Renew,
			Waiting, ""},
		{"its turn of another policy goes back first", func(v *View) {
			v.Turns = []Turn{turn("n", 0, 3, "")}
			v.Turns[0].Policy = "q"
		}, Release, Waiting, ""},
		{"it has to work for a while", func(v *View) {
			inForce(v)
			v.Turns = []Turn{turn("n", 0, 3, "")}
			v.Applied.Since = start.Add(-9 * time.Second)
		}, Nothing, Settling, ""},
		{"since it worked again", func(v *View) {
			inForce(v)
			v.Turns = []Turn{turn("n", 0, 3, "")}
			v.Works = start.Add(-9 * time.Second)
		}, Nothing, Settling, ""},
		{"it has", func(v *View) {
			inForce(v)
			v.Turns = []Turn{turn("n", 0, 3, "")}
		}, Settle, Current, ""},
		{"and its turn goes back", func(v *View) {
			inForce(v)
			v.Turns, v.Applied.Settled = []Turn{turn("n", 0, 3, "")}, true
		}, Release, Current, ""},
		{"its turn was taken away", inForce, Settle, Current, ""},
		{"between two configurations it keeps its turn of another policy", func(v *View) {
			v.Turns, v.Applied.Settled = []Turn{turn("n", 0, 3, "")}, false
			v.Turns[0].Policy = "q"
		}, Take, Waiting, ""},
		{"something is broken for a moment", func(v *View) {
			inForce(v)
			v.Turns, v.Broken, v.BrokenSince = []Turn{turn("n", 0, 3, "")}, "lending", start.Add(-9*time.Second)
		}, Nothing, Settling, "lending"},
		{"and longer", func(v *View) {
			inForce(v)
			v.Turns, v.Broken, v.BrokenSince = []Turn{turn("n", 0, 3, "")}, "lending", start.Add(-10*time.Second)
		}, Fail, Failed, "lending"},
		{"it is marked so", func(v *View) {
			inForce(v)
			v.Turns, v.Broken, v.BrokenSince = []Turn{turn("n", 0, 3, "lending")}, "lending", start.Add(-time.Minute)
		}, Nothing, Failed, "lending"},
		{"it works again", func(v *View) {
			inForce(v)
			v.Turns = []Turn{turn("n", 0, 3, "lending")}
		}, Fail, Settling, ""},
		{"something breaks weeks later", func(v *View) {
			inForce(v)
			v.Broken, v.BrokenSince, v.Applied.Settled = "lending", start.Add(-time.Hour), true
		}, Nothing, Current, ""},
		{"only the priority changed", func(v *View) {
			inForce(v)
			v.Applied.Generation = 2
		}, Adopt, Current, ""},
		{"another policy says the same", func(v *View) {
			inForce(v)
			v.Applied.Policy = "q"
		}, Adopt, Current, ""},
		{"it was refused", func(v *View) {
			v.Refused = Refused{Policy: "p", Generation: 3, Config: v.Policies[0].Config, Why: "bad"}
			v.Turns = []Turn{turn("n", 0, 3, "")}
		}, Fail, Rejected, "bad"},
		{"and is marked so", func(v *View) {
			v.Refused = Refused{Policy: "p", Generation: 3, Config: v.Policies[0].Config, Why: "bad"}
			v.Turns = []Turn{turn("n", 0, 3, "bad")}
		}, Nothing, Rejected, "bad"},
		{"another object of that name was refused", func(v *View) {
			v.Refused = Refused{Policy: "p", Generation: 3, Config: []byte("{}"), Why: "bad"}
		}, Take, Waiting, ""},
		{"it was refused before", func(v *View) {
			v.Refused = Refused{Policy: "p", Generation: 2, Config: v.Policies[0].Config, Why: "bad"}
			v.Turns = []Turn{turn("n", 0, 2, "bad")}
		}, Renew, Waiting, ""},
		{"no policy selects it", func(v *View) { v.Policies = nil }, Revert, File, ""},
		{"nor did one", func(v *View) { v.Policies, v.Applied = nil, Applied{} }, Nothing, File, ""},
		{"its turn goes back", func(v *View) {
			v.Policies, v.Applied, v.Turns = nil, Applied{}, []Turn{turn("n", 0, 3, "")}
		}, Release, File, ""},
		{"two policies", func(v *View) {
			v.Policies = append(v.Policies, v.Policies[0])
			v.Policies[1].Name = "q"
		}, Nothing, Doubtful, "the policies p and q select this node with the same priority, 0; give " +
			"one of them another"},
	} {
		s := viewOf(t, spec, c.view)
		if s.Act != c.act || s.State != c.state || s.Why != c.why {
			t.Errorf("%s: act %d, %s, %q; want %d, %s, %q", c.name, s.Act, s.State, s.Why, c.act, c.state, c.why)
		}
	}
}

// A policy that stops enforcement waits for nobody.
func TestStoppingNeedsNoTurn(t *testing.T) {
	full := func(v *View) {
		v.Turns = []Turn{{Name: "p.0", Policy: "p", Node: "a", Generation: 3, Failed: "x"}}
	}
	if s := viewOf(t, `{"config":{"mode":"observe"}}`, full); s.Act != Apply {
		t.Errorf("%+v", s)
	}
	if s := viewOf(t, `{"config":{"mode":"enforce","memory":"strict"}}`, full); s.Act != Nothing || s.State != Halted {
		t.Errorf("enforcing again: %+v", s)
	}
}

// A free place is drawn, and no other.
func TestPlaces(t *testing.T) {
	seen := map[string]bool{}
	for draw := range uint64(20) {
		s := viewOf(t, `{"rollout":{"maxUnavailable":4}}`, func(v *View) {
			v.Draw = draw
			v.Turns = []Turn{{Policy: "p", Place: 1, Node: "a"}}
		})
		if s.Act != Take || s.Turn.Node != "n" || s.Turn.Generation != 3 ||
			s.Turn.Name != fmt.Sprintf("p.%d", s.Turn.Place) {
			t.Fatalf("%+v", s)
		}
		seen[s.Turn.Name] = true
	}
	if len(seen) != 3 || seen["p.1"] {
		t.Errorf("drawn are %v", seen)
	}
}

// What a bad revision broke counts against the next one, too.
func TestANodeIsMeasuredByWhatWorkedBefore(t *testing.T) {
	one, two := policyOf(t, "p", `{"config":{"memory":"strict"}}`), policyOf(t, "p", `{"config":{"memory":"off"}}`)
	var none Applied
	bad := none.Of(&one, start, []string{"cpi"})
	if next := bad.Of(&two, start, []string{"cpi", "lending"}); len(next.Lacked) != 1 {
		t.Errorf("unsettled: %v", next.Lacked)
	}
	bad.Settled = true
	if next := bad.Of(&two, start, []string{"cpi", "lending"}); len(next.Lacked) != 2 {
		t.Errorf("settled: %v", next.Lacked)
	}
}
