package daemon

import (
	"context"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"

	"github.com/quietcore/quietcore/policy"
)

// labels are the Node's, by the API server. Those of the configuration stand in for
// them until they are known.
type labels struct {
	node *node
	log  *slog.Logger

	// turn is held while the policy takes over labels, or a configuration with them: the
	// older ones must not come last. It is taken before mu, and guards policy.
	turn   sync.Mutex
	policy policy.Config // in force, with the labels of the configuration

	mu    sync.Mutex
	known map[string]string // nil: the API server has not answered
}

// take takes over what the API server says.
func (l *labels) take(ctx context.Context, known map[string]string) {
	l.turn.Lock()
	defer l.turn.Unlock()
	l.mu.Lock()
	l.known = known
	l.mu.Unlock()
	if err := l.node.TakeLabels(ctx, withArch(known)); err != nil {
		l.log.Warn("the Node's labels are not taken over", "err", err)
	}
}

// or returns the labels in force, given those of the configuration.
func (l *labels) or(configured map[string]string) map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known != nil {
		return l.known
	}
	return configured
}

// reconfigure takes over the policy of a configuration, which says nothing of what claims may have of each device.
func (l *labels) reconfigure(ctx context.Context, p policy.Config) error {
	l.turn.Lock()
	defer l.turn.Unlock()
	p.ClaimShares = l.policy.ClaimShares
	return l.enforce(ctx, p)
}

// share has owners leave these shares to claims.
func (l *labels) share(ctx context.Context, shares []policy.ClaimShare) error {
	l.turn.Lock()
	defer l.turn.Unlock()
	if slices.Equal(l.policy.ClaimShares, shares) {
		return nil
	}
	p := l.policy
	p.ClaimShares = shares
	return l.enforce(ctx, p)
}

// enforce is called with turn held.
func (l *labels) enforce(ctx context.Context, p policy.Config) error {
	with := p
	with.NodeLabels = withArch(l.or(p.NodeLabels))
	err := l.node.Reconfigure(ctx, with)
	if err == nil {
		l.policy = p
	}
	return err
}

// withArch adds the machine's architecture to labels that do not name one.
func withArch(labels map[string]string) map[string]string {
	if labels[policy.LabelArch] != "" {
		return labels
	}
	labels = maps.Clone(labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[policy.LabelArch] = runtime.GOARCH
	return labels
}
