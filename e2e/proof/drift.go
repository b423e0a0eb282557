package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/quietcore/quietcore/e2e/kubelet"
	"github.com/quietcore/quietcore/e2e/sampler/sweep"
	"github.com/quietcore/quietcore/e2e/wire"
)

// places are the cgroups that are changed, below the cgroup root.
type places struct {
	burstable           string
	own, web, batch     string // containers
	ownID, webID, batID string
}

// change is one way in which others change what the daemon enforces.
type change struct {
	name string
	do   func(context.Context) error
	// passes: the runtime's own path, which goes through the daemon: no change may be
	// visible at any moment.
	passes bool
	// harmless: it changes other things than ours, or the kernel refuses it.
	harmless bool
}

// drift changes cgroups in every way that a node offers. Everything must be restored
// and counted.
func drift(ctx context.Context, n *node) ([]figure, error) {
	if err := n.fresh(ctx); err != nil {
		return nil, err
	}
	own, web, batch := owner(sweep.LSE, 2, "own"), shared("web", 100), bestEffort("batch")
	for _, w := range []workload{own, web, batch} {
		if _, err := n.create(ctx, w); err != nil {
			return nil, err
		}
	}
	if _, err := n.player.Do(ctx, "cap: {pod: batch, container: main, cpu: 0.1, seconds: 86400}"); err != nil {
		return nil, err
	}
	at := places{burstable: strings.TrimPrefix(n.Driver.Path(kubelet.ClassCgroup(kubelet.Burstable)), "/")}
	for _, p := range []struct {
		w       workload
		dir, id *string
	}{{own, &at.own, &at.ownID}, {web, &at.web, &at.webID}, {batch, &at.batch, &at.batID}} {
		var err error
		if *p.id, err = n.containerID(ctx, p.w); err == nil {
			*p.dir, err = n.cgroupOf(ctx, p.w)
		}
		if err != nil {
			return nil, err
		}
	}
	want, err := n.picture(ctx)
	if err != nil {
		return nil, err
	}
	if want[at.batch+"/cpu.max"] == want[at.web+"/cpu.max"] {
		return nil, fmt.Errorf("the cap is not in %s/cpu.max: %q", at.batch, want[at.batch+"/cpu.max"])
	}
	before, err := n.drifts(ctx)
	if err != nil {
		return nil, err
	}
	list := append(directWrites(n, at), updates(n, at)...)
	if n.Driver == kubelet.Systemd {
		list = append(list, systemctl(n, at)...)
	}
	var slowest time.Duration
	visible := 0
	for _, m := range list {
		took, seen, err := n.makeChange(ctx, m, want)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
		slowest = max(slowest, took)
		if seen {
			visible++
		}
	}
	after, err := n.drifts(ctx)
	if err != nil {
		return nil, err
	}
	figures := []figure{
		{Name: "ways to change what is ours", Value: len(list)},
		{Name: "of them visible until repaired", Value: visible},
		{Name: "slowest repair after an audit began", Value: round(slowest)},
		{Name: "counted by source", Value: counts(before, after)},
	}
	return figures, n.empties(ctx)
}

// directWrites are writes to cgroup files.
func directWrites(n *node, at places) []change {
	var out []change
	all := fmt.Sprintf("0-%d", grid.CPUs()-1)
	for _, h := range []struct{ name, file, value string }{
		{"a hand on the burstable slice", at.burstable + "/cpuset.cpus", all},
		{"a hand on an owner's pod", path.Dir(at.own) + "/cpuset.cpus", all},
		{"a hand on a shared container", at.web + "/cpuset.cpus", "7"},
		{"a hand on an owner's container", at.own + "/cpuset.cpus", "5"},
		{"a hand on the lifted quota of a pod", path.Dir(at.own) + "/cpu.max", "150000 100000"},
		{"a hand on the lifted quota of a container", at.own + "/cpu.max", "150000 100000"},
		{"a hand on a cap", at.batch + "/cpu.max", "max 100000"},
	} {
		out = append(out, change{name: h.name, do: func(ctx context.Context) error {
			return n.WriteFile(ctx, cgroupRoot+"/"+h.file, h.value)
		}})
	}
	// The kernel answers ENOSPC if a process runs there; a later kernel may accept it.
	return append(out, change{name: "a hand that empties the burstable slice", harmless: true,
		do: func(ctx context.Context) error {
			if err := n.WriteFile(ctx, cgroupRoot+"/"+at.burstable+"/cpuset.cpus", "\n"); err != nil &&
				!strings.Contains(err.Error(), "no space left") {
				return err
			}
			return nil
		}})
}

// updates are the runtime's, through the daemon and past it.
func updates(n *node, at places) []change {
	update := func(name, id string, r *cri.LinuxContainerResources) change {
		return change{name: name, passes: true, do: func(ctx context.Context) error {
			_, err := n.CRI().UpdateContainerResources(ctx,
				&cri.UpdateContainerResourcesRequest{ContainerId: id, Linux: r})
			return err
		}}
	}
	runc := func(name, id string, flags ...string) change {
		argv := []string{"runc", "--root", "/run/containerd/runc/k8s.io"}
		if n.Driver == kubelet.Systemd {
			argv = append(argv, "--systemd-cgroup")
		}
		argv = append(append(argv, "update"), append(flags, id)...)
		return change{name: name, do: func(ctx context.Context) error {
			_, err := n.Exec(ctx, argv...)
			return err
		}}
	}
	return []change{
		update("the runtime updates the shares of a capped container", at.batID,
			&cri.LinuxContainerResources{CpuShares: 2}),
		update("the runtime updates the shares of an owner", at.ownID, &cri.LinuxContainerResources{CpuShares: 2048}),
		update("the runtime updates a shared container's cpuset", at.webID,
			&cri.LinuxContainerResources{CpusetCpus: "6"}),
		update("the runtime updates an owner's cpuset", at.ownID, &cri.LinuxContainerResources{CpusetCpus: "4-5"}),
		update("the runtime updates an owner's quota", at.ownID,
			&cri.LinuxContainerResources{CpuQuota: 200000, CpuPeriod: 100000}),
		runc("runc updates a shared container", at.webID, "--cpuset-cpus", "6"),
		runc("runc updates an owner", at.ownID, "--cpuset-cpus", "4-5"),
		runc("runc updates a cap", at.batID, "--cpu-quota", "50000", "--cpu-period", "100000"),
	}
}

// systemctl is an administrator, or kubelet, using systemd.
func systemctl(n *node, at places) []change {
	command := func(name string, harmless bool, argv ...string) change {
		return change{name: name, harmless: harmless, do: func(ctx context.Context) error {
			_, err := n.Exec(ctx, append([]string{"systemctl"}, argv...)...)
			return err
		}}
	}
	set := func(what, cgroup, property string, harmless bool) change {
		return command(fmt.Sprintf("systemctl sets %s of %s", property, what), harmless, "set-property", "--runtime",
			path.Base(cgroup), property)
	}
	weight := uint64(50)
	return []change{
		command("systemctl daemon-reload", true, "daemon-reload"),
		command("systemctl daemon-reexec", true, "daemon-reexec"),
		set("the burstable slice", at.burstable, "AllowedCPUs=0-7", false),
		set("the burstable slice", at.burstable, "CPUWeight=60", true),
		set("an owner's pod", path.Dir(at.own), "AllowedCPUs=0-7", false),
		set("an owner's pod", path.Dir(at.own), "CPUWeight=70", true),
		set("an owner's pod", path.Dir(at.own), "CPUQuota=150%", false),
		set("an owner's container", at.own, "AllowedCPUs=4-5", false),
		set("a shared container", at.web, "AllowedCPUs=6", false),
		set("a capped container", at.batch, "CPUQuota=50%", false),
		{name: "kubelet sets the weight of its slices", harmless: true, do: func(ctx context.Context) error {
			_, err := n.Units(ctx, wire.UnitAction{Do: wire.UnitSet, Name: path.Base(at.burstable),
				Properties: []wire.Property{{Name: "CPUWeight", Uint: &weight}}})
			return err
		}},
		command("systemctl daemon-reload after all that", true, "daemon-reload"),
	}
}

// repairWait bounds one repair on a busy host.
const repairWait = time.Minute

// makeChange makes one change, triggers an audit and waits until everything is as before.
// seen says whether a difference was visible.
func (n *node) makeChange(ctx context.Context, m change,
	want map[string]string) (took time.Duration, seen bool, err error) {
	before, err := n.drifts(ctx)
	if err != nil {
		return 0, false, err
	}
	if err := m.do(ctx); err != nil {
		return 0, false, err
	}
	if m.passes {
		if _, err := n.Settle(ctx); err != nil {
			return 0, false, err
		}
	}
	now, err := n.picture(ctx)
	if err != nil {
		return 0, false, err
	}
	seen = !maps.Equal(now, want)
	if m.passes {
		if seen {
			return 0, true, fmt.Errorf("the reply did not carry all of it: %s", difference(now, want))
		}
		return 0, false, nil
	}
	began := time.Now()
	if err := n.Inject(ctx, map[string]any{"audit": struct{}{}}); err != nil {
		return 0, seen, err
	}
	for ; ; now, err = n.picture(ctx) {
		switch {
		case err != nil:
			return 0, seen, err
		case maps.Equal(now, want):
			took = time.Since(began)
			after, err := n.drifts(ctx)
			counted := m.harmless || !maps.Equal(before, after)
			switch {
			case err != nil || counted:
				return took, seen, err
			case took > repairWait:
				return took, seen, errors.New("it came back and was not counted")
			case seen: // what is repaired in the kernel is counted a moment later
				continue
			}
			// Systemd answers before it writes: what was seen may be from before the change.
			if err := n.Inject(ctx, map[string]any{"audit": struct{}{}}); err != nil {
				return 0, seen, err
			}
		case time.Since(began) > repairWait:
			return 0, seen, fmt.Errorf("not repaired after %v: %s", repairWait, difference(now, want))
		}
	}
}

// empties ends the last pod of a slice: the next one starts in its pool.
func (n *node) empties(ctx context.Context) error {
	if _, err := n.remove(ctx, "batch"); err != nil {
		return err
	}
	line, err := n.create(ctx, bestEffort("next"))
	if err != nil {
		return err
	}
	for _, c := range line.Containers {
		if c.Pod == "next" && c.CPUs != line.Pools.BE {
			return fmt.Errorf("the first pod in an empty slice runs on %s, the pool is %s", c.CPUs, line.Pools.BE)
		}
	}
	return nil
}

var driftLine = regexp.MustCompile(`(?m)^quietcore_(\w*drift\w*)_total\{source="(\w+)"\} (\S+)$`)

// drifts are the daemon's counters of repairs, by kind and source.
func (n *node) drifts(ctx context.Context) (map[string]float64, error) {
	text, err := n.metrics(ctx)
	if err != nil {
		return nil, err
	}
	counts := map[string]float64{}
	for _, m := range driftLine.FindAllStringSubmatch(text, -1) {
		if counts[m[1]+" by "+m[2]], err = strconv.ParseFloat(m[3], 64); err != nil {
			return nil, err
		}
	}
	if len(counts) == 0 {
		return nil, errors.New("the daemon has no counters of drift")
	}
	return counts, nil
}

func counts(before, after map[string]float64) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(after)) {
		if d := after[k] - before[k]; d > 0 {
			out = append(out, fmt.Sprintf("%s %.0f", k, d))
		}
	}
	return strings.Join(out, ", ")
}
