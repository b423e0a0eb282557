package counter

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/quietcore/quietcore/cpuset"
)

// Counter counts. It is safe for concurrent use.
type Counter struct {
	kernel  kernel
	options Options
	setup

	mu         sync.Mutex // guards all below
	objects    objects
	memory     // of the objects
	events     *events
	attachment *attachment
	cpuStates
	groups   groups
	total    total
	window   window
	closed   bool
	lastRead time.Duration
}

// setup is fixed when the counter is opened.
type setup struct {
	sources [numEvents]Source
	trigger Trigger
	reason  string // for the trigger
	release string
}

// memory is shared with the program, which writes the maps that this process reads.
type memory struct {
	cpus []programCpu
	rows []Counts // (cpu*2+bank)*slots + slot
}

// cpuStates is the state of every possible CPU.
type cpuStates struct {
	skip       cpuset.Set
	active     []bool // CPUs that are counted: their gate is open
	wasOffline []bool // CPUs whose events died while they were offline
	warned     []bool // CPUs whose events could not be reopened; logged once
	activeCPUs int    // CPUs counted in the window
}

// objects are loaded into the kernel.
type objects struct {
	collection *ebpf.Collection
	arrays     [numEvents]*ebpf.Map
	program    *ebpf.Program // what the trigger runs
	flush      *ebpf.Program
	generation *ebpf.Variable
	wanted     *ebpf.Variable
}

// other is the slot of everything that is not followed.
const other = 0

const (
	defaultGroups = 1024
	maxGroups     = 1 << 16
	maxRowBytes   = 1 << 30
)

const countsSize = int(unsafe.Sizeof(Counts{}))

func (o Options) check() (Options, error) {
	if o.MaxGroups == 0 {
		o.MaxGroups = defaultGroups
	}
	switch {
	case o.Root == "":
		return o, errors.New("counting: Options.Root is empty; give the folder where cgroups are mounted")
	case o.MaxGroups < 1 || o.MaxGroups > maxGroups:
		return o, fmt.Errorf("counting: MaxGroups is %d, not between 1 and %d", o.MaxGroups, maxGroups)
	case o.Trigger < Auto || o.Trigger > CgroupSwitches:
		return o, fmt.Errorf("counting: unknown trigger %v", o.Trigger)
	case o.Waits < WaitsOff || o.Waits > WaitsByCause:
		return o, fmt.Errorf("counting: unknown value %d of Waits", o.Waits)
	}
	for event, s := range o.StandIns {
		if event < 0 || int(event) >= numEvents || s < OnCPUNanoseconds || s > PageFaults {
			return o, fmt.Errorf("counting: %v cannot stand in for %v", s, event)
		}
	}
	return o, nil
}

// Open loads the program and opens the events; counting starts with Enable. The error
// is an *UnsupportedError if counting cannot work at all. An event that the machine
// lacks is not an error: see Status.
func Open(o Options) (*Counter, error) {
	possible, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("counting: %w", err)
	}
	return open(linux{}, o, possible)
}

func open(k kernel, o Options, possible int) (*Counter, error) {
	o, err := o.check()
	if err != nil {
		return nil, err
	}
	if bytes := possible * 2 * (o.MaxGroups + 1) * countsSize; bytes > maxRowBytes {
		return nil, fmt.Errorf("counting: %d groups on %d possible CPUs need %d MiB; lower MaxGroups (at most %d MiB)",
			o.MaxGroups, possible, bytes>>20, maxRowBytes>>20)
	}
	c := &Counter{
		kernel: k, options: o, setup: setup{release: release(k)}, groups: newGroups(o.MaxGroups),
		cpuStates: cpuStates{skip: o.Skip, active: make([]bool, possible), wasOffline: make([]bool, possible),
			warned: make([]bool, possible)},
		events: newEvents(k, possible), total: newTotal(o.MaxGroups), window: newWindow(possible),
	}
	online, err := c.online()
	if err != nil {
		return nil, err
	}
	if c.trigger, c.reason, err = chooseTrigger(k, o, online[0]); err != nil {
		return nil, err
	}
	c.sources = c.events.chooseAll(o.StandIns, online)
	for e, s := range c.sources {
		if s.Kind == Absent && o.Log != nil {
			o.Log.Warn("event is not counted", "event", Event(e).String(), "why", s.Reason, "err", s.Err)
		}
	}
	err = c.load(online[0])
	if err == nil {
		err = c.attach(online)
	}
	if err != nil {
		c.free()
		return nil, err
	}
	return c, nil
}

// attach has the program run from now on. It returns at once on a CPU whose gate is closed:
// attaching it for each window would interrupt every CPU, also those that are left alone.
func (c *Counter) attach(cpus []int) (err error) {
	p := c.objects.collection.Programs
	c.attachment = &attachment{kernel: c.kernel, program: c.objects.program, triggers: map[int]int{}}
	if c.trigger == CgroupSwitches {
		c.attachment.counts = c.objects.collection.Maps[programMapCgroupSwitches]
		for _, cpu := range cpus {
			if err := c.attachment.addCPU(cpu); err != nil {
				return err
			}
		}
	} else if err := c.attachment.attach(c.objects.program, "sched_switch"); err != nil {
		return err
	}
	return c.attachment.attach(p[programProgTick], "hrtimer_expire_entry")
}

// online lists the online CPUs that are not skipped; it is never empty.
func (c *Counter) online() ([]int, error) {
	const file = "/sys/devices/system/cpu/online"
	text, err := c.kernel.readFile(file)
	if err != nil {
		return nil, fmt.Errorf("list online CPUs: %w", err)
	}
	set, err := cpuset.Parse(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("list online CPUs: %s: %w", file, err)
	}
	var cpus []int
	for cpu := range set.All() {
		if cpu < len(c.active) && !c.skip.Has(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	if len(cpus) == 0 {
		return nil, fmt.Errorf("list online CPUs: %s has none of the %d possible CPUs, of which %s are left alone",
			file, len(c.active), &c.skip)
	}
	return cpus, nil
}

// load loads programs and maps into the kernel and maps their memory.
func (c *Counter) load(probe int) error {
	types, err := c.kernel.types()
	if err != nil {
		return &UnsupportedError{Feature: "the kernel's type information (CONFIG_DEBUG_INFO_BTF, Linux 5.4)",
			Kernel: c.release, Err: err}
	}
	spec, err := c.spec()
	if err != nil {
		return err
	}
	collection, err := c.kernel.load(spec, types)
	if err != nil {
		return unsupported(c.kernel, "the features of Linux 5.10 that the program uses", err)
	}
	c.objects = objects{
		collection: collection,
		arrays: [...]*ebpf.Map{collection.Maps[programMapEvent0], collection.Maps[programMapEvent1],
			collection.Maps[programMapEvent2], collection.Maps[programMapEvent3]},
		program:    collection.Programs[c.programName()],
		flush:      collection.Programs[programProgFlush],
		generation: collection.Variables[programVarGeneration],
		wanted:     collection.Variables[programVarWanted],
	}
	if c.cpus, err = mapped[programCpu](collection.Maps[programMapCpus]); err != nil {
		return err
	}
	if c.rows, err = mapped[Counts](collection.Maps[programMapSums]); err != nil {
		return err
	}
	for cpu := range c.events.descriptors {
		if err := c.publish(cpu); err != nil {
			return err
		}
	}
	// The gate is closed: this only tests whether the kernel supports it.
	if err := c.kernel.flush(c.objects.flush, probe, flushCharge); err != nil {
		return unsupported(c.kernel, "running a program on a given CPU (BPF_F_TEST_RUN_ON_CPU, Linux 5.10)", err)
	}
	return nil
}

func (c *Counter) programName() string {
	switch {
	case c.trigger == CgroupSwitches:
		return programProgCgroupSwitch
	case c.options.Waits != WaitsOff:
		return programProgSchedSwitchWaits
	}
	return programProgSchedSwitch
}

// spec configures the program for this machine. It removes what is not used, so that
// the kernel need not support it.
func (c *Counter) spec() (*ebpf.CollectionSpec, error) {
	spec, err := loadProgram()
	if err != nil {
		return nil, err
	}
	for name := range spec.Programs {
		if name != c.programName() && name != programProgFlush && name != programProgTick {
			delete(spec.Programs, name)
		}
	}
	possible, slots := uint32(len(c.active)), uint32(c.options.MaxGroups+1)
	for _, name := range []string{programMapEvent0, programMapEvent1, programMapEvent2, programMapEvent3,
		programMapCgroupSwitches, programMapCpus} {
		spec.Maps[name].MaxEntries = possible
	}
	spec.Maps[programMapSums].MaxEntries = possible * 2 * slots
	spec.Maps[programMapSlots].MaxEntries = slots
	if c.options.Waits == WaitsByCause {
		spec.Maps[programMapWaits].MaxEntries = max(1024, 4*slots)
	}
	var perf, elapsed uint32
	for i, s := range c.sources {
		switch {
		case c.events.perf[i]:
			perf |= 1 << i
		case s.Kind == Declared:
			elapsed |= 1 << i
		}
	}
	for name, value := range map[string]any{
		programVarPerfEvents: perf, programVarTimeEvents: elapsed, programVarSlotsPerBank: slots,
		programVarV1: c.options.V1, programVarByCgroupSwitches: c.trigger == CgroupSwitches,
		programVarByCause: c.options.Waits == WaitsByCause,
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("prepare the counting program: %w", err)
		}
	}
	return spec, nil
}

// mapped maps a map's memory as a slice.
func mapped[T any](m *ebpf.Map) ([]T, error) {
	var t T
	size := int(unsafe.Sizeof(t))
	if int(m.ValueSize()) != size {
		return nil, fmt.Errorf("map %v: values of %d bytes, want %d: the program is of another version", m,
			m.ValueSize(), size)
	}
	n := int(m.MaxEntries())
	page := unix.Getpagesize()
	b, err := unix.Mmap(m.FD(), 0, (n*size+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map memory of %v: %w", m, err)
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n), nil
}

// unmap releases the memory of mapped.
func unmap[T any](s []T) error {
	if len(s) == 0 {
		return nil
	}
	page, size := unix.Getpagesize(), len(s)*int(unsafe.Sizeof(s[0]))
	return unix.Munmap(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), (size+page-1)/page*page))
}

// publish passes the descriptors of one CPU's events to the program.
func (c *Counter) publish(cpu int) error {
	for e, m := range c.objects.arrays {
		fd := c.events.descriptors[cpu][e]
		if fd < 0 {
			continue
		}
		if err := m.Update(uint32(cpu), uint32(fd), ebpf.UpdateAny); err != nil {
			return fmt.Errorf("give %s of CPU %d to the program: %w", c.events.sources[e].name, cpu, err)
		}
	}
	return nil
}

// Close stops counting and releases all resources.
func (c *Counter) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	err := c.disable()
	c.closed = true
	return errors.Join(err, c.free())
}

var errClosed = errors.New("the counter is closed")

func (c *Counter) free() error {
	for cpu := range c.events.descriptors {
		c.events.closeCPU(cpu)
	}
	var err error
	if c.attachment != nil {
		err = c.attachment.detach()
	}
	err = errors.Join(err, unmap(c.cpus), unmap(c.rows))
	c.cpus, c.rows = nil, nil
	if c.objects.collection != nil {
		c.objects.collection.Close()
	}
	return err
}

// Status describes how the counter counts.
func (c *Counter) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Status{
		Trigger: c.trigger, TriggerReason: c.reason, Sources: c.sources, Kernel: c.release,
		CPUs: c.activeCPUs, Groups: len(c.groups.sorted), MaxGroups: c.options.MaxGroups,
		Enabled: c.window.open, Read: c.lastRead,
	}
	if c.closed {
		return s
	}
	for e := range s.Sources {
		s.Sources[e] = c.source(Event(e))
	}
	s.Descriptors = c.events.count() + len(c.objects.collection.Maps) + len(c.objects.collection.Programs) +
		c.attachment.descriptors()
	if c.window.open {
		s.CPUs = 0
		for _, in := range c.active {
			if in {
				s.CPUs++
			}
		}
	}
	for _, m := range c.objects.collection.Maps {
		s.MapBytes += uint64(m.MaxEntries()) * uint64(m.KeySize()+m.ValueSize())
	}
	var sampled, cost uint64
	for i := range c.cpus {
		s.Runs += c.cpus[i].Runs
		sampled += c.cpus[i].Sampled
		cost += c.cpus[i].Cost
		s.Calls += c.window.calls[i]
		for e, took := range c.cpus[i].ReadCost {
			s.ReadCost[e] = max(s.ReadCost[e], time.Duration(took))
		}
	}
	if sampled > 0 {
		s.PerRun = time.Duration(cost / sampled)
		s.Cost = time.Duration(float64(cost) / float64(sampled) * float64(s.Runs))
	}
	return s
}

func (c *Counter) slots() int { return c.options.MaxGroups + 1 }

// bank returns one CPU's rows by slot.
func (c *Counter) bank(cpu, bank int) []Counts {
	from := (cpu*2 + bank) * c.slots()
	return c.rows[from : from+c.groups.used]
}

// take adds a bank to the totals and empties it. The program must not be writing it.
func (c *Counter) take(cpu, bank int) {
	rows := c.bank(cpu, bank)
	if c.options.ByCPU {
		c.window.rows = appendRows(c.window.rows, cpu, rows)
	}
	take(c.total.slots, rows)
	c.total.takeMachine(&c.cpus[cpu].Machine[bank])
}

func (c *Counter) takeBoth(cpu int) {
	c.take(cpu, 0)
	c.take(cpu, 1)
}

func monotonic() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // every Linux has this clock
	}
	return time.Duration(t.Nano())
}
