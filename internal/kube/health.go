package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Results of a request, as Report names them.
const (
	resultOK        = "ok"
	resultError     = "error"
	resultForbidden = "forbidden"
	resultNotFound  = "notfound"
	resultTimeout   = "timeout"
	resultDropped   = "dropped"
)

// errNoSuchNode is an API server without our Node.
var errNoSuchNode = errors.New(
	"there is no such Node: it was deleted or renamed, or node.name is wrong; the labels known last stay in force")

// logEvery bounds how often a cause is logged.
const logEvery = 10 * time.Minute

// health tracks what does not work, and bounds logging.
type health struct {
	log    *slog.Logger
	now    func() time.Time
	report func(what, result string)

	mu    sync.Mutex
	parts map[string]*part
	order []string
}

// part is something that is followed or written.
type part struct {
	result     string
	err        string
	since      time.Time            // of the first failure in a row; zero: it works
	lastLogged map[string]time.Time // result -> last line
	logged     bool                 // the present failure is in the log
}

func newHealth(o *Options) *health {
	return &health{log: o.Log, now: o.Now, report: o.Report, parts: map[string]*part{}}
}

// expect marks a part as not working until it works.
func (h *health) expect(what string) {
	p := h.part(what)
	p.since, p.result, p.err = h.now(), resultError, "no answer yet"
}

func (h *health) part(what string) *part {
	p := h.parts[what]
	if p == nil {
		p = &part{lastLogged: map[string]time.Time{}}
		h.parts[what] = p
		h.order = append(h.order, what)
	}
	return p
}

// observe records the result of a request. The daemon's shutdown is no failure.
func (h *health) observe(what string, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	h.report(what, classify(err))
	h.set(what, err)
}

// set records whether a part works.
func (h *health) set(what string, err error) {
	now, result := h.now(), classify(err)
	h.mu.Lock()
	p := h.part(what)
	if err == nil {
		since, logged := p.since, p.logged
		p.since, p.logged, p.err = time.Time{}, false, ""
		h.mu.Unlock()
		if logged {
			h.log.Info("requests to the API server succeed again", "what", what, "after",
				now.Sub(since).Round(time.Second))
		}
		return
	}
	text := printable(err.Error(), maxErrorText)
	if p.since.IsZero() {
		p.since = now
	}
	p.result, p.err = result, text
	last, before := p.lastLogged[result]
	say := !before || now.Sub(last) >= logEvery
	if say {
		p.lastLogged[result], p.logged = now, true
	}
	h.mu.Unlock()
	if say {
		h.log.Warn("requests to the API server fail; pods are still placed", "what", what, "result",
			result, "err", text)
	}
}

const maxErrorText = 300

func (h *health) state() string {
	now := h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	var why []string
	for _, what := range h.order {
		p := h.parts[what]
		if p.since.IsZero() {
			continue
		}
		verb := "API server not reached"
		switch p.result {
		case resultForbidden:
			verb = "API server refuses"
		case resultNotFound:
			verb = "not found"
		}
		why = append(why, fmt.Sprintf("%s: %s for %s: %s", what, verb, now.Sub(p.since).Round(time.Second), p.err))
	}
	return strings.Join(why, "; ")
}

// Result is an error of a request as Report names it.
func Result(err error) string {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return "conflict"
	}
	return classify(err)
}

// classify maps an error to a result of Report.
func classify(err error) string {
	var network net.Error
	switch {
	case err == nil:
		return resultOK
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return resultForbidden
	case apierrors.IsNotFound(err), errors.Is(err, errNoSuchNode):
		return resultNotFound
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded),
		apierrors.IsTimeout(err), apierrors.IsServerTimeout(err), errors.As(err, &network) && network.Timeout():
		return resultTimeout
	}
	return resultError
}
