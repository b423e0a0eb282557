package ledger

import (
	"encoding/json"
	"time"

	"github.com/quietcore/quietcore/policy"
)

// Annotations beside the ledger, which make no new generation of it.
const (
	// AnnRefused names pods that the node turned away and that kubelet asks for again.
	AnnRefused = "quietcore.dev/refused-pods"
	// AnnAlive is when the daemon last ran for sure.
	AnnAlive = "quietcore.dev/alive"
	// AnnGeneration is a pod's: the generation of the ledger that its place was chosen by.
	AnnGeneration = "quietcore.dev/ledger-generation"
)

const (
	// Beat is how often AnnAlive changes, and StaleAfter for how long a ledger is believed
	// that it does not change beside: an object is looked at every five minutes or six.
	Beat       = 5 * time.Minute
	StaleAfter = 20 * time.Minute

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
