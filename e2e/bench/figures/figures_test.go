package figures

import (
	"testing"
	"time"
)

func TestTimesOf(t *testing.T) {
	var took []time.Duration
	for i := range 200 {
		took = append(took, time.Duration(200-i)*time.Millisecond)
	}
	if got, want := TimesOf(took), (Times{N: 200, P50: 100, P99: 198, Most: 200}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got, want := TimesOf([]time.Duration{7 * time.Millisecond}), (Times{N: 1, P50: 7, P99: 7,
		Most: 7}); got != want {
		t.Errorf("of one: got %+v, want %+v", got, want)
	}
	if got := TimesOf(nil); got != (Times{}) {
		t.Errorf("of none: %+v", got)
	}
}

func TestConstant(t *testing.T) {
	three, four := Operations{Writes: 3}, Operations{Writes: 3, Calls: 1}
	for name, c := range map[string]struct {
		stages []Stage
		want   bool
	}{
		"the same": {[]Stage{{Enter: []Operations{three, three}, Leave: []Operations{four}},
			{Enter: []Operations{three}, Leave: []Operations{four}}}, true},
		"more with more": {[]Stage{{Enter: []Operations{three}, Leave: []Operations{four}},
			{Enter: []Operations{four}, Leave: []Operations{four}}}, false},
		"more to leave": {[]Stage{{Enter: []Operations{three}, Leave: []Operations{three}},
			{Enter: []Operations{three}, Leave: []Operations{four}}}, false},
		"one life differs": {[]Stage{{Enter: []Operations{three}, Leave: []Operations{three}},
			{Enter: []Operations{three, four}, Leave: []Operations{three}}}, false},
		"nothing to compare with": {[]Stage{{Enter: []Operations{three}, Leave: []Operations{three}}}, false},
		"nothing was counted":     {[]Stage{{}, {}}, false},
		"one was not counted":     {[]Stage{{Enter: []Operations{three}, Leave: []Operations{three}}, {}}, false},
	} {
		r := Report{Stages: c.stages}
		if got := r.Constant(); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

func TestMostToEnter(t *testing.T) {
	r := Report{Stages: []Stage{{Enter: []Operations{{Writes: 2, Calls: 5}}},
		{Enter: []Operations{{Writes: 4, Calls: 1}}, Leave: []Operations{{Writes: 9}}}}}
	if got, want := r.MostToEnter(), (Operations{Writes: 4, Calls: 5}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := (&Report{}).Last(); got.Containers != 0 {
		t.Errorf("the last of none: %+v", got)
	}
}
