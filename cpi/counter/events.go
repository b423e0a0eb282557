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
// are not pinned, so that other users of the PMU keep their turns; the program sees how
// long an event really ran.
type events struct {
	kernel      kernel
	sources     [numEvents]source
	perf        [numEvents]bool // whether the event is a perf event
	descriptors [][numEvents]int
}

func newEvents(k kernel, possible int) *events {
	e := &events{kernel: k, descriptors: make([][numEvents]int, possible)}
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
			hardware = hardware || sources[event].Kind == Hardware
		}
	}
	return sources
}

// choose opens an event on every CPU, or on none.
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
	for _, cpu := range cpus {
		if err := e.open(event, cpu); err != nil {
			for _, opened := range cpus {
				e.close(event, opened)
			}
			return Source{Kind: Absent, Reason: whyAbsent(e.kernel, err),
				Err: fmt.Errorf("open %s on CPU %d: %w", src.name, cpu, err)}
		}
	}
	e.perf[event] = true
	return Source{Kind: kind, Name: src.name}
}

func (e *events) open(event Event, cpu int) error {
	fd, err := e.kernel.openEvent(e.sources[event].attr(), cpu)
	if err != nil {
		return err
	}
	e.descriptors[cpu][event] = fd
	return nil
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

// enable turns one CPU's events on or off; off, they leave the counters to others.
func (e *events) enable(cpu int, on bool) error {
	request := uint(unix.PERF_EVENT_IOC_DISABLE)
	if on {
		request = unix.PERF_EVENT_IOC_ENABLE
	}
	var failed error
	for event, fd := range e.descriptors[cpu] {
		if fd < 0 {
			continue
		}
		if err := unix.IoctlSetInt(fd, request, 0); err != nil {
			failed = errors.Join(failed, fmt.Errorf("switch %s of CPU %d (on: %t): %w", Event(event), cpu, on, err))
		}
	}
	return failed
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

func (s source) attr() *unix.PerfEventAttr {
	return &unix.PerfEventAttr{
		Type: s.typ, Config: s.config, Size: unix.PERF_ATTR_SIZE_VER5,
		Bits: unix.PerfBitDisabled,
	}
}

// triggerAttr is the event that runs the program at each cgroup switch of a CPU.
func triggerAttr() *unix.PerfEventAttr {
	return &unix.PerfEventAttr{
		Type: cgroupSwitches.typ, Config: cgroupSwitches.config, Size: unix.PERF_ATTR_SIZE_VER5,
		Sample: 1,
	}
}
