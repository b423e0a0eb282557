package reclaim

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestBrake(t *testing.T) {
	type part struct {
		times   int // minutes
		evicted int // in each
		floor   bool
		holds   bool // at the end
	}
	for name, c := range map[string]struct {
		parts []part
		why   string
	}{
		"nothing":       {[]part{{1000, 0, false, false}}, ""},
		"six at once":   {[]part{{1, 6, false, false}, {1000, 0, false, false}}, ""},
		"seven at once": {[]part{{1, 7, false, true}}, "than 6 an hour"},
		"six an hour":   {[]part{{1, 6, false, false}, {60, 0, false, false}, {1, 6, false, false}}, ""},
		"one more": {[]part{{1, 6, false, false},
			{5, 0, false, false}, {1, 1, false, true}}, "than 6 an hour"},
		"half an hour at the floor": {[]part{{30, 0, true, false}, {30, 0, false, false}, {30, 0, true, false}}, ""},
		"a minute more":             {[]part{{31, 0, true, true}}, "at its floor"},
		"with a break": {[]part{{30, 0, true, false},
			{5, 0, false, false}, {6, 0, true, true}}, "at its floor"},
		"it holds a day": {[]part{{1, 7, false, true}, {24*60 - 1, 0, false, true}}, "than 6 an hour"},
		"and no longer":  {[]part{{1, 7, false, true}, {24*60 + 10, 0, false, false}}, ""},
		"a day from the last such time": {[]part{{1, 7, false, true}, {1000, 0, false, true}, {31, 0, true, true},
			{24*60 - 60, 0, false, true}}, "at its floor"},
	} {
		t.Run(name, func(t *testing.T) {
			var b Brake
			why := ""
			for i, p := range c.parts {
				for range p.times {
					why = b.Step(time.Minute, p.evicted, p.floor)
				}
				if (why != "") != p.holds {
					t.Errorf("after part %d it says %q", i+1, why)
				}
			}
			if !strings.Contains(why, c.why) {
				t.Errorf("it says %q, want %q", why, c.why)
			}
		})
	}
}

// However time passes, at most six evictions an hour hold nothing, and a brake that holds ends
// within a day and the hour that it may take to forget.
func TestBrakesEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b Brake
		for range rapid.IntRange(0, 50).Draw(t, "steps") {
			b.Step(time.Duration(rapid.IntRange(-60, 7200).Draw(t, "seconds"))*time.Second,
				rapid.IntRange(0, 3).Draw(t, "evicted"), rapid.Bool().Draw(t, "floor"))
		}
		quiet := time.Duration(0)
		for b.Step(time.Minute, 0, false) != "" {
			if quiet += time.Minute; quiet > brakeFor+26*time.Hour {
				t.Fatalf("it holds after %v of quiet", quiet)
			}
		}
		if why := b.Step(10*time.Minute, 1, false); why != "" && b.evictions <= 6 {
			t.Fatalf("one eviction more holds it: %s", why)
		}
	})
}
