package main

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/quietcore/quietcore/internal/config"
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
	l := newLending(&daemon{log: slog.New(slog.DiscardHandler)}, &cfg, false)
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
