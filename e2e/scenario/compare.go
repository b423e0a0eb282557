package scenario

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/quietcore/quietcore/internal/script"
)

// Compare says how what the machine did differs from what `quietcore simulate`
// said, as readable lines; nil when they agree.
//
// Compared: for each step the operation, the error's code and the first clause of
// its message, the pools, the changed containers, and for each container every field of the
// contract but "why" (prose) and "weight" (only the machine has one). The order
// of containers is free.
func Compare(simulated, machine []script.Line) []string {
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

func compareLine(a, b *script.Line) []string {
	var d differences
	d.add("step", a.Step, b.Step)
	d.add("op", a.Op, b.Op)
	if !sameRefusal(a.Error, b.Error) {
		d.add("error", a.Error, b.Error)
	}
	d.add("pool shared", a.Pools.Shared, b.Pools.Shared)
	d.add("pool be", a.Pools.BE, b.Pools.BE)
	d.add("pool reserved", a.Pools.Reserved, b.Pools.Reserved)
	d.add("pool exclusive", a.Pools.Exclusive, b.Pools.Exclusive)
	d.add("changed", sorted(a.Changed), sorted(b.Changed))
	compareContainers(&d, a.Containers, b.Containers)
	return d.list
}

// sameRefusal wants the same code and the same sentence, of which what follows the
// first comma may differ where the two learn it from different places: a runtime
// does not report a pod without a limit before its container is created.
func sameRefusal(a, b *script.Error) bool {
	if a == nil || b == nil {
		return a == b
	}
	first := func(text string) string { clause, _, _ := strings.Cut(text, ","); return clause }
	return a.Code == b.Code && first(a.Message) == first(b.Message)
}

func compareContainers(d *differences, simulated, machine []script.State) {
	other := map[string]*script.State{}
	for i := range machine {
		other[keyOf(&machine[i])] = &machine[i]
	}
	for i := range simulated {
		a := &simulated[i]
		b := other[keyOf(a)]
		if b == nil {
			d.list = append(d.list, fmt.Sprintf("%s: only in simulate (%s, CPUs %s)", keyOf(a), a.Pool, a.CPUs))
			continue
		}
		delete(other, keyOf(a))
		compareContainer(d, a, b)
	}
	for k := range other {
		d.list = append(d.list, fmt.Sprintf("%s: only on the machine (CPUs %s)", k, other[k].CPUs))
	}
}

func compareContainer(d *differences, a, b *script.State) {
	name := keyOf(a) + " "
	d.add(name+"class", a.Class, b.Class)
	d.add(name+"pool", a.Pool, b.Pool)
	d.add(name+"cpus", a.CPUs, b.CPUs)
	d.add(name+"mems", a.Mems, b.Mems)
	d.add(name+"withheld", a.Withheld, b.Withheld)
	d.add(name+"quotaMilli", a.QuotaMilli, b.QuotaMilli)
	d.add(name+"shares", a.Shares, b.Shares)
	d.add(name+"capMilli", a.CapMilli, b.CapMilli)
}

func sorted(list []string) []string {
	out := append([]string{}, list...)
	slices.Sort(out)
	return out
}
