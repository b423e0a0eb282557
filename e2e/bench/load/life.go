package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"
	"golang.org/x/sys/unix"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/e2e/bench/figures"
	"github.com/quietcore/quietcore/e2e/kubelet"
)

const ownerCPUs = 4

// node is the guest as a Kubernetes node.
type node struct {
	o      *options
	driver kubelet.Driver
	tree   tree
	daemon *daemon
	idler  *exec.Cmd
	ours   *runtimeSide
	idle   *runtimeSide

	works      *os.File // what containers work by; nil: they sleep
	containers int      // burstable ones
	owners     int      // that ever were
}

func newNode(ctx context.Context, o *options) (*node, error) {
	n := &node{o: o, driver: kubelet.Driver(o.driver), tree: folders{}}
	var err error
	if n.driver == kubelet.Systemd {
		if n.tree, err = newUnits(ctx); err != nil {
			return nil, err
		}
	}
	for _, name := range []kubelet.CgroupName{kubelet.Root(), kubelet.ClassCgroup(kubelet.Burstable),
		kubelet.ClassCgroup(kubelet.BestEffort)} {
		if err := n.tree.make(ctx, name, kubelet.CPU{}); err != nil {
			return nil, err
		}
	}
	ours, idle := workDir+"/ours.sock", workDir+"/idle.sock"
	if n.ours, err = startRuntime(ours); err != nil {
		return nil, err
	}
	if n.idle, err = startRuntime(idle); err != nil {
		return nil, err
	}
	if n.daemon, err = startDaemon(ours, o.config()); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	n.idler = exec.Command(self, "nothing", idle)
	n.idler.Stderr = os.Stderr
	if err := n.idler.Start(); err != nil {
		return nil, err
	}
	return n, errors.Join(n.ours.joined(ctx), n.idle.joined(ctx), n.daemon.settled(ctx))
}

// close leaves the containers: the guest ends with us.
func (n *node) close() {
	n.daemon.kill()
	_ = n.idler.Process.Kill()
	_ = n.idler.Wait()
}

func (n *node) burstable() string {
	return cgroupRoot + n.driver.Path(kubelet.ClassCgroup(kubelet.Burstable))
}

// hex64 is an id as runtimes make them, different for every kind and number.
func hex64(kind, number int) string { return fmt.Sprintf("%04x%060x", kind, number) }

func uid(kind, number int) string {
	return fmt.Sprintf("%08x-5d1c-4c5e-9d3a-%012x", kind, number)
}

func web(i int) *kubelet.Pod {
	return &kubelet.Pod{
		Name: fmt.Sprint("web-", i), Namespace: "default", UID: uid(1, i),
		Labels:     map[string]string{"job": fmt.Sprint("job-", i%jobs)},
		Containers: []kubelet.Container{{Name: "main", RequestMilli: 10}},
	}
}

// grow adds burstable containers until there are so many, several at a time.
func (n *node) grow(ctx context.Context, to int) error {
	const workers = 4
	todo := make(chan int)
	errs := make([]error, workers)
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := range todo {
				if errs[w] == nil {
					errs[w] = n.addWeb(ctx, i)
				}
			}
		})
	}
	for i := n.containers; i < to; i++ {
		todo <- i
		if (i+1)%100 == 0 {
			say("%d containers", i+1)
		}
	}
	close(todo)
	all.Wait()
	n.containers = to
	return errors.Join(errs...)
}

func (n *node) addWeb(ctx context.Context, i int) error {
	p := web(i)
	if err := n.tree.make(ctx, p.CgroupName(), p.PodCPU()); err != nil {
		return err
	}
	sandbox, c := messages(n.driver, p, hex64(1, i), hex64(2, i))
	if _, _, err := n.ours.enter(ctx, sandbox, c); err != nil {
		return err
	}
	if _, err := n.tree.start(ctx, container{pod: p, id: c.Id, threads: n.o.threads, works: n.works}); err != nil {
		return err
	}
	return n.ours.started(ctx, sandbox, c)
}

// owner is a pod of class LSE that comes and goes.
type owner struct {
	n       *node
	pod     *kubelet.Pod
	sandbox *api.PodSandbox
	main    *api.Container
	running []*sleeper
	ended   []container
}

// arrive is all that comes before the runtime asks its plugins: the pod's cgroup
// and the sandbox.
func (n *node) arrive(ctx context.Context) (*owner, error) {
	n.owners++
	p := &kubelet.Pod{
		Name: fmt.Sprint("db-", n.owners), Namespace: "default", UID: uid(2, n.owners),
		Labels:     map[string]string{"koordinator.sh/qosClass": "LSE"},
		Containers: []kubelet.Container{{Name: "main", RequestMilli: ownerCPUs * 1000, LimitMilli: ownerCPUs * 1000}},
	}
	o := &owner{n: n, pod: p}
	o.sandbox, o.main = messages(n.driver, p, hex64(3, n.owners), hex64(4, n.owners))
	if err := n.tree.make(ctx, p.CgroupName(), p.PodCPU()); err != nil {
		return nil, err
	}
	return o, o.start(ctx, o.sandbox.Id, nil)
}

func (o *owner) start(ctx context.Context, id string, cpus []int) error {
	c := container{pod: o.pod, id: id, threads: 1, cpus: cpus}
	s, err := o.n.tree.start(ctx, c)
	if err != nil {
		return err
	}
	o.running, o.ended = append(o.running, s), append(o.ended, c)
	return nil
}

// depart is the end of the pod; the runtime's events are the caller's.
func (o *owner) depart(ctx context.Context) error {
	for _, s := range o.running {
		s.kill()
	}
	for _, c := range o.ended {
		if err := o.n.tree.gone(ctx, c); err != nil {
			return err
		}
	}
	return o.n.tree.remove(ctx, o.pod.CgroupName())
}

// enterOurs lets the owner in through the daemon and holds it to its promise.
func (n *node) enterOurs(ctx context.Context, o *owner) (answer, error) {
	took, cpus, err := n.ours.enter(ctx, o.sandbox, o.main)
	if err != nil {
		return took, err
	}
	own, err := cpuset.Parse(cpus)
	if err != nil || own.Count() != ownerCPUs {
		return took, fmt.Errorf("the owner got CPUs %q, want %d (%v)", cpus, ownerCPUs, err)
	}
	others, err := n.othersOn()
	if err != nil {
		return took, err
	}
	if both := others.And(own); !both.IsEmpty() {
		return took, fmt.Errorf("the owner is let onto CPUs %s while burstable pods may run on %s", own, others)
	}
	var ids []int
	for cpu := range own.All() {
		ids = append(ids, cpu)
	}
	if err := o.start(ctx, o.main.Id, ids); err != nil {
		return took, err
	}
	return took, n.ours.started(ctx, o.sandbox, o.main)
}

// busy is a refusal because the others could not be moved away in time: right, and
// no answer time.
func busy(err error) bool { return err != nil && strings.Contains(err.Error(), "Busy: ") }

func (n *node) othersOn() (cpuset.Set, error) {
	text, err := readWord(n.burstable(), "cpuset.cpus.effective")
	if err != nil {
		return cpuset.Set{}, err
	}
	return cpuset.Parse(text)
}

// leaveOurs returns once the others have the owner's CPUs back.
func (n *node) leaveOurs(ctx context.Context, o *owner) error {
	if err := o.depart(ctx); err != nil {
		return err
	}
	if err := n.ours.leave(ctx, o.sandbox, o.main); err != nil {
		return err
	}
	all, err := n.allCPUs()
	if err != nil {
		return err
	}
	return until(ctx, "the burstable pods have all CPUs again", func() (bool, error) {
		on, err := n.othersOn()
		return on == all, err
	})
}

func (n *node) allCPUs() (cpuset.Set, error) {
	text, err := readWord(cgroupRoot, "cpuset.cpus.effective")
	if err != nil {
		return cpuset.Set{}, err
	}
	return cpuset.Parse(text)
}

// countedLives is how many owners come and go under the eyes of the metrics.
const countedLives = 5

// stage grows the node and measures what one owner costs there.
func (n *node) stage(ctx context.Context, containers int) (figures.Stage, error) {
	s := figures.Stage{Containers: containers}
	began := time.Now()
	if err := n.grow(ctx, containers); err != nil {
		return s, err
	}
	threads, err := readWord(n.burstable(), "pids.current")
	if err != nil {
		return s, err
	}
	if s.Threads, err = strconv.Atoi(threads); err != nil {
		return s, err
	}
	if s.Threads < containers*n.o.threads {
		return s, fmt.Errorf("only %d threads run in %d containers", s.Threads, containers)
	}
	say("%d containers with %d threads run after %.0f s", containers, s.Threads, time.Since(began).Seconds())
	var waits []time.Duration
	for tries := 0; len(waits) < countedLives; tries++ {
		l, err := n.countLife(ctx)
		if err != nil {
			return s, err
		}
		if l.disturbed {
			if tries >= 2*countedLives {
				return s, errors.New("systemd hardly ever answers in time")
			}
			say("systemd did not answer in time; the owner is not counted")
			continue
		}
		s.Enter, s.Leave, waits = append(s.Enter, l.enter), append(s.Leave, l.leave), append(waits, l.wait)
	}
	s.Wait = figures.TimesOf(waits)
	s.Mask, err = n.maskTimes(20)
	say("an owner with them: %+v to enter, %+v to leave, waits %+v ms; a mask %+v ms", s.Enter[0], s.Leave[0],
		s.Wait, s.Mask)
	return s, err
}

// life is what one owner cost.
type life struct {
	enter, leave figures.Operations
	wait         time.Duration
	disturbed    bool // systemd did not answer in time, so there were repeats
}

// countLife reads the metrics around one owner.
func (n *node) countLife(ctx context.Context) (l life, err error) {
	o, err := n.arrive(ctx)
	if err != nil {
		return l, err
	}
	steps := []func() error{
		func() error { return nil },
		func() error {
			took, err := n.enterOurs(ctx, o)
			l.wait = took.run + took.create
			return err
		},
		func() error { return n.leaveOurs(ctx, o) },
	}
	var at []counted
	for _, step := range steps {
		err := step()
		if busy(err) {
			l.disturbed = true
			return l, n.leaveOurs(ctx, o)
		}
		if err != nil {
			return l, err
		}
		if err := n.daemon.settled(ctx); err != nil {
			return l, err
		}
		m, err := n.daemon.metrics(ctx)
		if err != nil {
			return l, err
		}
		at = append(at, m)
	}
	l.enter, l.leave = at[1].minus(at[0]), at[2].minus(at[1])
	l.disturbed = at[2].timeouts != at[0].timeouts
	return l, nil
}

// maskTimes takes an owner's CPUs out of the burstable slice's mask, past daemon and runtime,
// and puts them back: what the kernel takes for its threads.
func (n *node) maskTimes(writes int) (figures.Times, error) {
	file := n.burstable() + "/cpuset.cpus"
	all, err := n.allCPUs()
	if err != nil {
		return figures.Times{}, err
	}
	fewer := all
	for cpu := range all.All() {
		if cpu < ownerCPUs {
			fewer.Remove(cpu)
		}
	}
	var took []time.Duration
	for range writes {
		start := time.Now()
		if err := os.WriteFile(file, []byte(fewer.String()), 0o644); err != nil {
			return figures.Times{}, err
		}
		took = append(took, time.Since(start))
		if err := os.WriteFile(file, []byte(all.String()), 0o644); err != nil {
			return figures.Times{}, err
		}
	}
	return figures.TimesOf(took), nil
}

// answers lets owners in through our daemon and through the plugin that does
// nothing, in turns, so that both see the same machine.
func (n *node) answers(ctx context.Context, r *figures.Report) error {
	var ours, run, create, idle []time.Duration
	const warm = 3
	for i := range n.o.samples + warm {
		o, err := n.arrive(ctx)
		if err != nil {
			return err
		}
		took, err := n.enterOurs(ctx, o)
		if err != nil && !busy(err) {
			return err
		}
		if err := n.leaveOurs(ctx, o); err != nil {
			return err
		}
		if err != nil {
			r.Refused++
			say("refused: %v", err)
			continue
		}
		none, _, err := n.idle.enter(ctx, o.sandbox, o.main)
		if err != nil {
			return err
		}
		if i < warm {
			continue
		}
		ours, idle = append(ours, took.run+took.create), append(idle, none.run+none.create)
		run, create = append(run, took.run), append(create, took.create)
		for _, one := range []time.Duration{took.run, took.create} {
			r.Answers++
			if one > usualLimit/2 {
				r.LateForUs++
			}
			if one > usualLimit {
				r.LateForRT++
			}
		}
		if (i+1)%25 == 0 {
			say("%d owners came and went", i+1)
		}
	}
	r.Ours, r.Nothing = figures.TimesOf(ours), figures.TimesOf(idle)
	r.OursRun, r.OursCreate = figures.TimesOf(run), figures.TimesOf(create)
	m, err := n.daemon.metrics(ctx)
	r.SystemdLate, r.SystemdError = m.timeouts, m.errors
	say("answers in ms: ours %+v, nothing %+v", r.Ours, r.Nothing)
	return err
}

// audit has the daemon look at everything where nothing differs.
func (n *node) audit(ctx context.Context) (figures.Audit, error) {
	a := figures.Audit{Containers: n.containers, Audits: 5}
	if err := n.daemon.settled(ctx); err != nil {
		return a, err
	}
	before, err := n.daemon.metrics(ctx)
	if err != nil {
		return a, err
	}
	for range a.Audits {
		from, err := n.daemon.resting(ctx)
		if err != nil {
			return a, err
		}
		if err := n.daemon.audit(ctx); err != nil {
			return a, err
		}
		to, err := n.daemon.resting(ctx)
		if err != nil {
			return a, err
		}
		a.CPUMillis += figures.Millis(to-from) / float64(a.Audits)
		plain, err := n.readPlainly()
		if err != nil {
			return a, err
		}
		a.PlainMillis += figures.Millis(plain) / float64(a.Audits)
	}
	after, err := n.daemon.metrics(ctx)
	if err != nil {
		return a, err
	}
	a.Writes, a.Calls = after.Writes-before.Writes, after.Calls-before.Calls
	say("an audit: %+v", a)
	return a, nil
}

// readPlainly returns the CPU time of reading every container's own and effective
// set, for scale: under emulation milliseconds say little.
func (n *node) readPlainly() (time.Duration, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	from, err := threadCPU()
	if err != nil {
		return 0, err
	}
	for i := range n.containers {
		dir := cgroupRoot + n.driver.ContainerPath(web(i), hex64(2, i))
		for _, file := range []string{"cpuset.cpus", "cpuset.cpus.effective"} {
			if _, err := os.ReadFile(dir + "/" + file); err != nil {
				return 0, err
			}
		}
	}
	to, err := threadCPU()
	return to - from, err
}

func threadCPU() (time.Duration, error) {
	var t unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano()), err
}
