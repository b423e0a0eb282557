package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/loop"
	"github.com/quietcore/quietcore/internal/lend"
	"github.com/quietcore/quietcore/policy"
)

// asker is an API server that takes what it is asked, or does not.
type asker struct {
	asked []lend.Pod
	err   error
}

func (a *asker) Evict(_ context.Context, pod lend.Pod) error {
	a.asked = append(a.asked, pod)
	return a.err
}

func wish(pod string) *loop.Finding {
	f := &loop.Finding{Kind: detect.CommandEvent, Command: detect.DoEvict, Why: "batch was capped 3 times in 1h"}
	f.Target.PodUID, f.Target.Namespace, f.Target.Pod = "uid-"+pod, "jobs", pod
	return f
}

func TestAnUnwelcomePodIsEvictedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var told []policy.Notice
		api := &asker{}
		d := &daemon{log: slog.New(slog.NewTextHandler(&log, nil))}
		u := &unwelcome{d: d, wanted: make(chan *loop.Finding, maxUnwelcome),
			evictor: lend.NewEvictor(lend.EvictorOptions{
				API: api, Notify: func(n policy.Notice) { told = append(told, n) },
			})}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go u.run(ctx)
		for _, f := range []*loop.Finding{{Kind: detect.AnalysisEvent},
			{Kind: detect.CommandEvent, Command: detect.DoCap}, wish("a"), wish("a")} {
			u.want(f)
		}
		synctest.Wait()
		if want := (lend.Pod{UID: "uid-a", Namespace: "jobs", Name: "a"}); len(api.asked) != 1 || api.asked[0] != want {
			t.Errorf("asked for %v, want %v once", api.asked, want)
		}
		if len(told) != 1 || told[0].Message != "evicted to run on another node: batch was capped 3 times in 1h" {
			t.Errorf("told %+v", told)
		}
		api.err = errors.New("no route to host")
		u.want(wish("b"))
		synctest.Wait()
		if !strings.Contains(log.String(), "jobs/b (UID uid-b) is not evicted") {
			t.Errorf("log:\n%s", &log)
		}
		stop()
		synctest.Wait()
		for range maxUnwelcome + 1 { // nobody takes them any more
			u.want(wish("c"))
		}
		if !strings.Contains(log.String(), "too many others wait") {
			t.Errorf("log:\n%s", &log)
		}
		var nobody *unwelcome
		nobody.want(wish("d"))
	})
}
