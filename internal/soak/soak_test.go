package soak

import (
	"math"
	"strings"
	"testing"
)

// played is a series of 40 rests with ten pods between them.
func played(more float64, held func(i int) float64) (*Series, []float64) {
	s := &Series{What: "things", More: more}
	var pods []float64
	for i := range 40 {
		pods = append(pods, float64(10*i))
		s.Add(held(i))
	}
	return s, pods
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name  string
		more  float64
		held  func(i int) float64
		slope float64
		first float64
		want  string
	}{
		{"flat", 0, func(int) float64 { return 5 }, 0, 5, ""},
		{"up and down", 2, func(i int) float64 { return 5 + float64(i%3) }, 0, 7, ""},
		{"one in twenty is left", 2, func(i int) float64 { return 7 + float64(i/2) }, 0.05, 11,
			"things grow by 20 in all, 11 at first; 2 more are allowed"},
		{"one in twenty is left, and as many are allowed", 20, func(i int) float64 { return 7 + float64(i/2) }, 0.05,
			11, ""},
		{"caches fill at first", 0, func(i int) float64 { return float64(min(i, 8)) }, 0, 8, ""},
		{"fewer and fewer", 0, func(i int) float64 { return 100 - float64(i) }, -0.1, 92, ""},
		{"now and then far off", 0, func(i int) float64 { return 5 + 1000*float64(max(i%7-5, 0)) }, 0, 5, ""},
		{"less by one page in the end", 0, func(i int) float64 { return float64(i) - 30*float64(i/39) }, 0.1, 8,
			"grow by 39"},
	} {
		s, pods := played(c.more, c.held)
		got, err := s.Judge(pods)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		if got == nil || math.Abs(got.Slope-c.slope) > 0.005 || got.First != c.first || got.Last != c.held(39) {
			t.Errorf("%s: %v", c.name, got)
			continue
		}
		if got.Seen != c.more/390 || math.Abs(got.Rise-390*got.Slope) > 1e-9 {
			t.Errorf("%s: %+v", c.name, *got)
		}
	}
}

// What nobody could tell is no proof.
func TestTooFewRestsAreAnError(t *testing.T) {
	few := &Series{What: "things", More: 1e9}
	var pods, none []float64
	for i := range Least - 1 {
		few.Add(0)
		pods, none = append(pods, float64(i)), append(none, 0)
	}
	if _, err := few.Judge(pods); err == nil {
		t.Errorf("%d rests are enough", len(pods))
	}
	few.Add(0)
	if _, err := few.Judge(pods); err == nil {
		t.Errorf("%d rests have %d measurements", len(pods), Least)
	}
	if _, err := few.Judge(append(none, 0)); err == nil {
		t.Error("no pod came")
	}
	if _, err := few.Judge(append(pods, Least)); err != nil {
		t.Error(err)
	}
}

func TestString(t *testing.T) {
	s := &Series{What: "things"}
	if got := s.String(); got != "nothing known of things" {
		t.Error(got)
	}
	s.Add(3)
	if s.Add(4.4); s.String() != "4 things" {
		t.Error(s)
	}
}
