package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/quietcore/quietcore/e2e/machine"
	"github.com/quietcore/quietcore/e2e/upgrade"
	"github.com/quietcore/quietcore/internal/failpoint"
	"github.com/quietcore/quietcore/internal/incidents"
)

// bothRead is a configuration that every version understands, with which it opens every file that it has.
const bothRead = "apiVersion: quietcore.dev/v1alpha1\nkind: Configuration\ncpi: {mode: observe}\n" +
	"reclaim: {mode: observe}\n"

// oldPath is where a guest has the daemon of an older version, keeperPath what keeps incidents as that one does.
func oldPath(v upgrade.Version) string    { return "/usr/bin/quietcore-" + v.Name }
func keeperPath(v upgrade.Version) string { return "/usr/bin/keep-incidents-" + v.Name }

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
		keeper, err := v.Program(ctx, ".", upgrade.KeepIncidents)
		if err != nil {
			return nil, err
		}
		files[strings.TrimPrefix(oldPath(v), "/")], files[strings.TrimPrefix(keeperPath(v), "/")] = binary, keeper
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
	kept, err := n.keepIncidents(ctx, old)
	if err != nil {
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
		if err := n.understood(ctx); err != nil {
			return err
		}
		return n.lists(ctx, kept)
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
		{Name: "this version followed " + old.Name, Value: took[present]},
		{Name: "incidents of " + old.Name + " that each lists", Value: len(kept)}}, nil
}

// keepIncidents has some kept as a daemon of an old version does, while none runs, and returns their IDs.
func (n *node) keepIncidents(ctx context.Context, old upgrade.Version) ([]string, error) {
	if err := n.KillDaemon(ctx); err != nil {
		return nil, err
	}
	var text bytes.Buffer
	all := json.NewEncoder(&text)
	for i := range 10 {
		who := incidents.Subject{Namespace: "default", Pod: fmt.Sprintf("victim-%d", i), Container: "main"}
		if err := all.Encode(incidents.Incident{At: time.Now(), Victim: who, CPI: 3, Threshold: 2}); err != nil {
			return nil, err
		}
	}
	const from = "/tmp/incidents.json"
	if err := n.WriteFile(ctx, from, text.String()); err != nil {
		return nil, err
	}
	done, err := n.Exec(ctx, "busybox", "sh", "-c", keeperPath(old)+" "+incidentsFile+" < "+from)
	if err != nil {
		return nil, err
	}
	return strings.Fields(done.Stdout), nil
}

// incidentsFile is where daemons keep them.
const incidentsFile = "/var/lib/quietcore/incidents.db"

// lists says whether the daemon lists all of these incidents.
func (n *node) lists(ctx context.Context, ids []string) error {
	code, body, err := n.HTTP(ctx, controlSocket, "GET", "/v1/incidents?limit=0", nil)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if code != http.StatusOK || !bytes.Contains(body, []byte(id)) {
			return fmt.Errorf("incident %s is not listed: code %d: %s", id, code, body)
		}
	}
	return nil
}

// understood says whether the daemon could read what the one before it wrote.
func (n *node) understood(ctx context.Context) error {
	log := n.LogTail(ctx, machine.Daemon, 1<<16)
	for _, l := range strings.Split(log, "\n") {
		for _, bad := range []string{"level=ERROR", "corrupt", "put aside", "cannot be read", "reads up to",
			"is not used"} {
			if strings.Contains(l, bad) {
				return fmt.Errorf("the daemon that followed says: %s", l)
			}
		}
	}
	return nil
}
