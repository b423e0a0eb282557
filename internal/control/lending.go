package control

import "time"

// Lending is which idle CPUs are lent, to which pods, and why some were taken back. Amounts are in
// CPUs.
type Lending struct {
	// Mode and Suppression are off, observe or enforce. With observe, the values are what
	// enforcement would do.
	Mode        string `json:"mode"`
	Suppression string `json:"suppression"`
	// Problem is why something does not work; empty: it does.
	Problem string `json:"problem,omitempty"`

	Capacity   float64 `json:"capacity"`
	Production float64 `json:"production"` // in use by LSE, LSR and LS pods
	Batch      float64 `json:"batch"`      // in use by BE pods
	Outside    float64 `json:"outside"`    // in use by processes outside of pods
	Known      bool    `json:"known"`      // whether these were measured

	Budget     float64 `json:"budget"` // what BE pods may use in total
	Pool       int     `json:"pool"`   // CPUs of the whole best-effort pool
	Suppressed string  `json:"suppressed"`
	// Retreated says that these are the reserved CPUs, of which best effort needs no more.
	Retreated bool `json:"retreated,omitempty"`
	// Quota limits best effort as a whole if a set of CPUs cannot; 0: none.
	Quota float64 `json:"quota,omitempty"`
	Blind bool    `json:"blind,omitempty"`
	// Group is how that quota is divided; nil: the best-effort slice has all of it.
	Group *Group `json:"group,omitempty"`

	Estimate  *Estimate  `json:"estimate,omitempty"`  // nil: before the first one, or if nothing is lent
	Published *float64   `json:"published,omitempty"` // the amount in the Node object; nil: none
	Pods      []BatchPod `json:"pods,omitempty"`
	Taken     []Taken    `json:"taken,omitempty"`
}

// Group is best effort as one group over several cgroups. Amounts are in CPUs.
type Group struct {
	Mode  string  `json:"mode"`  // observe or enforce
	Slice float64 `json:"slice"` // quota of kubelet's best-effort slice
	Pods  int     `json:"pods"`  // outside of it, each with its part of the rest
}

// Estimate is how much can be lent.
type Estimate struct {
	Supply        float64 `json:"supply"`
	Offer         float64 `json:"offer"`
	Promised      float64 `json:"promised"`
	Demand        float64 `json:"demand"`
	Idle          int     `json:"idle"` // pods
	Overcommitted bool    `json:"overcommitted,omitempty"`
	Halted        string  `json:"halted,omitempty"` // why no more is lent than was promised; empty: it is
	Frozen        bool    `json:"frozen,omitempty"` // contention hides demand: no pod is classified as idle
}

// BatchPod is a best-effort pod.
type BatchPod struct {
	Namespace string  `json:"namespace"`
	Pod       string  `json:"pod"`
	Managed   bool    `json:"managed"`
	Requests  float64 `json:"requests"` // request for lent CPUs
	Counts    float64 `json:"counts"`   // its request, or while idle a percentile of its use
	Idle      bool    `json:"idle"`
	Evicting  bool    `json:"evicting,omitempty"`
	Why       string  `json:"why,omitempty"`
	Part      float64 `json:"part,omitempty"` // of best effort's quota, outside of its slice; 0: none
}

// Taken is something that was taken back from best effort.
type Taken struct {
	At   time.Time `json:"at"`
	Pod  string    `json:"pod,omitempty"` // empty: all of best effort
	What string    `json:"what"`
	Why  string    `json:"why"`
	// Observed means that it was only observed: the mode is observe.
	Observed bool `json:"observed,omitempty"`
}
