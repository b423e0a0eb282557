package counter

import (
	"fmt"
	"math"
)

// Indexes of the program's faults, in the order of counter.bpf.c.
const (
	faultRead = iota
	faultLost
	faultReset
	faultAbsurd
	faultMissed
	faultDepth
	faultWaits
)

func (c *Counts) add(d *Counts) {
	for i := range c.Events {
		c.Events[i] += d.Events[i]
	}
	c.OnCPU += d.OnCPU
	c.Counted += d.Counted
	c.CountedRef += d.CountedRef
	c.CountedMisses += d.CountedMisses
	c.RunQueueWait += d.RunQueueWait
	c.Switches += d.Switches
}

// take adds rows to the totals of their slots and empties them. Most rows are empty,
// since a container runs on few CPUs.
func take(totals, rows []Counts) {
	for slot := range rows {
		r := &rows[slot]
		if r.OnCPU|r.RunQueueWait|r.Switches == 0 {
			continue
		}
		totals[slot].add(r)
		*r = Counts{}
	}
}

// appendRows adds what was done on a CPU, by slot. Other is no group.
func appendRows(to []Row, cpu int, rows []Counts) []Row {
	for slot := other + 1; slot < min(len(rows), math.MaxUint16); slot++ {
		r := &rows[slot]
		if r.OnCPU < leastRow {
			continue
		}
		to = append(to, Row{CPU: uint16(cpu), Group: uint16(slot), OnCPU: float32(r.OnCPU),
			Instructions: r.whole(Instructions, r.Counted), Misses: r.whole(LLCMisses, r.CountedMisses)})
	}
	return to
}

// whole is an event in all of the time, of which it was counted in a part.
func (c *Counts) whole(e Event, counted uint64) float32 {
	if counted == 0 {
		return 0
	}
	return float32(float64(c.Events[e]) * float64(c.OnCPU) / float64(counted))
}

// total is everything since Open.
type total struct {
	slots            []Counts
	machine          Counts
	unseen           uint64
	enabled, running [numEvents]uint64
	faults           Faults
	// The values at the previous reading, and the share of the time since then in which
	// an event had a counter.
	wasEnabled, wasRunning [numEvents]uint64
	share                  [numEvents]float64
}

func newTotal(groups int) total {
	t := total{slots: make([]Counts, groups+1)}
	for e := range t.share {
		t.share[e] = 1
	}
	return t
}

// takeMachine adds one CPU's own counts and empties them.
func (t *total) takeMachine(m *programMachine) {
	t.machine.add(&Counts{
		Events: m.Counts.Events, OnCPU: m.Counts.OnCpu, Counted: m.Counts.Counted,
		CountedRef: m.Counts.CountedRef, CountedMisses: m.Counts.CountedMisses,
		RunQueueWait: m.Counts.Wait, Switches: m.Counts.Switches,
	})
	for e := range m.Enabled {
		t.enabled[e] += m.Enabled[e]
		t.running[e] += m.Running[e]
	}
	t.unseen += m.Unseen
	f := &t.faults
	for i, to := range [...]*uint64{
		faultRead: &f.Read, faultLost: &f.Lost, faultReset: &f.Reset, faultAbsurd: &f.Absurd,
		faultMissed: &f.Missed, faultDepth: &f.Depth, faultWaits: &f.Waits,
	} {
		*to += m.Faults[i]
	}
	*m = programMachine{}
}

// fill sets the part of a reading that is not per group.
func (t *total) fill(r *Reading) {
	r.Other, r.Machine = t.slots[other], t.machine
	r.Enabled, r.Running, r.Unseen, r.Faults = t.enabled, t.running, t.unseen, t.faults
	for e := range t.share {
		if enabled := t.enabled[e] - t.wasEnabled[e]; enabled > 0 {
			t.share[e] = float64(t.running[e]-t.wasRunning[e]) / float64(enabled)
		}
	}
	t.wasEnabled, t.wasRunning = t.enabled, t.running
}

// sharingNote says that an event shared its counter with others; empty if it did not.
func (t *total) sharingNote(e Event) string {
	if t.share[e] > 0.99 {
		return ""
	}
	return fmt.Sprintf(
		"had a counter for %.0f %% of the time between the last readings: another user, such as a profiler or the "+
			"NMI watchdog (kernel.nmi_watchdog), uses the PMU too", 100*t.share[e])
}
