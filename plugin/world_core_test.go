package plugin

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/failpoint"
	"github.com/quietcore/quietcore/internal/state"
	sim "github.com/quietcore/quietcore/internal/world"
	"github.com/quietcore/quietcore/plugin/node"
	"github.com/quietcore/quietcore/policy"
)

// simulated is the core in a simulated world: what runs production's node.Core in place of the
// runner. It is one goroutine, so a seed is one run.
type simulated struct {
	w    *sim.World
	now  time.Time // without the jumps of the wall clock
	life *simulatedLife
}

// simulatedLife is one daemon.
type simulatedLife struct {
	s     *simulated
	core  *node.Core
	jump  time.Duration
	asked map[*node.Request]*sim.Request
	out   sim.Output
}

func newSimulated(w *sim.World) sim.Shell { return &simulated{w: w, now: sim.Begin()} }

// Start begins a life.
func (s *simulated) Start(saved state.Snapshot) {
	l := &simulatedLife{s: s, jump: s.w.Jump(), asked: map[*node.Request]*sim.Request{}}
	core, err := node.New(node.Options{
		Topology: s.w.Topology(), Saved: saved, Stores: true, Tree: node.TreeOptions{Reads: true, Writes: true},
		At: func(p failpoint.Point) { s.pass(string(p)) }, Log: slog.New(defectiveLog{slog.DiscardHandler, s}),
		Step: func(m *policy.Machine, now time.Time, e policy.Event) ([]policy.Decision, error) {
			how := s.w.PanicIn(e)
			if how == "before" {
				panic("a defect before the step")
			}
			d, err := m.Step(now, e)
			if how == "after" {
				panic("a defect after the step")
			}
			return d, err
		},
	})
	if err != nil {
		panic(err)
	}
	l.core = core
	s.life = l
}

// pass panics where the world has a defect.
func (s *simulated) pass(place string) {
	if s.w.Defect(place) {
		panic("a defect at " + place)
	}
}

// defectiveLog panics where the world has a defect.
type defectiveLog struct {
	slog.Handler
	s *simulated
}

func (l defectiveLog) Enabled(_ context.Context, level slog.Level) bool {
	return level == slog.LevelInfo
}

func (l defectiveLog) Handle(_ context.Context, r slog.Record) error {
	l.s.pass("log " + r.Message)
	return nil
}

// Kill ends the life: what it waits for never comes.
func (s *simulated) Kill() {
	s.life.core.Stop()
	s.life = nil
}

// Run lets time pass, from one timer to the next.
func (s *simulated) Run(d time.Duration) sim.Output {
	until := s.now.Add(d)
	l := s.life
	if l == nil {
		s.now = until
		return sim.Output{}
	}
	for turns := 0; ; turns++ {
		const most = 100_000
		if turns == most {
			l.out.Panics = append(l.out.Panics, "the core has no end of work at "+s.now.String())
		}
		next := l.core.Next().Add(-l.jump)
		if l.core.Next().IsZero() || next.After(until) || turns == most {
			s.now = until
			out := l.out
			l.out = sim.Output{}
			return out
		}
		if next.After(s.now) {
			s.now = next
		}
		l.step(node.Wake{})
	}
}

func (l *simulatedLife) step(in node.In) {
	defer func() {
		if p := recover(); p != nil {
			l.out.Panics = append(l.out.Panics, fmt.Sprintf("%v\n%s", p, debug.Stack()))
		}
	}()
	out := l.core.Step(l.s.now.Add(l.jump), in)
	for _, r := range out.Replies {
		l.answer(r)
	}
	for _, e := range out.Effects {
		l.perform(e)
	}
}

func (l *simulatedLife) answer(r node.Reply) {
	to := l.asked[r.To]
	if to == nil {
		return // of what is no request of the runtime
	}
	delete(l.asked, r.To)
	a := sim.Answer{To: to, Err: r.Err, Claim: r.Claim}
	if d := r.Container; d != nil && r.Err == nil {
		v := valuesOf(d, r.Topology)
		if a.CPUs = v.cpus; v.quota != nil {
			if a.Quota = v.quota.Micros / 100; v.quota.Micros < 0 {
				a.Quota = policy.NoLimit
			}
		}
	}
	l.out.Answers = append(l.out.Answers, a)
}

// perform hands an effect to the world, which carries reads out at once unless they wait.
func (l *simulatedLife) perform(e *node.Effect) {
	o := &sim.Op{Path: e.Path, Values: e.Values}
	switch e.Kind {
	case node.Write:
		o.Kind = sim.Write
	case node.Save:
		o.Kind, o.State = sim.Save, *e.State
	default:
		o.Kind, o.What = sim.Read, map[node.EffectKind]string{
			node.ReadAll: "effective", node.ReadCPUs: "cpus", node.ReadAllowed: "allowed", node.List: "children",
		}[e.Kind]
	}
	o.Finish = func(r sim.Result) {
		if l.s.life != l {
			return
		}
		result := &node.Result{Seen: r.Seen, Names: r.Names, CPUs: r.Seen.CPUs, Err: r.Err}
		if l.s.w.Defect("result of " + e.Kind.String()) {
			result = nil // which the core follows
		}
		l.step(node.Done{Op: e.Op, Result: result})
	}
	if o.Kind == sim.Read && !l.s.w.Gated(sim.Read) {
		o.Finish(l.s.w.Look(o.What, o.Path))
		return
	}
	l.out.Ops = append(l.out.Ops, o)
}

// Call hands over what happened, as the handlers would.
func (s *simulated) Call(r *sim.Request) {
	l := s.life
	switch r.Kind {
	case sim.Connected:
	case sim.Lost:
		l.step(node.Lost{})
	case sim.Tick:
		l.step(node.Tick{})
	case sim.Audit:
		l.step(node.Audit{})
	case sim.Vanish:
		l.step(node.Round{})
	case sim.Happened:
		l.step(&node.Request{Event: r.Event})
	case sim.StopPod:
		l.step(node.Stopping{Pod: r.Pod.UID()})
		l.out.Answers = append(l.out.Answers, sim.Answer{To: r})
	case sim.PostUpdatePod:
		l.step(node.Recheck{Pod: r.Pod.UID()})
		l.out.Answers = append(l.out.Answers, sim.Answer{To: r})
	case sim.PostStart, sim.PostUpdateCtr:
		l.step(node.Verify{Container: r.Container.ID})
		l.out.Answers = append(l.out.Answers, sim.Answer{To: r})
	case sim.StartCtr:
		if l.core.Knows(r.Container.ID) {
			l.out.Answers = append(l.out.Answers, sim.Answer{To: r})
			return
		}
		l.ask(r)
	default:
		l.ask(r)
		switch r.Kind {
		case sim.RemoveCtr:
			l.step(node.Stopping{Pod: r.Pod.UID()})
		case sim.UpdatePod:
			l.step(node.Recheck{Pod: r.Pod.UID()})
		}
	}
}

// ask hands over a request that is answered.
func (l *simulatedLife) ask(r *sim.Request) {
	in := l.request(r)
	in.Deadline = l.s.now.Add(l.jump + time.Second)
	if r.Claim != nil {
		in.Deadline = l.s.now.Add(l.jump + claimFor)
	}
	l.asked[in] = r
	l.step(in)
}

// request is what a handler makes of one.
func (l *simulatedLife) request(r *sim.Request) *node.Request {
	if r.Kind == sim.Synchronize {
		var pods []*api.PodSandbox
		var ctrs []*api.Container
		for _, p := range r.Pods {
			pods = append(pods, p.API(p.SandboxID()))
		}
		for _, c := range r.Containers {
			ctrs = append(ctrs, c.API(c.Pod.SandboxID()))
		}
		listed := inventoryOf(pods, ctrs, "", l.s.now.Add(l.jump))
		return &node.Request{Inventory: &listed}
	}
	if r.Claim != nil {
		return &node.Request{Event: r.Event}
	}
	pod := podOf(r.Pod.API(r.Sandbox()), "")
	pod.CreatedAt = l.s.now.Add(l.jump)
	in := &node.Request{Pod: pod.UID}
	var ctr *api.Container
	if r.Container != nil {
		ctr = r.Container.API(r.Sandbox())
	}
	switch r.Kind {
	case sim.RunPod:
		in.Event = policy.PodRun{Pod: pod}
	case sim.RemovePod:
		in.Event = policy.PodRemoved{Sandbox: pod.Sandbox}
	case sim.Create, sim.StartCtr:
		in.Event = policy.ContainerCreate{Pod: pod, Container: containerOf(ctr, &pod, pod.CreatedAt)}
		in.Made = r.Kind == sim.StartCtr
	case sim.UpdatePod:
		in.Event = resizeOf(pod.Sandbox, r.Resources)
	case sim.UpdateCtr:
		in.Event = updateOf(ctr.GetId(), &api.LinuxResources{Cpu: r.Resources})
	case sim.StopCtr, sim.RemoveCtr:
		in.Event = policy.ContainerStopped{ID: ctr.GetId()}
	}
	return in
}

// View is what the daemon holds to be so.
func (s *simulated) View() sim.View {
	c := s.life.core
	view, status := c.Snapshot(), c.Status()
	return sim.View{
		Synced: status.Synchronized, Frozen: status.Frozen != "", Unread: status.Unread > 0,
		Settled: c.Settled(), Grants: func() map[string]cpuset.Set { return grantsOf(c) },
		Shared: view.Shared, BE: view.BE, Online: view.Topology.Online(),
	}
}

// grantsOf are the CPUs of pods and of claims.
func grantsOf(c *node.Core) map[string]cpuset.Set {
	grants := c.Grants()
	if c.Status().Frozen != "" {
		return grants
	}
	for _, r := range c.Checkpoint().Claims {
		for i := range r.Given {
			if cpus := r.Given[i].CPUs; cpus != nil {
				grants[r.UID] = grants[r.UID].Or(*cpus)
			}
		}
	}
	return grants
}
