package counter

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// source is a perf event; typ and config are those of its attr.
type source struct {
	name   string
	typ    uint32
	config uint64
}

const swCgroupSwitches = 11 // PERF_COUNT_SW_CGROUP_SWITCHES, Linux 5.13

var cgroupSwitches = source{"cgroup-switches", unix.PERF_TYPE_SOFTWARE, swCgroupSwitches}

// hardware returns an event's perf event on this architecture.
func hardware(e Event) source {
	const lastLevelReadMiss = unix.PERF_COUNT_HW_CACHE_LL | unix.PERF_COUNT_HW_CACHE_OP_READ<<8 |
		unix.PERF_COUNT_HW_CACHE_RESULT_MISS<<16
	switch e {
	case Cycles:
		return source{"cycles", unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CPU_CYCLES}
	case Instructions:
		return source{"instructions", unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_INSTRUCTIONS}
	case RefCycles:
		return source{"ref-cycles", unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_REF_CPU_CYCLES}
	}
	// On arm64 cache-misses are those of the first level.
	if runtime.GOARCH == "arm64" {
		return source{"LLC-load-misses", unix.PERF_TYPE_HW_CACHE, lastLevelReadMiss}
	}
	return source{"cache-misses", unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CACHE_MISSES}
}

// perf returns the stand-in's perf event; time on the CPU needs none.
func (s StandIn) perf() (source, bool) {
	switch s {
	case CPUClock:
		return source{s.String(), unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_CPU_CLOCK}, true
	case PageFaults:
		return source{s.String(), unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_PAGE_FAULTS}, true
	}
	return source{}, false
}

// events are the perf events of all CPUs: descriptors[cpu][event], -1 for none. They
// count from when they are opened until they are closed: switching them on and off would
// interrupt every CPU once for each event and window.
//
// Cycles and instructions are one pinned group, so that they have their counters at the
// same times and at all times. Other events take turns with those of other users.
type events struct {
	kernel      kernel
	kinds       kinds
	sources     [numEvents]source
	perf        [numEvents]bool  // whether the event is a perf event
	failed      [numEvents]error // why it could not be opened when that was last tried
	grouped     bool
	descriptors [][numEvents]int
	yields      []bool // CPUs whose group is not pinned, since another user's pinned events hold the counters
}

func newEvents(k kernel, possible int) *events {
	e := &events{kernel: k, kinds: kindsOf(k), descriptors: make([][numEvents]int, possible),
		yields: make([]bool, possible)}
	for cpu := range e.descriptors {
		for i := range e.descriptors[cpu] {
			e.descriptors[cpu][i] = -1
		}
	}
	return e
}

// chooseAll opens every event on these CPUs, or says why it is absent. Either all
// events are hardware events or all are stand-ins: a ratio of the two is meaningless,
// and readers of the totals cannot tell their sources.
func (e *events) chooseAll(standIns map[Event]StandIn, cpus []int) (sources [numEvents]Source) {
	// Cache misses are not part of CPI: a stand-in for them alone yields to the hardware.
	standInRatio := standIns[Cycles]+standIns[Instructions]+standIns[RefCycles] != 0
	hardware := false
	for _, event := range Events() {
		switch s := standIns[event]; {
		case standInRatio && s == 0:
			sources[event] = Source{
				Reason: "stand-ins are configured for other events, and are never mixed with hardware events"}
		case hardware && s != 0:
			sources[event] = Source{
				Reason: "other events are counted by the hardware, and are never mixed with stand-ins"}
		default:
			sources[event] = e.choose(event, s, cpus)
			hardware = hardware || s == 0 && e.perf[event]
		}
	}
	for _, cpu := range cpus {
		e.start(cpu)
	}
	return sources
}

// choose opens an event on every CPU, or on none. An event that may be had later stays a
// perf event, which is tried again.
func (e *events) choose(event Event, standIn StandIn, cpus []int) Source {
	kind, src := Hardware, hardware(event)
	if standIn != 0 {
		perf, ok := standIn.perf()
		if !ok {
			return Source{Kind: Declared, Name: standIn.String()}
		}
		kind, src = Declared, perf
	}
	e.sources[event] = src
	if event == Instructions {
		e.grouped = e.perf[Cycles] && e.failed[Cycles] == nil
	}
	for _, cpu := range cpus {
		err := e.open(event, cpu)
		if err == nil {
			continue
		}
		for _, opened := range cpus {
			e.close(event, opened)
		}
		if event == Instructions {
			e.grouped = false
		}
		e.failed[event] = err
		e.perf[event] = mayBeHadLater(err)
		return Source{Kind: Absent, Reason: whyAbsent(e.kernel, err),
			Err: fmt.Errorf("open %s on CPU %d: %w", src.name, cpu, err)}
	}
	e.perf[event] = true
	return Source{Kind: kind, Name: src.name}
}

// mayBeHadLater says that the machine has such an event, which somebody or something
// keeps from being opened now.
func mayBeHadLater(err error) bool {
	for _, passing := range []error{unix.EBUSY, unix.EMFILE, unix.ENFILE, unix.ENOMEM} {
		if errors.Is(err, passing) {
			return true
		}
	}
	return false
}

// start has cycles, and with them their group, count. Every other event does from when it
// is opened. A group for which there are no counters is found at the first reading.
func (e *events) start(cpu int) {
	if fd := e.descriptors[cpu][Cycles]; fd >= 0 {
		_ = unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0)
	}
}

// inGroup says that an event has its counter together with another one.
func (e *events) inGroup(event Event) bool {
	return e.grouped && (event == Cycles || event == Instructions)
}

func (e *events) open(event Event, cpu int) error {
	attr, group := e.kinds.attr(e.sources[event], cpu), -1
	switch {
	case event == Cycles:
		attr.Bits |= unix.PerfBitDisabled // until its group is complete
		if !e.yields[cpu] {
			attr.Bits |= unix.PerfBitPinned
		}
	case e.inGroup(event):
		if group = e.descriptors[cpu][Cycles]; group < 0 {
			return unix.ENODEV
		}
	}
	fd, err := e.kernel.openEvent(attr, cpu, group)
	if err != nil {
		return err
	}
	e.descriptors[cpu][event] = fd
	return nil
}

// openAll opens every event of a CPU that is not open, but for those left out, and starts
// them.
func (e *events) openAll(cpu int, leftOut [numEvents]bool) (opened bool, failed error) {
	for _, event := range Events() {
		if !e.perf[event] || leftOut[event] || e.descriptors[cpu][event] >= 0 {
			continue
		}
		e.failed[event] = e.open(event, cpu)
		if e.failed[event] != nil {
			failed = errors.Join(failed, fmt.Errorf("open %s: %w (%s)", e.sources[event].name, e.failed[event],
				whyAbsent(e.kernel, e.failed[event])))
			continue
		}
		opened = true
	}
	e.start(cpu)
	return opened, failed
}

func (e *events) close(event Event, cpu int) {
	if fd := e.descriptors[cpu][event]; fd >= 0 {
		_ = unix.Close(fd) // closing a perf event loses no data
		e.descriptors[cpu][event] = -1
	}
}

func (e *events) closeCPU(cpu int) {
	for _, event := range Events() {
		e.close(event, cpu)
	}
}

// closeBroken closes events that do not count any more, each with its group. A pinned group
// that had to give up its counters to another user's is not pinned when it comes back.
func (e *events) closeBroken(cpu int, broken uint32, why *[numEvents]int32) {
	const pair = 1<<Cycles | 1<<Instructions
	if e.grouped && broken&pair != 0 {
		for _, event := range []Event{Cycles, Instructions} {
			if unix.Errno(-why[event]) == unix.EBUSY {
				e.yields[cpu] = true
			}
		}
		broken |= pair
	}
	for _, event := range Events() {
		if broken>>event&1 == 1 {
			e.close(event, cpu)
		}
	}
}

// isOpen says on how many CPUs an event is open.
func (e *events) isOpen(event Event) (n int) {
	for _, cpu := range e.descriptors {
		if cpu[event] >= 0 {
			n++
		}
	}
	return n
}

func (e *events) count() int {
	n := 0
	for _, cpu := range e.descriptors {
		for _, fd := range cpu {
			if fd >= 0 {
				n++
			}
		}
	}
	return n
}

// triggerAttr is the event that runs the program at each cgroup switch of a CPU.
func triggerAttr() *unix.PerfEventAttr {
	return &unix.PerfEventAttr{
		Type: cgroupSwitches.typ, Config: cgroupSwitches.config, Size: unix.PERF_ATTR_SIZE_VER5,
		Sample: 1,
	}
}
