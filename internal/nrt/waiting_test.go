package nrt

import (
	"testing"

	"github.com/quietcore/quietcore/policy"
)

// TestWaitingPods: pods that wait for CPUs of their own are named, the oldest first, and
// nothing is where none waits.
func TestWaitingPods(t *testing.T) {
	m := newMachine(t, grid(t), policy.Config{Degrade: true})
	if text, ok := Build(Input{Node: "n", Snapshot: m.Snapshot()}).Annotations[AnnWaiting]; ok {
		t.Errorf("nobody waits, and %s is %s", AnnWaiting, text)
	}
	for _, name := range []string{"first", "second"} {
		if err := m.run(name, "LSE", 4000); err != nil {
			t.Fatal(err)
		}
	}
	want := `[{"podUID":"uid-first","namespace":"default","pod":"first","cpus":4000,"since":"1970-01-01T00:00:01Z"},` +
		`{"podUID":"uid-second","namespace":"default","pod":"second","cpus":4000,"since":"1970-01-01T00:00:03Z"}]`
	if got := Build(Input{Node: "n", Snapshot: m.Snapshot()}).Annotations[AnnWaiting]; got != want {
		t.Errorf("%s is\n%s, want\n%s", AnnWaiting, got, want)
	}
}
