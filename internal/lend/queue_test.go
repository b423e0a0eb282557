package lend

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// asker is an API server whose evictor evicts what is marked, or that does not answer.
type asker struct {
	requested []Pod
	ending    map[Pod]bool
	err       error
}

func (a *asker) Look(_ context.Context, pod Pod) (Marked, error) {
	return Marked{Ending: a.ending[pod]}, a.err
}

func (a *asker) Mark(_ context.Context, pod Pod, _ Mark) error {
	a.requested = append(a.requested, pod)
	a.ending[pod] = true
	return nil
}

func TestQueueEvictsAPodOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		api := &asker{ending: map[Pod]bool{}}
		pod := func(name string) Pod { return Pod{UID: "uid-" + name, Namespace: "jobs", Name: name} }
		q := NewQueue(NewEvictor(EvictorOptions{API: api}), slog.New(slog.NewTextHandler(&log, nil)))
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go q.Run(ctx)
		for range 2 {
			q.Add(pod("a"), "to run on another node: batch was capped 3 times in 1h")
		}
		after(time.Second)
		if len(api.requested) != 1 || api.requested[0] != pod("a") {
			t.Errorf("asked for %v, want %v once", api.requested, pod("a"))
		}
		api.err = errors.New("no route to host")
		q.Add(pod("b"), "why")
		synctest.Wait()
		if !strings.Contains(log.String(), "jobs/b (UID uid-b) is not evicted") {
			t.Errorf("log:\n%s", &log)
		}
		stop()
		synctest.Wait()
		for range queueLength + 1 { // nothing takes them any more
			q.Add(pod("c"), "why")
		}
		if !strings.Contains(log.String(), "too many evictions are queued") {
			t.Errorf("log:\n%s", &log)
		}
	})
}

func TestRequestResult(t *testing.T) {
	for result, want := range map[string]string{
		Evicted: "ok", Blocked: "ok", Unanswered: "ok", Gone: "notfound", Forbidden: "forbidden", TimedOut: "timeout",
		Failed:   "error",
		Observed: "", Limited: "", Repeated: "", Absent: "",
	} {
		if got := RequestResult(result); got != want {
			t.Errorf("%s made a request that ended %q, want %q", result, got, want)
		}
	}
}
