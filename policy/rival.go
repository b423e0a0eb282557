package policy

import "time"

// How another NRI plugin sets the CPUs of containers.
const (
	RivalBefore = "before" // it is asked first, and the runtime refuses a container that two give CPUs
	RivalAfter  = "after"  // it is asked later, and so the runtime refuses, or it refuses itself
	RivalAlone  = "alone"  // of a container to which we give no CPUs
	RivalMoved  = "moved"  // of one that runs
)

// ReasonRival is the reason of the notice about another plugin; ReasonMovedByOthers of that about a container that was
// moved through its runtime.
const (
	ReasonRival         = "OtherPluginSetsCPUs"
	ReasonMovedByOthers = "CPUsMovedByOthers"
)

// Rival is what was noticed of other NRI plugins that set CPUs. The runtime does not say which one it was.
type Rival struct {
	How       string    `json:"how"`
	Container string    `json:"container"` // the last one, as namespace/pod/container
	Message   string    `json:"message"`
	Times     int       `json:"times"`
	Last      time.Time `json:"last"`
}

func (r *Rival) String() string { return "another NRI plugin sets CPUs: " + r.Message }
