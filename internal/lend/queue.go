package lend

import (
	"context"
	"log/slog"
)

// queueLength bounds how many evictions wait. They are rare: more than a few mean
// that the API server does not answer.
const queueLength = 16

// Queue evicts pods one after the other, for a caller that waits for nothing.
type Queue struct {
	evictor *Evictor
	log     *slog.Logger
	waiting chan queued
}

type queued struct {
	pod Pod
	why string
}

// NewQueue makes an empty queue.
func NewQueue(e *Evictor, log *slog.Logger) *Queue {
	return &Queue{evictor: e, log: log, waiting: make(chan queued, queueLength)}
}

// Add asks for a pod's eviction. It never waits: where too many wait already, the
// pod stays and the log says so.
func (q *Queue) Add(pod Pod, why string) {
	select {
	case q.waiting <- queued{pod, why}:
	default:
		q.log.Warn("a pod is not evicted: too many others wait for the API server", "pod", pod.String(),
			"waiting", queueLength)
	}
}

// Run evicts until ctx ends.
func (q *Queue) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case next := <-q.waiting:
			if err := q.evictor.Evict(ctx, next.pod, next.why); err != nil && ctx.Err() == nil {
				q.log.Warn("a pod is not evicted", "err", err)
			}
		}
	}
}

// RequestResult is how the request to the API server ended that an eviction with
// that result made; empty: it made none.
func RequestResult(result string) string {
	switch result {
	case Evicted:
		return "ok"
	case Blocked:
		return "conflict"
	case Gone:
		return "notfound"
	case Forbidden:
		return "forbidden"
	case TimedOut:
		return "timeout"
	case Failed:
		return "error"
	}
	return ""
}
