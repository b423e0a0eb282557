package reclaim

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// A sample is the mean over the time that was seen of its cell.
func TestSampleIsAMean(t *testing.T) {
	var w window
	for _, c := range []struct{ use, seconds float64 }{{4, 10}, {0, 10}, {1, 20}} {
		w.add(1, c.use, c.seconds, spanOf(100))
	}
	near(t, "the mean", w.percentile(100, hole{}), 1.5)
}

// Of samples that were not seen it is assumed that nothing was used.
func TestAtLeastUsed(t *testing.T) {
	var w window
	for i := range 10 {
		w.add(uint32(i), float64(i+1), 300, spanOf(100))
	}
	for _, c := range []struct {
		percent float64
		all     int
		want    float64
	}{{50, 10, 5}, {90, 10, 9}, {100, 10, 10}, {90, 20, 8}, {50, 20, 0}, {95, 200, 0}, {99, 200, 8}} {
		near(t, fmt.Sprintf("p%v of %d samples, 10 of them seen", c.percent, c.all),
			w.atLeastUsed(c.percent, c.all), c.want)
	}
}

func TestMeter(t *testing.T) {
	var m Meter
	at := func(seconds float64) time.Time { return began.Add(time.Duration(seconds * float64(time.Second))) }
	for i, c := range []struct {
		seconds, total float64
		use            float64
		ok             bool
	}{
		{0, 100, 0, false}, // the first
		{10, 120, 2, true},
		{10, 121, 0, false}, // no time passed
		{5, 130, 0, false},  // the clock was set back
		{6, 131, 1, true},   // and goes on from there
		{16, 3, 0, false},   // the cgroup was made anew
		{26, 4, 0.1, true},  //
		{3626, 5, 0, false}, // an hour says nothing about now
		{3627, 5, 0, true},  //
		{3628, 6.5, 1.5, true},
	} {
		use, _, ok := m.Use(at(c.seconds), time.Duration(c.total*float64(time.Second)))
		if ok != c.ok || math.Abs(use-c.use) > 1e-9 {
			t.Errorf("reading %d: use %v, %v; want %v, %v", i, use, ok, c.use, c.ok)
		}
	}
}

func TestHiddenDemand(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after Totals
		between       time.Duration
		hid           bool
	}{
		{"a tenth of the time", Totals{Waiting: time.Minute}, Totals{Waiting: time.Minute + time.Second},
			10 * time.Second, false},
		{"more than a tenth", Totals{Waiting: time.Minute}, Totals{Waiting: time.Minute + time.Second + 1},
			10 * time.Second, true},
		{"ten of a hundred periods", Totals{Periods: 50, Throttled: 50}, Totals{Periods: 150, Throttled: 60},
			10 * time.Second, false},
		{"eleven of a hundred", Totals{Periods: 50, Throttled: 50}, Totals{Periods: 150, Throttled: 61},
			10 * time.Second, true},
		{"stopped before a period has ended", Totals{Periods: 50, Throttled: 5}, Totals{Periods: 50, Throttled: 6},
			10 * time.Second, true},
		{"a new group", Totals{Waiting: time.Hour}, Totals{Waiting: time.Minute}, 10 * time.Second, false},
		{"no time", Totals{}, Totals{Waiting: time.Second}, 0, false},
	} {
		if got := c.after.Hid(c.before, c.between); got != c.hid {
			t.Errorf("%s: %v, want %v", c.name, got, c.hid)
		}
	}
}
