package loop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/usage"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/reclaim"
	"github.com/quietcore/quietcore/topology"
)

// node is 16 CPUs with a policy, whose pods use what load says.
type node struct {
	t       *testing.T
	now     time.Time
	machine *policy.Machine
	load    map[string]float64 // CPUs by pod UID
	system  float64
	used    map[string]time.Duration
	waits   map[string]float64 // share of the time in which something waits, by ID
	stops   map[string]float64 // share of the periods in which a quota stops it
	waited  map[string]time.Duration
	periods map[string][2]float64 // all, and those in which it was stopped
	follows map[string]string
	broken  bool
	blind   bool // the kernel exposes no pressure

	offers     []int64
	evicted    []string
	answer     Answer
	notified   []string
	suppressed int
	saved      []reclaim.Checkpoint
}

func newNode(t *testing.T) *node {
	topo, err := topology.Grid{NodesPerSocket: 2, CoresPerL3: 4, ThreadsPerCore: 2}.Build()
	if err != nil {
		t.Fatal(err)
	}
	m, err := policy.New(topo, policy.Config{Reserved: cpuset.Of(0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	return &node{t: t, now: time.Unix(1e9, 0), machine: m, load: map[string]float64{},
		used: map[string]time.Duration{}, waited: map[string]time.Duration{}, periods: map[string][2]float64{},
		follows: map[string]string{}}
}

func (n *node) run(uid string, class policy.Class, milli, batch int64) {
	n.t.Helper()
	qos, slice := policy.Burstable, "kubepods/burstable/"
	if class == policy.BE {
		qos, slice = policy.BestEffort, "kubepods/besteffort/"
	}
	pod := policy.Pod{
		UID: uid, Sandbox: uid, Namespace: "default", Name: uid, QoS: qos,
		Labels:       map[string]string{policy.LabelClass: string(class)},
		CgroupParent: slice + uid, CreatedAt: n.now,
		Facts: &policy.PodFacts{UID: uid, Resources: policy.Resources{RequestMilli: milli, LimitMilli: policy.NoLimit},
			BatchMilli: batch},
	}
	if class == policy.LSE || class == policy.LSR {
		pod.QoS, pod.Facts.Resources.LimitMilli = policy.Guaranteed, milli
	}
	if _, err := n.machine.Step(n.now, policy.PodRun{Pod: pod}); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) Follow(id, path string) error { n.follows[id] = path; return nil }
func (n *node) Forget(id string)             { delete(n.follows, id) }
func (n *node) Read(dst []usage.Reading) []usage.Reading {
	for id := range n.follows {
		r := usage.Reading{ID: id, At: n.now, CPU: n.used[id], Waiting: n.waited[id], Pressure: !n.blind}
		r.Periods, r.Throttled = uint64(n.periods[id][0]), uint64(n.periods[id][1])
		if n.broken {
			r = usage.Reading{ID: id, At: n.now, Err: cgroup.ErrGone}
		}
		dst = append(dst, r)
	}
	return dst
}

// pass lets a second pass.
func (n *node) pass() { n.passed(time.Second) }

func (n *node) passed(span time.Duration) {
	n.now = n.now.Add(span)
	whole := n.system
	for uid, cpus := range n.load {
		n.used[uid] += time.Duration(cpus * float64(span))
		whole += cpus
	}
	n.used[rootID] += time.Duration(whole * float64(span))
	for id, share := range n.waits {
		n.waited[id] += time.Duration(share * float64(span))
	}
	for id, share := range n.stops {
		all := 10 * span.Seconds()
		n.periods[id] = [2]float64{n.periods[id][0] + all, n.periods[id][1] + share*all}
	}
}

// seconds lets time pass and the loop look.
func (n *node) seconds(l *Loop, count int) {
	for range count {
		n.pass()
		l.look(n.t.Context())
		l.background.Wait()
	}
}

// polls lets so many pass, and says how many looks they brought forward.
func (n *node) polls(l *Loop, count int) (looks int) {
	for range count {
		before := l.lastLook
		n.passed(pollEvery)
		if l.lookEarly(n.t.Context()); l.lastLook != before {
			looks++
		}
	}
	return looks
}

func (n *node) options(estimator *reclaim.Estimator) Options {
	return Options{
		Usage: n, Node: n.machine.Snapshot, Estimator: estimator, Suppression: reclaim.DefaultSuppress(),
		Clock: Clock{Now: func() time.Time {
			return n.now
		}},
		Pods: func(context.Context) ([]policy.PodView, error) { return n.machine.Pods(), nil },
		Suppress: func(_ context.Context, e policy.BESuppressed) error {
			n.suppressed++
			_, err := n.machine.Step(n.now, e)
			return err
		},
		Offer: func(milli int64) { n.offers = append(n.offers, milli) },
		Evict: func(_ context.Context, p policy.PodView, why string) Answer {
			if n.answer.Outcome == Going {
				n.evicted = append(n.evicted, p.Name+": "+why)
			}
			return n.answer
		},
		Notify: func(m policy.Notice) { n.notified = append(n.notified, m.Reason) },
		Save:   func(c reclaim.Checkpoint) error { n.saved = append(n.saved, c); return nil },
	}
}

func (n *node) start(estimator *reclaim.Estimator) *Loop {
	n.t.Helper()
	l, err := New(n.options(estimator))
	if err != nil {
		n.t.Fatal(err)
	}
	if err := n.Follow(rootID, "/"); err != nil {
		n.t.Fatal(err)
	}
	l.estimated, l.savedAt = n.now, n.now
	return l
}

func (n *node) be() int { return n.machine.Snapshot().BE.Count() }

// Best effort shrinks within two looks of production's step, and grows back slowly.
func TestProductionIsGivenWayToWithinSeconds(t *testing.T) {
	n := newNode(t)
	n.run("web", policy.LS, 4000, 0)
	n.run("batch", policy.BE, 0, 4000)
	n.load["web"], n.load["batch"] = 1, 6
	l := n.start(nil)
	n.seconds(l, 120)
	wide := n.be()
	if wide < 8 || wide > 10 { // 65 % of 16 less 1
		t.Fatalf("with little production best effort has %d CPUs", wide)
	}
	n.load["web"] = 7
	n.seconds(l, 2)
	if got := n.be(); got > 4 {
		t.Errorf("two seconds after production's step best effort has %d CPUs", got)
	}
	if s := n.machine.Snapshot(); !s.BE.Has(0) || !s.BE.Has(1) {
		t.Errorf("best effort has %s, the reserved CPUs come first", s.BE)
	}
	n.load["web"] = 1
	n.seconds(l, 2)
	if got := n.be(); got > 4 {
		t.Errorf("best effort has %d CPUs two seconds after production's fall", got)
	}
	n.seconds(l, 120)
	if got := n.be(); got != wide {
		t.Errorf("best effort has %d CPUs in the end, had %d", got, wide)
	}
	if n.suppressed > 20 {
		t.Errorf("the policy was asked %d times in 244 seconds", n.suppressed)
	}
}

// twoSlices are what all pods and those of the best-effort slice have used.
type twoSlices struct {
	*node
	paths map[string]string
}

func (s twoSlices) Follow(id, path string) error { s.paths[id] = path; return nil }
func (s twoSlices) Forget(id string)             { delete(s.paths, id) }
func (s twoSlices) Read(dst []usage.Reading) []usage.Reading {
	for id, path := range s.paths {
		r := usage.Reading{ID: id, At: s.now}
		for uid, at := range s.follows {
			if strings.HasPrefix(at, path+"/") {
				r.CPU += s.used[uid]
			}
		}
		if s.broken {
			r = usage.Reading{ID: id, At: s.now, Err: cgroup.ErrGone}
		}
		dst = append(dst, r)
	}
	return dst
}

// Between two looks production's step is seen by polls, and answered within a
// second; what does not narrow best effort, and what always was, is no reason to look.
func TestPollsBringTheNextLookForward(t *testing.T) {
	n := newNode(t)
	n.run("web", policy.LS, 4000, 0)
	n.run("batch", policy.BE, 0, 4000)
	n.load["web"], n.load["batch"] = 1, 6
	o := n.options(nil)
	o.Poll = twoSlices{n, map[string]string{}}
	l, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Follow(rootID, "/"); err != nil {
		t.Fatal(err)
	}
	n.seconds(l, 120)
	wide := n.be()
	if got := n.polls(l, 4); got != 0 {
		t.Errorf("%d looks while nothing changed", got)
	}
	n.load["batch"] = 8
	if got := n.polls(l, 4); got != 0 {
		t.Errorf("%d looks for what best effort uses itself", got)
	}
	n.load["batch"] = 6
	n.seconds(l, 1)
	n.load["web"] = 7
	looks := n.polls(l, 5)
	if got := n.be(); got > 4 || got >= wide {
		t.Errorf("a second after production's step best effort has %d CPUs of %d", got, wide)
	}
	if looks == 0 || looks > 2 {
		t.Errorf("%d looks in that second", looks)
	}
	if got := n.polls(l, 10); got != 0 {
		t.Errorf("%d looks for what is answered already", got)
	}
	n.broken = true
	n.load["web"] = 12
	if got := n.polls(l, 5); got != 0 {
		t.Errorf("%d looks for what cannot be read", got)
	}
}

// A pod of class BE in another slice is no production, however much it uses.
func TestPollsKnowOtherSlices(t *testing.T) {
	n := newNode(t)
	n.run("web", policy.LS, 4000, 0)
	n.run("batch", policy.BE, 0, 4000)
	n.load["web"], n.load["batch"] = 1, 1
	o := n.options(nil)
	o.Poll = twoSlices{n, map[string]string{}}
	l, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	for id, path := range map[string]string{rootID: "/", "batch2": "kubepods/burstable/batch2"} {
		if err := n.Follow(id, path); err != nil {
			t.Fatal(err)
		}
	}
	pods := o.Pods
	l.o.Pods = func(ctx context.Context) ([]policy.PodView, error) {
		all, err := pods(ctx)
		return append(all, policy.PodView{UID: "batch2", Class: policy.BE, Cgroup: "kubepods/burstable/batch2"}), err
	}
	n.load["batch2"] = 6
	n.seconds(l, 120)
	if n.polls(l, 20) != 0 {
		t.Error("a look for a batch pod's steady use")
	}
	n.seconds(l, 1)
	n.load["web"] = 5
	if n.polls(l, 5) == 0 {
		t.Error("no look within a second in which production takes 4 CPUs more")
	}
	n.seconds(l, 2)
	if n.polls(l, 20) != 0 {
		t.Error("a look for production's steady use")
	}
}

// A disk that does not answer delays nothing, is tried once, and is asked again when
// it has answered.
func TestSavingThatHangsHoldsUpNothing(t *testing.T) {
	e, err := reclaim.New(reclaim.Default())
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(t)
	n.run("web", policy.LS, 4000, 0)
	n.run("batch", policy.BE, 0, 4000)
	n.load["web"], n.load["batch"] = 1, 6
	hangs := make(chan error)
	asked := make(chan struct{}, 10)
	o := n.options(e)
	o.Save = func(reclaim.Checkpoint) error { asked <- struct{}{}; return <-hangs }
	l, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Follow(rootID, "/"); err != nil {
		t.Fatal(err)
	}
	l.estimated, l.savedAt = n.now, n.now
	pass := func(d time.Duration) {
		for range int(d / time.Second) {
			n.pass()
			l.look(t.Context())
		}
	}
	pass(2 * SaveEvery)
	wide := n.be()
	n.load["web"] = 7
	pass(2 * time.Second)
	if got := n.be(); got >= wide || got > 4 {
		t.Errorf(
			"with a disk that does not answer best effort has %d CPUs two seconds after production's step, had %d",
			got, wide)
	}
	<-asked
	if len(asked) != 0 {
		t.Error("it was asked again before it answered")
	}
	hangs <- errors.New("no space left on device")
	l.background.Wait()
	pass(SaveEvery + time.Second)
	<-asked
	if l.lastWarning == "" {
		t.Error("no complaint was recorded")
	}
	hangs <- nil
	l.background.Wait()
}

// A clock that leaps gives best effort nothing that is not there, and saves go on.
func TestClockLeaps(t *testing.T) {
	for _, leap := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
		e, err := reclaim.New(reclaim.Default())
		if err != nil {
			t.Fatal(err)
		}
		n := newNode(t)
		n.run("web", policy.LS, 4000, 0)
		n.run("batch", policy.BE, 0, 4000)
		n.load["web"], n.load["batch"] = 7, 2
		l := n.start(e)
		n.seconds(l, 120)
		before, offer, saved := n.be(), l.Status().Offer, len(n.saved)
		n.now = n.now.Add(leap)
		n.seconds(l, 1)
		if got := n.be(); got > before {
			t.Errorf("%s: best effort has %d CPUs, had %d", leap, got, before)
		}
		if len(n.saved) == saved {
			t.Errorf("%s: what was learned is not saved", leap)
		}
		if got := l.Status().Offer; got > offer {
			t.Errorf("%s: %v CPUs are offered, were %v", leap, got, offer)
		}
		estimates := len(n.offers)
		n.seconds(l, 120)
		if got := len(n.offers) - estimates; got != 12 {
			t.Errorf("%s: %d estimates in two minutes, want 12", leap, got)
		}
		if got := n.be(); got != before || !l.Status().Known {
			t.Errorf("%s: two minutes later best effort has %d CPUs, had %d", leap, got, before)
		}
	}
}

// Where nothing can be read best effort keeps its floor, and comes back.
func TestWhatCannotBeReadIsInUse(t *testing.T) {
	n := newNode(t)
	n.run("batch", policy.BE, 0, 4000)
	l := n.start(nil)
	n.seconds(l, 120)
	before := n.be()
	n.broken = true
	n.seconds(l, 60)
	if got := n.be(); got != 2 || !l.Status().Budget.Blind {
		t.Errorf("best effort has %d CPUs before anything is known", got)
	}
	n.broken = false
	n.seconds(l, 120)
	if got := n.be(); got != before {
		t.Errorf("best effort has %d CPUs, had %d", got, before)
	}
}

// One reading that fails changes nothing, neither at once nor with the next.
func TestOneReadingThatFails(t *testing.T) {
	n := newNode(t)
	n.run("web", policy.LS, 4000, 0)
	n.run("batch", policy.BE, 0, 4000)
	n.load["web"], n.load["batch"] = 1, 6
	l := n.start(nil)
	n.seconds(l, 3600)
	before := l.Status()
	n.broken = true
	n.seconds(l, 1)
	if s := l.Status(); s.Known || s.Budget.CPUs != before.Budget.CPUs {
		t.Errorf("known is %v and the budget %v, want what it was, %v", s.Known, s.Budget.CPUs, before.Budget.CPUs)
	}
	n.broken = false
	n.seconds(l, 1)
	if s := l.Status(); !s.Known || s.Budget.CPUs != before.Budget.CPUs || s.Production != 1 || s.Batch != 6 ||
		s.Outside > 1e-6 {
		t.Errorf("after one reading that failed: %+v, before %+v", s, before)
	}
}

// Every CPU belongs to an owner that shares with no pod.
func TestAllCPUsAreOwned(t *testing.T) {
	n := newNode(t)
	n.run("lse", policy.LSE, 14000-2000, 0)
	n.run("batch", policy.BE, 0, 1000)
	n.load["lse"] = 12
	l := n.start(nil)
	n.seconds(l, 30)
	s := n.machine.Snapshot()
	if s.BE.Intersects(&s.Exclusive) || s.BE.IsEmpty() {
		t.Errorf("best effort has %s, owners have %s", s.BE, s.Exclusive)
	}
}

func TestOffersAndEvictions(t *testing.T) {
	cfg := reclaim.Default()
	cfg.Correct.After = reclaim.Duration(20 * time.Second)
	estimator, err := reclaim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(t)
	n.run("web", policy.LS, 4000, 0)
	n.load["web"], n.load["old"], n.load["new"] = 2, 3, 3
	l := n.start(estimator)
	n.seconds(l, 300)
	if last := n.offers[len(n.offers)-1]; last < 11000 || last > 12000 {
		t.Fatalf("16 CPUs of which production requests 4 are offered as %dm", last)
	}
	n.run("old", policy.BE, 0, 6000)
	n.now = n.now.Add(time.Second)
	n.run("new", policy.BE, 0, 5000)
	n.seconds(l, 60)
	if len(n.evicted) > 0 {
		t.Fatalf("evicted %v, everything fits", n.evicted)
	}
	if slices.Contains(n.notified, "BatchOvercommitted") {
		t.Errorf("notices were %v, everything fits", n.notified)
	}
	t.Log("production requests more: promises exceed what exists, and one pod has to go")
	n.run("more", policy.LS, 6000, 0)
	n.answer = Answer{Outcome: Stays, Err: errors.New("a disruption budget allows none")}
	n.seconds(l, 60)
	if len(n.evicted) > 0 || l.Status().Refusals == 0 {
		t.Errorf("evicted %v, refused %d", n.evicted, l.Status().Refusals)
	}
	n.answer = Answer{}
	n.seconds(l, 400)
	if s := l.Status(); len(n.evicted) == 0 || s.Evictions != uint64(len(n.evicted)) || !s.Overcommitted ||
		len(s.Evicted) != len(n.evicted) || s.Lowered.What == "" {
		t.Errorf("evicted %v, status %+v", n.evicted, s)
	}
	// What runs outside of pods until they are there squeezes best effort as well.
	if !slices.Equal(n.notified, []string{"BestEffortSqueezed", "BatchOvercommitted"}) {
		t.Errorf("notices were %v, want each once in ten minutes", n.notified)
	}
	if len(n.saved) == 0 {
		t.Error("nothing was saved in 13 minutes")
	}
}

// Where several have to go, and the evictor lets only some go at once, these are the
// first of the order: the first request decides.
func TestEvictionsAreAskedForInTheirOrder(t *testing.T) {
	cfg := reclaim.Default()
	cfg.Correct.After = reclaim.Duration(20 * time.Second)
	estimator, err := reclaim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(t)
	n.run("web", policy.LS, 1000, 0)
	l := n.start(estimator)
	var want []string
	for i := range 8 {
		n.now = n.now.Add(time.Second)
		uid := fmt.Sprint("batch", i)
		n.run(uid, policy.BE, 0, 1500)
		n.load[uid] = 1
		want = append([]string{uid}, want...) // the youngest first
	}
	n.seconds(l, 60)
	n.run("more", policy.LS, 15000, 0)
	asked := []string{}
	l.o.Evict = func(_ context.Context, p policy.PodView, _ string) Answer {
		asked = append(asked, p.Name)
		return Answer{}
	}
	n.seconds(l, 60)
	if !slices.Equal(asked, want) {
		t.Errorf("asked for %v, want %v", asked, want)
	}
}

// Where every core has an owner that best effort keeps off a quota holds it back.
func TestNoCoreIsLeft(t *testing.T) {
	n := newNode(t)
	topo, err := topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2}.Build()
	if err != nil {
		t.Fatal(err)
	}
	m, err := policy.New(topo, policy.Config{})
	if err != nil {
		t.Fatal(err)
	}
	n.machine = m
	pod := policy.Pod{
		UID: "lse", Sandbox: "lse", Namespace: "default", Name: "lse", QoS: policy.Guaranteed,
		Labels:       map[string]string{policy.LabelClass: "LSE"},
		Annotations:  map[string]string{policy.AnnSpec: `{"preferredCPUBindPolicy":"SpreadByPCPUs"}`},
		CgroupParent: "kubepods/lse", CreatedAt: n.now,
		Resources: &policy.Resources{RequestMilli: 4000, LimitMilli: 4000},
	}
	if _, err := m.Step(n.now, policy.PodRun{Pod: pod}); err != nil {
		t.Fatal(err)
	}
	n.run("batch", policy.BE, 0, 1000)
	n.run("web", policy.LS, 1000, 0)
	n.load["lse"] = 1
	l := n.start(nil)
	l.o.Suppression.Threshold = 100
	n.seconds(l, 60)
	for _, c := range []struct {
		load float64
		want int64
	}{{0, 0}, {0.75, 3200}, {3.5, 2000}} { // all 4 of the pool; less the load, in tenths; a core
		n.load["web"] = c.load
		n.seconds(l, 2)
		if s := n.machine.Snapshot(); s.BE != s.BEWhole || s.BEQuota != c.want {
			t.Errorf(
				"two seconds after production's step to %v CPUs best effort has %s of %s and a quota of %dm, want %dm",
				c.load, s.BE, s.BEWhole, s.BEQuota, c.want)
		}
		if got, want := l.Status().Narrowed.What, fmt.Sprintf("%.2f CPUs are left as a quota",
			float64(c.want)/1000); c.want > 0 && !strings.HasPrefix(got, want) {
			t.Errorf("recorded is %q, want that %s", got, want)
		}
	}
	if _, err := m.Step(n.now, policy.PodRemoved{Sandbox: "lse"}); err != nil {
		t.Fatal(err)
	}
	n.load["lse"], n.load["web"] = 0, 0
	n.seconds(l, 60)
	if s := n.machine.Snapshot(); s.BEQuota != 0 || s.BE.IsEmpty() {
		t.Errorf("without the owner best effort has %s and a quota of %dm", s.BE, s.BEQuota)
	}
}

// A quota moves in tenths of a CPU, and is never 0, which means that there is none.
func TestQuotas(t *testing.T) {
	for cpus, want := range map[float64]int64{0: 10, 0.05: 50, 0.1: 100, 0.19: 100, 3.27: 3200} {
		if got := quotaOf(reclaim.Budget{CPUs: cpus}); got != want {
			t.Errorf("a budget of %v CPUs is a quota of %dm, want %dm", cpus, got, want)
		}
	}
}

// A pod whose cgroup is not there yet is read once it is, and one that moves is read
// where it is.
func TestPodsAreReadOnceTheyCan(t *testing.T) {
	n := newNode(t)
	n.run("web", policy.LS, 1000, 0)
	n.load["web"] = 3
	o := n.options(nil)
	late := &lateNode{node: n}
	o.Usage = late
	l, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	n.follows[rootID] = "/"
	n.seconds(l, 5)
	if s := l.Status(); s.Production != 0 || s.Outside != 3 || len(l.meters) != 0 || l.lastWarning == "" {
		t.Errorf("production whose cgroup is not there uses %v and others %v, want 0 and 3; %q", s.Production,
			s.Outside, l.lastWarning)
	}
	late.running = true
	n.seconds(l, 2)
	if s := l.Status(); s.Production != 3 || s.Outside != 0 {
		t.Errorf("production uses %v and others %v, want 3 and 0", s.Production, s.Outside)
	}
	l.o.Pods = func(context.Context) ([]policy.PodView, error) {
		return []policy.PodView{{UID: "web", Class: policy.LS, Cgroup: "kubepods/burstable/elsewhere"}}, nil
	}
	n.seconds(l, 1)
	if got := n.follows["web"]; got != "kubepods/burstable/elsewhere" {
		t.Errorf("a pod that moved is read at %s", got)
	}
}

// lateNode is a node whose pods' cgroups are not there at first.
type lateNode struct {
	*node
	running bool
}

func (n *lateNode) Follow(id, path string) error {
	if !n.running {
		return cgroup.ErrGone
	}
	return n.node.Follow(id, path)
}

// What was taken back from best effort is recorded when it has less, and not when it has
// more or all.
func TestNarrowingIsRecorded(t *testing.T) {
	n := newNode(t)
	n.run("web", policy.LS, 4000, 0)
	n.run("batch", policy.BE, 0, 4000)
	n.load["batch"] = 3 // more than the reserved CPUs have
	l := n.start(nil)
	l.o.Suppression.Threshold = 100
	for _, c := range []struct {
		seconds int
		load    float64
		what    string
	}{
		{1, 0, "2 of 16 CPUs are left, were 16"}, // before anything is known
		{300, 0, "2 of 16 CPUs are left, were 16"},
		{1, 7, "8 of 16 CPUs are left, were 16"},
		{1, 11, "4 of 16 CPUs are left, were 8"},
		{300, 7, "4 of 16 CPUs are left, were 8"},
		{300, 0, "4 of 16 CPUs are left, were 8"},
	} {
		n.load["web"] = c.load
		n.seconds(l, c.seconds)
		if got := l.Status().Narrowed.What; got != c.what {
			t.Errorf("after %d s of %v CPUs of production: %q, want %q; best effort has %d CPUs", c.seconds, c.load,
				got, c.what, n.be())
		}
	}
	if len(n.notified) != 0 {
		t.Errorf("notices were %v of best effort that was never at its floor for long", n.notified)
	}
}

// A pod that comes and goes is followed and forgotten.
func TestOnlyPodsThatRunAreRead(t *testing.T) {
	n := newNode(t)
	l := n.start(nil)
	for i := range 5 {
		n.run(fmt.Sprint("pod", i), policy.LS, 100, 0)
	}
	n.seconds(l, 3)
	if len(n.follows) != 6 {
		t.Fatalf("followed: %v", n.follows)
	}
	for i := range 5 {
		if _, err := n.machine.Step(n.now, policy.PodRemoved{Sandbox: fmt.Sprint("pod", i)}); err != nil {
			t.Fatal(err)
		}
	}
	n.seconds(l, 1)
	if len(n.follows) != 1 || len(l.meters) != 0 || !slices.Equal(n.machine.Pods(), []policy.PodView{}) {
		t.Errorf("followed: %v, meters %d", n.follows, len(l.meters))
	}
}

// A pod of production lowers the offer at the next look, not at the next sample.
func TestProductionThatStartsLowersTheOfferAtOnce(t *testing.T) {
	n := newNode(t)
	estimator, err := reclaim.New(reclaim.Default())
	if err != nil {
		t.Fatal(err)
	}
	l := n.start(estimator)
	n.seconds(l, 121)
	before, estimates := n.offers[len(n.offers)-1], len(n.offers)
	if estimates != 12 {
		t.Errorf("%d estimates in two minutes in which no pod started, want one in %v", estimates, EstimateEvery)
	}
	n.run("web", policy.LS, 6000, 0)
	n.seconds(l, 1)
	if got := n.offers[len(n.offers)-1]; got != before-6000 || len(n.offers) != estimates+1 {
		t.Errorf("a second after production of 6 CPUs started %dm are offered, were %dm; %d estimates", got, before,
			len(n.offers)-estimates)
	}
	lowered := l.Status().Lowered
	if want := "10.00 CPUs are offered, were 16.00"; lowered.What != want || !lowered.At.Equal(n.now) {
		t.Errorf("recorded is %+v, want at %v that %s", lowered, n.now, want)
	}
	n.seconds(l, 30)
	if got := l.Status().Lowered; got != lowered {
		t.Errorf("recorded again is %+v, and nothing is lower", got)
	}
	n.run("more", policy.LS, 1000, 0)
	n.run("batch", policy.BE, 0, 1000)
	n.seconds(l, 1)
	if got := len(n.offers) - estimates; got != 1+3+1 {
		t.Errorf("%d estimates for two starts and 31 seconds, want 5", got)
	}
}

// overcommitted is a node on which a pod has to go: the younger of two that are busy.
func overcommitted(t *testing.T) (*node, *Loop) {
	cfg := reclaim.Default()
	cfg.Correct.After = reclaim.Duration(20 * time.Second)
	estimator, err := reclaim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(t)
	n.run("old", policy.BE, 0, 6000)
	n.now = n.now.Add(time.Second)
	n.run("new", policy.BE, 0, 5000)
	n.load["old"], n.load["new"] = 3, 3
	l := n.start(estimator)
	n.seconds(l, 80)
	n.run("web", policy.LS, 8000, 0)
	return n, l
}

// What became of an eviction is saved at the end, too: a pod that was not evicted would never be
// evicted after a restart if it counted as terminating.
func TestAnswersAtTheEndAreSaved(t *testing.T) {
	for name, c := range map[string]struct {
		answer Answer
		going  bool
	}{
		"it goes":     {Answer{}, true},
		"it went":     {Answer{Before: true}, true},
		"it would go": {Answer{Observed: true}, false},
		"it stays":    {Answer{Outcome: Stays, Err: errors.New("a disruption budget allows none")}, false},
		"it comes next": {Answer{Outcome: Later, After: time.Minute, Err: errors.New("one eviction in a minute")},
			false},
		"it hangs": {Answer{Outcome: Ended, Err: context.Canceled}, false},
	} {
		n, l := overcommitted(t)
		tick, asked, ended := make(chan time.Time), make(chan struct{}), make(chan struct{})
		l.o.Clock.Tick = tick
		l.o.Evict = func(ctx context.Context, _ policy.PodView, _ string) Answer {
			close(asked)
			<-ctx.Done()
			return c.answer
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { l.Run(ctx); close(ended) }()
		for range 60 {
			if _, err := l.Pods(ctx); err != nil { // the look before has ended
				t.Fatal(err)
			}
			n.pass()
			tick <- n.now
		}
		<-asked
		cancel()
		<-ended
		for _, p := range n.saved[len(n.saved)-1].Pods {
			if want := c.going && p.ID == "new"; p.Evicting != want {
				t.Errorf("%s: saved is that pod %s is going: %v, want %v", name, p.ID, p.Evicting, want)
			}
		}
	}
}

// An API server that does not answer does not delay suppression.
func TestEvictionThatHangsHoldsUpNothing(t *testing.T) {
	n, l := overcommitted(t)
	n.load["web"] = 1
	asked, answer := make(chan struct{}), make(chan struct{})
	l.o.Evict = func(context.Context, policy.PodView, string) Answer {
		close(asked)
		<-answer
		return Answer{}
	}
	wide := 0
	for range 60 {
		n.pass()
		l.look(t.Context())
		wide = n.be()
	}
	<-asked
	n.load["web"] = 9
	for range 2 {
		n.pass()
		l.look(t.Context())
	}
	if got := n.be(); got >= wide {
		t.Errorf("best effort has %d CPUs, had %d, while an eviction hangs", got, wide)
	}
	close(answer)
	l.background.Wait()
	n.seconds(l, 1)
	if s := l.Status(); s.Evictions != 1 || len(s.Evicted) != 1 || s.Evicted[0].Pod != "default/new" ||
		s.Narrowed.What == "" {
		t.Errorf("status %+v", s)
	}
}

// A pod whose eviction was postponed stays first in the order.
func TestRateDoesNotChangeTheOrder(t *testing.T) {
	n, l := overcommitted(t)
	var asked []string
	l.o.Evict = func(_ context.Context, p policy.PodView, _ string) Answer {
		if asked = append(asked, p.Name); len(asked) < 3 {
			return Answer{Outcome: Later, After: 10 * time.Second, Err: errors.New("one eviction in 10s")}
		}
		return Answer{Before: true}
	}
	n.seconds(l, 300)
	if !slices.Equal(asked, []string{"new", "new", "new"}) {
		t.Errorf("asked for %v, want the youngest until it ends, and no other after it", asked)
	}
	if s := l.Status(); s.Evictions != 0 || s.Refusals != 0 {
		t.Errorf("%d evictions and %d refusals are counted of a pod that went without us", s.Evictions, s.Refusals)
	}
}

// Ticks bring looks with and without polls; one right after a look that a poll
// brought forward does not.
func TestTicksBringLooks(t *testing.T) {
	for _, c := range []struct {
		polls bool
		after time.Duration // since the last look
		look  bool
	}{{false, time.Second, true}, {false, 0, true}, {true, time.Second, true}, {true, leastSpan / 2, true},
		{true, leastSpan/2 - 1, false}} {
		n := newNode(t)
		o := n.options(nil)
		tick := make(chan time.Time)
		o.Clock.Tick = tick
		if c.polls {
			o.Poll, o.Clock.Poll = twoSlices{n, map[string]string{}}, make(chan time.Time)
		}
		looks := 0
		pods := o.Pods
		o.Pods = func(ctx context.Context) ([]policy.PodView, error) { looks++; return pods(ctx) }
		l, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { l.Run(ctx); close(ended) }()
		if _, err := l.Pods(ctx); err != nil { // the first look has ended
			t.Fatal(err)
		}
		n.passed(c.after)
		tick <- n.now
		if _, err := l.Pods(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
		<-ended
		if got := looks == 2; got != c.look {
			t.Errorf("with polls: %v; a tick %v after a look brings another: %v, want %v", c.polls, c.after, got,
				c.look)
		}
	}
}

// What the policy did not take is asked for again with the next look, what it took is not.
func TestSuppressionThatFailsIsAskedForAgain(t *testing.T) {
	n := newNode(t)
	n.run("batch", policy.BE, 0, 4000)
	l := n.start(nil)
	suppress := l.o.Suppress
	l.o.Suppress = func(context.Context, policy.BESuppressed) error {
		n.suppressed++
		return errors.New("the loop is busy")
	}
	n.seconds(l, 3)
	if n.suppressed != 3 || n.be() == 2 || l.lastWarning == "" {
		t.Errorf("asked %d times in 3 seconds; %q", n.suppressed, l.lastWarning)
	}
	l.o.Suppress = suppress
	n.seconds(l, 2)
	if n.suppressed != 4 || n.be() != 2 {
		t.Errorf("asked %d times, the fifth second after it was done; best effort has %d CPUs", n.suppressed, n.be())
	}
}

// A loop looks as soon as it runs, so that best effort never begins with all.
func TestTheFirstLookWaitsForNoTick(t *testing.T) {
	n := newNode(t)
	n.run("batch", policy.BE, 0, 4000)
	l := n.start(nil)
	l.o.Clock.Tick = make(chan time.Time)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { l.Run(ctx); close(ended) }()
	if _, err := l.Pods(ctx); err != nil {
		t.Fatal(err)
	}
	cancel()
	<-ended
	if got := n.be(); got != 2 {
		t.Errorf("best effort has %d CPUs before the first tick, its floor is a core", got)
	}
	if b := l.Status().Budget; b.Blind {
		t.Errorf("nothing could be read for long, before any time passed: %+v", b)
	}
}

func TestPodsAreListed(t *testing.T) {
	n, l := overcommitted(t)
	tick := make(chan time.Time)
	l.o.Clock.Tick = tick
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	n.now = n.now.Add(time.Second)
	go func() { l.Run(ctx); close(ended) }()
	tick <- n.now
	pods, err := l.Pods(t.Context())
	if err != nil || len(pods) != 2 || pods[0].Name != "old" || !pods[1].Known || pods[1].View.Request != 5 {
		t.Errorf("pods %+v, %v", pods, err)
	}
	cancel()
	<-ended
	if _, err := l.Pods(ctx); err == nil {
		t.Error("a loop that has ended still notifies")
	}
}

// A daemon that starts does not know which pods run: it offers nothing, and best effort
// has its floor until it does.
func TestNothingIsLentBeforeItIsKnownWhoRuns(t *testing.T) {
	estimator, err := reclaim.New(reclaim.Default())
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(t)
	n.run("batch", policy.BE, 0, 4000)
	n.load["batch"] = 3
	ready := false
	l := n.start(estimator)
	l.o.Ready = func() bool { return ready }
	n.seconds(l, 1)
	if got := n.be(); got != 2 {
		t.Errorf("best effort has %d CPUs after the first look, its floor is a core", got)
	}
	n.seconds(l, 299)
	if len(n.offers) > 0 || n.be() != 2 {
		t.Errorf("offers %v, best effort has %d CPUs", n.offers, n.be())
	}
	ready = true
	n.seconds(l, 1)
	ready = false // the runtime restarts: the pods are known from before
	n.seconds(l, 120)
	if len(n.offers) == 0 || n.be() <= 2 {
		t.Errorf("offers %v, best effort has %d CPUs", n.offers, n.be())
	}
}

// What was learned is saved soon after each sample is final, so that a kill hides no
// more than the sample that grows and the time without a daemon.
func TestEverySampleIsSaved(t *testing.T) {
	for _, c := range []struct{ sample, every time.Duration }{{5 * time.Minute, 5 * time.Minute},
		{time.Hour, SaveEvery}, {10 * time.Second, minSaveInterval}} {
		cfg := reclaim.Default()
		cfg.Idle.Sample = reclaim.Duration(c.sample)
		e, err := reclaim.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		n := newNode(t)
		n.run("batch", policy.BE, 0, 4000)
		l := n.start(e)
		n.seconds(l, 3600)
		if got, want := len(n.saved), int(time.Hour/c.every); got < want-1 || got > want {
			t.Errorf("samples of %v: saved %d times in an hour, want %d", c.sample, got, want)
		}
		for _, k := range n.saved {
			if into := k.At.Sub(k.Epoch) % c.sample; c.sample == 5*time.Minute && into > 2*EstimateEvery {
				t.Errorf("saved %v into a sample of %v", into, c.sample)
			}
		}
	}
}

// An eviction in observe mode is reported but not counted; without an API server no pod
// is evicted and nothing else stops.
func TestEvictionsThatAreNotAskedFor(t *testing.T) {
	n, l := overcommitted(t)
	l.o.Evict = func(context.Context, policy.PodView, string) Answer { return Answer{Observed: true} }
	n.seconds(l, 120)
	if s := l.Status(); s.Evictions != 0 || len(s.Evicted) != 1 || !s.Evicted[0].Observed {
		t.Errorf("observed: %d evictions, taken %+v", s.Evictions, s.Evicted)
	}
	n, l = overcommitted(t)
	l.o.Evict = nil
	n.seconds(l, 120)
	if s := l.Status(); s.Evictions != 0 || len(s.Evicted) != 0 || !s.Overcommitted {
		t.Errorf("no API server: %+v", s)
	}
	if v, known := l.o.Estimator.View("new"); !known || v.Evicting {
		t.Errorf("a pod without an eviction request counts as gone: %+v", v)
	}
}

// What a pod used is the mean since the last estimate; one that was seen for a part of
// that time counts as not measured.
func TestUseSinceTheLastEstimate(t *testing.T) {
	cfg := reclaim.Default()
	cfg.Idle.Window, cfg.Idle.Sample = reclaim.Duration(4*time.Minute), reclaim.Duration(10*time.Second)
	e, err := reclaim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(t)
	n.run("a", policy.BE, 0, 4000)
	n.load["a"] = 3
	l := n.start(e)
	n.seconds(l, 300)
	n.load["a"] = 0.01
	n.seconds(l, 260)
	if v, _ := e.View("a"); !v.Idle {
		t.Errorf("after a window of little use: %s", v.Why())
	}
	n.seconds(l, 5)
	n.run("late", policy.BE, 0, 4000)
	for _, want := range []int{0, 0, 1, 2} { // at once, of a part, of all of the time
		for before := len(n.offers); len(n.offers) == before; {
			n.seconds(l, 1)
		}
		if v, known := e.View("late"); !known || v.Samples != want {
			t.Errorf("a pod that came between estimates has %d samples at %v, want %d", v.Samples, n.now, want)
		}
	}
}

// Pods that are gone are no reason for estimates, nor remembered.
func TestPromisesOfPodsThatAreGone(t *testing.T) {
	e, err := reclaim.New(reclaim.Default())
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(t)
	n.run("stays", policy.LS, 1000, 0)
	l := n.start(e)
	for i := range 5 {
		uid := fmt.Sprint("pod", i)
		n.run(uid, policy.LS, 1000, 0)
		n.seconds(l, 1)
		if _, err := n.machine.Step(n.now, policy.PodRemoved{Sandbox: uid}); err != nil {
			t.Fatal(err)
		}
		n.seconds(l, 1)
	}
	estimates := len(n.offers)
	n.seconds(l, 60)
	if got := len(n.offers) - estimates; got != 6 || len(l.promises) != 1 {
		t.Errorf("%d estimates in a minute in which no pod started, and %d promises to one pod", got, len(l.promises))
	}
}

func TestWhatIsPromised(t *testing.T) {
	for _, c := range []struct {
		pod  policy.PodView
		want float64
	}{
		{policy.PodView{Class: policy.LS, RequestMilli: 1500, BatchMilli: 4000}, 1.5},
		{policy.PodView{Class: policy.BE, RequestMilli: 1500, BatchMilli: 4000}, 4},
		{policy.PodView{Class: policy.BE, RequestMilli: 1500}, 1.5},
		{policy.PodView{Class: policy.LS, RequestMilli: -1}, 0},
		{policy.PodView{Class: policy.LS, RequestMilli: 1 << 62}, 1e6},
		{policy.PodView{Class: policy.BE, BatchMilli: 1 << 62}, 1e6},
	} {
		if got := requestOf(&c.pod); got != c.want {
			t.Errorf("%+v is promised %v CPUs, want %v", c.pod, got, c.want)
		}
	}
	l := &Loop{promises: map[string]promise{"a": {policy.LS, 1}, "b": {policy.BE, 2}}}
	a, b := policy.PodView{UID: "a", Class: policy.LS, RequestMilli: 1000}, policy.PodView{UID: "b", Class: policy.BE,
		BatchMilli: 2000}
	more, other, c := a, a, b
	more.RequestMilli, other.Class, c.UID = 1001, policy.LSR, "c"
	for name, w := range map[string]struct {
		pods []policy.PodView
		news bool
	}{
		"the same":        {[]policy.PodView{b, a}, false},
		"one is gone":     {[]policy.PodView{a}, true},
		"one came":        {[]policy.PodView{a, b, c}, true},
		"another one":     {[]policy.PodView{a, c}, true},
		"another request": {[]policy.PodView{more, b}, true},
		"another class":   {[]policy.PodView{other, b}, true},
	} {
		if got := l.promised(w.pods); got != w.news {
			t.Errorf("%s: news is %v, want %v", name, got, w.news)
		}
	}
}

// A Status remembers the latest evictions, and no more than it has room for.
func TestEvictionsThatAreRemembered(t *testing.T) {
	n := newNode(t)
	l := n.start(nil)
	var s Status
	for i := range 2*maxEvicted + 1 {
		l.answers = append(l.answers, answered{pod: policy.PodView{Namespace: "default", Name: fmt.Sprint("batch", i)}})
		if i%3 == 0 {
			l.settle(n.now, &s)
		}
	}
	l.settle(n.now, &s)
	if len(s.Evicted) != maxEvicted || s.Evicted[0].Pod != "default/batch32" ||
		s.Evicted[maxEvicted-1].Pod != "default/batch17" || s.Evictions != 2*maxEvicted+1 {
		t.Errorf("of 33 evictions %d are remembered of %d: %+v", len(s.Evicted), s.Evictions, s.Evicted)
	}
}

// The same notice is sent once in ten minutes; a clock that was set back is no reason
// for silence.
func TestHowOftenNoticesAreSent(t *testing.T) {
	n := newNode(t)
	l := n.start(nil)
	for i, c := range []struct {
		after    time.Duration
		reason   string
		notified bool
	}{
		{0, "a", true}, {0, "a", false}, {0, "b", true}, {notifyEvery - 1, "a", false}, {1, "a", true},
		{-time.Hour, "a", true}, {time.Minute, "a", false}, {notifyEvery, "a", true},
	} {
		n.now, n.notified = n.now.Add(c.after), nil
		if l.notify(n.now, policy.Notice{Reason: c.reason}); (len(n.notified) == 1) != c.notified {
			t.Errorf("%d: notified is %v, want %v", i, n.notified, c.notified)
		}
	}
}

// Best effort that was at its floor with a break was not there for long.
func TestSqueezedWithoutABreak(t *testing.T) {
	n := newNode(t)
	n.run("web", policy.LS, 4000, 0)
	n.run("batch", policy.BE, 0, 4000)
	n.load["web"] = 2
	l := n.start(nil)
	n.seconds(l, 20)
	n.notified = nil
	for _, c := range []struct {
		load     float64
		seconds  int
		notified bool
	}{{9, 25, false}, {2, 10, false}, {9, 25, false}, {9, 10, true}} {
		n.load["web"] = c.load
		n.seconds(l, c.seconds)
		if got := slices.Equal(n.notified, []string{"BestEffortSqueezed"}); got != c.notified {
			t.Errorf("%d s with %v CPUs of production: notified is %v, want %v", c.seconds, c.load, n.notified,
				c.notified)
		}
	}
}
