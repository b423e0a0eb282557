package kube

import (
	"encoding/json"
	"slices"

	kjson "sigs.k8s.io/json"
)

// StartupTaint is the key of the taint with which kubelet registers a Node on which nothing is to start before the
// daemon places it.
const StartupTaint = "quietcore.dev/not-ready"

// Taint is a taint of a Node: its place in the list, and what the API server says of it.
type Taint struct {
	Index int
	Raw   json.RawMessage
}

// startupTaints are those of a Node's list whose key is StartupTaint.
func startupTaints(list []json.RawMessage) (ours []Taint, err error) {
	for i, raw := range list {
		var t struct {
			Key string `json:"key"`
		}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &t); err != nil {
			return nil, err
		}
		if t.Key == StartupTaint {
			ours = append(ours, Taint{i, slices.Clone(raw)}) // raw is the decoder's
		}
	}
	return ours, nil
}
