package sample

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/quietcore/quietcore/cpi"
)

func crowd(namespace string, class cpi.Class, n int, use float64) (list []Candidate) {
	for i := range n {
		c := &cpi.Container{ID: fmt.Sprintf("%s-%s-%03d", namespace, class, i), Namespace: namespace, Class: class}
		list = append(list, Candidate{Container: c, Use: use})
	}
	return list
}

// chosen counts what was chosen by namespace and class.
func chosen(list []Candidate) map[string]int {
	sums := map[string]int{}
	for _, c := range list {
		sums[c.Namespace+" "+c.Class.String()]++
	}
	return sums
}

func TestHowPlacesAreDealt(t *testing.T) {
	idle := crowd("idle", cpi.LS, 1000, 0.001)
	batch := crowd("jobs", cpi.BE, 50, 4)
	web := crowd("web", cpi.LS, 50, 1)
	small := crowd("small", cpi.LS, 2, 0.01)
	many := slices.Concat(idle, batch, web, small)
	for _, c := range []struct {
		what string
		list []Candidate
		n    int
		want map[string]int
	}{
		{"no place", web, 0, map[string]int{}},
		{"a crowd that came first hides nobody", many, 120,
			map[string]int{"idle LS": 19, "jobs BE": 50, "web LS": 49, "small LS": 2}},
		{"use decides about half of the places", many, 60,
			map[string]int{"idle LS": 9, "jobs BE": 40, "web LS": 9, "small LS": 2}},
		{"one place", many, 1, map[string]int{"jobs BE": 1}},
	} {
		got := dealt(slices.Clone(c.list), c.n)
		if sums := chosen(got); len(got) != min(c.n, len(c.list)) || fmt.Sprint(sums) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v, want %v", c.what, sums, c.want)
		}
	}
}

// TestDealsAreFair: whatever runs, the order in which it came does not matter, no namespace is left
// out while there are places for all, and who is counted stays so until another uses more than
// twice as much.
func TestDealsAreFair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var list []Candidate
		shares := map[share]int{}
		for i := range rapid.IntRange(1, 60).Draw(t, "containers") {
			c := Candidate{
				Container: &cpi.Container{ID: fmt.Sprintf("%03d", i),
					Namespace: rapid.SampledFrom([]string{"a", "a", "a", "b", "c"}).Draw(t, "namespace"),
					Class:     rapid.SampledFrom([]cpi.Class{cpi.LS, cpi.LSR, cpi.Batch, cpi.BE}).Draw(t, "class")},
				Use: rapid.SampledFrom([]float64{0, 0.01, 0.5, 1, 1.9, 4}).Draw(t, "use"),
			}
			shares[share{c.Namespace, c.Class.LatencySensitive()}]++
			list = append(list, c)
		}
		n := min(rapid.IntRange(1, 70).Draw(t, "places"), len(list))
		ids := func(list []Candidate) []string {
			var all []string
			for _, c := range list {
				all = append(all, c.ID)
			}
			slices.Sort(all)
			return all
		}
		got := dealt(slices.Clone(list), n)
		if len(got) != min(n, len(list)) {
			t.Fatalf("%d of %d chosen, for %d places", len(got), len(list), n)
		}
		mixed := rapid.Permutation(list).Draw(t, "another order")
		if again := dealt(mixed, n); !slices.Equal(ids(again), ids(got)) {
			t.Fatalf("in another order %v are chosen, %v before", ids(again), ids(got))
		}
		each := map[share]int{}
		for _, c := range got {
			each[share{c.Namespace, c.Class.LatencySensitive()}]++
		}
		for of, there := range shares {
			if least := min(there, n/2/len(shares)); each[of] < least {
				t.Fatalf("%+v has %d places of %d, want %d", of, each[of], n, least)
			}
		}
		in := ids(got)
		for i := range list {
			list[i].Counted = slices.Contains(in, list[i].ID)
			list[i].Use *= rapid.Float64Range(1, 1.99).Draw(t, "uses more")
		}
		twice := slices.ContainsFunc(list, func(a Candidate) bool {
			return !a.Counted && slices.ContainsFunc(list, func(b Candidate) bool {
				return b.Counted && a.Use > 2*b.Use
			})
		})
		if again := dealt(list, n); !twice && !slices.Equal(ids(again), in) {
			t.Fatalf("%v are chosen after %v, and none uses twice as much", ids(again), in)
		}
	})
}

// crew is a node whose containers come and go, over many windows.
type crew struct {
	live  []Candidate
	next  int
	most  int // containers at the same time
	watch Watchlist
}

// change has containers end and begin, use something else, and be in question.
func (c *crew) change(t *rapid.T) {
	c.live = slices.DeleteFunc(c.live, func(Candidate) bool { return rapid.IntRange(0, 19).Draw(t, "ends") == 0 })
	for range rapid.IntRange(0, min(3, c.most-len(c.live))).Draw(t, "begin") {
		var l3 cpi.Domains
		l3.Add(rapid.IntRange(0, 1).Draw(t, "L3"))
		c.live = append(c.live, Candidate{Container: &cpi.Container{ID: fmt.Sprintf("%04d", c.next),
			Namespace: rapid.SampledFrom([]string{"a", "a", "b"}).Draw(t, "namespace"),
			Class:     rapid.SampledFrom([]cpi.Class{cpi.LS, cpi.LS, cpi.Batch, cpi.BE}).Draw(t, "class"),
			Place:     cpi.Place{L3s: l3, Nodes: l3}}})
		c.next++
	}
	c.watch = Watchlist{Salt: rapid.Uint64().Draw(t, "salt")}
	for i := range c.live {
		c.live[i].Use = rapid.SampledFrom([]float64{0, 0.01, 0.5, 4}).Draw(t, "use")
		if rapid.IntRange(0, 9).Draw(t, "in question") == 0 {
			q := cpi.Question{Victim: c.live[i].ID}
			for range rapid.IntRange(0, 2).Draw(t, "named") {
				q.Suspects = append(q.Suspects, rapid.SampledFrom(c.live).Draw(t, "suspect").ID)
			}
			c.watch.Questions = append(c.watch.Questions, q)
		}
	}
	c.watch.Questions = append(c.watch.Questions, cpi.Question{Victim: "ended"})
}

// matter are who has to be use, unless they are too many, said in the plainest way.
func (c *crew) matter() (ids map[string]bool, certain bool) {
	ids, certain = map[string]bool{}, true
	for _, q := range c.watch.Questions {
		for _, v := range c.live {
			if v.ID != q.Victim {
				continue
			}
			ids[v.ID] = true
			suspects := map[string]bool{}
			for _, s := range c.live {
				may, _ := s.MayBeCapped()
				if slices.Contains(q.Suspects, s.ID) || may && s.ID != v.ID && s.Place.L3s == v.Place.L3s {
					suspects[s.ID], ids[s.ID] = true, true
				}
			}
			certain = certain && len(suspects) <= maxSuspects
		}
	}
	return ids, certain
}

// TestNobodyIsNeverCounted: with any number of places, whoever lives is counted within a
// bounded number of windows; victims in question and their suspects are in every one; and
// there are never more than there are places.
func TestNobodyIsNeverCounted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &crew{most: rapid.IntRange(1, 40).Draw(t, "most containers")}
		n := rapid.IntRange(2, 20).Draw(t, "places")
		half := (Turns(n) + 1) / 2 // of the places that go round
		bound := (c.most + half - 1) / half
		for range rapid.IntRange(1, 3*c.most).Draw(t, "windows") {
			c.change(t)
			got := map[string]Role{}
			for _, choice := range Choose(rapid.Permutation(c.live).Draw(t, "order"), c.watch, n) {
				if got[choice.ID] != NoPlace || choice.Role == NoPlace {
					t.Fatalf("%s has its place as %v and %v", choice.ID, got[choice.ID], choice.Role)
				}
				got[choice.ID] = choice.Role
			}
			if len(got) != min(n, len(c.live)) {
				t.Fatalf("%d of %d use, in %d places", len(got), len(c.live), n)
			}
			again := Choose(c.live, c.watch, n)
			if slices.ContainsFunc(again, func(a Choice) bool { return got[a.ID] != a.Role }) {
				t.Fatalf("in another order %v are chosen, not %v", again, got)
			}
			if ids, certain := c.matter(); certain && len(ids) <= n-Turns(n) {
				for id := range ids {
					if got[id] == NoPlace {
						t.Fatalf("%s matters and is not use, of %d in %d places", id, len(ids), n)
					}
				}
			} else if first := c.watch.Questions[0].Victim; got[first] == NoPlace {
				t.Fatalf("the most urgent victim %s is not use", first)
			}
			for i := range c.live {
				l := &c.live[i]
				if l.Counted = got[l.ID] != NoPlace; l.Counted {
					l.Waits = 0
				} else if l.Waits++; l.Waits >= bound {
					t.Fatalf("%s was not counted in %d windows; bound is %d", l.ID, l.Waits, bound)
				}
			}
		}
	})
}

// TestACrowdTakesItsShare: however many containers another namespace has, and however many of them are said to be
// disturbed, those of a namespace are counted as if it were alone with as many as it has itself.
func TestACrowdTakesItsShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(16, 64).Draw(t, "places")
		others := rapid.IntRange(1, 3).Draw(t, "others")
		list := crowd("flood", cpi.LS, rapid.IntRange(4*n, 20*n).Draw(t, "crowd"), 4)
		list = append(list, crowd("flood", cpi.BE, 2*n, 4)...)
		each := rapid.IntRange(1, 4).Draw(t, "each")
		var asked []cpi.Question
		for i := range rapid.IntRange(0, n).Draw(t, "questions of the crowd") {
			asked = append(asked, cpi.Question{Victim: list[i].ID})
		}
		victim := ""
		for i := range others {
			own := crowd(fmt.Sprint("other", i), cpi.LS, each, rapid.SampledFrom([]float64{0, 0.01}).Draw(t, "use"))
			victim = own[0].ID
			list = append(list, own...)
		}
		asked = append(asked, cpi.Question{Victim: victim})
		// One half of the places that go round is dealt out to the namespaces, one a round.
		rounds := Turns(n) / 2 / (others + 1)
		if rounds == 0 {
			rounds, each = 1, each*(others+1)
		}
		bound := (each + rounds - 1) / rounds
		salts := rapid.Uint64().Draw(t, "salt")
		for window := range 4 * bound {
			got := map[string]bool{}
			for _, c := range Choose(list, Watchlist{Questions: asked, Salt: salts + uint64(window)}, n) {
				got[c.ID] = true
			}
			if !got[victim] {
				t.Fatalf("the questions about a crowd push the one about %s out", victim)
			}
			for i := range list {
				c := &list[i]
				if c.Counted = got[c.ID]; c.Counted {
					c.Waits = 0
				} else if c.Waits++; c.Namespace != "flood" && c.Waits >= bound {
					t.Fatalf("%s was not counted in %d windows; bound is %d", c.ID, c.Waits, bound)
				}
			}
		}
	})
}

func TestWhyWhoIsCounted(t *testing.T) {
	here, there := cpi.Domains{1}, cpi.Domains{2}
	container := func(id string, class cpi.Class, use float64, waits int, l3 cpi.Domains) Candidate {
		c := &cpi.Container{ID: id, Class: class, Place: cpi.Place{L3s: l3, Nodes: l3}}
		return Candidate{Container: c, Use: use, Waits: waits}
	}
	list := []Candidate{container("db", cpi.LS, 1, 2, here), container("web", cpi.LS, 3, 3, here),
		container("noisy", cpi.BE, 2, 1, here), container("far", cpi.BE, 4, 1, there),
		container("quiet", cpi.BE, 0, 9, here)}
	for _, c := range []struct {
		what      string
		n         int
		questions []cpi.Question
		want      string
	}{
		{"there are places for all", 5, []cpi.Question{{Victim: "db"}},
			"db use, web use, noisy use, far use, quiet use"},
		{"nobody is in question", 3, nil, "far use, quiet turn, web turn"},
		{"a victim has its suspects, the busiest first", 3, []cpi.Question{{Victim: "db"}},
			"db victim, noisy suspect, quiet turn"},
		{"who is named comes before who is near", 4, []cpi.Question{{Victim: "db", Suspects: []string{"far"}}},
			"db victim, far suspect, noisy suspect, quiet turn"},
		{"one place goes round", 1, []cpi.Question{{Victim: "db"}}, "quiet turn"},
		{"no place", 0, []cpi.Question{{Victim: "db"}}, ""},
		{"a victim that has ended", 2, []cpi.Question{{Victim: "gone"}}, "far use, quiet turn"},
	} {
		var got []string
		for _, choice := range Choose(list, Watchlist{Questions: c.questions}, c.n) {
			got = append(got, choice.ID+" "+choice.Role.String())
		}
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("%s: %s, want %s", c.what, text, c.want)
		}
	}
}
