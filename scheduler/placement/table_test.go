package placement

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/quietcore/quietcore/internal/ledger"
)

// TestTableOfNodes: whatever nodes come, change and go, and come again, each has the state that was stored
// last, and few of them are copied when one comes.
func TestTableOfNodes(t *testing.T) {
	for seed := range uint64(10) {
		comeAndGo(t, seed)
	}
}

func comeAndGo(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 0))
	const names = 80
	c, want := NewCluster(nil), map[string]error{}
	for i := range 500 {
		name := fmt.Sprintf("node-%d", rng.IntN(names))
		if rng.IntN(4) == 0 {
			c.Gone(name)
			delete(want, name)
		} else {
			want[name] = fmt.Errorf("step %d", i)
			c.Broken(name, want[name])
		}
		now := c.nodes.Load()
		if n := len(now.recent); n > 0 && (n-1)*(n-1) >= len(now.settled) {
			t.Fatalf("seed %d: %d nodes are recent beside %d", seed, n, len(now.settled))
		}
		for i := range names {
			name := fmt.Sprintf("node-%d", i)
			s := c.Node(name)
			if (s == nil) != (want[name] == nil) || s != nil && !errors.Is(s.Why(), want[name]) {
				t.Fatalf("seed %d: %s is %+v, want %v", seed, name, s, want[name])
			}
		}
	}
}

// TestNodesThatAreGone: a cluster whose nodes get a new name each keeps no more than those that are there.
func TestNodesThatAreGone(t *testing.T) {
	c := NewCluster(nil)
	const there = 50
	for i := range 5000 {
		c.Broken(fmt.Sprintf("node-%d", i), errors.New("cannot be read"))
		c.Gone(fmt.Sprintf("node-%d", i-there))
	}
	if now := c.nodes.Load(); len(now.settled)+len(now.recent) > 2*there {
		t.Errorf("%d and %d nodes are kept of %d", len(now.settled), len(now.recent), there)
	}
	if got := c.Generation("node-0"); got != 0 || c.Node("node-0") != nil {
		t.Errorf("node-0 is known, of generation %d", got)
	}
}

// TestAGoneNodeWithPodsOnTheirWay: what a pod was told stays taken while the node publishes nothing, and the
// node is forgotten with the last such pod.
func TestAGoneNodeWithPodsOnTheirWay(t *testing.T) {
	c, names := large(t, 1)
	w := owner(4000)
	var p Place
	if refusal := c.Take(names[0], w, Load{}, &p); refusal != nil {
		t.Fatal(refusal)
	}
	c.Gone(names[0])
	s := c.Node(names[0])
	if s.Known() || s == nil || !errors.Is(s.Why(), ledger.ErrNone) || len(s.more) != 1 {
		t.Fatalf("after it is gone the node is %+v", s)
	}
	c.Drop(w.Pod.UID)
	if s := c.Node(names[0]); s != nil {
		t.Errorf("without a pod on its way the node is kept: %+v", s)
	}
}
