package scenario

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Compare says how what the machine did differs from what `quietcore simulate`
// said, as readable lines; nil when they agree.
//
// Compared: for each step the operation, the error's code and message, the
// pools, the changed containers, and for each container every field of the
// contract but "why" (prose) and "weight" (only the machine has one). The order
// of containers is free.
func Compare(simulated, machine []Line) []string {
	var diffs []string
	for i := range max(len(simulated), len(machine)) {
		switch {
		case i >= len(simulated):
			diffs = append(diffs, fmt.Sprintf("step %d: only the machine has it", i+1))
		case i >= len(machine):
			diffs = append(diffs, fmt.Sprintf("step %d: only simulate has it", i+1))
		default:
			for _, d := range compareLine(&simulated[i], &machine[i]) {
				diffs = append(diffs, fmt.Sprintf("step %d (%s): %s", simulated[i].Step, simulated[i].Op, d))
			}
		}
	}
	return diffs
}

type differences struct{ list []string }

func (d *differences) add(what string, simulated, machine any) {
	a, b := show(simulated), show(machine)
	if a != b {
		d.list = append(d.list, fmt.Sprintf("%s: simulate %s, machine %s", what, a, b))
	}
}

func show(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

func compareLine(a, b *Line) []string {
	var d differences
	d.add("step", a.Step, b.Step)
	d.add("op", a.Op, b.Op)
	d.add("error", a.Error, b.Error)
	for _, pool := range poolNames {
		d.add("pool "+pool, a.Pools[pool], b.Pools[pool])
	}
	d.add("changed", sorted(a.Changed), sorted(b.Changed))
	compareContainers(&d, a.Containers, b.Containers)
	return d.list
}

func compareContainers(d *differences, simulated, machine []ContainerState) {
	other := map[string]*ContainerState{}
	for i := range machine {
		other[machine[i].key()] = &machine[i]
	}
	for i := range simulated {
		a := &simulated[i]
		b := other[a.key()]
		if b == nil {
			d.list = append(d.list, fmt.Sprintf("%s: only in simulate (%s, CPUs %s)", a.key(), a.Pool, a.CPUs))
			continue
		}
		delete(other, a.key())
		compareContainer(d, a, b)
	}
	for k := range other {
		d.list = append(d.list, fmt.Sprintf("%s: only on the machine (CPUs %s)", k, other[k].CPUs))
	}
}

func compareContainer(d *differences, a, b *ContainerState) {
	name := a.key() + " "
	d.add(name+"class", a.Class, b.Class)
	d.add(name+"pool", a.Pool, b.Pool)
	d.add(name+"cpus", a.CPUs, b.CPUs)
	d.add(name+"mems", a.Mems, b.Mems)
	d.add(name+"withheld", a.Withheld, b.Withheld)
	d.add(name+"quotaMilli", a.QuotaMilli, b.QuotaMilli)
	d.add(name+"shares", a.Shares, b.Shares)
	d.add(name+"capMilli", a.CapMilli, b.CapMilli)
}

// poolNames are the pools of the contract; further ones are free.
var poolNames = [...]string{"shared", "be", "reserved", "exclusive"}

func sorted(list []string) []string {
	out := append([]string{}, list...)
	slices.Sort(out)
	return out
}

// ParseLines reads what `quietcore simulate -o json` printed; fields beyond the
// contract are free, so unknown ones are ignored.
func ParseLines(text string) ([]Line, error) {
	var lines []Line
	for i, t := range strings.Split(strings.TrimSpace(text), "\n") {
		if strings.TrimSpace(t) == "" {
			continue
		}
		var l Line
		if err := json.Unmarshal([]byte(t), &l); err != nil {
			return nil, fmt.Errorf("line %d of simulate: %w: %s", i+1, err, t)
		}
		lines = append(lines, l)
	}
	return lines, nil
}
