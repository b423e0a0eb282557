package policy

import (
	"fmt"
	"strings"
	"time"
)

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

// Rival is what was noticed of other NRI plugins that set CPUs.
type Rival struct {
	How string `json:"how"`
	// Plugin is its INDEX-NAME; empty: the runtime does not say. Candidates may be it.
	Plugin     string    `json:"plugin,omitempty"`
	Candidates []string  `json:"candidates,omitempty"`
	Container  string    `json:"container"` // the last one, as namespace/pod/container
	Message    string    `json:"message"`
	Times      int       `json:"times"`
	Last       time.Time `json:"last"`
}

func (r *Rival) String() string {
	who := "another NRI plugin sets CPUs"
	switch {
	case r.Plugin != "":
		who = "NRI plugin " + r.Plugin + " sets CPUs"
	case len(r.Candidates) > 0:
		who += " (" + strings.Join(r.Candidates, " or ") + ")"
	}
	return fmt.Sprintf("%s: %s", who, r.Message)
}
