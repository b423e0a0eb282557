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
	var free time.Duration
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
			if free, err = b.freed(ctx, step.Remove.Pod, lines[i]); err != nil {
				return nil, fmt.Errorf("step %d (%s): %w", i+1, step.Op(), err)
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
	return []figure{{Name: "pods created through the API", Value: len(starts)},
		{Name: "containers compared with simulate", Value: compared},
		{Name: "API create to running, median", Value: seconds(median(starts))},
		{Name: "pod gone from the API to its CPUs in the pools", Value: seconds(free)}}, nil
}

// freeLimit is more than the minute between kubelet's looks for what has ended: only
// then it removes the sandbox, long after the API server has forgotten the pod.
const freeLimit = 4 * time.Minute

// freed removes a pod and returns how long after its end in the API all others are where
// they are to be without it.
func (b *bench) freed(ctx context.Context, name string, line script.Line) (time.Duration, error) {
	if err := b.DeletePod(ctx, namespace, name); err != nil {
		return 0, err
	}
	gone := time.Now()
	err := cluster.Until(ctx, freeLimit, func(ctx context.Context) error {
		_, err := b.same(ctx, line)
		return err
	})
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
