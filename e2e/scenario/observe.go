package scenario

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/quietcore/quietcore/e2e/kubelet"
	"github.com/quietcore/quietcore/e2e/wire"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/script"
)

// filesPerContainer is the number of files that one container's row is made of.
const filesPerContainer = 6

// Observe waits until the daemon is idle, then reads every running container's
// cgroup in one round trip, and from the daemon what the kernel cannot know.
func (p *Player) Observe(ctx context.Context) (*script.Line, error) {
	status := &control.Status{}
	if p.g.Daemon {
		var err error
		if status, err = p.g.Settle(ctx); err != nil {
			return nil, err
		}
	}
	line := &script.Line{Containers: []script.State{}}
	var actions []wire.FileAction
	for _, name := range slices.Sorted(maps.Keys(p.pods)) {
		ps := p.pods[name]
		for _, c := range slices.Sorted(maps.Keys(ps.containers)) {
			cs := ps.containers[c]
			if !cs.running {
				continue
			}
			line.Containers = append(line.Containers, script.State{
				Pod: ps.spec.Name, Namespace: ps.spec.Namespace, Container: c, Shares: cs.spec.CPU().Shares})
			parent := cgroupRoot + ps.spec.CgroupParent()
			own := parent + "/" + cs.id
			actions = append(actions,
				read(own+"/cpuset.cpus.effective"), read(own+"/cpuset.mems.effective"), read(own+"/cpu.weight"),
				read(own+"/cpu.max"), read(parent+"/cpu.max"), read(qosCgroup(ps.spec)+"/cpu.max"))
		}
	}
	files, err := p.g.Files(ctx, actions...)
	if err != nil {
		return nil, err
	}
	for i := range line.Containers {
		if err := fill(&line.Containers[i], files[i*filesPerContainer:][:filesPerContainer]); err != nil {
			return nil, err
		}
	}
	addStatus(line, status)
	return line, nil
}

// qosCgroup is a class's slice; Guaranteed pods have kubepods itself above them,
// which has no limit of its own.
func qosCgroup(p *kubelet.Pod) string {
	switch p.ClassOf() {
	case kubelet.Burstable:
		return cgroupRoot + "/kubepods/burstable"
	case kubelet.BestEffort:
		return cgroupRoot + "/kubepods/besteffort"
	default:
		return cgroupRoot + "/kubepods"
	}
}

func fill(c *script.State, files []wire.FileResult) error {
	if files[0].Missing {
		return fmt.Errorf("container %s has no cgroup although it was not stopped", keyOf(c))
	}
	c.CPUs, c.Mems = trimmed(files[0]), trimmed(files[1])
	weight, err := strconv.ParseInt(trimmed(files[2]), 10, 64)
	if err != nil {
		return fmt.Errorf("container %s: cpu.weight: %w", keyOf(c), err)
	}
	c.Weight = &weight
	c.QuotaMilli, err = quotaMilli(trimmed(files[3]), trimmed(files[4]), trimmed(files[5]))
	return err
}

func addStatus(line *script.Line, status *control.Status) {
	line.Pools = status.Pools
	known := map[string]script.State{}
	for _, c := range status.Containers {
		known[keyOf(&c)] = c
	}
	for i := range line.Containers {
		c := &line.Containers[i]
		s := known[keyOf(c)]
		delete(known, keyOf(c))
		c.Class, c.Pool, c.Withheld, c.CapMilli, c.ByKubelet, c.Why = s.Class, s.Pool, s.Withheld, s.CapMilli, s.ByKubelet, s.Why
	}
	// A container that only the daemon believes in is a leak, and must show.
	for _, k := range slices.Sorted(maps.Keys(known)) {
		leaked := known[k]
		leaked.CPUs, leaked.Mems = "", ""
		line.Containers = append(line.Containers, leaked)
	}
}

func keyOf(c *script.State) string { return c.Namespace + "/" + c.Pod + "/" + c.Container }
