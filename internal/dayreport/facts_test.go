package dayreport

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func at(minutes int) time.Time { return noon.Add(time.Duration(minutes) * time.Minute) }

func pod(class, name string) Pod { return Pod{Namespace: "shop", Name: name, Class: class} }

// looks takes the same look every minute, from the first to the last.
func looks(d *Day, from, to int, l Look) {
	for m := from; m <= to; m++ {
		l.At = at(m)
		d.Look(&l)
	}
}

// A look stands for the time since the one before: none for the first one, for one after a gap, and for one after the
// clock was set back.
func TestWhatALookStandsFor(t *testing.T) {
	for _, c := range []struct {
		name string
		at   []int // minutes
		want float64
	}{
		{"one", []int{0}, 0},
		{"three minutes", []int{0, 1, 2, 3}, 180},
		{"a look is missing", []int{0, 1, 3, 4}, 240},
		{"a gap", []int{0, 1, 20, 21}, 120},
		{"the clock is set back", []int{30, 31, 10, 11}, 120},
	} {
		d := NewDay()
		for _, m := range c.at {
			d.Look(&Look{At: at(m), Online: 8})
		}
		sum := 0.0
		for _, f := range d.Facts() {
			sum += f.Seconds
			if f.Online != 8*f.Seconds {
				t.Errorf("%s: %v of 8 CPUs in %v s", c.name, f.Online, f.Seconds)
			}
		}
		if sum != c.want {
			t.Errorf("%s: %v s, want %v", c.name, sum, c.want)
		}
	}
}

// Each hour has its facts, each mode within it, too; those of a day are kept.
func TestHours(t *testing.T) {
	d := NewDay()
	looks(d, 0, 30, Look{})
	looks(d, 31, 90, Look{Enforced: true})
	var got []string
	for _, f := range d.Facts() {
		got = append(got, fmt.Sprintf("%s %t %.0f", f.From.Format("15:04"), f.Enforced, f.Seconds/60))
	}
	if diff := cmp.Diff([]string{"12:00 false 30", "12:31 true 29", "13:00 true 31"}, got); diff != "" {
		t.Error(diff)
	}
	looks(d, 91, 30*60, Look{})
	list := d.Facts()
	if first := list[0].To; at(30*60).Sub(first) > keepFor || len(list) < 25 || len(list) > 27 {
		t.Errorf("%d parts, the oldest ends at %s", len(list), first)
	}
	for m := range 500 {
		d.Look(&Look{At: at(31*60 + m), Enforced: m%2 == 0})
	}
	if n := len(d.Facts()); n > maxBuckets {
		t.Errorf("%d parts", n)
	}
}

// Who is allocated how much, and what of it is idle.
func TestAllocated(t *testing.T) {
	for _, c := range []struct {
		name            string
		pod             PodLook
		allocated, idle float64
	}{
		{"an owner", PodLook{Pod: pod("LSE", "a"), Owns: 4, Requests: 4, Used: 1.5}, 4, 2.5},
		{"one that waits for its CPUs", PodLook{Pod: pod("LSR", "a"), Requests: 2, Used: 0.5}, 2, 1.5},
		{"in the shared pool", PodLook{Pod: pod("LS", "a"), Requests: 2, Used: 3}, 2, 0},
		{"best effort", PodLook{Pod: pod("BE", "a"), Requests: 2}, 0, 0},
		{"of the system", PodLook{Pod: pod("SYSTEM", "a"), Requests: 2}, 0, 0},
	} {
		d := NewDay()
		looks(d, 0, 10, Look{Known: true, Pods: []PodLook{c.pod}})
		f := d.Facts()[0]
		var got PodFacts
		if p := f.Pods["shop/a"]; p != nil {
			got = *p
		}
		if got.Allocated != 600*c.allocated || f.Use.Idle != 600*c.idle || got.Idle != 600*c.idle {
			t.Errorf("%s: %+v, %+v", c.name, got, f.Use)
		}
	}
}

// What does not fit into the pools: production has the shared one, best effort what all others leave of both.
func TestWhatDoesNotFit(t *testing.T) {
	ls, be := pod("LS", "web"), pod("BE", "batch")
	for _, c := range []struct {
		name              string
		outside           float64
		pods              []PodLook
		production, batch float64
	}{
		{"all fits", 1, []PodLook{{Pod: ls, Used: 5}, {Pod: be, Used: 4}}, 0, 0},
		{"production has more than the shared pool", 0, []PodLook{{Pod: ls, Used: 8}}, 2, 0},
		{"and best effort beside it", 0, []PodLook{{Pod: ls, Used: 8}, {Pod: be, Used: 5}}, 2, 1},
		{"the rest of the node goes first", 3, []PodLook{{Pod: ls, Used: 6}, {Pod: be, Used: 4}}, 0, 3},
		{"owners whose CPUs best effort may use", 0, []PodLook{{Pod: pod("LSR", "db"), Owns: 4, Used: 3},
			{Pod: ls, Used: 6}, {Pod: be, Used: 4}}, 0, 3},
		{"owners who are alone", 0, []PodLook{{Pod: pod("LSE", "db"), Owns: 4, Apart: true, Used: 3},
			{Pod: ls, Used: 6}, {Pod: be, Used: 4}}, 0, 0},
		{"of the system", 0, []PodLook{{Pod: pod("SYSTEM", "dns"), Used: 3}, {Pod: ls, Used: 6}, {Pod: be, Used: 4}},
			0, 3},
	} {
		d := NewDay()
		looks(d, 0, 1, Look{Online: 14, Shared: 6, Open: 10, Outside: c.outside, Known: true, Pods: c.pods})
		got := d.Facts()[0].Tight
		want := Tight{Production: 60 * c.production, Batch: 60 * c.batch}
		if c.production > 0 {
			want.ProductionSeconds = 60
		}
		if c.batch > 0 {
			want.BatchSeconds = 60
		}
		if got != want {
			t.Errorf("%s: %+v, want %+v", c.name, got, want)
		}
	}
}

// Pods that come and go do not fill the memory; those that count for most stay.
func TestBounds(t *testing.T) {
	d := NewDay()
	big := PodLook{Pod: pod("LSE", "big"), Owns: 4}
	for m := range 55 {
		l := Look{At: at(m), Known: true, Pods: []PodLook{big}}
		var pairs []Pair
		for i := range 20 {
			one := pod("LS", fmt.Sprintf("%s-%d-%d", strings.Repeat("x", 200), m, i))
			l.Pods = append(l.Pods, PodLook{Pod: one, Requests: 1})
			l.Refused = append(l.Refused, Refused{Pod: one, Code: "InsufficientCPUs"})
			pairs = append(pairs, Pair{Owner: big.Pod, Other: one, CPUs: 0.5})
		}
		d.Look(&l)
		d.Share(at(m), time.Minute, false, append(pairs, Pair{Owner: big.Pod, Other: pod("BE", "batch"), CPUs: 0.5}))
	}
	f := d.Facts()[0]
	if len(f.Pods) != maxPods || len(f.Pairs) != maxPairs || len(f.Refused) != maxRefused || f.Left == 0 {
		t.Errorf("%d pods, %d pairs, %d refused, %d left out", len(f.Pods), len(f.Pairs), len(f.Refused), f.Left)
	}
	if f.Pods["shop/big"] == nil || f.Pairs["shop/big shop/batch"] == nil {
		t.Error("what counts for most is left out")
	}
	text, err := d.Encode()
	if err != nil || len(text) > MaxBytes/maxBuckets {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

// What is kept comes back; what cannot be read is an error and not a part of it.
func TestFactsComeBack(t *testing.T) {
	d := NewDay()
	looks(d, 0, 70, Look{Known: true, Pods: []PodLook{{Pod: pod("LSE", "db"), Owns: 2, Used: 1}},
		Lendable: new(float64), Refused: []Refused{{Pod: pod("LSR", "many"), Code: "InsufficientCPUs"}}})
	d.Share(at(71), time.Minute, false, []Pair{{Owner: pod("LSE", "db"), Other: pod("BE", "batch"), CPUs: 1,
		Parts: true}})
	text, err := d.Encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(d.Facts(), back.Facts()); diff != "" {
		t.Error(diff)
	}
	looks(back, 72, 74, Look{}) // it goes on, and the first look stands for nothing
	if n := len(back.Facts()); n != 2 || back.Facts()[1].Seconds != d.Facts()[1].Seconds+120 {
		t.Errorf("%d parts, %v s", n, back.Facts()[1].Seconds)
	}
	for _, bad := range []string{"", "{", `{"version":2}`, `{"version":1,"facts":[null]}`,
		`{"version":1,"facts":[{"pods":{"a":null}}]}`} {
		if _, err := Decode([]byte(bad)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	empty, err := Decode([]byte(`{"version":1,"facts":[{"from":"2026-11-21T12:00:00Z"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	looks(empty, 0, 2, Look{Known: true, Pods: []PodLook{{Pod: pod("LS", "web"), Requests: 1}}})
}
