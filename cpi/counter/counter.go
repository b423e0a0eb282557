package counter

import (
	"errors"
	"fmt"
	"slices"
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
	attachment *attachment // nil while counting is disabled
	cpuStates
	groups   groups
	total    total
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
		cpuStates: cpuStates{active: make([]bool, possible), wasOffline: make([]bool, possible),
			warned: make([]bool, possible)},
		events: newEvents(k, possible), total: newTotal(o.MaxGroups),
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
	if err := c.load(online[0]); err != nil {
		c.free()
		return nil, err
	}
	return c, nil
}

// online lists the online CPUs; it is never empty.
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
		if cpu < len(c.active) {
			cpus = append(cpus, cpu)
		}
	}
	if len(cpus) == 0 {
		return nil, fmt.Errorf("list online CPUs: %s has none of the %d possible CPUs", file, len(c.active))
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
		if name != c.programName() && name != programProgFlush {
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

// Enable starts a window: counting starts now.
func (c *Counter) Enable() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return errClosed
	case c.attachment != nil:
		return nil
	}
	online, err := c.online()
	if err != nil {
		return err
	}
	if c.attachment, err = c.attach(); err != nil {
		return err
	}
	for _, cpu := range online {
		if err = c.join(cpu); err != nil && !errors.Is(err, unix.ENXIO) {
			return errors.Join(fmt.Errorf("start counting: %w", err), c.disable())
		}
	}
	// A CPU that was offline has lost its events, which shows in the first interval.
	for cpu, in := range c.active {
		if !in {
			continue
		}
		if err := c.kernel.flush(c.objects.flush, cpu, flushCharge); err == nil && c.faulty(cpu, c.cpus[cpu].Bank) {
			c.reopen(cpu)
		}
	}
	return nil
}

func (c *Counter) attach() (*attachment, error) {
	if c.trigger == CgroupSwitches {
		return attachCgroupSwitches(c.kernel, c.objects.program, c.objects.collection.Maps[programMapCgroupSwitches]),
			nil
	}
	return attachSchedSwitch(c.objects.program)
}

// join starts counting on an online CPU.
func (c *Counter) join(cpu int) error {
	if c.wasOffline[cpu] {
		c.wasOffline[cpu] = false
		c.warnOnce(cpu, c.openAgain(cpu))
	}
	if err := c.events.enable(cpu, true); err != nil {
		return err
	}
	if err := c.attachment.addCPU(cpu); err != nil {
		return err
	}
	c.cpus[cpu].On = 1
	if err := c.kernel.flush(c.objects.flush, cpu, flushStart); err != nil {
		c.cpus[cpu].On = 0
		c.attachment.removeCPU(cpu)
		return fmt.Errorf("start counting on CPU %d: %w", cpu, err)
	}
	c.active[cpu] = true
	return nil
}

// leave stops counting on a CPU that went offline. After its gate is closed, and while
// it is still offline, the program does not write its rows, so that both banks can be
// taken.
func (c *Counter) leave(cpu int) error {
	c.cpus[cpu].On = 0
	if err := c.kernel.flush(c.objects.flush, cpu, flushCharge); !errors.Is(err, unix.ENXIO) {
		c.cpus[cpu].On = 1
		return err // it is online again; its events show that it was offline
	}
	c.cpus[cpu].Time = 0
	c.active[cpu], c.wasOffline[cpu] = false, true
	c.attachment.removeCPU(cpu)
	c.takeBoth(cpu)
	return nil
}

// faulty says that a CPU's events or trigger have had faults since this bank was
// emptied.
func (c *Counter) faulty(cpu int, bank uint32) bool {
	f := &c.cpus[cpu].Machine[bank&1].Faults
	return f[faultRead]+f[faultLost] > 0 || c.trigger == CgroupSwitches && f[faultMissed] > 0
}

// reopen gives a CPU new events and a new baseline while it counts. An event that
// cannot be opened stays absent, and the program counts each failed read.
func (c *Counter) reopen(cpu int) {
	err := errors.Join(c.openAgain(cpu), c.events.enable(cpu, true), c.attachment.addCPU(cpu),
		c.kernel.flush(c.objects.flush, cpu, flushCharge), c.kernel.flush(c.objects.flush, cpu, flushStart))
	c.warnOnce(cpu, err)
}

func (c *Counter) openAgain(cpu int) error {
	c.events.closeCPU(cpu)
	c.total.faults.Reopened++
	var failed error
	for _, e := range Events() {
		if !c.events.perf[e] {
			continue
		}
		if err := c.events.open(e, cpu); err != nil {
			failed = errors.Join(failed, fmt.Errorf("open %s: %w (%s)", c.events.sources[e].name, err,
				whyAbsent(c.kernel, err)))
		}
	}
	return errors.Join(failed, c.publish(cpu))
}

// warnOnce logs that a CPU is not, or not fully, counted; once until it recovers.
func (c *Counter) warnOnce(cpu int, err error) {
	if err != nil && !c.warned[cpu] && c.options.Log != nil {
		c.options.Log.Warn("a CPU is not counted in full", "cpu", cpu, "err", err)
	}
	c.warned[cpu] = err != nil
}

// Disable ends a window. Earlier counts stay; until Enable nothing is charged and
// nothing costs anything.
func (c *Counter) Disable() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errClosed
	}
	return c.disable()
}

func (c *Counter) disable() error {
	if c.attachment == nil {
		return nil
	}
	var failed error
	c.activeCPUs = 0
	for cpu, in := range c.active {
		if !in {
			continue
		}
		err := c.kernel.flush(c.objects.flush, cpu, flushStop)
		if errors.Is(err, unix.ENXIO) {
			c.wasOffline[cpu], err = true, nil
		} else {
			c.activeCPUs++
		}
		c.cpus[cpu].On = 0
		failed = errors.Join(failed, err)
	}
	failed = errors.Join(failed, c.attachment.detach())
	c.attachment = nil
	for cpu, in := range c.active {
		if !in {
			continue
		}
		c.active[cpu] = false
		if !c.wasOffline[cpu] {
			failed = errors.Join(failed, c.events.enable(cpu, false))
		}
		c.takeBoth(cpu)
	}
	c.retire()
	if failed != nil {
		return fmt.Errorf("stop counting: %w", failed)
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
	err := errors.Join(unmap(c.cpus), unmap(c.rows))
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
		Enabled: c.attachment != nil, Read: c.lastRead,
	}
	if c.closed {
		return s
	}
	for e := range s.Sources {
		if note := c.total.sharingNote(Event(e)); note != "" && s.Sources[e].Kind == Hardware {
			s.Sources[e].Reason = note
		}
	}
	s.Descriptors = c.events.count() + len(c.objects.collection.Maps) + len(c.objects.collection.Programs)
	if c.attachment != nil {
		s.CPUs = 0
		for _, in := range c.active {
			if in {
				s.CPUs++
			}
		}
		s.Descriptors += c.attachment.descriptors()
	}
	for _, m := range c.objects.collection.Maps {
		s.MapBytes += uint64(m.MaxEntries()) * uint64(m.KeySize()+m.ValueSize())
	}
	var sampled, cost uint64
	for i := range c.cpus {
		s.Runs += c.cpus[i].Runs
		sampled += c.cpus[i].Sampled
		cost += c.cpus[i].Cost
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
	take(c.total.slots, c.bank(cpu, bank))
	c.total.takeMachine(&c.cpus[cpu].Machine[bank])
}

func (c *Counter) takeBoth(cpu int) {
	c.take(cpu, 0)
	c.take(cpu, 1)
}

// Read collects the counts of all CPUs, including those of running tasks, into dst, and
// reuses its memory. Totals only grow.
func (c *Counter) Read(dst *Reading) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errClosed
	}
	dst.At = monotonic()
	if c.attachment != nil {
		if err := c.collect(); err != nil {
			return err
		}
		dst.Took = monotonic() - dst.At
		c.lastRead = dst.Took
	} else {
		dst.Took = 0
	}
	dst.CPUs = c.activeCPUs
	c.total.fill(dst)
	dst.Groups = slices.Grow(dst.Groups[:0], len(c.groups.sorted))
	for _, g := range c.groups.sorted {
		dst.Groups = append(dst.Groups, Group{ID: g.id, Counts: c.total.slots[g.slot]})
	}
	return c.readWaits(dst)
}

// collect flushes every CPU and takes its frozen bank.
func (c *Counter) collect() error {
	c.activeCPUs = 0
	for cpu, in := range c.active {
		err := c.kernel.flush(c.objects.flush, cpu, flushRead)
		switch {
		case err == nil && !in:
			if err := c.join(cpu); err != nil && !errors.Is(err, unix.ENXIO) {
				c.warnOnce(cpu, err)
			}
		case err == nil:
			frozen := c.cpus[cpu].Bank&1 ^ 1
			faulty := c.faulty(cpu, frozen)
			c.take(cpu, int(frozen))
			if faulty {
				c.reopen(cpu)
			}
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

func monotonic() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // every Linux has this clock
	}
	return time.Duration(t.Nano())
}
