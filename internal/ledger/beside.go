package ledger

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/quietcore/quietcore/policy"
)

// Annotations beside the ledger, which make no new generation of it.
const (
	// AnnRefused names pods that the node turned away and that kubelet asks for again.
	AnnRefused = "quietcore.dev/refused-pods"
	// AnnAlive is when the daemon last ran for sure.
	AnnAlive = "quietcore.dev/alive"
	// AnnPairs names jobs that are better apart, each pair until a time.
	AnnPairs = "quietcore.dev/antagonists"
	// AnnGeneration is a pod's: the generation of the ledger that its place was chosen by.
	AnnGeneration = "quietcore.dev/ledger-generation"
)

const (
	// Beat is how often AnnAlive changes, and StaleAfter for how long a ledger is believed
	// that it does not change beside: an object is looked at every five minutes or six.
	Beat       = 5 * time.Minute
	StaleAfter = 20 * time.Minute

	// PairHolds is for how long a pair is kept apart that was proven once, and an hour more at
	// most: times are whole hours, so that what is proven again and again is not written each time.
	PairHolds = 24 * time.Hour
	maxPairs  = 64
	maxJob    = 3 * 253 // namespace, kind and name

	maxRefused  = 64
	maxSentence = 512
)

// EncodeAlive is empty for a time that is not known.
func EncodeAlive(now time.Time) string {
	if now.IsZero() {
		return ""
	}
	return now.UTC().Truncate(Beat).Format(time.RFC3339)
}

// DecodeAlive is zero where nothing, or nothing that can be read, is said.
func DecodeAlive(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return t
}

// EncodeRefused is empty where no pod is refused.
func EncodeRefused(list []policy.RefusedPod) string {
	if len(list) == 0 {
		return ""
	}
	kept := make([]policy.RefusedPod, 0, min(len(list), maxRefused))
	for _, r := range list[:cap(kept)] {
		if len(r.Message) > maxSentence {
			r.Message = r.Message[:maxSentence]
		}
		kept = append(kept, r)
	}
	text, err := json.Marshal(kept)
	if err != nil {
		return "" // strings and times of this century always marshal
	}
	return string(text)
}

// DecodeRefused reads what may be anything; what cannot be read names nobody.
func DecodeRefused(text string) []policy.RefusedPod {
	var list []policy.RefusedPod
	if len(text) > 2*maxRefused*(maxSentence+512) || json.Unmarshal([]byte(text), &list) != nil {
		return nil
	}
	return list[:min(len(list), maxRefused)]
}

// Pair is a job that another one was proven to slow down: limiting the antagonist made the victim
// faster again. Jobs are a namespace and the owner of its pods: shop/Deployment/web.
type Pair struct {
	Victim     string    `json:"victim"`
	Antagonist string    `json:"antagonist"`
	Until      time.Time `json:"until"`
}

// Holds is until when a pair holds that was proven now.
func Holds(now time.Time) time.Time { return now.Add(PairHolds + time.Hour).UTC().Truncate(time.Hour) }

// EncodePairs writes the pairs that hold longest; it is empty where there are none.
func EncodePairs(list []Pair) string {
	if len(list) == 0 {
		return ""
	}
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b Pair) int {
		return cmp.Or(b.Until.Compare(a.Until), cmp.Compare(a.Victim, b.Victim),
			cmp.Compare(a.Antagonist, b.Antagonist))
	})
	text, err := json.Marshal(list[:min(len(list), maxPairs)])
	if err != nil {
		return "" // strings and times of this century always marshal
	}
	return string(text)
}

// DecodePairs reads what may be anything: names that no job has, and times further off than any
// daemon writes, are left out.
func DecodePairs(text string, now time.Time) []Pair {
	var list []Pair
	if len(text) > maxPairs*(2*maxJob+100) || json.Unmarshal([]byte(text), &list) != nil {
		return nil
	}
	list = slices.DeleteFunc(list, func(p Pair) bool {
		return p.Victim == "" || p.Antagonist == "" || len(p.Victim) > maxJob || len(p.Antagonist) > maxJob ||
			!p.Until.After(now) || p.Until.After(now.Add(2*PairHolds))
	})
	return list[:min(len(list), maxPairs)]
}
