package detect

import (
	"fmt"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpi"
)

func TestWhoIsInQuestion(t *testing.T) {
	b := victimBench(t, nil)
	b.put(cpi.Container{ID: "batch", Job: "victim", Class: cpi.Batch})
	b.put(cpi.Container{ID: "w", Job: "victim", Class: cpi.LS})
	b.put(cpi.Container{ID: "a", Job: "a", Class: cpi.BE})
	want := func(when, list string) {
		t.Helper()
		if got := fmt.Sprint(b.d.Questions()); got != list {
			t.Errorf("%s: in question are %s, want %s", when, got, list)
		}
	}
	want("nothing was seen", "[]")
	b.minute(map[string]reading{"v": {1, 1}, "batch": {1, 3}, "w": {1, 1}})
	want("one outlier", "[{batch [] false}]")
	b.minute(map[string]reading{"v": {1, 3}, "batch": {1, 1}, "w": {1, 1}})
	want("who is protected comes first", "[{v [] false} {batch [] false}]")
	b.minute(map[string]reading{"v": {1, 1}, "batch": {1, 1}, "w": {1, 3}})
	want("the newest comes first", "[{w [] false} {v [] false} {batch [] false}]")
	for range 3 {
		b.minute(map[string]reading{"v": {1, 1}, "batch": {1, 1}, "w": {1, 1}})
	}
	want("five minutes after the first", "[{w [] false} {v [] false}]")
	b.blame("v", map[string]float64{"a": 0.5})
	want("an action is to help it", "[{v [a] false} {w [] false}]")
	b.d.Forget(b.now, "v")
	b.tick(10 * time.Minute)
	want("it ended, and the rest is long ago", "[]")
}
