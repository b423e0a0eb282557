package plugin

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// Absent says what becomes of pods with a wish on nodes that publish no ledger.
type Absent string

const (
	AbsentRefuse Absent = "Refuse" // they are not sent there
	AbsentIgnore Absent = "Ignore" // they are sent there as any scheduler would
)

// Tell says how a node learns its pod's CPUs.
type Tell string

const (
	TellBinding Tell = "Binding" // in the write that binds the pod
	TellPreBind Tell = "PreBind" // in a write before that, where another plugin binds
)

// Refused says what becomes of pods that their node refuses all the same.
type Refused string

const (
	RefusedLeave  Refused = "Leave"  // they stay there, and kubelet goes on asking
	RefusedDelete Refused = "Delete" // those that a controller replaces are deleted
)

// Args are the plugin's arguments in the scheduler's configuration.
type Args struct {
	// AbsentNodes is Refuse where it is left out.
	AbsentNodes Absent `json:"absentNodes"`
	// Annotate is Binding where it is left out.
	Annotate Tell `json:"annotate"`
	// RefusedPods is Leave where it is left out.
	RefusedPods Refused `json:"refusedPods"`
}

func readArgs(obj runtime.Object) (Args, error) {
	a := Args{AbsentNodes: AbsentRefuse, Annotate: TellBinding, RefusedPods: RefusedLeave}
	if obj != nil {
		if err := frameworkruntime.DecodeInto(obj, &a); err != nil {
			return a, fmt.Errorf("arguments of the plugin %s: %w", Name, err)
		}
	}
	if a.AbsentNodes != AbsentRefuse && a.AbsentNodes != AbsentIgnore {
		return a, fmt.Errorf("plugin %s: absentNodes is %q; it must be Refuse or Ignore", Name, a.AbsentNodes)
	}
	if a.Annotate != TellBinding && a.Annotate != TellPreBind {
		return a, fmt.Errorf("plugin %s: annotate is %q; it must be Binding or PreBind", Name, a.Annotate)
	}
	if a.RefusedPods != RefusedLeave && a.RefusedPods != RefusedDelete {
		return a, fmt.Errorf("plugin %s: refusedPods is %q; it must be Leave or Delete", Name, a.RefusedPods)
	}
	return a, nil
}
