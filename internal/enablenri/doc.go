// Package enablenri turns NRI on in a container runtime's configuration, with as
// little change as there can be: nothing where it is on, one small file where the
// runtime reads drop-ins, else a few lines in the file that is there.
//
// What a plan would write is read back before it is shown: the new text
// has to mean what the old one meant, but for the keys that were to change. A text
// that cannot be changed so, one that a program generates, or one of an unknown
// version is refused with what to do by hand. Timeouts are never lowered.
//
// Restarting the runtime is left to the operator.
package enablenri

import (
	"time"
)

// Runtime is whose configuration it is.
type Runtime string

const (
	Containerd Runtime = "containerd"
	CRIO       Runtime = "cri-o"
)

// Options say what is there and what is wanted.
type Options struct {
	Runtime Runtime
	// Dir is the runtime's configuration directory, such as /etc/containerd.
	Dir string
	// Version of the runtime, such as 1.7.28; empty: unknown. It decides what a
	// configuration means that says nothing of NRI.
	Version string
	// On says that the runtime listens for plugins now.
	On bool
	// RequestTimeout is what a plugin should have for one event, at least; 0: as it is.
	RequestTimeout time.Duration
}

// Files are the files of a configuration directory, by their path.
type Files map[string][]byte

// Plan is one file to write. A nil *Plan is nothing to do.
type Plan struct {
	Path string
	Old  []byte // nil: there is none yet
	New  []byte
	// Backup is where the old text is to be kept; empty: nowhere, since the file is ours.
	Backup string
}

// Look decides. It touches nothing.
func Look(files Files, o Options) (*Plan, error) {
	if o.Runtime == CRIO {
		return lookCRIO(files, o)
	}
	return lookContainerd(files, o)
}
