package sampler

import "github.com/quietcore/quietcore/cpi/sample"

// byCPU is what ran on each CPU between two edges; nil where the counter does not say.
func byCPU(from, to *edge) *sample.ByCPU {
	r := &to.reading
	if len(r.Rows) == 0 {
		return nil
	}
	ids := make([]string, len(r.Groups))
	for i := range r.Groups {
		ids[i] = r.Groups[i].ID
	}
	worth := func(e sample.Event) float32 { return float32(max(to.worth[e], 1)) }
	instructions, misses := worth(sample.Instructions), worth(sample.LLCMisses)
	row := func(i int) sample.Row {
		x := &r.Rows[i]
		return sample.Row{CPU: int(x.CPU), Who: int(x.Group), OnCPU: x.OnCPU / 1e9,
			Instructions: instructions * x.Instructions, Misses: misses * x.Misses}
	}
	length := (to.sample.Monotonic - from.sample.Monotonic).Seconds()
	return sample.NewByCPU(length, ids, len(r.Rows), row, takenBetween(from.taken, to.taken))
}

// takenBetween is what nobody had between two moments; a total that went back says nothing.
func takenBetween(from, to []sample.Taken) []sample.Taken {
	list := make([]sample.Taken, min(len(from), len(to)))
	for i := range list {
		list[i] = sample.Taken{Steal: max(to[i].Steal-from[i].Steal, 0),
			Interrupts: max(to[i].Interrupts-from[i].Interrupts, 0)}
	}
	return list
}
