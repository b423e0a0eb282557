package node

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/quietcore/quietcore/policy"
)

// recordText is an event as one line for the log, at most 8 KiB long.
func recordText(at time.Time, e policy.Event) string {
	const most = 8 << 10
	r, ok := policy.RecordOf(at, e)
	if !ok {
		return fmt.Sprintf("%T", e)
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err.Error()
	}
	if len(text) > most {
		return string(text[:most]) + "…"
	}
	return string(text)
}
