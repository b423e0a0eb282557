package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/quietcore/quietcore/e2e/machine"
	"github.com/quietcore/quietcore/e2e/upgrade"
	"github.com/quietcore/quietcore/internal/failpoint"
)

// bothRead is a configuration that every version understands.
const bothRead = "apiVersion: quietcore.dev/v1alpha1\nkind: Configuration\ncpi: {mode: \"off\"}\n" +
	"reclaim: {mode: observe}\n"

// oldPath is where a guest has the daemon of an older version.
func oldPath(v upgrade.Version) string { return "/usr/bin/quietcore-" + v.Name }

// versions lets the daemon of this tree and that of each release before it take turns. Each is killed half way, while
// an owner comes or goes, and the other one finds the node that it left.
func versions(ctx context.Context, other *node) ([]figure, error) {
	all, err := upgrade.Versions()
	if err != nil {
		return nil, err
	}
	// What ran before there were releases has no points at which it can be killed.
	all = slices.DeleteFunc(all, func(v upgrade.Version) bool { return v.Name == "v0.0.9" })
	files := map[string]string{}
	for _, v := range all {
		binary, err := v.Build(ctx, ".", "quietcore_faults")
		if err != nil {
			return nil, err
		}
		files[strings.TrimPrefix(oldPath(v), "/")] = binary
	}
	play := func(ctx context.Context, n *node) (figures []figure, err error) {
		for _, v := range all {
			took, err := n.takeTurns(ctx, v)
			figures = append(figures, took...)
			if err != nil {
				return figures, fmt.Errorf("with %s: %w", v.Name, err)
			}
		}
		return figures, nil
	}
	return on(machine.Options{Files: files}, play)(ctx, other)
}

// takeTurns begins and ends with the daemon of this tree.
func (n *node) takeTurns(ctx context.Context, old upgrade.Version) ([]figure, error) {
	b, err := newBase(ctx, n)
	if err != nil {
		return nil, err
	}
	if err := n.WriteFile(ctx, daemonConfig, bothRead); err != nil {
		return nil, err
	}
	present := n.Binary
	n.next = oldPath(old)
	defer func() { n.Binary, n.next = present, "" }()
	took := map[string]int{}
	kill := func(p failpoint.Point, half func(context.Context, failpoint.Point) error) error {
		from := n.Binary
		if err := half(ctx, p); err != nil {
			return fmt.Errorf("%s, killed at %s, was followed by %s: %w", from, p, n.Binary, err)
		}
		took[n.Binary]++
		return n.understood(ctx)
	}
	// Twice, so that each of the two is killed at every point.
	for range 2 {
		for _, p := range comingPoints {
			if err := kill(p, b.coming); err != nil {
				return nil, err
			}
		}
		for _, p := range goingPoints {
			if err := kill(p, b.going); err != nil {
				return nil, err
			}
		}
	}
	if n.Binary != present || took[present] == 0 || took[present] != took[oldPath(old)] {
		return nil, fmt.Errorf("%s is the last, and they followed %v; each has to be killed at every point", n.Binary,
			took)
	}
	return []figure{{Name: old.Name + " followed, nothing moved", Value: took[oldPath(old)]},
		{Name: "this version followed " + old.Name, Value: took[present]}}, nil
}

// understood says whether the daemon could read what the one before it wrote.
func (n *node) understood(ctx context.Context) error {
	log := n.LogTail(ctx, machine.Daemon, 1<<16)
	for _, l := range strings.Split(log, "\n") {
		for _, bad := range []string{"level=ERROR", "corrupt", "put aside", "cannot be read", "reads up to"} {
			if strings.Contains(l, bad) {
				return fmt.Errorf("the daemon that followed says: %s", l)
			}
		}
	}
	return nil
}
