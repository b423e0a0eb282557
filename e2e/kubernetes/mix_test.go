package main

import (
	"strings"
	"testing"

	"github.com/quietcore/quietcore/cpuset"
)

func TestUmpire(t *testing.T) {
	set := func(text string) cpuset.Set {
		s, err := cpuset.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	owners := map[string]holder{"a": {count: 2}, "lsr": {count: 1, lends: true}, "claim": {count: 1, given: set("5")}}
	sound := []seat{{name: "a/main", cpus: set("2-3"), owner: "a"}, {name: "lsr/main", cpus: set("4"), owner: "lsr"},
		{name: "claim/main", cpus: set("5"), owner: "claim"}, {name: "web/main", cpus: set("0-1,6-7")},
		{name: "batch/main", cpus: set("0-1,4"), best: true}}
	for _, c := range []struct {
		name string
		seat seat // instead of, or besides, the sound ones
		want string
	}{
		{"sound", sound[0], ""},
		{"two owners on one CPU", seat{name: "lsr/main", cpus: set("3"), owner: "lsr"}, "a and lsr both have CPUs 3"},
		{"an owner on a claim's CPU", seat{name: "lsr/main", cpus: set("5"), owner: "lsr"},
			"claim and lsr both have CPUs 5"},
		{"the shared pool on a claim's CPU", seat{name: "web/main", cpus: set("0-1,5")},
			"web/main may run on CPUs 5 of claim"},
		{"best effort on the CPUs of who does not lend", seat{name: "batch/main", cpus: set("0,2"), best: true},
			"batch/main may run on CPUs 2 of a"},
		{"nowhere", seat{name: "web/main"}, "web/main may run on no CPU"},
		{"a claim's container elsewhere", seat{name: "claim/main", cpus: set("6"), owner: "claim"},
			"claim/main runs on CPUs 6, those of claim are 5"},
		{"two containers of an owner apart", seat{name: "a/second", cpus: set("6-7"), owner: "a"},
			"a/second runs on CPUs 6-7, those of a are 2-3"},
		{"too few", seat{name: "a/main", cpus: set("2"), owner: "a"}, "a has CPUs 2, want 2"},
		{"moved", seat{name: "lsr/main", cpus: set("6"), owner: "lsr"}, "lsr had CPUs 4 and has 6"},
	} {
		u := umpire{}
		if err := u.look(owners, sound); err != nil {
			t.Fatal(err)
		}
		seats := []seat{c.seat}
		for _, s := range sound {
			if s.name != c.seat.name {
				seats = append(seats, s)
			}
		}
		if c.seat.name == "a/second" {
			seats = append(sound[:len(sound):len(sound)], c.seat)
		}
		err := u.look(owners, seats)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	u := umpire{}
	if err := u.look(owners, sound); err != nil {
		t.Fatal(err)
	}
	owners["a"] = holder{count: 3, resized: true}
	sound[0].cpus, sound[3].cpus = set("1-3"), set("0")
	sound[4].cpus = set("0")
	if err := u.look(owners, sound); err != nil {
		t.Errorf("a pod that has grown around its CPUs: %v", err)
	}
}
