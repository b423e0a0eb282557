package evictor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"

	"github.com/quietcore/quietcore/internal/lend"
)

const (
	// workers bounds the requests at once: an eviction whose webhook hangs keeps no other
	// node waiting.
	workers        = 8
	requestTimeout = 10 * time.Second
	// budgetAgain and failedAgain are after a refusal by a budget, and after any other
	// failure. mostAgain bounds what a server asks for.
	budgetAgain, failedAgain, mostAgain = 10 * time.Second, 30 * time.Second, time.Minute
)

// API is what is asked of the API server.
type API interface {
	// Evict evicts exactly one pod: one with another UID is not evicted.
	Evict(ctx context.Context, pod lend.Pod) error
	// Blocked writes into a mark which disruption budget keeps the pod.
	Blocked(ctx context.Context, pod lend.Pod, why string) error
}

// evictor evicts what is marked.
type evictor struct {
	api    API
	every  time.Duration
	burst  int
	now    func() time.Time
	log    *slog.Logger
	counts *counters
	// tell writes an Event.
	tell func(pod lend.Pod, reason, text string)

	marks *marks
	queue workqueue.TypedDelayingInterface[string] // of nodes; one worker has a node at a time

	mu    sync.Mutex
	paces map[string]*rate.Limiter // by node
}

// ready makes what an evictor works with.
func (e *evictor) ready() *evictor {
	e.queue = workqueue.NewTypedDelayingQueue[string]()
	e.marks = newMarks(e.queue.Add)
	e.paces = map[string]*rate.Limiter{}
	return e
}

// run evicts until ctx ends.
func (e *evictor) run(ctx context.Context) {
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for {
				node, over := e.queue.Get()
				if over {
					return
				}
				if again := e.serve(ctx, node); again > 0 && ctx.Err() == nil {
					e.queue.AddAfter(node, again)
				}
				e.queue.Done(node)
			}
		})
	}
	<-ctx.Done()
	e.queue.ShutDown()
	all.Wait()
}

// serve evicts what a node's rate allows. It returns when to look at the node again; 0: when
// its marks change.
func (e *evictor) serve(ctx context.Context, node string) (again time.Duration) {
	list := e.marks.of(node)
	pace := e.pace(node)
	later := func(d time.Duration) {
		if again == 0 || d < again {
			again = d
		}
	}
	for _, m := range list {
		now := e.now()
		switch {
		case ctx.Err() != nil:
			return 0
		case m.Stale(now), !e.marks.has(m):
			continue
		case m.refused != "":
			if m.told != m.refused {
				m.told = m.refused
				e.log.Warn("a marked pod is not evicted", "node", node, "pod", m.pod.String(), "why", m.refused)
			}
			continue
		case now.Before(m.until):
			later(m.until.Sub(now))
			continue
		}
		if r := pace.ReserveN(now, 1); r.DelayFrom(now) > 0 {
			wait := r.DelayFrom(now)
			r.CancelAt(now)
			later(wait)
			if !m.limited { // it waits once, however often it is looked at
				m.limited = true
				e.counts.limited.Inc()
			}
			return again
		}
		m.limited = false
		if m.until = e.now().Add(e.evict(ctx, m)); m.until.After(e.now()) {
			later(m.until.Sub(e.now()))
		}
	}
	if len(list) == 0 {
		return e.forget(node)
	}
	return again
}

func (e *evictor) pace(node string) *rate.Limiter {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.paces[node]
	if p == nil {
		p = rate.NewLimiter(rate.Every(e.every), e.burst)
		e.paces[node] = p
	}
	return p
}

// forget drops what is known of a node without marks, once its rate is as if it were new.
func (e *evictor) forget(node string) (again time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	missing := float64(e.burst) - e.paces[node].TokensAt(e.now())
	if missing <= 0 {
		delete(e.paces, node)
		return 0
	}
	return max(time.Duration(missing*float64(e.every)), time.Millisecond)
}

// evict asks for one eviction. It returns for how long the pod is left alone.
func (e *evictor) evict(ctx context.Context, m *mark) time.Duration {
	asked, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := e.api.Evict(asked, m.pod)
	log := e.log.With("node", m.node, "pod", m.pod.String(), "uid", m.pod.UID)
	budget, blocked := budgetIn(err)
	count := func(result string) { e.counts.evictions.WithLabelValues(result).Inc() }
	switch {
	case err == nil:
		count(resultEvicted)
		log.Info("evicted a pod", "for", m.Reason, "why", m.Message)
		e.tell(m.pod, lend.ReasonEvicted, fmt.Sprintf("evicted, as the daemon of node %s asked: %s", m.node, m.Message))
		return lend.MarkMaxAge
	case ctx.Err() != nil:
		return 0
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // no pod with that UID exists
		count(resultGone)
		return failedAgain
	case blocked:
		count(resultBlocked)
		log.Warn("a disruption budget keeps a marked pod", "why", budget)
		e.blocked(ctx, m, budget)
		return retry(err, budgetAgain)
	}
	count(resultFailed)
	log.Warn("cannot evict a marked pod", "err", err)
	return retry(err, failedAgain)
}

// blocked tells the daemon, which may choose another pod, and people.
func (e *evictor) blocked(ctx context.Context, m *mark, budget string) {
	if m.told == budget {
		return
	}
	m.told = budget
	e.tell(m.pod, lend.ReasonBlocked, fmt.Sprintf("the daemon of node %s wants it away, but it is not evicted: %s",
		m.node, budget))
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := e.api.Blocked(ctx, m.pod, budget); err != nil && ctx.Err() == nil {
		e.log.Warn("cannot tell a daemon that a budget keeps its pod", "node", m.node, "pod", m.pod.String(), "err",
			err)
	}
}

func retry(err error, otherwise time.Duration) time.Duration {
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok && seconds > 0 {
		return min(time.Duration(seconds)*time.Second, mostAgain)
	}
	return otherwise
}

// budgetIn says which disruption budget forbids an eviction. The API server answers 429
// with a cause, and 403 or 500 for budgets that are invalid, or two for one pod.
func budgetIn(err error) (why string, blocked bool) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return "", false
	}
	s := status.Status()
	if s.Details != nil {
		for _, c := range s.Details.Causes {
			if c.Type == policyv1.DisruptionBudgetCause {
				return c.Message, true
			}
		}
		if strings.HasPrefix(s.Details.Kind, "poddisruptionbudget") && s.Reason == metav1.StatusReasonForbidden {
			return s.Message, true
		}
	}
	return s.Message, strings.Contains(s.Message, "more than one PodDisruptionBudget")
}
