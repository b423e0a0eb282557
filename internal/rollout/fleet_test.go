package rollout

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// moment is what the API server had once.
type moment struct {
	policies []Policy
	turns    map[string]Turn // by name
}

// sim is a fleet whose daemons see the API server late, die, and break by bad configurations.
type sim struct {
	t       *rapid.T
	now     time.Time
	past    []moment
	uids    int
	nodes   []*simNode
	most    map[string]int // places that a policy ever had
	nobreak bool
}

type simNode struct {
	name    string
	pool    string
	seen    int // index of past
	gone    map[string]bool
	sure    map[string]bool
	applied Applied
	refused Refused
	changed string // the policy in whose turn it took something over and has not settled since
	works   time.Time
	broken  time.Time // zero: it works
}

func (s *sim) last() moment { return s.past[len(s.past)-1] }

func (s *sim) write(change func(*moment)) {
	m := moment{slices.Clone(s.last().policies), maps.Clone(s.last().turns)}
	change(&m)
	s.past = append(s.past, m)
}

func (s *sim) view(n *simNode) *View {
	m := s.past[n.seen]
	v := &View{Now: s.now, Node: n.name, Labels: map[string]string{"pool": n.pool}, Read: true, Policies: m.policies,
		Applied: n.applied, Refused: n.refused, Works: n.works, Draw: rapid.Uint64Range(0, 7).Draw(s.t, "draw")}
	for _, name := range slices.Sorted(maps.Keys(m.turns)) {
		turn := m.turns[name]
		if turn.Sure = n.sure[turn.UID]; !n.gone[turn.UID] {
			v.Turns = append(v.Turns, turn)
		}
	}
	if !n.broken.IsZero() {
		v.Broken, v.BrokenSince = "broken", n.broken
	}
	return v
}

// act carries out a step as the agent does.
func (s *sim) act(n *simNode) Act {
	step := Decide(s.view(n))
	there, ok := s.last().turns[step.Turn.Name]
	mine := ok && there.UID == step.Turn.UID
	switch step.Act {
	case Apply:
		s.apply(n, step.Policy)
	case Adopt:
		n.applied.Policy, n.applied.Generation = step.Policy.Name, step.Policy.Generation
	case Settle:
		n.applied.Settled, n.changed = true, ""
	case Revert:
		n.applied, n.changed, n.broken, n.works = Applied{}, "", time.Time{}, s.now
	case Take:
		if !ok {
			s.uids++
			turn := step.Turn
			turn.UID = fmt.Sprint(s.uids)
			s.write(func(m *moment) { m.turns[turn.Name] = turn })
			n.sure[turn.UID], n.seen = true, len(s.past)-1
		}
	case Renew:
		if !mine {
			n.gone[step.Turn.UID] = true
			break
		}
		there.Generation, there.Failed = step.Policy.Generation, ""
		s.write(func(m *moment) { m.turns[there.Name] = there })
		n.sure[there.UID], n.seen = true, len(s.past)-1
	case Fail:
		if !mine {
			n.gone[step.Turn.UID] = true
			break
		}
		there.Failed = step.Why
		s.write(func(m *moment) { m.turns[there.Name] = there })
	case Release:
		n.gone[step.Turn.UID] = true
		if mine {
			s.write(func(m *moment) { delete(m.turns, step.Turn.Name) })
		}
	}
	return step.Act
}

func (s *sim) apply(n *simNode, p *Policy) {
	if p.stops() {
		n.applied, n.changed = n.applied.Of(p, s.now, nil), ""
		return
	}
	held := false
	for _, turn := range s.last().turns {
		held = held || turn.Node == n.name && turn.Policy == p.Name
	}
	if !held {
		s.t.Fatalf("%s takes over %s without a turn", n.name, p)
	}
	if string(p.Config) == `{"memory":"refused"}` {
		n.refused = Refused{Policy: p.Name, Generation: p.Generation, Config: p.Config, Why: "bad"}
		return
	}
	n.applied, n.changed, n.refused = n.applied.Of(p, s.now, nil), p.Name, Refused{}
	n.broken, n.works = time.Time{}, s.now
	if !s.nobreak && string(p.Config) == `{"memory":"breaks"}` {
		n.broken = s.now
	}
	s.between(p.Name)
}

// between holds the promise of maxUnavailable.
func (s *sim) between(policy string) {
	var names []string
	for _, n := range s.nodes {
		if n.changed == policy {
			names = append(names, n.name)
		}
	}
	if len(names) > s.most[policy] {
		s.t.Fatalf("%v are between two configurations of %s, which has %d places at most", names, policy,
			s.most[policy])
	}
}

func (s *sim) edit(config string) {
	name := rapid.SampledFrom([]string{"p", "q"}).Draw(s.t, "policy")
	places := rapid.IntRange(1, 3).Draw(s.t, "places")
	pool := rapid.SampledFrom([]string{"a", "b"}).Draw(s.t, "pool")
	priority := map[string]int{"p": 1, "q": 2}[name]
	spec := fmt.Sprintf(`{"priority":%d,"nodeSelector":{"matchExpressions":[{"key":"pool",`+
		`"operator":"In","values":["c",%q]}]},`+
		`"rollout":{"maxUnavailable":%d,"settleFor":"5s"},"config":{"memory":%q}}`, priority, pool, places, config)
	s.write(func(m *moment) {
		generation := int64(len(s.past))
		p := ReadPolicy(name, generation, []byte(spec))
		m.policies = append(slices.DeleteFunc(m.policies, func(p Policy) bool { return p.Name == name }), p)
	})
	s.most[name] = max(s.most[name], places)
}

func (s *sim) random() {
	n := rapid.SampledFrom(s.nodes).Draw(s.t, "node")
	switch rapid.IntRange(0, 19).Draw(s.t, "what") {
	case 0:
		s.edit(rapid.SampledFrom([]string{"off", "strict", "preferred", "breaks", "refused"}).Draw(s.t, "config"))
	case 1:
		n.pool = rapid.SampledFrom([]string{"a", "b", "c"}).Draw(s.t, "moved to")
	case 2: // it dies; the new process lists, perhaps from an old cache
		n.sure, n.gone, n.refused = map[string]bool{}, map[string]bool{}, Refused{}
		n.seen = max(0, n.seen-rapid.IntRange(0, 5).Draw(s.t, "older"))
	case 3:
		n.broken, n.works = time.Time{}, s.now
	case 4, 5:
		s.now = s.now.Add(time.Duration(rapid.IntRange(1, 8).Draw(s.t, "seconds")) * time.Second)
	default:
		n.seen = min(len(s.past)-1, n.seen+rapid.IntRange(0, 4).Draw(s.t, "seen"))
		s.act(n)
	}
}

// Whatever the order and however late the views, a policy's places bound who is between two configurations, and in
// the end every node has what it should.
func TestFleet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &sim{t: t, now: start, past: []moment{{turns: map[string]Turn{}}}, most: map[string]int{}}
		for i := range rapid.IntRange(2, 8).Draw(t, "nodes") {
			s.nodes = append(s.nodes, &simNode{name: fmt.Sprintf("n%d", i), pool: "c", gone: map[string]bool{},
				sure: map[string]bool{}, works: start})
		}
		s.edit("off")
		for range rapid.IntRange(1, 150).Draw(t, "choices") {
			s.random()
		}
		s.heal()
	})
}

// heal ends all trouble, and wants every node to arrive.
func (s *sim) heal() {
	s.nobreak = true
	for name := range s.most {
		s.write(func(m *moment) {
			spec := fmt.Sprintf(`{"priority":%d,"config":{"memory":"%s-last"},"rollout":{"settleFor":"5s"}}`,
				len(name), name)
			p := ReadPolicy(name, int64(len(s.past)), []byte(spec))
			p.Priority = map[string]int{"p": 1, "q": 2}[name]
			m.policies = append(slices.DeleteFunc(m.policies, func(p Policy) bool { return p.Name == name }), p)
		})
	}
	for range 100 * len(s.nodes) {
		busy := false
		s.now = s.now.Add(time.Second)
		for _, n := range s.nodes {
			n.seen, n.broken = len(s.past)-1, time.Time{}
			busy = s.act(n) != Nothing || busy
			n.seen = len(s.past) - 1
			busy = busy || !Decide(s.view(n)).Again.IsZero()
		}
		if !busy {
			break
		}
	}
	for _, n := range s.nodes {
		if step := Decide(s.view(n)); step.State != Current || n.applied.Generation != step.Policy.Generation {
			s.t.Fatalf("%s is %s in the end: %s; turns %v", n.name, step.State, step.Why, s.last().turns)
		}
	}
	if len(s.last().turns) > 0 {
		s.t.Fatalf("turns in the end: %v", s.last().turns)
	}
}
