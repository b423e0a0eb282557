package main

import (
	"context"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/quietcore/quietcore/e2e/kubernetes/cluster"
	"github.com/quietcore/quietcore/e2e/scenario"
	"github.com/quietcore/quietcore/internal/script"
)

//go:embed none.yaml
var noneScript []byte

// none: what simulate says of a list of pods is what the kernel does with them when
// they are created through the API.
func none(ctx context.Context, b *bench) ([]figure, error) {
	s, err := scenario.Parse("none.yaml", noneScript)
	if err != nil {
		return nil, err
	}
	lines, err := s.Simulate()
	if err != nil {
		return nil, err
	}
	compared := 0
	var starts []time.Duration
	var forgotten time.Duration
	for i := range s.File.Steps {
		step := &s.File.Steps[i]
		switch {
		case step.Create != nil:
			began := time.Now()
			if _, err := b.start(ctx, podOf(step.Create)); err != nil {
				return nil, err
			}
			starts = append(starts, time.Since(began))
		case step.Remove != nil:
			if forgotten, err = b.remove(ctx, step.Remove.Pod); err != nil {
				return nil, err
			}
		default:
			return nil, fmt.Errorf("step %d (%s) is none that goes through the API", i+1, step.Op())
		}
		n, err := b.same(ctx, lines[i])
		if err != nil {
			return nil, fmt.Errorf("step %d (%s): %w", i+1, step.Op(), err)
		}
		compared += n
	}
	return []figure{{"pods created through the API", len(starts)}, {"containers compared with simulate", compared},
		{"API create to running, median", seconds(median(starts))},
		{"pod gone from the API to its sandbox removed", seconds(forgotten)}}, nil
}

// remove returns when nothing is left of the pod, and how much later than the API
// server the runtime has forgotten it: until then its CPUs are its own.
func (b *bench) remove(ctx context.Context, name string) (time.Duration, error) {
	var p cluster.Pod
	if err := b.Get(ctx, cluster.PodsPath(namespace)+"/"+name, &p); err != nil {
		return 0, err
	}
	if err := b.DeletePod(ctx, namespace, name); err != nil {
		return 0, err
	}
	gone := time.Now()
	err := b.node.WaitForgotten(ctx, p.Metadata.UID)
	return time.Since(gone), err
}

// same compares every container of the line with the kernel's word.
func (b *bench) same(ctx context.Context, line script.Line) (int, error) {
	if line.Error != nil {
		return 0, fmt.Errorf("simulate refuses it: %s: %s", line.Error.Code, line.Error.Message)
	}
	want := cluster.Placement{}
	for _, c := range line.Containers {
		want[c.Namespace+"/"+c.Pod+"/"+c.Container] = c.CPUs
	}
	pods, err := b.Pods(ctx, namespace)
	if err != nil {
		return 0, err
	}
	got, err := b.place(ctx, pods...)
	if err != nil {
		return 0, err
	}
	if !maps.Equal(got, want) {
		return 0, fmt.Errorf("simulate and the kernel differ:\n%s", difference(want, got))
	}
	return len(want), nil
}

func difference(want, got cluster.Placement) string {
	names := maps.Clone(want)
	maps.Copy(names, got)
	var b strings.Builder
	for _, n := range slices.Sorted(maps.Keys(names)) {
		if want[n] != got[n] {
			fmt.Fprintf(&b, "    %s: simulate %q, kernel %q\n", n, want[n], got[n])
		}
	}
	return b.String()
}

func median(times []time.Duration) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	return sorted[len(sorted)/2]
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
