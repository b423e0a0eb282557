package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/quietcore/quietcore/e2e/sampler/sweep"
	"github.com/quietcore/quietcore/policy"
)

const (
	// rounds of every CPU off and on.
	rounds = 4
	// repairLimit is the promise: a second.
	repairLimit = time.Second
	// slowKernel is how much longer than the kernel's own part of a switch a repair
	// may take where that is more: it takes a tenth of a second, unless the host is
	// busy with something else.
	slowKernel = 4
	// repairPatience bounds a single repair of an emulated guest on a busy host.
	repairPatience = 20 * time.Second
)

// hotplug takes an owner's CPU, another's only one and one of the pools offline and
// online. The kernel's first reaction must be repaired within a second. Without healing: an owner that is given another
// CPU keeps it when the first is back.
func hotplug(ctx context.Context, n *node) ([]figure, error) {
	if err := n.configured(ctx, `{authority: {profile: open}, admission: {heal: "off"}}`); err != nil {
		return nil, err
	}
	pair, solo := owner(sweep.LSR, 2, "pair"), owner(sweep.LSE, 1, "solo")
	for _, w := range []workload{pair, solo, shared("web", 100), bestEffort("batch")} {
		if _, err := n.create(ctx, w); err != nil {
			return nil, err
		}
	}
	switches := sweep.Switches{Rounds: rounds, Limit: repairPatience}
	for _, cpu := range []int{1, 2, grid.CPUs() - 1} { // the pair's, the only one of solo, the pools'
		s, err := n.rehearse(ctx, cpu)
		if err != nil {
			return nil, err
		}
		switches.CPUs = append(switches.CPUs, s)
	}
	all, err := n.switchCPUs(ctx, switches)
	if err != nil {
		return nil, err
	}
	times, writes := sweep.Repairs(all), time.Duration(0)
	var late []string
	over := 0
	for _, s := range all {
		writes += s.Write
		if s.Repair > repairLimit {
			over++
		}
		if s.Repair > max(repairLimit, slowKernel*s.Write) {
			late = append(late, fmt.Sprintf("CPU %d online %t %v", s.CPU, s.Online, round(s.Repair)))
		}
	}
	kernel, p50, most := writes/time.Duration(len(all)), times[len(times)/2], times[len(times)-1]
	figures := []figure{
		{Name: "switches", Value: len(all)}, {Name: "mean time of the kernel's part", Value: round(kernel)},
		{Name: "time to repair", Value: fmt.Sprintf("%v p50, %v max", round(p50), round(most))},
		{Name: "over a second", Value: over},
	}
	if len(late) > 0 || p50 > max(repairLimit, kernel) {
		return figures, fmt.Errorf("of %d repairs %d took longer than %v; too late even for the kernel's part: %s",
			len(all), over, repairLimit, strings.Join(late, ", "))
	}
	return figures, nil
}

// rehearse switches the CPU slowly and takes the pictures of how it is to be.
func (n *node) rehearse(ctx context.Context, cpu int) (sweep.Switch, error) {
	s := sweep.Switch{CPU: cpu}
	before, err := n.picture(ctx)
	if err != nil {
		return s, err
	}
	line, err := n.player.Do(ctx, fmt.Sprintf("offline: {cpus: %q}", fmt.Sprint(cpu)))
	if err != nil {
		return s, err
	}
	for _, c := range line.Containers {
		if c.Pod == "solo" && cpu == 2 && (c.Pool != policy.PoolShared || c.CPUs != line.Pools.Shared) {
			return s, fmt.Errorf("without its only CPU the owner runs on %s of pool %s, want the shared pool, %s",
				c.CPUs, c.Pool, line.Pools.Shared)
		}
	}
	if s.Off, err = n.picture(ctx); err != nil {
		return s, err
	}
	if maps.Equal(before, s.Off) {
		return s, fmt.Errorf("taking CPU %d away changes nothing: there is nothing to time", cpu)
	}
	if _, err = n.player.Do(ctx, fmt.Sprintf("online: {cpus: %q}", fmt.Sprint(cpu))); err != nil {
		return s, err
	}
	if s.On, err = n.picture(ctx); err != nil {
		return s, err
	}
	if !maps.Equal(before, s.On) {
		return s, fmt.Errorf("CPU %d is back and not everything is as before: %s", cpu, difference(s.On, before))
	}
	return s, nil
}

func (n *node) switchCPUs(ctx context.Context, s sweep.Switches) ([]sweep.Switched, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	const file = "/tmp/switches.json"
	if err := n.WriteFile(ctx, file, string(text)); err != nil {
		return nil, err
	}
	out, err := n.Exec(ctx, samplerPath, "hotplug", file)
	if err != nil {
		return nil, err
	}
	var all []sweep.Switched
	return all, json.Unmarshal([]byte(out.Stdout), &all)
}
