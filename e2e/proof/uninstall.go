package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"strings"

	"github.com/quietcore/quietcore/e2e/kubelet"
	"github.com/quietcore/quietcore/e2e/sampler/sweep"
)

// uninstall compares a node on which the daemon pinned, lifted and capped, undone by
// `quietcore restore`, with one that never had a daemon.
func uninstall(ctx context.Context, n *node) ([]figure, error) {
	pods := []workload{
		owner(sweep.LSE, 2, "own"), owner(sweep.LSR, 2, "burst").of(kubelet.Burstable),
		shared("web", 100), shared("half", 500).limited(1500), bestEffort("batch"),
	}
	pinned, err := n.settle(ctx, pods)
	if err != nil {
		return nil, err
	}
	if _, err := n.player.Do(ctx, "cap: {pod: batch, container: main, cpu: 0.1, seconds: 86400}"); err != nil {
		return nil, err
	}
	if err := n.KillDaemon(ctx); err != nil {
		return nil, err
	}
	changed, masked, err := n.restore(ctx)
	if err != nil {
		return nil, err
	}
	restored, err := n.roles(ctx, pods)
	if err != nil {
		return nil, err
	}
	if n.Driver == kubelet.Systemd {
		// What systemd has on record is as free of us as the kernel.
		if _, err := n.Exec(ctx, "systemctl", "daemon-reload"); err != nil {
			return nil, err
		}
		after, err := n.roles(ctx, pods)
		if err != nil {
			return nil, err
		}
		if d := difference(after, restored); d != "" {
			return nil, fmt.Errorf("after a daemon-reload: %s", d)
		}
	}
	n.Daemon = false
	defer func() { n.Daemon = true }()
	never, err := n.settle(ctx, pods)
	if err != nil {
		return nil, err
	}
	if d := difference(restored, never); d != "" {
		return nil, fmt.Errorf("not as on a node without a daemon: %s", d)
	}
	if maps.Equal(pinned, never) {
		return nil, fmt.Errorf("the daemon had changed nothing: %v", pinned)
	}
	return []figure{{Name: "cgroups restored", Value: changed},
		{Name: "of them with a mask of all CPUs", Value: masked},
		{Name: "files compared with a node without a daemon", Value: len(never)}}, nil
}

// settle makes the node new and starts the pods on it.
func (n *node) settle(ctx context.Context, pods []workload) (map[string]string, error) {
	if err := n.fresh(ctx); err != nil {
		return nil, err
	}
	for _, w := range pods {
		if _, err := n.create(ctx, w); err != nil {
			return nil, err
		}
	}
	return n.roles(ctx, pods)
}

// roles is the picture by the names of pods, whose containers have other ids on
// another node.
func (n *node) roles(ctx context.Context, pods []workload) (map[string]string, error) {
	all, err := n.picture(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, w := range pods {
		dir, err := n.cgroupOf(ctx, w)
		if err != nil {
			return nil, err
		}
		for role, at := range map[string]string{"slice": path.Dir(path.Dir(dir)), "pod": path.Dir(dir),
			"container": dir} {
			for _, file := range []string{"cpuset.cpus.effective", "cpu.max"} {
				text, ok := all[at+"/"+file]
				if !ok && file == "cpu.max" {
					text = "max 100000"
				} else if !ok { // without the controller it has what the root has
					text = fmt.Sprintf("0-%d", grid.CPUs()-1)
				}
				out[w.Name+" "+role+" "+file] = text
			}
		}
	}
	return out, nil
}

// restore runs the command that people use and counts what it says.
func (n *node) restore(ctx context.Context) (changed, masked int, err error) {
	out, err := n.Exec(ctx, "/usr/bin/quietcore", "restore", "--config", "/etc/quietcore/config.yaml", "-o", "json")
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.SplitSeq(strings.TrimSpace(out.Stdout), "\n") {
		var r struct {
			CPUsWere, CPUs            string
			QuotaMilliWas, QuotaMilli int64
			StillMasked               bool
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return 0, 0, fmt.Errorf("%q: %w", line, err)
		}
		if r.CPUsWere != r.CPUs || r.QuotaMilliWas != r.QuotaMilli {
			changed++
		}
		if r.StillMasked {
			masked++
		}
	}
	return changed, masked, nil
}
