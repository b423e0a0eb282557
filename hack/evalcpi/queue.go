package main

import (
	"time"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/hack/evalcpi/world"
)

// rowsOf a machine's step. Where it counts no CPI, what stands for it is what the daemon makes of
// the waits of a window: package sample judges them by its own rules.
func rowsOf(m *world.Machine, rows []world.Row) []world.Row {
	rows = m.Rows(rows)
	if !m.ByQueue() {
		return rows
	}
	waits := m.Waits()
	from := sample.Edge{CPUs: 1 << 10, Waits: true}
	to := sample.Edge{CPUs: 1 << 10, Waits: true, Causes: true, Monotonic: step, Boot: step}
	of := func(share float64) time.Duration { return time.Duration(share * float64(step)) }
	victim := ""
	for i := range rows {
		class, _ := cpi.ParseClass(rows[i].Class)
		g := sample.Group{Container: &cpi.Container{ID: rows[i].Container, Class: class}}
		from.Groups = append(from.Groups, g)
		if g.OnCPU = of(rows[i].Usage); class.LatencySensitive() {
			victim = g.ID
			g.Wait = of(waits.Self + waits.Host)
			for _, w := range waits.By {
				g.Wait += of(w.For)
			}
			g.Account = sample.Account{Pressure: true, Waiting: of(waits.Some), Stopped: of(waits.Stopped)}
			from.Groups[i].Account.Pressure = true
		}
		to.Groups = append(to.Groups, g)
	}
	delay := func(by string, share float64) {
		to.Delays = append(to.Delays, sample.Wait{Victim: victim, Delay: sample.Delay{By: by, For: of(share)}})
	}
	delay(victim, waits.Self)
	delay("", waits.Host)
	for _, w := range waits.By {
		delay(w.Container, w.For)
	}
	window := sample.Judge(&from, &to, sample.Hardware(step))
	for i, r := range sample.ByQueue(window.Containers) {
		rows[i].CPI, rows[i].Caused = r.CPI, r.Caused
	}
	return rows
}
