package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/lend"
	"github.com/quietcore/quietcore/internal/metrics"
	cgroupusage "github.com/quietcore/quietcore/internal/usage"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/reclaim"
	"github.com/quietcore/quietcore/reclaim/loop"
	"github.com/quietcore/quietcore/topology"
)

// stopped is a node on which nobody uses anything.
type stopped struct{ at time.Time }

func (s *stopped) Follow(string, string) error { return nil }
func (s *stopped) Forget(string)               {}
func (s *stopped) Read(dst []cgroupusage.Reading) []cgroupusage.Reading {
	return append(dst, cgroupusage.Reading{ID: "/", At: s.at})
}

// What status says is what the loop found, in the words of the modes.
func TestReportOfLending(t *testing.T) {
	topo, err := topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2}.Build()
	if err != nil {
		t.Fatal(err)
	}
	m, err := policy.New(topo, policy.Config{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	l := newLending(lendingOptions{config: &cfg, api: &apiServer{}, log: slog.New(slog.DiscardHandler)})
	if r := l.report(t.Context()); r != nil {
		t.Fatalf("off: %+v", r)
	}
	cfg.Reclaim.Mode, cfg.Suppress.Mode, l.broken = config.SwitchEnforce, config.SwitchEnforce, "no cgroups"
	if r := l.report(t.Context()); r == nil || r.Problem != "no cgroups" || r.Mode != "enforce" {
		t.Fatalf("broken: %+v", r)
	}
	estimator, err := reclaim.New(cfg.Reclaim.Estimation())
	if err != nil {
		t.Fatal(err)
	}
	node := &stopped{at: time.Unix(1e9, 0)}
	batch := policy.PodView{UID: "u", Namespace: "jobs", Name: "sort", Class: policy.BE, Managed: true,
		BatchMilli: 1500}
	tick := make(chan time.Time)
	l.loop, err = loop.New(loop.Options{
		Usage: node, Node: m.Snapshot, Estimator: estimator, Suppression: cfg.Suppress.Suppression(),
		Pods:     func(context.Context) ([]policy.PodView, error) { return []policy.PodView{batch}, nil },
		Suppress: func(context.Context, policy.BESuppressed) error { return nil },
		Clock:    loop.Clock{Now: func() time.Time { return node.at }, Tick: tick},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { l.loop.Run(ctx); close(ended) }()
	if _, err := l.loop.Pods(t.Context()); err != nil { // it has looked once
		t.Fatal(err)
	}
	for _, c := range []struct {
		mode config.Mode
		want string
	}{{config.Enforce, "enforce"}, {config.Observe, "observe"}} {
		cfg.Mode = c.mode
		r := l.report(t.Context())
		if r.Mode != c.want || r.Suppression != c.want || r.Capacity != 8 || r.Pool != 8 || r.Suppressed != "0-1" ||
			r.Budget != 2 || r.Estimate == nil || r.Estimate.Promised != 1.5 {
			t.Errorf("%s: %+v, estimate %+v", c.mode, r, r.Estimate)
		}
		if len(r.Pods) != 1 || r.Pods[0].Pod != "sort" || r.Pods[0].Requests != 1.5 || r.Pods[0].Idle ||
			r.Pods[0].Why == "" {
			t.Errorf("%s: pods %+v", c.mode, r.Pods)
		}
		if len(r.Taken) != 1 || r.Taken[0].Observed != (c.mode == config.Observe) {
			t.Errorf("%s: taken %+v", c.mode, r.Taken)
		}
	}
	cancel()
	<-ended
}

// Which pod would go is judged in every mode that lends, also where none may be
// evicted, or there is no API server to ask.
func TestEvictionsAreJudged(t *testing.T) {
	for _, c := range []struct {
		mode    config.Mode
		reclaim config.Switch
		evict   bool
		want    bool
		err     string
	}{
		{config.Enforce, config.SwitchEnforce, true, true, "no API server"},
		{config.Enforce, config.SwitchObserve, true, true, ""},
		{config.Observe, config.SwitchEnforce, true, true, ""},
		{config.Enforce, config.SwitchOff, true, false, ""},
		{config.Enforce, config.SwitchEnforce, false, false, ""},
	} {
		cfg := config.Default()
		cfg.Mode, cfg.Reclaim.Mode, cfg.Reclaim.Evict = c.mode, c.reclaim, c.evict
		m := metrics.New("test", noStats)
		l := newLending(lendingOptions{
			config: &cfg, api: &apiServer{o: apiOptions{metrics: m}}, metrics: m, log: slog.New(slog.DiscardHandler),
		})
		if (l.evictor != nil) != c.want {
			t.Errorf("%+v: an evictor: %t", c, l.evictor != nil)
		}
		if l.evictor == nil {
			continue
		}
		err := l.evictor.Evict(t.Context(), lend.Pod{UID: "u", Namespace: "jobs", Name: "sort"}, "why")
		if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestAnswerOfAnEviction(t *testing.T) {
	for _, c := range []struct {
		err  error
		want loop.Answer
	}{
		{nil, loop.Answer{Outcome: loop.Going}},
		{&lend.EvictError{Result: lend.Gone}, loop.Answer{Outcome: loop.Going, Before: true}},
		{&lend.EvictError{Result: lend.Repeated}, loop.Answer{Outcome: loop.Going, Before: true}},
		{&lend.EvictError{Result: lend.Limited, After: 3 * time.Second},
			loop.Answer{Outcome: loop.Later, After: 3 * time.Second}},
		{fmt.Errorf("wrapped: %w", &lend.EvictError{Result: lend.TimedOut, After: time.Minute}),
			loop.Answer{Outcome: loop.Later, After: time.Minute}},
		{&lend.EvictError{Result: lend.Unanswered, After: time.Minute},
			loop.Answer{Outcome: loop.Later, After: time.Minute}},
		{&lend.EvictError{Result: lend.Blocked}, loop.Answer{Outcome: loop.Stays}},
		{&lend.EvictError{Result: lend.Forbidden}, loop.Answer{Outcome: loop.Stays}},
		{&lend.EvictError{Result: lend.Absent}, loop.Answer{Outcome: loop.Stays}},
		{errors.New("the daemon ends"), loop.Answer{Outcome: loop.Ended}},
	} {
		got := answerOf(c.err)
		reported := got.Err != nil
		got.Err = nil
		if got != c.want || reported != (c.err != nil && !c.want.Before) {
			t.Errorf("%v: %+v, reported %t, want %+v", c.err, got, reported, c.want)
		}
	}
}

// What was learned is read only where it can be what this node's daemon wrote.
func TestWhatWasLearnedIsNotBelievedBlindly(t *testing.T) {
	cfg := config.Default()
	cfg.Node.Name = "node-a"
	good, err := reclaim.New(cfg.Reclaim.Estimation())
	if err != nil {
		t.Fatal(err)
	}
	text, err := good.Checkpoint("node-b").Encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		text string
		long int64
		want string
	}{
		"of another node": {string(text), 0, `node-b`},
		"truncated":       {string(text[:len(text)-2]), 0, "read checkpoint: "},
		"no text":         {"\x00\xff", 0, "read checkpoint: "},
		"endless":         {"", 1 << 40, "longer than 16777216 bytes"},
	} {
		file := filepath.Join(t.TempDir(), "lending.json")
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if c.long > 0 {
			if err := os.Truncate(file, c.long); err != nil {
				t.Fatal(err)
			}
		}
		var log bytes.Buffer
		l := newLending(lendingOptions{config: &cfg, api: &apiServer{}, log: NewLog(&log, config.LogText, nil)})
		if e, err := l.estimator(file); e == nil || err != nil || !strings.Contains(log.String(), c.want) {
			t.Errorf("%s: %v, the log says %q, want %q", name, err, log.String(), c.want)
		}
		if name == "of another node" {
			continue // this file has none in it
		}
		for _, byExperiment := range []bool{false, true} {
			if _, err := readLearned(file, byExperiment); err == nil {
				t.Errorf("what was learned of jobs, %s, by experiment %t: it was read", name, byExperiment)
			}
		}
	}
}
