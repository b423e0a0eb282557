package lend

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/quietcore/quietcore/internal/kube"
)

// record is the Node's annotation kube.AnnLending. It tells readers how old the amounts
// are, and the next daemon which of them are Quietcore's.
type record struct {
	// At is when the amounts were last written or confirmed.
	At time.Time `json:"at"`
	// Offer is what could be lent then. The amounts are higher if running pods already
	// request more.
	Offer int64 `json:"offer"`
	// Resources are those that Quietcore wrote.
	Resources []string `json:"resources"`
}

// maxYear is the last year that JSON times can have.
const maxYear = 9999

// parseRecord parses the annotation; an invalid one is ignored.
func parseRecord(text string) (r record, ok bool) {
	if text == "" {
		return record{}, false
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil || r.At.IsZero() || r.At.UTC().Year() > maxYear {
		return record{}, false
	}
	return r, true
}

func (r *record) has(resource int) bool { return slices.Contains(r.Resources, resourceName(resource)) }

// ours says which amounts of a Node are Quietcore's: its own resource, and those in the
// annotation.
func ours(n kube.LentNode) [resources]bool {
	r, _ := parseRecord(n.Record)
	return [resources]bool{own: true, koordinator: r.has(koordinator)}
}

// patchOf sets the resources of touch to their amounts. A record without resources
// removes the annotation.
func patchOf(to amounts, touch [resources]bool, r record) ([]byte, error) {
	list := map[string]any{}
	r.Resources = []string{}
	for i, v := range to {
		switch {
		case !touch[i]:
		case v == absent:
			list[resourceName(i)] = nil
		default:
			list[resourceName(i)] = strconv.FormatInt(v, 10)
			r.Resources = append(r.Resources, resourceName(i))
		}
	}
	var note any
	if len(r.Resources) > 0 {
		r.At = r.At.UTC().Truncate(time.Second)
		text, err := json.Marshal(r)
		if err != nil {
			return nil, err
		}
		note = string(text)
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{kube.AnnLending: note}},
		// Kubelet derives allocatable from capacity, but only at its next write.
		"status": map[string]any{"capacity": list, "allocatable": list},
	})
}
