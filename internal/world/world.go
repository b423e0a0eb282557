package world

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup/cgrouptest"
	"github.com/quietcore/quietcore/topology"
)

// Config selects a run.
type Config struct {
	Seed   uint64
	Faults []Fault
	Gates  Gates
	Steps  int
	Claims bool // pods with claims are among those that come
	// Swarm lets the seed leave out some of the faults and gates, so that the others are more
	// frequent.
	Swarm bool
	// Ignore lists properties whose violations do not count.
	Ignore []Property
	// Trace, if not nil, is played instead of the seed's choices. Choices that cannot be made
	// are left out.
	Trace []Choice
	// Rest, if not nil, is called with the node empty after Every choices, again and again until it says
	// false, in place of Steps.
	Rest  func(Rest) bool
	Every int
}

// Report is the result of a run.
type Report struct {
	Config    Config
	Trace     []Choice // the choices that were made
	Digest    string   // of all events, in order
	Violation *Violation
	Log       []string
}

// String is the report of a failure with its choices.
func (r *Report) String() string {
	if r.Violation == nil {
		return fmt.Sprintf("seed %d: no violation in %d choices, digest %s", r.Config.Seed, len(r.Trace), r.Digest)
	}
	return fmt.Sprintf("seed %d, faults %v, digest %s: %s\n%s",
		r.Config.Seed, r.Config.Faults, r.Digest, r.Violation, FormatTrace(r.Trace))
}

// Grid is the machine of every world.
var Grid = topology.Grid{Sockets: 2, NodesPerSocket: 1, L3PerNode: 1, CoresPerL3: 4, ThreadsPerCore: 2}

// Begin is the time at which every run begins.
func Begin() time.Time { return time.Unix(946684800, 0) }

// World is a node with its faults.
type World struct {
	cfg       Config
	rng       *rand.Rand
	topo      *topology.Topology
	offline   cpuset.Set
	kernel    *cgrouptest.Kernel
	node      node
	disk      disk
	active    activeFaults
	shell     Shell
	alive     bool
	ops       []*Op
	elapsed   time.Duration
	jump      time.Duration // of the wall clock
	log       []string
	violation *Violation
}

// NewShell makes a shell whose I/O operations are ops of the world.
type NewShell func(*World) Shell

// Play executes a run.
func Play(cfg Config, newShell NewShell) *Report {
	topo, err := Grid.Build()
	if err != nil {
		panic(err) // the grid is a constant
	}
	w := &World{
		cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 19)), topo: topo,
		kernel: cgrouptest.New(topo.Online()),
	}
	w.active.poisoned = map[string]string{}
	if cfg.Swarm {
		w.swarm()
	}
	for _, slice := range []string{"kubepods", "kubepods/burstable", "kubepods/besteffort"} {
		w.kernel.Mkdir(slice, 0)
	}
	w.shell = newShell(w)
	report := &Report{Config: w.cfg}
	w.do(Choice{Do: "start"})
	w.do(Choice{Do: "connect"})
	w.play(report)
	if w.violation == nil {
		w.settle()
	}
	if w.alive {
		w.shell.Kill()
	}
	report.Digest, report.Violation, report.Log = digest(w.log), w.violation, w.log
	return report
}

func (w *World) play(report *Report) {
	if w.cfg.Trace != nil {
		for _, c := range w.cfg.Trace {
			if w.violation != nil {
				return
			}
			if w.do(c) {
				report.Trace = append(report.Trace, c)
			}
		}
		return
	}
	if w.cfg.Rest != nil {
		w.playLong()
		return
	}
	for range w.cfg.Steps {
		if w.violation != nil {
			return
		}
		c := w.choose()
		if !w.do(c) {
			panic("a choice that cannot be made: " + c.String())
		}
		report.Trace = append(report.Trace, c)
	}
}

// swarm leaves out some of the faults, and chooses by the seed which ops wait at a gate.
func (w *World) swarm() {
	var kept []Fault
	for _, f := range w.cfg.Faults {
		if w.rng.IntN(3) > 0 {
			kept = append(kept, f)
		}
	}
	w.cfg.Faults = kept
	w.cfg.Gates.Reads = w.cfg.Gates.Reads && w.rng.IntN(4) == 0
	w.cfg.Gates.Points = w.cfg.Gates.Points && w.rng.IntN(3) == 0
}

func (w *World) has(f Fault) bool { return slices.Contains(w.cfg.Faults, f) }

// Gated reports whether a shell's ops of a kind have to wait for the world.
func (w *World) Gated(k Kind) bool {
	switch k {
	case Read:
		return w.cfg.Gates.Reads
	case Point:
		return w.cfg.Gates.Points
	}
	return true
}

// Topology is the machine's, as it is now.
func (w *World) Topology() *topology.Topology { return w.topo }

// Jump is how far the wall clock was set. It changes only while the daemon does not run.
func (w *World) Jump() time.Duration { return w.jump }

func (w *World) clock() time.Time { return Begin().Add(w.elapsed) }

func (w *World) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

// run lets time pass. A late write takes effect at its time, not at the end of a wait.
func (w *World) run(d time.Duration) {
	for end := w.elapsed + d; ; {
		step := end - w.elapsed
		for _, l := range w.active.late {
			step = min(step, max(l.until.Sub(w.clock()), 0))
		}
		w.pass(step)
		if w.elapsed >= end || w.violation != nil {
			return
		}
	}
}

// pass lets time pass and takes the shell's ops and replies.
func (w *World) pass(d time.Duration) {
	w.elapsed += d
	out := w.shell.Run(d)
	slices.SortStableFunc(out.Ops, func(a, b *Op) int { return cmp.Compare(a.key(), b.key()) })
	for _, o := range out.Ops {
		w.note("waits: %s %s", o.key(), valuesText(o))
	}
	w.ops = append(w.ops, out.Ops...)
	for _, o := range out.Ops {
		w.checkAhead(o)
	}
	for _, p := range out.Panics {
		w.violate(PropAlive, "the shell panicked: %s", p)
	}
	for _, a := range out.Answers {
		w.answered(a)
	}
	w.dispatch()
	w.landLate(func(l lateWrite) bool { return !w.clock().Before(l.until) })
}

func valuesText(o *Op) string {
	if o.Kind != Write {
		return ""
	}
	text := ""
	if !o.Values.CPUs.IsZero() {
		text = "cpus=" + o.Values.CPUs.String()
	}
	if o.Values.Quota != nil {
		text += " quota=" + o.Values.Quota.String()
	}
	return text
}

// dispatch sends the runtime's next request, if there is one and none is in flight. A runtime without
// a connection sends nothing and goes on.
func (w *World) dispatch() {
	n := &w.node
	for (!w.alive || !n.connected) && len(n.queue) > 0 {
		n.inFlight, n.queue = n.queue[0], n.queue[1:]
		w.noteSliceWrites(n.inFlight)
		w.answered(Answer{To: n.inFlight, unconnected: true})
	}
	if !w.alive || n.inFlight != nil || !n.synced || len(n.queue) == 0 {
		return
	}
	n.inFlight, n.queue = n.queue[0], n.queue[1:]
	w.call(n.inFlight)
}

// noteSliceWrites records the writes of its slice that are in flight, or may still take effect, when a pod starts,
// announced or not, and when a Synchronize announces it; and the same of a container that is created without a reply.
func (w *World) noteSliceWrites(r *Request) {
	switch r.Kind {
	case RunPod:
		r.Pod.sliceWrites = w.pendingWrites(path.Dir(r.Pod.Parent()))
	case Synchronize:
		for _, p := range r.Pods {
			if p.unannounced {
				p.sliceWrites = w.pendingWrites(path.Dir(p.Parent()))
			}
		}
		for _, c := range r.Containers {
			if c.unheard {
				c.writes = w.writesAbove(c)
			}
		}
	}
}

// pendingWrites are the writes of a cgroup that may take effect from now on.
func (w *World) pendingWrites(path string) (list []*Op) {
	for _, o := range w.ops {
		if o.Kind == Write && o.Path == path {
			list = append(list, o)
		}
	}
	for _, l := range w.active.late {
		if l.path == path {
			list = append(list, l.of)
		}
	}
	return list
}

// writesAbove are those of the cgroups above a container.
func (w *World) writesAbove(c *Container) []*Op {
	pod := c.Pod.Parent()
	return slices.Concat(w.pendingWrites(path.Dir(pod)), w.pendingWrites(pod))
}

func (w *World) call(r *Request) {
	r.sent, r.offline, r.unread = w.clock(), w.offline, w.alive && w.shell.View().Unread
	what := ""
	if r.Pod != nil {
		what = r.Pod.Name
	}
	w.noteSliceWrites(r)
	w.note("calls: %s %s", r.Kind, what)
	w.shell.Call(r)
	w.run(0)
}

// answered is the runtime's reaction to a reply.
func (w *World) answered(a Answer) {
	n := &w.node
	if a.To.Claim != nil {
		w.claimAnswered(a)
		return
	}
	if a.To != n.inFlight {
		return // it belongs to a connection that is lost
	}
	n.inFlight = nil
	w.note("answers: %s cpus=%q quota=%d err=%v", a.To.Kind, a.CPUs, a.Quota, a.Err)
	switch a.To.Kind {
	case Synchronize:
		n.synced = a.Err == nil
		n.connected = n.synced
		for _, p := range a.To.Pods {
			p.unannounced = p.unannounced && !n.synced
		}
		if n.synced {
			for _, c := range a.To.Containers {
				c.seeContainer()
				c.unheard = false
			}
		}
	case RunPod:
		w.sandboxAnswered(a)
	case Create:
		w.createAnswered(a)
	case StartCtr:
		w.startAnswered(a)
	case UpdatePod, UpdateCtr:
		w.resizeAnswered(a)
	case PostUpdatePod:
		w.podUpdated(a.To.Pod)
	}
}

func (w *World) sandboxAnswered(a Answer) {
	p := a.To.Pod
	if a.Err == nil {
		p.phase, p.unannounced = ready, a.unconnected
		return
	}
	// The runtime stops and removes a refused sandbox too, then kubelet tries again.
	w.node.enqueue(StopPod, p, nil)
	w.node.enqueue(RemovePod, p, nil)
	w.again(p)
}

// maxAttempts is how often kubelet tries a sandbox before the pod is deleted.
const maxAttempts = 3

func (w *World) again(p *Pod) {
	p.phase = wanted
	if p.attempts < maxAttempts {
		return
	}
	p.phase = over
	p.endClaim()
	w.kernel.Rmdir(p.Parent())
	w.node.pods = slices.DeleteFunc(w.node.pods, func(o *Pod) bool { return o == p })
}

func (w *World) createAnswered(a Answer) {
	c := a.To.Container
	if a.Err != nil {
		c.phase = over
		return
	}
	c.phase = ready
	c.cpus, c.quota = a.CPUs, a.Quota
	c.early = a.unconnected
	if a.unconnected {
		c.unheard, c.writes = a.To.sent.IsZero(), w.writesAbove(c)
	} else {
		// The daemon may not know yet which CPUs are online.
		c.Pod.off = c.Pod.off.Or(a.To.offline).Or(w.heldOff(w.shell.View()))
		c.early = a.To.unread || w.shell.View().Unread
		w.checkStart(c, cpuset.Set{})
		w.checkClaimed(c)
		w.checkBeside(c)
		c.seeContainer()
	}
	w.kernel.Mkdir(c.Path(), 0)
	if err := w.apply(c.Path(), c.values()); err != nil {
		panic(err) // of a cgroup that was just made
	}
}

// startAnswered starts a container, or removes it: then kubelet creates another one.
func (w *World) startAnswered(a Answer) {
	c := a.To.Container
	if a.Err == nil {
		w.launch(c)
		return
	}
	c.phase = over
	w.kernel.Rmdir(c.Path())
	w.node.enqueue(RemoveCtr, c.Pod, c)
}

// launch starts the container's task.
func (w *World) launch(c *Container) {
	c.phase = running
	w.kernel.Mkdir(c.Path(), 1)
	w.node.enqueue(PostStart, c.Pod, c)
}
