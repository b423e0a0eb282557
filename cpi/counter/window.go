package counter

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quietcore/quietcore/cpuset"
)

// window is what one window has beyond the totals.
type window struct {
	open    bool
	number  uint64
	calls   []uint64 // by CPU, since Open: how often the counter has interrupted it
	from    []uint64 // the same when the window was opened
	changes uint64   // CPUs that joined or left in a window, since Open
	// reopened says of each event on how many CPUs it was opened again, and why on the last.
	reopened [numEvents]int
	began    []spent // by CPU, when the window was opened
	why      [numEvents]string
	rows     []Row // by slot, since the last reading
	mostRows int   // how many there may be
	leftOut  [numEvents]bool
	leftWhy  string
}

// spent is what the program has taken on a CPU since Open; cost is that of the sampled runs.
type spent struct{ runs, sampled, cost uint64 }

func newWindow(possible int) window {
	return window{calls: make([]uint64, possible), from: make([]uint64, possible), began: make([]spent, possible)}
}

// measure tells a reading what the program took in this window.
func (c *Counter) measure(dst *Reading) {
	dst.Cost, dst.MostCost, dst.PerRun = 0, 0, 0
	dst.ReadCost = [numEvents]time.Duration{}
	var most uint64
	var sum spent
	for cpu := range c.cpus {
		now, was := &c.cpus[cpu], &c.window.began[cpu]
		runs := now.Runs - was.runs
		most = max(most, runs)
		sum.runs, sum.sampled, sum.cost = sum.runs+runs, sum.sampled+now.Sampled-was.sampled, sum.cost+now.Cost-was.cost
		for e, took := range now.ReadCost {
			dst.ReadCost[e] = max(dst.ReadCost[e], time.Duration(took))
		}
	}
	if sum.sampled == 0 {
		return
	}
	dst.PerRun = time.Duration(sum.cost / sum.sampled)
	dst.Cost, dst.MostCost = dst.PerRun*time.Duration(sum.runs), dst.PerRun*time.Duration(most)
}

// most is the number of calls of the CPU that had most, in this window.
func (w *window) most() (most uint64) {
	for cpu, calls := range w.calls {
		most = max(most, calls-w.from[cpu])
	}
	return most
}

// call runs flush on a CPU: one interrupt there.
func (c *Counter) call(cpu int, mode flushMode) error {
	c.window.calls[cpu]++
	return c.kernel.flush(c.objects.flush, cpu, mode)
}

var errEventClosed = errors.New("the event was closed")

// repinEvery is after how many windows a group that is not pinned any more is tried again.
const repinEvery = 16

// Enable starts a window: counting starts now. dst, unless nil, receives the totals of
// this moment. Every CPU is interrupted once, and once by Disable.
func (c *Counter) Enable(dst *Reading) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return errClosed
	case c.window.open:
		return nil
	}
	online, err := c.online()
	if err != nil {
		return err
	}
	if err := c.clearWaits(); err != nil {
		return err
	}
	c.window.open = true
	c.window.number++
	copy(c.window.from, c.window.calls)
	for cpu := range c.cpus {
		c.window.began[cpu] = spent{c.cpus[cpu].Runs, c.cpus[cpu].Sampled, c.cpus[cpu].Cost}
	}
	c.window.reopened = [numEvents]int{}
	at := monotonic()
	for _, cpu := range online {
		if err = c.join(cpu); err != nil && !errors.Is(err, unix.ENXIO) {
			return errors.Join(fmt.Errorf("start counting: %w", err), c.disable())
		}
	}
	c.window.rows = c.window.rows[:0] // from before the window
	c.activeCPUs = 0
	for _, in := range c.active {
		if in {
			c.activeCPUs++
		}
	}
	if err := c.fill(dst, at); err != nil {
		return errors.Join(err, c.disable())
	}
	return nil
}

// join starts counting on an online CPU.
func (c *Counter) join(cpu int) error {
	if c.events.yields[cpu] && c.window.number%repinEvery == 0 {
		c.events.yields[cpu] = false
		c.events.closeBroken(cpu, 1<<Cycles, &[numEvents]int32{})
	}
	if c.wasOffline[cpu] {
		c.wasOffline[cpu] = false
		c.events.closeCPU(cpu)
		c.attachment.removeCPU(cpu)
		c.total.faults.Reopened++
		c.note(1<<numEvents-1, "its CPU had been offline")
	}
	c.warnOnce(cpu, c.equip(cpu))
	if err := c.call(cpu, flushStart); err != nil {
		c.cpus[cpu].On = 0
		return fmt.Errorf("start counting on CPU %d: %w", cpu, err)
	}
	c.active[cpu] = true
	// The window begins with a reading that tells which events have died since the last.
	frozen := c.cpus[cpu].Bank&1 ^ 1
	c.repair(cpu, &c.cpus[cpu].Machine[frozen])
	c.take(cpu, int(frozen))
	return nil
}

// equip opens what a CPU lacks to be counted.
func (c *Counter) equip(cpu int) error {
	opened, err := c.events.openAll(cpu, c.window.leftOut)
	if opened {
		c.window.calls[cpu]++
		err = errors.Join(err, c.publish(cpu))
	}
	if _, has := c.attachment.triggers[cpu]; c.attachment.counts != nil && !has {
		err = errors.Join(err, c.attachment.addCPU(cpu))
	}
	return err
}

// repair opens the events again that a reading found dead. Their next reading is their
// baseline; time until then is not counted, for them alone.
func (c *Counter) repair(cpu int, m *programMachine) {
	if c.trigger == CgroupSwitches && m.Faults[faultMissed] > 0 {
		c.warnOnce(cpu, c.attachment.addCPU(cpu))
	}
	broken := m.Broken
	for e := range c.window.leftOut {
		if c.window.leftOut[e] {
			broken &^= 1 << e
		}
	}
	if broken == 0 {
		return
	}
	why := "it had stood still, as after its CPU was offline"
	for _, code := range m.Error {
		switch errno := unix.Errno(-code); errno {
		case 0:
		case unix.EBUSY:
			why = "another user's pinned events had taken its counter"
		case unix.ENOENT, unix.ENODEV:
			why = "it was closed"
		default:
			why = "reading it gave an error: " + errno.Error()
		}
	}
	c.events.closeBroken(cpu, broken, &m.Error)
	c.withdraw(cpu)
	c.total.faults.Reopened++
	c.note(broken, why)
	c.warnOnce(cpu, c.equip(cpu))
}

// withdraw takes a CPU's closed events from the program, which keeps them alive.
func (c *Counter) withdraw(cpu int) {
	for e, m := range c.objects.arrays {
		if c.events.descriptors[cpu][e] < 0 {
			_ = m.Delete(uint32(cpu)) // there may be none
		}
	}
}

// SetSkip says which CPUs are left alone from the next window on.
func (c *Counter) SetSkip(cpus cpuset.Set) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return errClosed
	case c.skip == cpus:
		return nil
	case c.window.open:
		return errors.New("counting: which CPUs are left alone can only change between windows")
	}
	for cpu := range c.active {
		if cpus.Has(cpu) && !c.skip.Has(cpu) {
			c.events.closeCPU(cpu)
			c.withdraw(cpu)
			c.attachment.removeCPU(cpu)
		}
	}
	c.skip = cpus
	return nil
}

// LeaveOut has these events neither opened nor read from the next window on, and why; the
// others are. Cycles and instructions cannot be left out.
func (c *Counter) LeaveOut(events [numEvents]bool, why string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return errClosed
	case events[Cycles] || events[Instructions]:
		return errors.New("counting: neither cycles nor instructions can be left out; there is no CPI without both")
	case c.window.open:
		return errors.New("counting: events can only be left out between windows")
	}
	c.window.leftOut, c.window.leftWhy = events, why
	wanted := uint32(0)
	for _, e := range Events() {
		if !events[e] {
			wanted |= 1 << e
			continue
		}
		for cpu := range c.active {
			c.events.close(e, cpu)
			_ = c.objects.arrays[e].Delete(uint32(cpu)) // there may be none
		}
	}
	if err := c.objects.wanted.Set(wanted); err != nil {
		return fmt.Errorf("tell the program which events to read: %w", err)
	}
	return nil
}

// note remembers that events of a CPU were opened again.
func (c *Counter) note(broken uint32, why string) {
	for e := range c.window.reopened {
		if broken>>e&1 == 1 && c.events.perf[e] && !c.window.leftOut[e] {
			c.window.reopened[e]++
			c.window.why[e] = why
		}
	}
}

// source says where an event's numbers come from now.
func (c *Counter) source(e Event) Source {
	s := c.sources[e]
	switch {
	case !c.events.perf[e]:
	case c.window.leftOut[e]:
		return Source{Reason: c.window.leftWhy}
	case c.events.isOpen(e) == 0:
		err := cmp.Or(c.events.failed[e], errEventClosed)
		return Source{Err: err, Reason: whyAbsent(c.kernel, err)}
	case s.Kind == Absent: // it could not be opened at first
		s = Source{Kind: Hardware, Name: c.events.sources[e].name}
		fallthrough
	default:
		if n := c.window.reopened[e]; n > 0 {
			s.Reopened = true
			s.Reason = fmt.Sprintf("was opened again on %d CPUs in the last window: %s", n, c.window.why[e])
		} else if note := c.total.sharingNote(e); note != "" && s.Kind == Hardware {
			s.Reason = note
		}
	}
	return s
}

// leave stops counting on a CPU that went offline. After its gate is closed, and while
// it is still offline, the program does not write its rows, so that both banks can be
// taken.
func (c *Counter) leave(cpu int) error {
	c.cpus[cpu].On = 0
	if err := c.call(cpu, flushCharge); !errors.Is(err, unix.ENXIO) {
		c.cpus[cpu].On = 1
		return err // it is online again; its events show that it was offline
	}
	c.cpus[cpu].Time = 0
	c.active[cpu], c.wasOffline[cpu] = false, true
	c.takeBoth(cpu)
	c.window.changes++
	return nil
}

// warnOnce logs that a CPU is not, or not fully, counted; once until it recovers.
func (c *Counter) warnOnce(cpu int, err error) {
	if err != nil && !c.warned[cpu] && c.options.Log != nil {
		c.options.Log.Warn("a CPU is not counted in full", "cpu", cpu, "err", err)
	}
	c.warned[cpu] = err != nil
}

// Disable ends a window. dst, unless nil, receives the totals at its end. Earlier counts
// stay; until Enable nothing is charged.
func (c *Counter) Disable(dst *Reading) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errClosed
	}
	at := monotonic()
	if err := c.disable(); err != nil {
		return err
	}
	return c.fill(dst, at)
}

func (c *Counter) disable() error {
	if !c.window.open {
		return nil
	}
	c.window.open = false
	if c.options.ByCPU {
		c.window.rows = slices.Grow(c.window.rows, c.window.mostRows+c.window.mostRows/8)
	}
	var failed error
	c.activeCPUs = 0
	for cpu, in := range c.active {
		if !in {
			continue
		}
		err := c.call(cpu, flushStop)
		c.cpus[cpu].On = 0
		c.active[cpu] = false
		if errors.Is(err, unix.ENXIO) {
			c.wasOffline[cpu], err = true, nil
			c.window.changes++
		} else {
			c.activeCPUs++
		}
		failed = errors.Join(failed, err)
		for bank := range c.cpus[cpu].Machine {
			if !c.wasOffline[cpu] {
				c.repair(cpu, &c.cpus[cpu].Machine[bank])
			}
			c.take(cpu, bank)
		}
	}
	c.retire()
	if failed != nil {
		return fmt.Errorf("stop counting: %w", failed)
	}
	return nil
}

// Read collects the counts of all CPUs, including those of running tasks, into dst, and
// reuses its memory. Totals only grow. In a window it interrupts every CPU.
func (c *Counter) Read(dst *Reading) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errClosed
	}
	at := monotonic()
	if c.window.open {
		if err := c.collect(); err != nil {
			return err
		}
	}
	return c.fill(dst, at)
}

// fill makes a reading of the totals, which were taken from at until now.
func (c *Counter) fill(dst *Reading, at time.Duration) error {
	if dst == nil {
		return nil
	}
	dst.At, dst.Took = at, monotonic()-at
	c.lastRead = dst.Took
	dst.CPUs, dst.Calls, dst.Changes = c.activeCPUs, c.window.most(), c.window.changes
	for _, e := range Events() {
		dst.Present[e] = c.source(e).Kind != Absent
	}
	c.measure(dst)
	c.total.fill(dst)
	dst.Groups = slices.Grow(dst.Groups[:0], len(c.groups.sorted))
	for _, g := range c.groups.sorted {
		dst.Groups = append(dst.Groups, Group{ID: g.id, Counts: c.total.slots[g.slot]})
	}
	c.readRows(dst)
	return c.readWaits(dst)
}

// readRows hands over the rows since the last reading.
func (c *Counter) readRows(dst *Reading) {
	if !c.options.ByCPU {
		return
	}
	at := make([]uint16, c.slots()) // of a slot in dst.Groups, plus one
	for i, g := range c.groups.sorted[:min(len(c.groups.sorted), math.MaxUint16-1)] {
		at[g.slot] = uint16(i) + 1
	}
	kept := c.window.rows[:0]
	for _, r := range c.window.rows {
		if r.Group = at[r.Group]; r.Group > 0 {
			r.Group--
			kept = append(kept, r)
		}
	}
	dst.Rows, c.window.rows, c.window.mostRows = kept, nil, max(len(kept), c.window.mostRows*7/8)
}

// collect flushes every CPU and takes its frozen bank.
func (c *Counter) collect() error {
	c.activeCPUs = 0
	for cpu, in := range c.active {
		if c.skip.Has(cpu) {
			continue
		}
		err := c.call(cpu, flushRead)
		switch {
		case err == nil && !in:
			if err := c.join(cpu); err != nil && !errors.Is(err, unix.ENXIO) {
				c.warnOnce(cpu, err)
			}
			c.window.changes++
		case err == nil:
			frozen := c.cpus[cpu].Bank&1 ^ 1
			c.repair(cpu, &c.cpus[cpu].Machine[frozen])
			c.take(cpu, int(frozen))
			c.activeCPUs++
		case errors.Is(err, unix.ENXIO):
			if in {
				if err := c.leave(cpu); err != nil {
					return fmt.Errorf("read CPU %d: %w", cpu, err)
				}
			}
		default:
			return fmt.Errorf("read CPU %d: %w", cpu, err)
		}
	}
	c.retire()
	return nil
}
