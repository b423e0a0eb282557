package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// claimPart is a part of the proof claims; parts run in the order of the table.
type claimPart struct {
	name string
	run  func(*claiming, context.Context) error
	base bool // later parts need what it leaves
}

var claimParts = []claimPart{
	{name: "owners", run: (*claiming).besideOwners, base: true},
	{name: "alone", run: (*claiming).alone, base: true},
	{name: "named", run: (*claiming).named},
	{name: "too-many", run: (*claiming).tooMany},
	{name: "daemon", run: (*claiming).daemonRestarts},
	{name: "kubelet", run: (*claiming).kubeletRestarts},
	{name: "runtime", run: (*claiming).runtimeRestarts},
	{name: "health", run: (*claiming).health},
	{name: "given-back", run: (*claiming).givenBack, base: true},
	{name: "crashes", run: (*claiming).crashes},
	{name: "deleted", run: (*claiming).deletedMeanwhile},
	{name: "unprepare", run: (*claiming).duringUnprepare},
	{name: "reboot", run: (*claiming).reboots},
	{name: "sandbox", run: (*claiming).beforeTheSandbox},
	{name: "documented", run: (*claiming).documented},
	{name: "floor", run: (*claiming).floor},
	{name: "another", run: (*claiming).another},
}

// partsNamed are parts by name with those that they need; none named: all.
func partsNamed(names string) ([]claimPart, error) {
	if names == "" {
		return claimParts, nil
	}
	list := strings.Split(names, ",")
	var known []string
	for _, p := range claimParts {
		known = append(known, p.name)
	}
	for _, name := range list {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("-parts %s: the proof claims has no part %s: must be of %s", names, name,
				strings.Join(known, ", "))
		}
	}
	return slices.DeleteFunc(slices.Clone(claimParts), func(p claimPart) bool {
		return !p.base && !slices.Contains(list, p.name)
	}), nil
}

// claims: pods that claim CPUs by DRA run on them alone, through restarts of daemon and kubelet; what is not there is
// not scheduled, what is given back serves the others, and owners by annotation take none of what is offered to claims.
func claims(ctx context.Context, b *bench) ([]figure, error) {
	return claimsBy(ctx, b, b.options.parts)
}

// claimsSmoke is the part of claims that takes the least time.
func claimsSmoke(ctx context.Context, b *bench) ([]figure, error) {
	if b.tellsDevices() {
		return claimsBy(ctx, b, "daemon")
	}
	return claimsBy(ctx, b, "named,daemon")
}

func claimsBy(ctx context.Context, b *bench, names string) ([]figure, error) {
	parts, err := partsNamed(names)
	if err != nil {
		return nil, err
	}
	c := &claiming{bench: b}
	err = c.offer(ctx)
	for _, p := range parts {
		if err == nil {
			if err = p.run(c, ctx); err != nil {
				err = fmt.Errorf("part %s: %w", p.name, err)
			}
		}
	}
	return c.out, errors.Join(err, c.finish(context.WithoutCancel(ctx)))
}
