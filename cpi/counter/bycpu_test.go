package counter

import (
	"math"
	"testing"
	"time"
)

// rowsOf adds up the time of a group's rows.
func rowsOf(t *testing.T, r *Reading, id string, cpus int) (sum float64) {
	t.Helper()
	for _, x := range r.Rows {
		if int(x.Group) >= len(r.Groups) || int(x.CPU) >= cpus || x.OnCPU < leastRow {
			t.Fatalf("a row says %+v, of %d groups and %d CPUs", x, len(r.Groups), cpus)
		}
		if r.Groups[x.Group].ID == id {
			sum += float64(x.OnCPU)
		}
	}
	return sum
}

// What a group did on each CPU is what it did in the window, but for what was too short.
func TestRowsAreWhatTheGroupsDid(t *testing.T) {
	h := v2(t)
	c := openHere(t, h, Options{ByCPU: true, StandIns: map[Event]StandIn{LLCMisses: PageFaults}})
	if err := c.Disable(nil); err != nil {
		t.Fatal(err)
	}
	var helpers []*helper
	for _, id := range []string{"b", "a"} {
		path := h.make("rows" + id)
		helper := startHelper(t, "spin", nil)
		h.place(path, helper)
		if err := c.Follow(id, path); err != nil {
			t.Fatal(err)
		}
		helpers = append(helpers, helper)
	}
	var before, after Reading
	for range 2 { // a window has nothing of the one before
		if err := c.Enable(&before); err != nil {
			t.Fatal(err)
		}
		if len(before.Rows) != 0 {
			t.Errorf("a window begins with %d rows", len(before.Rows))
		}
		for _, helper := range helpers {
			helper.do(100)
		}
		if err := c.Disable(&after); err != nil {
			t.Fatal(err)
		}
		cpus := len(c.active)
		for _, id := range []string{"a", "b"} {
			want := float64(of(t, &after, id).OnCPU - of(t, &before, id).OnCPU)
			got := rowsOf(t, &after, id, cpus)
			if got > want*(1+1e-6)+1 || got < want*(1-1e-6)-float64(2*cpus)*leastRow || got == 0 {
				t.Errorf("%s had %v, by CPU %v", id, time.Duration(want), time.Duration(got))
			}
		}
	}
}

// The rows of a group that is forgotten are nobody's, and not those of who gets its slot.
func TestRowsOfAForgottenGroup(t *testing.T) {
	c := &Counter{options: Options{ByCPU: true, MaxGroups: 3}, groups: newGroups(3), total: newTotal(3)}
	c.groups.sorted = []group{{id: "a", slot: 2}, {id: "b", slot: 1}}
	counted := Counts{Events: [numEvents]uint64{Instructions: 10, LLCMisses: 3}, OnCPU: 4e6, Counted: 2e6,
		CountedMisses: 1e6}
	c.window.rows = appendRows(nil, 7, []Counts{{OnCPU: 9e9}, counted, {OnCPU: leastRow - 1}, counted})
	c.groups.retiring = []uint32{3}
	c.retire()
	var r Reading
	c.readRows(&r)
	want := Row{CPU: 7, Group: 1, OnCPU: 4e6, Instructions: 20, Misses: 12}
	if len(r.Rows) != 1 || r.Rows[0] != want {
		t.Errorf("%+v, want %+v", r.Rows, want)
	}
	if none := counted.whole(Instructions, 0); none != 0 || math.IsNaN(float64(none)) {
		t.Errorf("what was never counted is %v", none)
	}
}
