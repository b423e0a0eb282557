package main

import (
	"slices"
	"testing"
)

// TestFewest inputs reach all that any reaches and the seeds do not; of equals the shortest is kept.
func TestFewest(t *testing.T) {
	all := []input{
		{name: "a", text: []byte("long"), blocks: []string{"1", "2", "3"}},
		{name: "b", text: []byte("s"), blocks: []string{"1", "2", "3"}},
		{name: "c", text: []byte("x"), blocks: []string{"4"}},
		{name: "d", text: []byte("xx"), blocks: []string{"3", "5", "6"}},
		{name: "e", text: []byte("x"), blocks: []string{"6"}},
	}
	var got []string
	for _, in := range fewest(all, []string{"4"}) {
		got = append(got, in.name)
	}
	if want := []string{"b", "d"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := fewest(all, []string{"1", "2", "3", "4", "5", "6"}); len(got) > 0 {
		t.Errorf("the seeds reach everything, and yet %v", got)
	}
}

func TestReachedIn(t *testing.T) {
	profile := "mode: set\nx/a.go:1.2,3.4 2 1\nx/a.go:5.2,6.4 1 0\nx/b.go:1.2,3.4 1 7\n"
	want := []string{"x/a.go:1.2,3.4 2", "x/b.go:1.2,3.4 1"}
	if got := reachedIn(profile); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
