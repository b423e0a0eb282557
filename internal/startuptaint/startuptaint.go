// Package startuptaint takes the taint quietcore.dev/not-ready away from this daemon's Node, once the daemon places
// what starts there. It never adds one: kubelet registers a Node with it.
//
//	r := startuptaint.New(startuptaint.Options{API: startuptaint.NewServer(client.REST), Node: "n1", Ready: ready})
//	r.Observe(taints)        // at every change of the Node
//	r.Run(ctx)
package startuptaint

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/quietcore/quietcore/internal/kube"
)

// Patcher applies a JSON patch to a Node.
type Patcher interface {
	Patch(ctx context.Context, node string, patch []byte) error
}

// Server is the API server as a Patcher.
type Server struct{ api *kube.Lazy }

// NewServer connects lazily, since credentials may not exist yet. config is
// kube.Client's REST.
func NewServer(config func() (*rest.Config, error)) *Server { return &Server{kube.NewLazy(config)} }

// Patch implements Patcher.
func (s *Server) Patch(ctx context.Context, node string, patch []byte) error {
	c, err := s.api.Connect()
	if err != nil {
		return err
	}
	return c.Patch(types.JSONPatchType).AbsPath("/api/v1/nodes", node).Param("fieldManager", "quietcore").MaxRetries(0).
		Body(patch).Do(ctx).Error()
}

// Options configure a Remover. API, Node and Ready are required.
type Options struct {
	API  Patcher
	Node string
	// Ready says that pods which start now are placed.
	Ready func() bool
	Log   *slog.Logger
	// Report counts a request by its result; may be nil.
	Report func(result string)
	// After is the source of time; nil: time.After.
	After func(time.Duration) <-chan time.Time
}

// Pauses: how often it is asked whether the daemon is ready, and after a request that failed.
const (
	askAgain             = time.Second
	firstPause, mostWait = time.Second, time.Minute
)

// Remover takes the taint away. Its methods are safe for concurrent use; Run must be called at most once.
type Remover struct {
	o    Options
	wake chan struct{}

	mu     sync.Mutex   // guards the rest
	taints []kube.Taint // of ours that the Node has
	why    string       // the last request failed
}

// New makes a Remover that has not seen the Node yet.
func New(o Options) *Remover {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Report == nil {
		o.Report = func(string) {}
	}
	if o.After == nil {
		o.After = time.After
	}
	return &Remover{o: o, wake: make(chan struct{}, 1)}
}

// Observe takes those of the Node's taints that are ours. It never blocks.
func (r *Remover) Observe(taints []kube.Taint) {
	r.mu.Lock()
	same := slices.EqualFunc(r.taints, taints, func(a, b kube.Taint) bool {
		return a.Index == b.Index && bytes.Equal(a.Raw, b.Raw)
	})
	r.taints = taints
	if len(taints) == 0 {
		r.why = ""
	}
	r.mu.Unlock()
	if same {
		return // another change of the Node shortens no pause
	}
	select {
	case r.wake <- struct{}{}:
	default: // already woken
	}
}

// State is why the taint is still there although the daemon is ready; empty: it is not.
func (r *Remover) State() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.why
}

// Run takes the taint away, whenever it is seen, until ctx ends.
func (r *Remover) Run(ctx context.Context) {
	pause := firstPause
	for {
		var due <-chan time.Time
		switch taints := r.pending(); {
		case len(taints) == 0:
			pause = firstPause
		case !r.o.Ready():
			due = r.o.After(askAgain)
		case r.remove(ctx, taints) != nil:
			due = r.o.After(pause)
			pause = min(2*pause, mostWait)
		}
		select {
		case <-ctx.Done():
			return
		case <-due:
		case <-r.wake:
		}
	}
}

func (r *Remover) pending() []kube.Taint {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taints
}

func (r *Remover) remove(ctx context.Context, taints []kube.Taint) error {
	patch, err := patchOf(taints)
	if err == nil {
		err = r.o.API.Patch(ctx, r.o.Node, patch)
		r.o.Report(result(err))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		if r.why == "" && ctx.Err() == nil {
			r.o.Log.Warn("the startup taint cannot be taken away yet", "taint", kube.StartupTaint, "err", err)
		}
		r.why = fmt.Sprintf("the Node still has the taint %s: %v", kube.StartupTaint, err)
		return err
	}
	r.why, r.taints = "", nil // the Node's next version says so, too
	r.o.Log.Info("the startup taint is taken away: pods that start are placed", "taint", kube.StartupTaint)
	return nil
}

// patchOf removes taints at their places, the last one first. It is refused as a whole where one of them is not there
// any more: then the Node has changed, and is seen again.
func patchOf(taints []kube.Taint) ([]byte, error) {
	type step struct {
		Op    string          `json:"op"`
		Path  string          `json:"path"`
		Value json.RawMessage `json:"value,omitempty"`
	}
	var steps []step
	for _, t := range slices.Backward(taints) {
		path := fmt.Sprintf("/spec/taints/%d", t.Index)
		steps = append(steps, step{"test", path, t.Raw}, step{Op: "remove", Path: path})
	}
	return json.Marshal(steps)
}

// result is what a request is counted as.
func result(err error) string {
	var network net.Error
	switch {
	case err == nil:
		return "ok"
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return "forbidden"
	case apierrors.IsNotFound(err):
		return "notfound"
	case errors.Is(err, context.DeadlineExceeded), apierrors.IsTimeout(err), apierrors.IsServerTimeout(err),
		errors.As(err, &network) && network.Timeout():
		return "timeout"
	}
	return "error"
}
