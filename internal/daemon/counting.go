package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/counter"
	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/experiment"
	"github.com/quietcore/quietcore/cpi/loop"
	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/cpi/sampler"
	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/clusterspec"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/incidents"
	"github.com/quietcore/quietcore/internal/metrics"
	"github.com/quietcore/quietcore/internal/resctrl"
	cgroupusage "github.com/quietcore/quietcore/internal/usage"
	"github.com/quietcore/quietcore/policy"
)

type countingOptions struct {
	config    *config.Config
	floor     func(*policy.Snapshot) int // what best effort keeps of its pool
	tree      bool                       // the cgroups could be opened
	v1        bool
	node      *node
	metrics   *metrics.Metrics
	log       *slog.Logger
	notify    func(policy.Notice)
	evictions evictions        // of containers, for what they do to others
	incidents *incidents.Store // nil: none are kept
	proven    *proven
	beside    func(*sampler.Window) // takes who ran on whose cores; must not block; nil: nobody does
	kept      *loop.State           // what the detector before this one learned; nil: it is in its file, if anywhere
}

// counting counts what containers do to the CPUs, and looks for interference.
type counting struct {
	o       countingOptions
	cfg     config.CPI
	root    string // where cgroups are mounted
	counted string // the hierarchy whose cgroups are counted
	started time.Time
	counts  atomic.Pointer[counters]           // nil until there are some
	failure atomic.Pointer[string]             // why there are none
	reader  atomic.Pointer[clusterspec.Reader] // nil: the cluster is not asked
	noSpecs atomic.Pointer[string]             // why it is not, though it should be
	public  late                               // what windows change in metrics
	found   atomic.Pointer[loop.Counters]      // what metrics show of the detector's
	lacks   lacking
	host    hostUnits
	kept    atomic.Pointer[loop.State]     // what was learned, where it is not written to a file
	holder  atomic.Pointer[resctrl.Holder] // nil: memory bandwidth is not to be limited
}

// counters is what there is once they are open.
type counters struct {
	counter *counter.Counter
	sampler *sampler.Sampler
	loop    *loop.Loop // nil: interference is not looked for
	events  atomic.Pointer[counted]
	blind   string // why interference is not looked for
}

// counted is what the events were counted by in the last window.
type counted struct {
	events  map[string]string
	missing string // what is not counted, or not in full, and why
	blind   bool   // there is no CPI
}

// missing is what does not work.
func (c *counters) missing() string {
	return sentences(c.events.Load().missing, c.blind)
}

// why is what does not work, with what the last window says. What is missing explains what a window cost, and stays.
func (c *counters) why(window string) string { return sentences(window, c.missing()) }

// sentences joins those that are said.
func sentences(list ...string) string {
	return strings.Join(slices.DeleteFunc(list, func(s string) bool { return s == "" }), "; ")
}

func newCounting(o countingOptions) *counting {
	root := o.config.Cgroup.Root
	p := &counting{
		o: o, cfg: o.config.CPI, root: root, counted: cgroup.CPUHierarchy(root, o.v1), started: time.Now(),
	}
	p.host = hostUnits{counted: p.counted, usage: p.readUsage, taken: takenFrom(procStat), v1: o.v1}
	return p
}

// Run counts until ctx ends.
func (p *counting) Run(ctx context.Context) {
	if p.cfg.Mode == config.CPIOff {
		return
	}
	c, err := p.open()
	if err != nil {
		text := err.Error()
		p.failure.Store(&text)
		p.o.log.Warn("CPU performance is not counted; everything else works", "why", err)
		return
	}
	defer c.counter.Close()
	defer p.o.metrics.CPIStopped()
	p.counts.Store(c)
	p.o.metrics.CPICounting(true, p.cfg.ContainerSeries)
	if why := c.missing(); why != "" {
		p.o.log.Warn("CPU performance is counted in part", "why", why)
	}
	together(ctx, c.sampler.Run, c.detect, p.o.evictions.Run, p.holdBack)
}

// acts reports whether it throttles containers.
func (p *counting) acts() bool {
	return p.cfg.Mode == config.CPIEnforce && p.o.config.Mode != config.Observe
}

// detect looks for interference in every window.
func (c *counters) detect(ctx context.Context) {
	if c.loop != nil {
		c.loop.Run(ctx)
	}
}

func (p *counting) open() (*counters, error) {
	if !p.o.tree {
		return nil, errors.New("the cgroups could not be opened")
	}
	o := CounterOptions(p.o.config, p.o.v1)
	opened, err := counter.Open(o)
	if err != nil {
		return nil, err
	}
	status := opened.Status()
	window := time.Duration(p.cfg.Window)
	rules := sample.Hardware(window)
	if standingIn(&status) {
		rules = sample.StandIn(window)
	}
	var worth [sample.NumEvents]uint64
	for event, s := range o.StandIns {
		worth[event] = s.Worth()
	}
	p.openHolder()
	view := p.view()
	s := sampler.New(sampler.Options{
		Counter: opened, Most: p.cfg.MaxContainers, Worth: worth, CgroupID: p.life, Accounts: p.accounts,
		Node: func() sampler.Node {
			snapshot := p.o.node.Snapshot()
			node := view.Node(snapshot)
			node.Containers = p.host.with(node.Containers)
			node.Skip = leftAlone(p.cfg.Skip, &o.Skip, snapshot)
			return node
		},
		Threads: sampler.ThreadsIn(cgroup.ThreadHierarchy(p.root, p.o.v1)), Interval: time.Duration(p.cfg.Interval),
		Window: window, Waits: o.Waits != counter.WaitsOff, Causes: o.Waits == counter.WaitsByCause,
		LeaveOut: opened.LeaveOut, Taken: takenFrom(procStat),
		Budget: sampler.Budget{Node: p.cfg.Budget.Node / 100, CPU: p.cfg.Budget.CPU / 100,
			Test: p.cfg.Budget.Test / 100},
		Questions: p.questions, Short: p.short,
		Rules: rules, Log: p.o.log, Begin: p.begin,
	})
	c := &counters{counter: opened, sampler: s}
	c.events.Store(sources(&status))
	s.Subscribe(func(w *sampler.Window) {
		if w.Between {
			return // the tests' alone
		}
		status := opened.Status()
		c.events.Store(sources(&status))
		counted := inMetrics(w, &status)
		p.public.add(func() { p.o.metrics.CPIWindow(counted) })
	})
	if p.o.beside != nil {
		s.Subscribe(p.o.beside)
	}
	if c.loop, err = p.detector(s); err != nil {
		p.o.log.Warn("interference is not looked for; windows are counted all the same", "why", err)
		c.blind = "interference is not looked for: " + err.Error()
		return c, nil
	}
	s.Subscribe(c.loop.Take)
	return c, nil
}

// questions are the detector's: who has to be counted in the next window.
func (p *counting) questions() []cpi.Question {
	if c := p.counts.Load(); c != nil && c.loop != nil {
		return c.loop.Questions()
	}
	return nil
}

// short is how long the detector wants windows to be that follow one another.
func (p *counting) short() time.Duration {
	if c := p.counts.Load(); c != nil && c.loop != nil {
		return c.loop.Short()
	}
	return 0
}

// begin is the beginning of an interval of counting.
func (p *counting) begin() {
	if c := p.counts.Load(); c != nil && c.loop != nil {
		c.loop.Begin()
		found := c.loop.Counters()
		p.public.add(func() { p.found.Store(&found) })
	}
	p.public.begin()
}

// CounterOptions are what the counters of a configuration are opened with.
func CounterOptions(cfg *config.Config, v1 bool) counter.Options {
	o := counter.Options{
		Root: cgroup.CPUHierarchy(cfg.Cgroup.Root, v1), V1: v1, MaxGroups: cfg.CPI.MaxContainers,
		StandIns: standIns(cfg.CPI.StandIns), ByCPU: true,
	}
	if cfg.CPI.Waits == config.WaitsTotal {
		o.Waits = counter.WaitsByCause
	}
	if cfg.CPI.Skip != config.SkipNone {
		o.Skip = isolated(os.DirFS(cfg.Sysfs.Root))
	}
	return o
}

// isolated are the CPUs that the kernel was booted to leave alone. A file that is not there
// names none.
func isolated(sys fs.FS) (all cpuset.Set) {
	for _, name := range []string{"isolated", "nohz_full"} {
		text, err := fs.ReadFile(sys, "devices/system/cpu/"+name)
		if err != nil {
			continue
		}
		// Where there are none, nohz_full says "(null)".
		if cpus, err := cpuset.Parse(strings.TrimSpace(string(text))); err == nil {
			all.AddSet(&cpus)
		}
	}
	return all
}

// leftAlone are the CPUs that are not counted in the next window.
func leftAlone(skip config.Skip, isolated *cpuset.Set, s *policy.Snapshot) cpuset.Set {
	all := *isolated
	if skip == config.SkipOwners {
		for _, o := range s.Owners {
			all.AddSet(&o.CPUs)
		}
	}
	return all
}

func standIns(s config.StandIns) map[counter.Event]counter.StandIn {
	words := map[config.StandIn]counter.StandIn{
		config.OnCPUTime: counter.OnCPUNanoseconds, config.CPUClock: counter.CPUClock,
		config.PageFaults: counter.PageFaults,
	}
	chosen := map[counter.Event]counter.StandIn{}
	for event, word := range map[counter.Event]config.StandIn{
		counter.Cycles: s.Cycles, counter.Instructions: s.Instructions, counter.RefCycles: s.RefCycles,
		counter.LLCMisses: s.LLCMisses,
	} {
		if word != config.NoStandIn {
			chosen[event] = words[word]
		}
	}
	return chosen
}

// standingIn says whether what is counted are stand-ins: the counter mixes them with
// nothing else.
func standingIn(s *counter.Status) bool {
	return slices.ContainsFunc(s.Sources[:], func(s counter.Source) bool { return s.Kind == counter.Declared })
}

// sources says what the events are counted by, and what of CPI is missing and why:
// reference cycles are not, where there are cycles.
func sources(s *counter.Status) *counted {
	c := &counted{events: map[string]string{}}
	absent := func(e counter.Event) bool { return s.Sources[e].Kind == counter.Absent }
	var parts []string
	for _, e := range counter.Events() {
		source := s.Sources[e]
		text := source.Kind.String()
		if source.Kind == counter.Declared {
			text += ": " + source.Name
		}
		if source.Reason != "" {
			text += ": " + source.Reason
			// Where the optional events take turns, CPI is whole.
			if source.Kind != counter.Absent && (e <= counter.Instructions || source.Reopened) {
				parts = append(parts, e.String()+" "+source.Reason)
			}
		}
		c.events[e.String()] = text
	}
	var names []string
	why := ""
	for _, e := range []counter.Event{counter.Cycles, counter.Instructions, counter.LLCMisses} {
		if !absent(e) || e == counter.Cycles && !absent(counter.RefCycles) {
			continue
		}
		if names = append(names, e.String()); why == "" {
			why = s.Sources[e].Reason
		}
	}
	if len(names) > 0 {
		parts = append([]string{fmt.Sprintf("%s not counted: %s", strings.Join(names, ", "), why)}, parts...)
	}
	c.missing = strings.Join(parts, "; ")
	c.blind = absent(counter.Instructions) || absent(counter.Cycles) && absent(counter.RefCycles)
	return c
}

// life is the inode of a cgroup's folder, which the kernel gives to no other.
func (p *counting) life(cgroup string) (uint64, error) {
	info, err := os.Lstat(filepath.Join(p.counted, cgroup))
	if err != nil {
		return 0, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() {
		return 0, fs.ErrNotExist
	}
	return stat.Ino, nil
}

// Health names what is not counted.
func (p *counting) Health() map[string]string {
	if p.cfg.Mode == config.CPIOff {
		return nil
	}
	return map[string]string{metrics.FeatureCPI: sentences(p.why(), p.whyWide()), metrics.FeatureSpecs: p.whyNoSpecs()}
}

// why is what does not work, "" that everything does, or that nobody asked for it.
func (p *counting) why() string {
	if p.cfg.Mode == config.CPIOff {
		return ""
	}
	if text := p.failure.Load(); text != nil {
		return *text
	}
	c := p.counts.Load()
	if c == nil {
		// Not yet is no less missing: a policy that is taken over meanwhile is not to blame for what is found then.
		return "the counters are being opened"
	}
	return c.why(c.sampler.State())
}

// report is what people see of it.
func (p *counting) report() control.Performance {
	out := control.Performance{CPI: control.CPI{Mode: string(p.cfg.Mode), Why: p.why(), Specs: p.whyNoSpecs()}}
	c := p.counts.Load()
	if c == nil {
		return out
	}
	s := &out.CPI
	s.Counting, s.Events = true, c.events.Load().events
	s.Interval, s.Window = time.Duration(p.cfg.Interval).Seconds(), time.Duration(p.cfg.Window).Seconds()
	in, open := c.sampler.Next()
	if s.Next = in.Seconds() + s.Window; open {
		s.Next = s.Window // at most
	}
	out.Throttled, out.Lacks = throttled(c.loop), p.lacks.now(time.Now())
	w := c.sampler.Latest()
	if s.Jobs = p.jobs(c.loop); s.Jobs != nil {
		s.Jobs.ByQueue = w != nil && w.ByQueue
		s.Jobs.Blind = c.events.Load().blind && !s.Jobs.ByQueue
	}
	if w == nil {
		return out
	}
	if s.Jobs != nil {
		s.Jobs.Uncounted = w.Unfollowed
	}
	s.Watchlist = watchlist(w)
	age := max(time.Since(w.End).Seconds(), 0)
	s.Age, s.Dropped = &age, w.Dropped.Sentence()
	out.Samples = make(map[string]control.Sample, len(w.Containers))
	for i := range w.Containers {
		o := &w.Containers[i]
		s.Reference = s.Reference || o.Reference
		one := sampleOf(o)
		if s.Watchlist != nil {
			one.Counted = o.Role.String()
		}
		out.Samples[o.ID] = one
	}
	return out
}

// throttled are the containers that the detector has throttled, by id.
func throttled(l *loop.Loop) map[string]control.Throttled {
	if l == nil {
		return nil
	}
	list := map[string]control.Throttled{}
	for _, t := range l.Throttles() {
		one := control.Throttled{Verdict: t.Verdict, MovedOff: t.Off, IdleOnly: t.Idle,
			LeastBandwidth: t.Narrow, Until: t.Until.UTC(), Why: t.Why}
		if t.Victim != nil {
			one.Victim = t.Victim.String()
		}
		list[t.Target.ID] = one
	}
	return list
}

// watchlist says who had a place in a window; nil where all had one.
func watchlist(w *sampler.Window) *control.Watchlist {
	if w.Failed != nil || w.Unfollowed == 0 {
		return nil
	}
	roles := rolesOf(w)
	return &control.Watchlist{Counted: w.Followed, Containers: w.Followed + w.Unfollowed,
		Victims: roles[sample.AsVictim], Suspects: roles[sample.AsSuspect], Turns: roles[sample.ByTurn]}
}

func rolesOf(w *sampler.Window) (roles [sample.NumRoles]int) {
	for i := range w.Containers {
		if r := &w.Containers[i]; r.Class != cpi.Host {
			roles[r.Role]++
		}
	}
	return roles
}

// jobs counts the jobs that run here by what they lack to be judged; nil where nobody judges.
func (p *counting) jobs(l *loop.Loop) *control.Jobs {
	if l == nil {
		return nil
	}
	out := &control.Jobs{MinTasks: p.cfg.MinTasks, MinTaskSamples: p.cfg.MinTaskSamples}
	if p.cfg.Experiment() != nil {
		out.MinTasks, out.MinTaskSamples = 1, experiment.MinWindows
	}
	for _, j := range l.Jobs() {
		switch {
		case j.Containers == 0:
		case j.Lack == detect.NoLack:
			out.Judged++
		case j.Lack == detect.LacksTasks:
			out.LackTasks++
		default:
			out.LackSamples++
			if in := max(time.Until(j.From).Seconds(), 0); out.Next == nil || in < *out.Next {
				out.Next = &in
			}
		}
	}
	return out
}

func sampleOf(o *sample.Result) control.Sample {
	var s control.Sample
	if o.Dropped != sample.None {
		s.Why = o.Dropped.Sentence()
		return s
	}
	usage := o.Usage
	s.Usage, s.Why = &usage, o.NoCPI.Sentence()
	if ratio := o.CPI; o.NoCPI == sample.None {
		s.CPI = &ratio
	}
	if mpki := o.MPKI; o.HasMPKI {
		s.MPKI = &mpki
	}
	if wait := o.Wait; o.HasWait {
		s.Wait = &wait
	}
	if queue := o.Queue; queue > 0 {
		s.Queue = &queue
	}
	return s
}

func inMetrics(w *sampler.Window, s *counter.Status) *metrics.CPIWindow {
	f := &w.Faults
	out := &metrics.CPIWindow{
		Failed: w.Failed != nil, Dropped: w.Dropped != sample.None, Length: w.Length, Running: 1, Followed: w.Followed,
		Unfollowed: w.Unfollowed,
		Faults:     f.Read + f.Reset + f.Absurd + f.Missed + f.Depth + f.Waits, Cost: s.Cost,
		Descriptors: s.Descriptors, Calls: w.Calls, Step: int(w.Step),
		Containers: slices.DeleteFunc(slices.Clone(w.Containers), func(r sample.Result) bool {
			return r.Class == cpi.Host
		}),
		Roles: rolesOf(w),
	}
	for _, share := range w.Running {
		out.Running = min(out.Running, share)
	}
	return out
}

// used is the CPU time of every container, for `quietcore top`.
func (p *counting) used(view *policy.Snapshot) map[string]control.Used {
	cgroups := make(map[string]string, len(view.Containers))
	for _, c := range view.Containers {
		cgroups[c.ID] = c.Cgroup
	}
	out := make(map[string]control.Used, len(cgroups))
	for _, one := range p.readUsage(cgroups) {
		out[one.ID] = control.Used{CPU: one.CPU, At: one.At.Sub(p.started)}
	}
	return out
}

// accounts is the same for the sampler, to hold against what was counted.
func (p *counting) accounts(containers []*cpi.Container) map[string]sample.Used {
	cgroups := make(map[string]string, len(containers))
	for _, c := range containers {
		cgroups[c.ID] = c.Cgroup
	}
	out := make(map[string]sample.Used, len(cgroups))
	for _, one := range p.readUsage(cgroups) {
		out[one.ID] = sample.Used{CPU: one.CPU, Waiting: one.Waiting, Stopped: one.Stopped, Pressure: one.Pressure}
	}
	if _, asked := cgroups[kernelID]; asked {
		delete(out, kernelID) // of the whole host
		if used, known := p.host.kernel(); known {
			out[kernelID] = sample.Used{CPU: used}
		}
	}
	return out
}

// readUsage reads what the cgroups of these ids have used. The files are opened
// anew each time, so that descriptors do not grow with containers.
func (p *counting) readUsage(cgroups map[string]string) []cgroupusage.Reading {
	if !p.o.tree {
		return nil
	}
	r, err := cgroupusage.Open(cgroupusage.Options{Root: p.root, V1: p.o.v1, KeepOpen: 1})
	if err != nil {
		return nil
	}
	defer r.Close()
	for id, cgroup := range cgroups {
		if cgroup != "" {
			_ = r.Follow(id, cgroup) // a path that is none has no usage
		}
	}
	return slices.DeleteFunc(r.Read(nil), func(one cgroupusage.Reading) bool { return one.Err != nil })
}

// history is the kept samples of a container, oldest first.
func (p *counting) history(id string) []sample.Sample {
	c := p.counts.Load()
	if c == nil {
		return nil
	}
	return c.sampler.History(id, nil)
}
