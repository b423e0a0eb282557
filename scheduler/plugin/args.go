package plugin

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/quietcore/quietcore/internal/strict"
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

// UnmarshalJSON takes one of the words.
func (a *Absent) UnmarshalJSON(text []byte) error { return oneOf(text, a, AbsentRefuse, AbsentIgnore) }

// UnmarshalJSON takes one of the words.
func (t *Tell) UnmarshalJSON(text []byte) error { return oneOf(text, t, TellBinding, TellPreBind) }

// UnmarshalJSON takes one of the words.
func (r *Refused) UnmarshalJSON(text []byte) error {
	return oneOf(text, r, RefusedLeave, RefusedDelete)
}

func oneOf[T ~string](text []byte, into *T, first, second T) error {
	var word string
	if err := json.Unmarshal(text, &word); err != nil || T(word) != first && T(word) != second {
		return fmt.Errorf("is %s; it must be %s or %s", text, first, second)
	}
	*into = T(word)
	return nil
}

func readArgs(obj runtime.Object) (Args, error) {
	a := Args{AbsentNodes: AbsentRefuse, Annotate: TellBinding, RefusedPods: RefusedLeave}
	if obj == nil {
		return a, nil
	}
	given, ok := obj.(*runtime.Unknown)
	if !ok {
		return a, fmt.Errorf("arguments of the plugin %s are a %T; they must be a mapping", Name, obj)
	}
	// They are of one line, of no file.
	if err := strict.NewDecoder().Unmarshal(given.Raw, 0, &a); err != nil {
		return a, fmt.Errorf("arguments of the plugin %s: %s", Name, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return a, nil
}
