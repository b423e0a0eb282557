package daemon

import (
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/plugin"
)

// Faults are what tests do to a daemon.
type Faults struct {
	Socket string             // where it takes events for tests; empty: nowhere
	At     func(plugin.Point) // is called at each point that is passed
	Late   time.Duration      // owners start at once and the others leave that much later
}

func (f *Faults) inject(o *plugin.Options, s *state.Store) {
	o.At, o.Late = f.At, f.Late
	s.At = plugin.AtStage(f.At)
}

func (f *Faults) listen(log *slog.Logger) (net.Listener, error) {
	if f.Socket == "" {
		return nil, nil
	}
	log.Warn("this daemon takes events for tests", "socket", f.Socket)
	return control.Listen(f.Socket)
}

func (f *Faults) handler(s *control.Server) http.Handler { return s.TestHandler() }
