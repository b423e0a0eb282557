//go:build quietcore_faults

package faults

import (
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/quietcore/quietcore/internal/failpoint"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/plugin"
)

// Faults are what a test asks for. They are the daemon's hooks.
type Faults struct {
	Socket string                // where events are taken; never empty
	At     func(failpoint.Point) // is called at each point passed; nil: nothing is
	Late   time.Duration         // owners start at once, and the others leave that much later
}

// KillSelf ends the process as kill -9 does: nothing runs on, not even a deferred
// function.
func KillSelf() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // the signal is on its way
}

// Prepare sets the hooks of what the daemon is made of.
func (f *Faults) Prepare(o *plugin.Options, s *state.Store) {
	o.At = f.At
	s.At = failpoint.AtStage(f.At)
	if f.Late > 0 {
		o.SetLate(f.Late)
	}
}

// Listen names the socket for events of tests, and what answers there.
func (f *Faults) Listen(p *plugin.Plugin) (socket string, h http.Handler) {
	return f.Socket, Handler(p)
}
