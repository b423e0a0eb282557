package control

import "time"

// Lending is what is lent of idle CPUs, to which pods, and why it was taken back. Amounts
// are in CPUs.
type Lending struct {
	// Mode and Suppression are off, observe or enforce. What is only observed would be
	// so and is not.
	Mode        string `json:"mode"`
	Suppression string `json:"suppression"`
	// Problem is why something does not work; empty: it does.
	Problem string `json:"problem,omitempty"`

	Capacity   float64 `json:"capacity"`
	Production float64 `json:"production"` // in use by LSE, LSR and LS pods
	Batch      float64 `json:"batch"`      // in use by BE pods
	Outside    float64 `json:"outside"`    // in use by what is no pod
	Known      bool    `json:"known"`      // these were measured

	Budget     float64 `json:"budget"` // what BE pods may use together
	Pool       int     `json:"pool"`   // CPUs of the whole best-effort pool
	Suppressed string  `json:"suppressed"`
	// Quota is what best effort has together where no CPUs can hold it back; 0: none.
	Quota float64 `json:"quota,omitempty"`
	Blind bool    `json:"blind,omitempty"`

	Estimate  *Estimate  `json:"estimate,omitempty"`  // nil: before the first, and where nothing is lent
	Published *float64   `json:"published,omitempty"` // what the Node says; nil: nothing
	Pods      []BatchPod `json:"pods,omitempty"`
	Taken     []Taken    `json:"taken,omitempty"`
}

// Estimate is what may be promised.
type Estimate struct {
	Supply        float64 `json:"supply"`
	Offer         float64 `json:"offer"`
	Promised      float64 `json:"promised"`
	Demand        float64 `json:"demand"`
	Idle          int     `json:"idle"` // pods
	Overcommitted bool    `json:"overcommitted,omitempty"`
	Frozen        bool    `json:"frozen,omitempty"` // contention hides demand: no pod becomes idle
}

// BatchPod is a best-effort pod.
type BatchPod struct {
	Namespace string  `json:"namespace"`
	Pod       string  `json:"pod"`
	Managed   bool    `json:"managed"`
	Requests  float64 `json:"requests"` // of lent CPUs
	Counts    float64 `json:"counts"`   // its request, while idle a percentile of its use
	Idle      bool    `json:"idle"`
	Evicting  bool    `json:"evicting,omitempty"`
	Why       string  `json:"why,omitempty"`
}

// Taken is something that was taken back.
type Taken struct {
	At   time.Time `json:"at"`
	Pod  string    `json:"pod,omitempty"` // empty: all of best effort
	What string    `json:"what"`
	Why  string    `json:"why"`
	// Observed says that it only would have been: the mode is observe.
	Observed bool `json:"observed,omitempty"`
}
