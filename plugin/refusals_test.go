package plugin

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quietcore/quietcore/policy"
)

// TestACrowdOfRefusedPodsHidesNoOther: whatever is refused in whatever order, a namespace with no more refused pods
// than its share of the list has all of them on it.
func TestACrowdOfRefusedPodsHidesNoOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRefusals(&Options{})
		now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
		refuse := func(namespace string, n int) {
			now = now.Add(time.Millisecond)
			pod := &policy.Pod{UID: fmt.Sprint(namespace, n), Namespace: namespace, Name: fmt.Sprint(n)}
			r.admitted(now, pod, &policy.Refusal{Code: policy.Unauthorized, Message: "no"})
		}
		others := rapid.IntRange(1, 7).Draw(t, "others")
		share := maxRetried / (others + 1)
		had := make([]int, others)
		next := 0
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			i := rapid.IntRange(-1, others-1).Draw(t, "whose")
			if i < 0 {
				for range rapid.IntRange(1, 100).Draw(t, "flood") {
					refuse("flood", next)
					next++
				}
			} else if had[i] < share {
				refuse(fmt.Sprint("other", i), had[i])
				had[i]++
			}
		}
		listed := map[string]int{}
		all := r.list(now)
		for i := range all {
			listed[all[i].Namespace]++
		}
		for i, n := range had {
			if got := listed[fmt.Sprint("other", i)]; got != n {
				t.Fatalf("%d of %d refused pods of a namespace are listed, beside %d of %d", got, n,
					listed["flood"], next)
			}
		}
		if len(all) > maxRetried {
			t.Fatalf("%d are listed", len(all))
		}
	})
}
