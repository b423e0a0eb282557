package lend

import (
	"context"
	"log/slog"
)

// queueLength bounds the queued evictions. They are rare: more than a few mean that the
// API server does not answer.
const queueLength = 16

// Queue evicts pods one after the other, for a caller that must not block.
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

// Add queues a pod's eviction and never blocks. If the queue is full, the pod stays and
// a warning is logged.
func (q *Queue) Add(pod Pod, why string) {
	select {
	case q.waiting <- queued{pod, why}:
	default:
		q.log.Warn("cannot evict a pod: too many evictions are queued", "pod", pod.String(),
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
				q.log.Warn("cannot evict a pod", "err", err)
			}
		}
	}
}

// RequestResult is the result of the mark that an eviction with that result made; empty:
// it made none.
func RequestResult(result string) string {
	switch result {
	case Evicted, Blocked, Unanswered:
		return "ok"
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
