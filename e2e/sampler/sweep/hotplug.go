package sweep

import (
	"slices"
	"time"
)

// Switches says which CPUs go off and on, and what is to be in effect then.
type Switches struct {
	Rounds int           `json:"rounds"`
	Limit  time.Duration `json:"limit"` // for one repair
	CPUs   []Switch      `json:"cpus"`
}

// Switch is one CPU with the pictures of the node without it and with it.
type Switch struct {
	CPU int               `json:"cpu"`
	Off map[string]string `json:"off"`
	On  map[string]string `json:"on"`
}

// Switched is what one write to an online file led to.
type Switched struct {
	CPU    int           `json:"cpu"`
	Online bool          `json:"online"`
	Write  time.Duration `json:"write"`  // how long the kernel took
	Repair time.Duration `json:"repair"` // from the write's end until all threads were in place
}

// Repairs are the times to repair of all switches, the shortest first.
func Repairs(all []Switched) []time.Duration {
	out := make([]time.Duration, 0, len(all))
	for _, s := range all {
		out = append(out, s.Repair)
	}
	slices.Sort(out)
	return out
}
