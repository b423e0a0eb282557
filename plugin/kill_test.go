package plugin

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/failpoint"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// doom counts the points that a daemon passes and kills it at one of them, as
// kill -9 would: whoever passes anything afterwards goes no further, nothing more
// is written or saved, and the runtime sees the connection end.
type doom struct {
	at    failpoint.Point
	n     int // 0: never
	kill  func()
	dead  chan struct{}
	grave chan struct{} // closed at the end of the test: what stood still ends

	mu     sync.Mutex
	passed map[failpoint.Point]int
}

func newDoom(at failpoint.Point, n int) *doom {
	return &doom{at: at, n: n, dead: make(chan struct{}), grave: make(chan struct{}), passed: map[failpoint.Point]int{}}
}

func (d *doom) pass(p failpoint.Point) {
	d.stand()
	d.mu.Lock()
	d.passed[p]++
	now := p == d.at && d.passed[p] == d.n
	if now {
		close(d.dead)
	}
	d.mu.Unlock()
	if now {
		d.kill()
	}
	d.stand()
}

// stand holds whoever belongs to a dead daemon.
func (d *doom) stand() {
	select {
	case <-d.dead:
		<-d.grave
		runtime.Goexit()
	default:
	}
}

func (d *doom) struck() bool {
	select {
	case <-d.dead:
		return true
	default:
		return false
	}
}

func (d *doom) counts() map[failpoint.Point]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.passed)
}

// mortal is the driver of a daemon that may be dead.
type mortal struct {
	cgroup.Driver
	doom *doom
}

func (m mortal) Apply(ctx context.Context, path string, v cgroup.Values) error {
	m.doom.stand()
	return m.Driver.Apply(ctx, path, v)
}

// world is a node that outlives its daemons: the kernel, the runtime, the state
// folder and the wall clock.
type world struct {
	*rig
	dir    string
	ahead  atomic.Int64 // of the wall clock, in nanoseconds
	passed atomic.Int64 // beyond real time
	boot   time.Time
	name   string // of the node
	doom   *doom
	change func(*Options)
	audit  chan time.Time
	vanish chan time.Time
	buried []func()
}

func newWorld(t testing.TB) *world {
	w := &world{rig: newNode(t, grid(t, testGrid)), dir: filepath.Join(memoryDir(t), "state"),
		boot: time.Now().Add(-time.Hour), name: "n"}
	w.startRuntime()
	t.Cleanup(func() {
		for _, bury := range w.buried {
			bury()
		}
		w.plugin = nil
	})
	return w
}

// memoryDir is a folder where a sync costs nothing, if there is one.
func memoryDir(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "quietcore-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (w *world) now() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) }

func (w *world) uptime() time.Duration { return time.Since(w.boot) + time.Duration(w.passed.Load()) }

func (w *world) stateFile(d *doom) *state.Store {
	return &state.Store{Dir: w.dir, Node: w.name, BootID: "b", Now: w.now, Uptime: w.uptime,
		At: failpoint.AtStage(d.pass)}
}

// begin starts a daemon that meets its doom, and waits until it is settled or dead.
func (w *world) begin(d *doom) {
	w.t.Helper()
	w.audit, w.vanish, w.doom = make(chan time.Time), make(chan time.Time), d
	if err := state.Prepare(w.dir); err != nil { // as the lock is taken
		w.t.Fatal(err)
	}
	store := w.stateFile(d)
	o := w.options()
	o.Driver, o.Store, o.Saved, o.At = mortal{w.kernel, d}, store, store.Load().Snapshot, d.pass
	o.Clock.Now, o.Clock.Audit, o.Clock.Vanish = w.now, w.audit, w.vanish
	if w.change != nil {
		w.change(&o)
	}
	o.saveEvery = time.Nanosecond
	p, err := New(o)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	d.kill = func() { cancel(); w.cut() }
	w.plugin, w.stop, w.done = p, cancel, done
	go func() {
		defer close(done)
		p.Run(ctx)
	}()
	w.buried = append(w.buried, func() { cancel(); close(d.grave); <-done })
	w.rest()
}

// rest waits until the daemon is settled, or dead.
func (w *world) rest() {
	w.t.Helper()
	eventually(w.t, "the daemon is settled or dead", func() bool { return w.doom.struck() || w.plugin.Settled() })
	if w.doom.struck() {
		w.plugin = nil
		return
	}
	w.admitted()
}

// cut ends every connection to the runtime.
func (w *world) cut() {
	w.mu.Lock()
	lines := w.lines
	w.lines = nil
	w.mu.Unlock()
	for _, c := range lines {
		c.Close()
	}
}

// submit gives the daemon an event that is not the runtime's, if it is there.
func (w *world) submit(e policy.Event) error {
	if w.plugin == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	dead := w.doom.dead
	go func() {
		select {
		case <-dead:
			cancel()
		case <-ctx.Done():
		}
	}()
	err := w.plugin.Submit(ctx, e)
	if w.doom.struck() {
		return nil
	}
	return err
}

// tick lets a periodic part run once, if the daemon is there.
func (w *world) tick(c chan time.Time) {
	select {
	case c <- w.now():
	case <-w.doom.dead:
	case <-time.After(limitOfWait):
		w.t.Error("a periodic part of the daemon does not run")
	}
}

// A step of a life is something that happens on the node. Refusals are the
// daemon's to give, so a step does not fail by one.
type step struct {
	name    string
	do      func(w *world)
	touches []string // the pods whose CPUs it is about
}

func podQuota(w *world, s spec) {
	limit := int64(0)
	for _, c := range s.ctrs {
		if c.limit == 0 {
			return
		}
		limit += c.limit
	}
	if limit > 0 {
		w.setQuota(s.parent(), limit)
	}
}

func (w *world) setQuota(path string, milli int64) {
	w.t.Helper()
	if err := w.kernel.Apply(context.Background(), path, cgroup.Values{Quota: &cgroup.Quota{Micros: milli * 100,
		Period: 100000}}); err != nil {
		w.t.Error(err)
	}
}

func doRun(s spec) step {
	return step{name: "run " + s.name, touches: []string{s.name}, do: func(w *world) {
		w.kernel.Mkdir(s.parent(), 0)
		podQuota(w, s)
		if err := w.run(s); err != nil {
			w.log.Write([]byte("run " + s.name + ": " + err.Error() + "\n"))
			w.kernel.Rmdir(s.parent())
		}
	}}
}

func doRemove(s spec) step {
	return step{name: "remove " + s.name, touches: []string{s.name}, do: func(w *world) {
		if w.pods["sb-"+s.name] != nil {
			w.remove(s)
		}
	}}
}

// doRestart replaces a container; early has the new one come before the old one ends.
func doRestart(s spec, early bool) step {
	return step{name: fmt.Sprintf("restart %s, early %v", s.name, early), do: func(w *world) {
		old, c := s.name+"-"+s.ctrs[0].name, s.ctrs[0]
		if !early {
			w.end(old)
		}
		if err := w.startContainer(s, old+"-2", c); err != nil {
			w.t.Errorf("restart of %s: %v", s.name, err)
		}
		if early {
			w.end(old)
		}
	}}
}

// doResize does what kubelet does: of the pod's cgroup and its containers, the
// one that has room for the other first.
func doResize(s spec, from, to int64) step {
	return step{name: fmt.Sprintf("resize %s to %d", s.name, to), touches: []string{s.name}, do: func(w *world) {
		pod := func() {
			if _, err := w.nri.UpdatePodSandbox(short(w.t), &adaptation.UpdatePodSandboxRequest{
				Pod: w.pods["sb-"+s.name], OverheadLinuxResources: &api.LinuxResources{},
				LinuxResources: &api.LinuxResources{Cpu: cpuOf(to, to, "")},
			}); err != nil {
				w.t.Errorf("resize of %s: %v", s.name, err)
			}
			w.setQuota(s.parent(), to)
			if err := w.nri.PostUpdatePodSandbox(short(w.t),
				&adaptation.PostUpdatePodSandboxRequest{Pod: w.pods["sb-"+s.name]}); err != nil {
				w.t.Error(err)
			}
		}
		if to > from {
			pod()
		}
		if err := w.update(s.name+"-main", cpuOf(to, to, "")); err != nil {
			w.t.Errorf("resize of %s: %v", s.name, err)
		}
		if to < from {
			pod()
		}
	}}
}

func doCap(id string, milli int64, d time.Duration) step {
	return step{name: "cap " + id, do: func(w *world) {
		if err := w.submit(policy.CapVerdict{ID: id, Milli: milli, For: d}); err != nil {
			w.t.Errorf("cap of %s: %v", id, err)
		}
	}}
}

func doWait(d time.Duration) step {
	return step{name: "time passes", do: func(w *world) {
		w.ahead.Add(int64(d))
		w.passed.Add(int64(d))
		if err := w.submit(policy.Tick{}); err != nil {
			w.t.Error(err)
		}
	}}
}

// doOnline makes exactly these CPUs online. Of the others /sys does not say where
// they are, and only a daemon that was there remembers.
func doOnline(cpus string, touches ...string) step {
	return step{name: "online " + cpus, touches: touches, do: func(w *world) {
		online, err := cpuset.Parse(cpus)
		if err != nil {
			w.t.Fatal(err)
		}
		w.kernel.SetOnline(online)
		w.topo = onlyOnline(w.t, online)
		if w.plugin == nil {
			return
		}
		fresh, err := w.topo.Remembering(w.plugin.Snapshot().Topology)
		if err != nil {
			w.t.Fatal(err)
		}
		if err := w.submit(policy.Hardware{Topology: fresh}); err != nil {
			w.t.Error(err)
		}
	}}
}

func onlyOnline(t testing.TB, online cpuset.Set) *topology.Topology {
	t.Helper()
	whole := grid(t, testGrid)
	cpus := slices.DeleteFunc(slices.Clone(whole.CPUs()), func(c topology.CPU) bool { return !online.Has(c.ID) })
	all := whole.Known()
	memory := map[int]uint64{}
	for _, n := range whole.Nodes() {
		memory[n.ID] = n.MemoryBytes
	}
	topo, err := topology.New(cpus, topology.Options{Offline: all.Minus(online), Memory: memory})
	if err != nil {
		t.Fatal(err)
	}
	return topo
}

// doVanish ends a pod unannounced, and lets the collection find it.
func doVanish(s spec) step {
	return step{name: "vanish " + s.name, touches: []string{s.name}, do: func(w *world) {
		w.mu.Lock()
		delete(w.pods, "sb-"+s.name)
		maps.DeleteFunc(w.containers, func(_ string, c *api.Container) bool { return c.PodSandboxId == "sb-"+s.name })
		w.mu.Unlock()
		w.kernel.Rmdir(s.parent())
		w.collect()
	}}
}

func (w *world) collect() {
	for range rounds { // the last is taken once those before were dealt with
		if w.plugin != nil && !w.doom.struck() {
			w.tick(w.vanish)
		}
	}
}

// life is what happens while a daemon is there; ready is what ran before it.
type life struct {
	name   string
	ready  []step
	steps  []step
	exempt []string // pods of which a dead daemon leaves something else: see the life
}

func lse(name string, milli int64) spec {
	s := lsr(name, milli)
	s.class = policy.LSE
	return s
}

// widened is an owner of the burstable class: its slice is widened and its
// siblings are narrowed one by one.
func widened(name string, milli int64) spec {
	s := lsr(name, milli)
	s.qos = policy.Burstable
	return s
}

func noisy(name string) spec {
	return spec{name: name, class: policy.BE, qos: policy.Burstable,
		ctrs: []ctr{{name: "main", request: 1000, limit: 2000}}}
}

func lives() []life {
	shared := []step{doRun(burstable("web")), doRun(bestEffort("low"))}
	isolated := lsr("iso", 1000)
	isolated.annot = map[string]string{policy.AnnSMT: "isolate"}
	two := lsr("two", 2000)
	two.ctrs = []ctr{{name: "a", request: 2000, limit: 2000}, {name: "b", request: 2000, limit: 2000}}
	return []life{
		{name: "owners beside shared pods", steps: append(shared, doRun(lse("db", 4000)), doRun(lsr("cache", 2000)),
			doRun(isolated), doRun(two))},
		{name: "an owner of the burstable class", steps: append(shared, doRun(lsr("a", 2000)),
			doRun(widened("db", 4000)), doRun(burstable("web2")), doRemove(widened("db", 4000)))},
		{name: "a container restarts", ready: []step{doRun(burstable("web"))},
			steps: []step{doRun(lsr("a", 2000)), doRun(lse("db", 2000)), doRestart(lse("db", 2000), false),
				doRestart(lsr("a", 2000), true)}},
		{name: "up and down in size", steps: append(shared, doRun(lse("db", 2000)), doRun(lsr("next", 2000)),
			doResize(lse("db", 2000), 2000, 6000), doResize(lse("db", 2000), 6000, 4000), doRun(lsr("last", 4000)))},
		{name: "pods come and go", steps: append(shared, doRun(lse("a", 4000)), doRun(lsr("b", 2000)),
			doRemove(lse("a", 4000)), doRun(lsr("c", 2000)), doRemove(burstable("web")))},
		{name: "a cap begins and ends", steps: []step{doRun(noisy("noisy")), doRun(bestEffort("low")),
			doRun(lse("db", 2000)), doCap("noisy-main", 100, 5*time.Minute), doCap("low-main", 10, time.Minute),
			doWait(2 * time.Minute), doRun(burstable("web")), doWait(4 * time.Minute)}},
		{name: "a pod is refused", steps: append(shared, doRun(lse("db", 4000)), doRun(lsr("odd", 1500)),
			doRun(lsr("huge", 40000)), doRun(lsr("a", 2000))), exempt: []string{"odd", "huge"}},
		{name: "pods ran before", ready: append(shared, doRun(lse("a", 4000)), doRun(lsr("b", 2000))),
			steps: []step{doRun(lsr("c", 2000))}},
		{name: "CPUs go and return", steps: append(shared, doRun(lse("db", 4000)), doRun(lsr("b", 2000)),
			doOnline("0-2,6-15", "db", "b"), doRun(lsr("c", 2000)), doOnline("0-15", "db", "b"))},
		{name: "a pod vanishes", steps: append(shared, doRun(lse("db", 4000)), doRun(lsr("b", 2000)),
			doVanish(lse("db", 4000)), doRun(lsr("c", 2000)))},
	}
}

// owners are the containers that run on CPUs of their own, by the kernel.
func (w *world) owners() map[string]string {
	all := map[string]string{}
	if w.plugin == nil {
		return all
	}
	for _, c := range w.plugin.Snapshot().Containers {
		if c.Pool == policy.PoolExclusive && w.containers[c.ID] != nil {
			all[c.ID] = w.on(c.ID)
		}
	}
	return all
}

// stayed wants that no owner of CPUs moved.
func (w *world) stayed(before map[string]string, s step, when string) {
	w.t.Helper()
	for id, cpus := range before {
		c := w.containers[id]
		if c == nil || slices.ContainsFunc(s.touches, func(name string) bool {
			return strings.HasSuffix(c.PodSandboxId, "sb-"+name)
		}) {
			continue
		}
		was, _ := cpuset.Parse(cpus)
		on, err := cpuset.Parse(w.on(id))
		if now := w.on(id); err != nil || !was.SubsetOf(&on) { // it may have been given what it waited for
			w.t.Errorf("%s: owner %s moved from %s to %s", when, id, cpus, now)
		}
	}
}

// sound checks the books against each other and against the kernel.
func (w *world) sound() {
	w.t.Helper()
	w.checkOwners()
	s := w.plugin.Snapshot()
	online := w.kernelOnline()
	if all := s.Shared.Or(s.Exclusive).Or(s.Withheld); all != online || s.Shared.Intersects(&s.Exclusive) ||
		s.Shared.Intersects(&s.Withheld) {
		w.t.Errorf("shared %s, exclusive %s and withheld %s are not, each once, the CPUs %s", s.Shared, s.Exclusive,
			s.Withheld, online)
	}
	var owned cpuset.Set
	seen := map[string]bool{}
	for _, c := range s.Containers {
		if w.containers[c.ID] == nil {
			w.t.Errorf("container %s is on the books and not there", c.ID)
			continue
		}
		if got, want := w.on(c.ID), s.CPUs(c); got != want.String() {
			w.t.Errorf("container %s runs on %s, want %s", c.ID, got, want)
		}
		if got := w.quota(w.containers[c.ID].Linux.CgroupsPath); got != c.QuotaMilli {
			w.t.Errorf("the quota of %s is %dm, want %dm", c.ID, got, c.QuotaMilli)
		}
		if c.Pool == policy.PoolExclusive && !seen[c.PodUID] {
			seen[c.PodUID] = true
			own := s.CPUs(c)
			if both := owned.And(own); !both.IsEmpty() {
				w.t.Errorf("CPUs %s are owned twice", both)
			}
			owned.AddSet(&own)
		}
	}
	if len(s.Containers) != len(w.containers) {
		w.t.Errorf("%d containers are on the books, %d are there", len(s.Containers), len(w.containers))
	}
	held := map[string]bool{}
	for _, p := range w.checkpoint().Pods {
		held[p.Sandbox] = true
	}
	for id := range w.pods {
		if !held[id] {
			w.t.Errorf("sandbox %s is not on the books", id)
		}
		delete(held, id)
	}
	if len(held) > 0 {
		w.t.Errorf("sandboxes %v are on the books and gone", slices.Collect(maps.Keys(held)))
	}
}

func (w *world) kernelOnline() cpuset.Set {
	e, err := w.kernel.Effective("kubepods")
	if err != nil {
		w.t.Fatal(err)
	}
	return e.CPUs
}

// picture is everything that the kernel holds of the pods, and the pools.
func (w *world) picture(exempt []string) map[string]string {
	s := w.plugin.Snapshot()
	all := map[string]string{"pool shared": s.Shared.String(), "pool be": s.BE.String(),
		"exclusive": s.Exclusive.String(), "withheld": s.Withheld.String()}
	for id, c := range w.containers {
		all[id] = fmt.Sprintf("on %s, quota %dm", w.on(id), w.quota(c.Linux.CgroupsPath))
	}
	for id, p := range w.pods {
		all[id] = fmt.Sprintf("quota %dm", w.quota(p.Linux.CgroupParent))
	}
	for _, slice := range []string{"kubepods/burstable", "kubepods/besteffort"} {
		if e, err := w.kernel.Effective(slice); err == nil {
			all[slice] = e.CPUs.String()
		}
	}
	maps.DeleteFunc(all, func(key, _ string) bool {
		return slices.ContainsFunc(exempt, func(name string) bool {
			return strings.HasPrefix(key, name+"-") || key == "sb-"+name
		})
	})
	return all
}

// play lets a life happen to a daemon with a doom. Once it is dead the step under
// way ends without it, another daemon starts, and life goes on.
func (w *world) play(l life, d *doom) {
	w.t.Helper()
	for _, s := range l.ready {
		s.do(w)
	}
	w.begin(d)
	again := func(before map[string]string, s step) {
		if w.plugin != nil {
			return
		}
		w.stayed(before, s, "while the daemon is dead")
		w.begin(newDoom("", 0))
		w.collect()
		w.rest()
		w.stayed(before, s, "after the restart")
		w.sound()
	}
	again(nil, step{name: "start"})
	for _, s := range l.steps {
		before := w.owners()
		s.do(w)
		w.rest()
		again(before, s)
	}
	w.collect()
	w.rest()
	again(nil, step{name: "end"})
	w.sound()
}

var killAll = flag.Bool("kill.all", false,
	"kill the daemon at every passing of every point, not at three of each in each life")

// passings are those of n at which to kill: the first, the last and one between.
func passings(n int) []int {
	var all []int
	for i := 1; i <= n; i++ {
		if *killAll || i == 1 || i == n || i == (n+1)/2 {
			all = append(all, i)
		}
	}
	return all
}

// atOnce is how many daemons are killed at a time: a life is mostly waiting.
const atOnce = 8

// Whatever is half done when the daemon is killed, the next one finds every pod
// in its place and ends where a daemon ends that was never killed.
func TestKilledAtEveryPointOfEveryLife(t *testing.T) {
	patient(t)
	reached := map[failpoint.Point]int{}
	kills := 0
	for _, l := range lives() {
		t.Run(l.name, func(t *testing.T) {
			w := newWorld(t)
			w.noHeal = true // which CPUs a pod gets would depend on when the next daemon starts
			whole := newDoom("", 0)
			w.play(l, whole)
			want := w.picture(l.exempt)
			if t.Failed() {
				return
			}
			var jobs sync.WaitGroup
			free := make(chan struct{}, atOnce)
			for _, p := range failpoint.Points() {
				n := whole.counts()[p]
				reached[p] += n
				for _, i := range passings(n) {
					kills++
					free <- struct{}{}
					jobs.Go(func() {
						defer func() { <-free }()
						t.Run(fmt.Sprintf("%s:%d", p, i), func(t *testing.T) {
							w := newWorld(t)
							w.noHeal = true
							w.play(l, newDoom(p, i))
							got := w.picture(l.exempt)
							for key, v := range want {
								if got[key] != v {
									t.Errorf("%s: %s; without a kill %s", key, got[key], v)
								}
							}
						})
					})
				}
			}
			jobs.Wait()
		})
	}
	for _, p := range failpoint.Points() {
		if reached[p] == 0 {
			t.Errorf("no life passes %s", p)
		}
	}
	t.Logf("%d kills", kills)
}
