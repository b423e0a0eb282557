package scenario

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"

	"github.com/quietcore/quietcore/e2e/wire"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/script"
)

// settle waits until the daemon is idle and ticks change nothing any more: simulate ticks
// after each step too, and a pod that waits for CPUs may be given them at each.
func (p *Player) settle(ctx context.Context) (*control.Status, error) {
	status, err := p.g.Settle(ctx)
	for range len(p.pods) + 1 {
		if err != nil {
			return nil, err
		}
		before := status.Revision
		if err := p.g.Inject(ctx, map[string]any{"advance": script.Advance{}}); err != nil {
			return nil, err
		}
		if status, err = p.g.Settle(ctx); err == nil && status.Revision == before {
			break
		}
	}
	return status, err
}

// Observe waits until the daemon is idle, then reads every running container's cgroup in one round trip, and from
// the daemon what the kernel cannot know.
func (p *Player) Observe(ctx context.Context) (*script.Line, error) {
	status := &control.Status{}
	if p.g.Daemon {
		var err error
		if status, err = p.settle(ctx); err != nil {
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
			actions = append(actions, look(cgroupRoot+p.g.ContainerPath(ps.spec, cs.id))...)
		}
	}
	files, err := p.g.Files(ctx, actions...)
	if err != nil {
		return nil, err
	}
	for i := range line.Containers {
		if err := fill(&line.Containers[i], files[i*len(looked):][:len(looked)]); err != nil {
			return nil, err
		}
	}
	addStatus(line, status)
	return line, nil
}

// looked are the files that one container's row is made of, by how many levels
// above the container's cgroup they are. Effective sets are looked for up to the
// root: systemd enables controllers where they are needed, and a cgroup
// without the file has its parent's set.
var looked = []struct {
	up   int
	file string
}{
	{0, weight}, {0, maximum}, {1, maximum}, {2, maximum},
	{0, cpus}, {1, cpus}, {2, cpus}, {3, cpus}, {4, cpus},
	{0, mems}, {1, mems}, {2, mems}, {3, mems}, {4, mems},
}

const (
	weight  = "cpu.weight"
	maximum = "cpu.max"
	cpus    = "cpuset.cpus.effective"
	mems    = "cpuset.mems.effective"
)

func look(dir string) []wire.FileAction {
	var out []wire.FileAction
	for _, l := range looked {
		at := dir
		for range l.up {
			at = path.Dir(at)
		}
		out = append(out, read(at+"/"+l.file))
	}
	return out
}

func fill(c *script.State, files []wire.FileResult) error {
	// The first that is there, from the container upwards.
	nearest := map[string]string{}
	var limits []string
	for i, l := range looked {
		switch text := trimmed(files[i]); {
		case files[i].Missing:
		case l.file == maximum:
			limits = append(limits, text)
		case nearest[l.file] == "":
			nearest[l.file] = text
		}
	}
	if nearest[weight] == "" {
		return fmt.Errorf("container %s has no cgroup although it was not stopped", keyOf(c))
	}
	c.CPUs, c.Mems = nearest[cpus], nearest[mems]
	value, err := strconv.ParseInt(nearest[weight], 10, 64)
	if err != nil {
		return fmt.Errorf("container %s: cpu.weight: %w", keyOf(c), err)
	}
	c.Weight = &value
	c.QuotaMilli, err = quotaMilli(limits...)
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
		c.Class, c.Pool, c.Withheld, c.CapMilli, c.ByKubelet, c.Why =
			s.Class, s.Pool, s.Withheld, s.CapMilli, s.ByKubelet, s.Why
	}
	// A container that only the daemon believes in is a leak, and must show.
	for _, k := range slices.Sorted(maps.Keys(known)) {
		leaked := known[k]
		leaked.CPUs, leaked.Mems = "", ""
		line.Containers = append(line.Containers, leaked)
	}
}

func keyOf(c *script.State) string { return c.Namespace + "/" + c.Pod + "/" + c.Container }
