package ledger

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestPairs: pairs come back as they were, those that hold longest where there are too many; and
// nothing that is no pair, or holds for ever, is believed.
func TestPairs(t *testing.T) {
	now := time.Date(2026, 11, 25, 1, 2, 3, 0, time.UTC)
	var list []Pair
	for i := range 100 {
		list = append(list, Pair{Victim: "shop/Deployment/web", Antagonist: fmt.Sprintf("batch/Job/j%d", i),
			Until: now.Add(time.Duration(i+1) * 10 * time.Minute)})
	}
	got := DecodePairs(EncodePairs(list), now)
	slices.Reverse(list)
	if !slices.Equal(got, list[:64]) {
		t.Errorf("got %d pairs, the first %+v", len(got), got[0])
	}
	if left := DecodePairs(EncodePairs(list), now.Add(16*time.Hour)); len(left) != 4 {
		t.Errorf("%d pairs hold after 16 hours", len(left))
	}
	if EncodePairs(nil) != "" {
		t.Error("no pairs take room")
	}
	for _, wrong := range []string{"", "{}", "[1]", `[{"victim":"a","until":"2026-11-25T03:00:00Z"}]`,
		`[{"victim":"a","antagonist":"b","until":"2126-11-25T03:00:00Z"}]`,
		`[{"victim":"a","antagonist":"b","until":"2026-11-25T01:00:00Z"}]`,
		`[{"victim":"` + strings.Repeat("a", 760) + `","antagonist":"b","until":"2026-11-25T03:00:00Z"}]`,
		strings.Repeat("[", 1<<20)} {
		if list := DecodePairs(wrong, now); len(list) > 0 {
			t.Errorf("%.60s is %+v", wrong, list)
		}
	}
	if first, next := Holds(now), Holds(now.Add(50*time.Minute)); first != next || first.Sub(now) < PairHolds {
		t.Errorf("a pair holds until %s, and proven again until %s", first, next)
	}
}
