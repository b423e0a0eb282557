package sample

import (
	"cmp"
	"hash/fnv"
	"slices"

	"github.com/quietcore/quietcore/cpi"
)

// Candidate is a container that could be counted in the next window.
type Candidate struct {
	*cpi.Container
	Use     float64 // CPUs that it used lately; 0: unknown
	Counted bool    // it was in the last window
	Waits   int     // windows since it was last counted, or since it was first seen
}

// Role says why a container is counted.
type Role uint8

const (
	NoPlace  Role = iota // it is not
	HasPlace             // there are places for all, or it uses more than others
	AsVictim
	AsSuspect
	ByTurn

	NumRoles = 5
)

// String returns the role as a word of the control API; empty for none.
func (r Role) String() string { return [NumRoles]string{"", "use", "victim", "suspect", "turn"}[r] }

// Watchlist is who is counted first where there are fewer places than containers.
type Watchlist struct {
	Questions []cpi.Question
	// Salt decides which of those that waited equally long comes first.
	Salt uint64
}

// Choice is a candidate with a place.
type Choice struct {
	Candidate
	Role
}

// maxSuspects bounds the suspects of one victim that are counted with it.
const maxSuspects = 8

// Turns is the least number of n places that go round.
func Turns(n int) int { return max(n/4, min(n, 1)) }

// Choose returns the n candidates to count. Victims in question come first, each with its
// suspects, but they leave a quarter of the places. Of the rest of the places one half goes
// round; the other is dealt out by namespace, class and use. Which came first to the node
// counts for nothing, and a namespace's crowd takes no more than its share from others.
func Choose(list []Candidate, w Watchlist, n int) []Choice {
	n = max(n, 0)
	if len(list) <= n {
		chosen := make([]Choice, len(list))
		for i := range list {
			chosen[i] = Choice{list[i], HasPlace}
		}
		return chosen
	}
	chosen := watched(list, byTurns(list, w.Questions), n-Turns(n))
	rest := slices.Clone(list)
	leave := func(of []Choice) {
		taken := make(map[string]bool, len(of))
		for i := range of {
			taken[of[i].ID] = true
		}
		rest = slices.DeleteFunc(rest, func(c Candidate) bool { return taken[c.ID] })
	}
	take := func(role Role, of []Candidate) {
		for i := range of {
			chosen = append(chosen, Choice{of[i], role})
		}
		leave(chosen[len(chosen)-len(of):])
	}
	leave(chosen)
	left := n - len(chosen)
	take(HasPlace, dealt(rest, left-max(Turns(n), (left+1)/2)))
	// Half of those that go round go to who has waited longest, whosever it is: everybody has one in a number of
	// windows. The other half is dealt out to namespaces, where it does not matter how many wait in another.
	left = n - len(chosen)
	take(ByTurn, longest(rest, w.Salt, (left+1)/2))
	take(ByTurn, inRounds(longest(rest, w.Salt, len(rest)), left/2))
	return chosen
}

// byTurns puts questions in an order in which the victims of each namespace take turns. Those of running tests stay
// before all others.
func byTurns(list []Candidate, questions []cpi.Question) []cpi.Question {
	namespaces := make(map[string]string, len(list))
	for i := range list {
		namespaces[list[i].ID] = list[i].Namespace
	}
	type turn struct {
		question cpi.Question
		round    int
	}
	had := map[string]int{}
	turns := make([]turn, len(questions))
	for i, q := range questions {
		turns[i].question = q
		if !q.Test {
			namespace := namespaces[q.Victim]
			had[namespace]++
			turns[i].round = had[namespace]
		}
	}
	slices.SortStableFunc(turns, func(a, b turn) int { return cmp.Compare(a.round, b.round) })
	ordered := make([]cpi.Question, len(turns))
	for i := range turns {
		ordered[i] = turns[i].question
	}
	return ordered
}

// inRounds are n candidates, one of each namespace a round, in their order.
func inRounds(list []Candidate, n int) []Candidate {
	had := map[string]int{}
	rounds := make(map[string]int, len(list))
	for i := range list {
		rounds[list[i].ID] = had[list[i].Namespace]
		had[list[i].Namespace]++
	}
	slices.SortStableFunc(list, func(a, b Candidate) int { return cmp.Compare(rounds[a.ID], rounds[b.ID]) })
	return list[:n]
}

// watched are the victims in question and their suspects, at most n together. Each victim
// comes before its suspects, and both before the next victim.
func watched(list []Candidate, questions []cpi.Question, n int) (chosen []Choice) {
	at := make(map[string]int, len(list))
	for i := range list {
		at[list[i].ID] = i
	}
	has := make(map[int]bool, n)
	add := func(i int, role Role) {
		if !has[i] && len(chosen) < n {
			has[i] = true
			chosen = append(chosen, Choice{list[i], role})
		}
	}
	for i := range questions {
		victim, here := at[questions[i].Victim]
		if !here {
			continue
		}
		add(victim, AsVictim)
		for _, suspect := range suspectsOf(list, victim, &questions[i], at) {
			add(suspect, AsSuspect)
		}
	}
	return chosen
}

// suspectsOf are who may disturb a victim, as indices of list: those that are named, then
// those that may be capped and run next to it, who uses most first.
func suspectsOf(list []Candidate, victim int, q *cpi.Question, at map[string]int) (suspects []int) {
	for _, id := range q.Suspects {
		if i, here := at[id]; here && len(suspects) < maxSuspects {
			suspects = append(suspects, i)
		}
	}
	named := len(suspects)
	for i := range list {
		may, _ := list[i].MayBeCapped()
		if may && i != victim && !slices.Contains(suspects[:named], i) &&
			near(&list[victim].Place, &list[i].Place) {
			suspects = append(suspects, i)
		}
	}
	slices.SortFunc(suspects[named:], func(a, b int) int {
		return cmp.Or(cmp.Compare(list[b].Use, list[a].Use), cmp.Compare(list[a].ID, list[b].ID))
	})
	return suspects[:min(len(suspects), maxSuspects)]
}

// near says that two containers may share a cache or the way to memory. What is unknown may be
// anywhere.
func near(a, b *cpi.Place) bool {
	meet := func(a, b *cpi.Domains) bool { return a.IsEmpty() || b.IsEmpty() || a.Intersects(b) }
	return meet(&a.L3s, &b.L3s) || meet(&a.Nodes, &b.Nodes)
}

// longest are the n that have waited longest. A salt that differs each time keeps those
// that waited equally long from always having their turns together.
func longest(list []Candidate, salt uint64, n int) []Candidate {
	luck := make(map[string]uint64, len(list))
	for i := range list {
		h := fnv.New64a()
		_, _ = h.Write([]byte(list[i].ID)) // a hash never fails
		luck[list[i].ID] = mixed(h.Sum64() ^ mixed(salt))
	}
	slices.SortFunc(list, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(b.Waits, a.Waits), cmp.Compare(luck[a.ID], luck[b.ID]), cmp.Compare(a.ID, b.ID))
	})
	return slices.Clone(list[:n])
}

// mixed spreads a number over all bits.
func mixed(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	return x ^ x>>33
}

// share is whose places are shared out: containers of a namespace that may be victims, and
// those that may not, so that neither crowd hides the other.
type share struct {
	namespace string
	victims   bool
}

// weight is a container's use. One that is counted keeps its place unless another uses twice
// as much, so that two that use the same do not change places with every window.
func (c *Candidate) weight() float64 {
	if c.Counted {
		return 2 * c.Use
	}
	return c.Use
}

// compare orders candidates of one share: who uses most comes first.
func (c *Candidate) compare(o *Candidate) int {
	counted := 0
	if c.Counted != o.Counted {
		counted = 1
		if c.Counted {
			counted = -1
		}
	}
	return cmp.Or(cmp.Compare(o.weight(), c.weight()), counted, cmp.Compare(c.ID, o.ID))
}

// dealt deals out n places: half of them to namespaces, and in each to those that may be
// victims and those that may not, one a round; the others go to those that use most,
// whosever they are.
func dealt(list []Candidate, n int) []Candidate {
	slices.SortFunc(list, func(a, b Candidate) int { return a.compare(&b) })
	rounds := make([]int, len(list)) // in which round a candidate is dealt a place
	had := map[share]int{}
	for i := range list {
		of := share{list[i].Namespace, list[i].Class.LatencySensitive()}
		rounds[i] = had[of]
		had[of]++
	}
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rounds[a], rounds[b]) })
	slices.Sort(order[n/2:]) // the rest by use alone, which is how the list is sorted
	chosen := make([]Candidate, n)
	for i, at := range order[:n] {
		chosen[i] = list[at]
	}
	return chosen
}
