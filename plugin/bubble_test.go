package plugin

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"testing/synctest"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/failpoint"
	"github.com/quietcore/quietcore/internal/state"
	sim "github.com/quietcore/quietcore/internal/world"
	"github.com/quietcore/quietcore/policy"
)

// bubble drives the plugin in a synctest bubble: its goroutines block in the ops
// that they want from the world, and time passes only when the world lets it.
// The connection to the runtime is left out; the handlers are called as its stub would.
type bubble struct {
	w    *sim.World
	life *bubbleLife

	mu    sync.Mutex
	heard sim.Heard
}

// bubbleLife is one daemon.
type bubbleLife struct {
	b       *bubble
	plugin  *Plugin
	session *session
	tick    chan time.Time
	audit   chan time.Time
	vanish  chan time.Time
	ctx     context.Context
	cancel  context.CancelFunc
	end     chan struct{} // closed when it is killed
}

func newBubble(w *sim.World) sim.Shell { return &bubble{w: w} }

// Start begins a life without the edge: what Run runs but for connect.
func (b *bubble) Start(saved state.Snapshot) {
	l := &bubbleLife{
		b: b, end: make(chan struct{}),
		tick: make(chan time.Time, 1), audit: make(chan time.Time, 1), vanish: make(chan time.Time, 1),
	}
	b.life = l
	jump := b.w.Jump()
	o := Options{
		Topology: b.w.Topology(), Driver: l, Reader: bubbleReader{l}, Store: l, Saved: saved,
		Clock: Clock{
			Now:  func() time.Time { return time.Now().Add(jump) },
			Tick: l.tick, Audit: l.audit, Vanish: l.vanish, Jitter: func() float64 { return 0 },
		},
		At: func(p failpoint.Point) {
			if b.w.Gated(sim.Point) {
				l.ask(&sim.Op{Kind: sim.Point, Path: string(p)})
			}
		},
	}
	p, err := New(o)
	if err != nil {
		panic(err)
	}
	l.plugin = p
	p.loop.step = l.step
	l.ctx, l.cancel = context.WithCancel(context.Background())
	for _, part := range []func(context.Context){p.loop.run, p.enforcer.run, p.saver.run, p.collect,
		p.finishTakings} {
		l.spawn(func() { part(l.ctx) })
	}
}

// step panics where the world says so.
func (l *bubbleLife) step(m *policy.Machine, now time.Time, e policy.Event) ([]policy.Decision, error) {
	how := l.b.w.PanicIn(e)
	if how == "before" {
		panic("a defect before the step")
	}
	d, err := m.Step(now, e)
	if how == "after" {
		panic("a defect after the step")
	}
	return d, err
}

func (l *bubbleLife) spawn(f func()) {
	go func() {
		defer func() {
			if r := recover(); r != nil {
				l.b.mu.Lock()
				defer l.b.mu.Unlock()
				l.b.heard.Panics = append(l.b.heard.Panics, fmt.Sprintf("%v\n%s", r, debug.Stack()))
			}
		}()
		f()
	}()
}

// Kill ends the life: its goroutines end where they wait.
func (b *bubble) Kill() {
	close(b.life.end)
	b.life.cancel()
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.heard = sim.Heard{}
}

// ask waits for the world; it does not return in a life that is over.
func (l *bubbleLife) ask(o *sim.Op) sim.Result {
	select {
	case <-l.end:
		runtime.Goexit()
	default:
	}
	done := make(chan sim.Result, 1)
	o.Finish = func(r sim.Result) { done <- r }
	l.b.mu.Lock()
	l.b.heard.Ops = append(l.b.heard.Ops, o)
	l.b.mu.Unlock()
	select {
	case r := <-done:
		return r
	case <-l.end:
		runtime.Goexit()
	}
	panic("unreachable")
}

// Run lets time pass and waits until every goroutine waits.
func (b *bubble) Run(d time.Duration) sim.Heard {
	if d > 0 {
		time.Sleep(d)
	}
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.heard
	b.heard = sim.Heard{}
	return h
}

// View reads what belongs to the loop: it waits.
func (b *bubble) View() sim.View {
	p := b.life.plugin
	v := sim.View{
		Synced: p.once.Load(), Unread: p.Unread() != "", Settled: p.Settled(), Grants: map[string]cpuset.Set{},
	}
	view := p.loop.view.Load()
	if p.Frozen() != "" {
		for id, at := range p.loop.anchor.decided {
			if at.pod == "" && at.own != nil {
				v.Grants[id] = *at.own
			}
		}
	} else {
		view = p.loop.machine.Snapshot()
		for _, pod := range p.loop.machine.Checkpoint().Pods {
			if r := pod.Recovered; r != nil && r.CPUs != nil {
				v.Grants[pod.UID] = *r.CPUs
			}
		}
	}
	v.Shared, v.BE, v.Online = view.Shared, view.BE, view.Topology.Online()
	return v
}

// Call hands over what happened, as the stub would.
func (b *bubble) Call(r *sim.Request) {
	l := b.life
	p := l.plugin
	switch r.Kind {
	case sim.Connected:
		l.session = &session{Plugin: p, deadline: half(0)}
		p.connected.Store(true)
	case sim.Lost:
		p.synchronised.Store(false)
		p.connected.Store(false)
	case sim.Tick:
		poke(l.tick)
	case sim.Audit:
		poke(l.audit)
	case sim.Vanish:
		poke(l.vanish)
	case sim.Happened:
		l.spawn(func() { _ = p.Submit(l.ctx, r.Event) })
	default:
		s := l.session
		l.spawn(func() {
			a := serve(l.ctx, s, r)
			a.To = r
			b.mu.Lock()
			defer b.mu.Unlock()
			b.heard.Answers = append(b.heard.Answers, a)
		})
	}
}

func poke(c chan time.Time) {
	select {
	case c <- time.Now():
	default:
	}
}

// serve calls a handler.
func serve(ctx context.Context, s *session, r *sim.Request) sim.Answer {
	if r.Kind == sim.Synchronize {
		pods, containers := []*api.PodSandbox{}, []*api.Container{}
		for _, p := range r.Pods {
			pods = append(pods, p.API(p.SandboxID()))
		}
		for _, c := range r.Containers {
			containers = append(containers, c.API(c.Pod.SandboxID()))
		}
		_, err := s.Synchronize(ctx, pods, containers)
		return sim.Answer{Err: err}
	}
	pod := r.Pod.API(r.Sandbox())
	if r.Container == nil {
		return sim.Answer{Err: map[sim.RequestKind]func(context.Context, *api.PodSandbox) error{
			sim.RunPod: s.RunPodSandbox, sim.StopPod: s.StopPodSandbox, sim.RemovePod: s.RemovePodSandbox,
		}[r.Kind](ctx, pod)}
	}
	c := r.Container.API(r.Sandbox())
	var a sim.Answer
	switch r.Kind {
	case sim.Create:
		var adjust *api.ContainerAdjustment
		adjust, _, a.Err = s.CreateContainer(ctx, pod, c)
		cpu := adjust.GetLinux().GetResources().GetCpu()
		a.CPUs = cpu.GetCpus()
		if q := cpu.GetQuota(); q != nil {
			if a.Quota = q.GetValue() / 100; q.GetValue() < 0 {
				a.Quota = policy.NoLimit
			}
		}
	case sim.StartCtr:
		a.Err = s.StartContainer(ctx, pod, c)
	case sim.PostStart:
		a.Err = s.PostStartContainer(ctx, pod, c)
	case sim.StopCtr:
		_, a.Err = s.StopContainer(ctx, pod, c)
	case sim.RemoveCtr:
		a.Err = s.RemoveContainer(ctx, pod, c)
	}
	return a
}

// Apply and Save make the life its own driver and store.
func (l *bubbleLife) Apply(_ context.Context, path string, v cgroup.Values) error {
	return l.ask(&sim.Op{Kind: sim.Write, Path: path, Values: v}).Err
}

func (l *bubbleLife) Save(s state.Snapshot) error {
	return l.ask(&sim.Op{Kind: sim.Save, State: s}).Err
}

// bubbleReader is the life as a reader.
type bubbleReader struct{ l *bubbleLife }

func (r bubbleReader) read(what, path string) sim.Result {
	if !r.l.b.w.Gated(sim.Read) {
		return r.l.b.w.Look(what, path)
	}
	return r.l.ask(&sim.Op{Kind: sim.Read, What: what, Path: path})
}

func (r bubbleReader) Effective(path string) (cgroup.Effective, error) {
	a := r.read("effective", path)
	return a.Seen, a.Err
}

func (r bubbleReader) CPUs(path string) (cgroup.Effective, error) {
	a := r.read("cpus", path)
	return a.Seen, a.Err
}

func (r bubbleReader) Allowed(path string) (cpuset.Set, error) {
	a := r.read("allowed", path)
	return a.Seen.CPUs, a.Err
}

func (r bubbleReader) Children(path string) ([]string, error) {
	a := r.read("children", path)
	return a.Names, a.Err
}
