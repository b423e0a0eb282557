package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/failpoint"
	"github.com/quietcore/quietcore/plugin/node"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// Numbers in comments are those of the table of scenarios that this product is
// held to.

// picky is a second plugin of the runtime, behind ours, that refuses pods and
// containers by name.
type picky struct {
	mu      sync.Mutex
	refuses string
}

func (p *picky) refuse(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuses = name
}

func (p *picky) judge(name string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuses == name {
		return errors.New("picky does not like it")
	}
	return nil
}

func (p *picky) RunPodSandbox(_ context.Context, s *api.PodSandbox) error {
	return p.judge(s.GetName())
}

func (p *picky) CreateContainer(_ context.Context, s *api.PodSandbox,
	c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	return nil, nil, p.judge(s.GetName() + "/" + c.GetName())
}

// later registers another plugin, which the runtime asks after ours.
func (n *rig) later(handler any) { n.t.Helper(); n.another("95", "picky", handler) }

// another registers another plugin.
func (n *rig) another(index, name string, handler any) {
	n.t.Helper()
	n.mu.Lock()
	before := n.synced
	n.mu.Unlock()
	st, err := stub.New(handler, stub.WithPluginName(name), stub.WithPluginIdx(index), stub.WithSocketPath(n.socket))
	if err != nil {
		n.t.Fatal(err)
	}
	if err := st.Start(context.Background()); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(st.Stop)
	eventually(n.t, "the other plugin is synchronised", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.synced > before
	})
	n.admitted()
}

// collecting is a plugin whose collection of the vanished runs when told to.
func (n *rig) collecting() (collect func()) {
	vanish := make(chan time.Time)
	n.up(func(o *Options) { o.Clock.Vanish = vanish })
	return func() {
		for range rounds {
			vanish <- time.Time{}
		}
		n.settle()
	}
}

// rounds are as many as end a pod that is gone: it is missed in two, and the last one is
// taken together with the one before while that runs.
const rounds = 3

// looking is a node whose daemon looks after the pods that end whenever told to.
func looking(t *testing.T) (n *rig, soon func()) {
	n = newNode(t, grid(t, testGrid))
	n.up(func(o *Options) { o.Clock.Vanish = make(chan time.Time) }) // never
	return n, func() { n.passes(2 * time.Second) }
}

// passes lets time pass for the daemon, until it is settled again; advance does not wait
// for that.
func (n *rig) passes(d time.Duration) {
	n.t.Helper()
	n.advance(d)
	n.settle()
}

func (n *rig) advance(d time.Duration) {
	n.t.Helper()
	if err := n.plugin.Advance(short(n.t), d); err != nil {
		n.t.Fatal(err)
	}
}

// asked is the quota that the policy takes kubelet to have written for a pod.
func (n *rig) asked(s spec) (q policy.Quota) {
	n.t.Helper()
	for _, p := range n.checkpoint().Pods {
		if p.UID == s.uid() {
			q = p.Asked
		}
	}
	return q
}

func (n *rig) books() (pods, containers int) {
	n.t.Helper()
	c := n.checkpoint()
	return len(c.Pods), len(c.Containers)
}

// checkpoint is what the policy holds.
func (n *rig) checkpoint() policy.Synchronized {
	n.t.Helper()
	c, err := ask(short(n.t), n.plugin.runner, (*node.Core).Checkpoint)
	if err != nil {
		n.t.Fatal(err)
	}
	return c
}

func (n *rig) wantBooks(pods, containers int) {
	n.t.Helper()
	if p, c := n.books(); p != pods || c != containers {
		n.t.Errorf("%d pods and %d containers are on the books, want %d and %d", p, c, pods, containers)
	}
}

// 29, and 2.4: CRI-O sends neither Stop nor Remove for a container that a later
// plugin refused.
func TestACreateThatALaterPluginRefusesLeavesNothing(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	collect := n.collecting()
	other := &picky{}
	n.later(other)
	mustRun(t, n, burstable("web"), lsr("a", 2000))
	other.refuse("db/main")
	db := lse("db", 4000)
	if err := n.run(db); err == nil || !strings.Contains(err.Error(), "picky does not like it") {
		t.Fatalf("error is %v", err)
	}
	n.want("web-main", "6-15") // the pod is there and owns its CPUs
	mustRun(t, n, lsr("b", 2000))
	for i := range 20 { // kubelet tries again and again, each time a new ID
		c := db.container("sb-db", fmt.Sprint("db-main-", i), db.ctrs[0])
		if _, err := n.create(n.pods["sb-db"], c); err == nil {
			t.Fatal("the other plugin let it pass")
		}
	}
	collect()
	n.wantBooks(4, 3)
	other.refuse("")
	if err := n.startContainer(db, "db-main", db.ctrs[0]); err != nil {
		t.Fatal(err)
	}
	n.want("db-main", "2-5")
	n.checkOwners()
	other.refuse("db/main")
	n.end("db-main")
	if err := n.startContainer(db, "db-main-x", db.ctrs[0]); err == nil {
		t.Fatal("the other plugin let it pass")
	}
	n.remove(db)
	n.settle()
	n.wantBooks(3, 3)
	n.want("web-main", "2-5,8-15")
}

// The same for a sandbox: the pod comes again with another one, and when it is
// gone nothing is left although the first was never ended.
func TestASandboxThatALaterPluginRefusesLeavesNothing(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	collect := n.collecting()
	other := &picky{}
	n.later(other)
	mustRun(t, n, burstable("web"))
	other.refuse("db")
	db := lse("db", 4000)
	n.kernel.Mkdir(db.parent(), 0)
	for i := range 3 {
		if err := n.nri.RunPodSandbox(short(t), &api.RunPodSandboxRequest{Pod: db.sandbox(fmt.Sprint("sb-db-",
			i))}); err == nil {
			t.Fatal("the other plugin let it pass")
		}
	}
	other.refuse("")
	mustRun(t, n, db)
	n.want("db-main", "0-3")
	n.remove(db)
	collect()
	n.wantBooks(1, 1)
	n.want("web-main", "0-15")
}

// A containerd that was restarted tells of its older pods' containers only. A
// container's removal is what makes the daemon look whether the pod is there.
func TestAPodWhoseEndIsNotToldIsFoundSoonAfterItsContainers(t *testing.T) {
	n, soon := looking(t)
	db, stays := lse("db", 4000), lse("stays", 2000)
	mustRun(t, n, db, stays, burstable("web"))
	n.end("db-main")
	n.end("stays-main")
	soon() // the pods are still there
	n.kernel.Rmdir(db.parent())
	for range rounds {
		soon()
	}
	n.wantBooks(2, 1)
	n.want("web-main", "0-3,6-15")
	n.remove(stays) // the end of this one is told
}

// Kubelet ends a pod by stopping it and taking its cgroup away, and removes the
// sandbox up to a minute later.
func TestAPodThatKubeletEndedGivesItsCPUsBackBeforeItsSandboxGoes(t *testing.T) {
	n, soon := looking(t)
	db, restarts := lse("db", 4000), lse("restarts", 2000)
	mustRun(t, n, db, restarts, burstable("web"))
	for _, s := range []spec{db, restarts} {
		sandbox := n.pods["sb-"+s.name]
		c := n.containers[s.name+"-main"]
		n.kernel.Rmdir(c.Linux.CgroupsPath)
		if _, err := n.nri.StopContainer(short(t), &api.StopContainerRequest{Pod: sandbox, Container: c}); err != nil {
			t.Fatal(err)
		}
		if err := n.nri.StopPodSandbox(short(t), &api.StopPodSandboxRequest{Pod: sandbox}); err != nil {
			t.Fatal(err)
		}
	}
	n.kernel.Rmdir(db.parent()) // the other one only lost its sandbox
	for range rounds {
		soon()
	}
	n.want("web-main", "0-3,6-15")
	if log := n.log.String(); !strings.Contains(log, `level=INFO msg="its cgroup is gone`) ||
		strings.Contains(log, `level=WARN msg="its cgroup is gone`) {
		t.Errorf("the end of a pod is called an accident:\n%s", log)
	}
}

// 9: the same size again under a new ID; and the allocation ends with the pod.
func TestAKilledContainerComesBackToItsCPUs(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	n.up()
	db := lse("db", 2000)
	mustRun(t, n, lsr("a", 2000), db, burstable("web"))
	for i := range 5 {
		id := "db-main"
		if i > 0 {
			id = fmt.Sprint("db-main-", i)
		}
		n.want(id, "2-3")
		n.end(id)
		mustRun(t, n, lsr(fmt.Sprint("greedy", i), 2000)) // takes none of them meanwhile
		if err := n.startContainer(db, fmt.Sprint("db-main-", i+1), db.ctrs[0]); err != nil {
			t.Fatal(err)
		}
	}
	n.checkOwners()
	n.remove(db) // it has ended
	n.settle()
	if s := n.plugin.Snapshot(); s.Exclusive.Has(2) || s.Exclusive.Has(3) {
		t.Errorf("exclusive is %s after the pod's end", s.Exclusive)
	}
}

// 12: three fit a NUMA node each, the fourth is refused in words and leaves nothing.
func TestTheFourthThatFitsNoNodeIsRefused(t *testing.T) {
	n := newNode(t, grid(t, topology.Grid{Sockets: 2, NodesPerSocket: 2, L3PerNode: 1, CoresPerL3: 2,
		ThreadsPerCore: 2}))
	n.up(func(o *Options) { o.Config.NodeLabels = map[string]string{policy.LabelAlignment: "SingleNUMANode"} })
	for _, name := range []string{"a", "b", "c"} {
		mustRun(t, n, lse(name, 4000))
		n.settle()
		if s := n.on(name + "-main"); s != "0-3" && s != "4-7" && s != "8-11" && s != "12-15" {
			t.Errorf("%s runs on %s, want one NUMA node", name, s)
		}
	}
	mustRun(t, n, lse("small", 1000))
	n.settle()
	before := n.plugin.Snapshot()
	pods, containers := n.books()
	for range 3 {
		err := n.run(lse("late", 4000))
		if err == nil || len(err.Error()) < 40 {
			t.Errorf("error is %v", err)
		}
	}
	n.settle()
	n.wantBooks(pods, containers)
	if after := n.plugin.Snapshot(); *after.Pools != *before.Pools {
		t.Errorf("a refusal changed the pools: %+v", after.Pools)
	}
	n.remove(lse("small", 1000))
	n.remove(lse("b", 4000))
	mustRun(t, n, lse("late", 4000))
	n.checkOwners()
}

// 14: the runtime stops, everything in it dies, it is killed and comes back with
// both generations on its lists.
func TestARuntimeThatDiesWithItsContainers(t *testing.T) {
	n := newNode(t, grid(t, topology.Grid{Sockets: 2, NodesPerSocket: 2, L3PerNode: 1, CoresPerL3: 8,
		ThreadsPerCore: 2}))
	n.up()
	var all []spec
	for i := range 16 {
		all = append(all, lsr(fmt.Sprint("p", i), 3000))
	}
	mustRun(t, n, all...)
	n.settle()
	before := n.places()
	n.stopRuntime()
	eventually(t, "the loss of the runtime is noticed", func() bool { return !n.plugin.Connected() })
	for _, s := range all { // kubelet starts new ones before the old ones' end is announced
		old := n.containers[s.name+"-main"]
		n.kernel.Rmdir(old.Linux.CgroupsPath)
		old.State = api.ContainerState_CONTAINER_STOPPED
		next := s.container("sb-"+s.name, s.name+"-main-2", s.ctrs[0])
		next.CreatedAt, next.State = time.Now().UnixNano(), api.ContainerState_CONTAINER_RUNNING
		n.containers[next.Id] = next
		n.kernel.Mkdir(next.Linux.CgroupsPath, 1)
	}
	n.startRuntime()
	eventually(t, "the plugin is back", n.plugin.Synchronised)
	n.settle()
	n.wantBooks(16, 16)
	for _, c := range n.plugin.Snapshot().Containers {
		if !strings.HasSuffix(c.ID, "-main-2") {
			t.Errorf("%s is on the books; it is of the dead generation", c.ID)
		} else if got, want := n.on(c.ID), before[strings.TrimSuffix(c.ID, "-2")]; got != want {
			t.Errorf("%s runs on %s, its predecessor on %s", c.ID, got, want)
		}
	}
	n.checkOwners()
}

var big = topology.Grid{Sockets: 2, NodesPerSocket: 2, L3PerNode: 1, CoresPerL3: 32, ThreadsPerCore: 2}

// 26: twelve owners, three of them end, the daemon restarts: no pod moves.
func TestNineOfTwelveOwnersStayOverARestart(t *testing.T) {
	n := newNode(t, grid(t, big))
	n.up()
	for i := range 12 {
		mustRun(t, n, lsr(fmt.Sprint("p", i), int64(i%4+1)*2000))
	}
	for _, i := range []int{0, 4, 7} {
		n.remove(lsr(fmt.Sprint("p", i), int64(i%4+1)*2000))
	}
	n.settle()
	before := n.places()
	if len(before) != 9 {
		t.Fatalf("%d are left", len(before))
	}
	n.kill()
	n.up()
	n.samePlaces(before)
}

// 27: owners of one CPU that want their core to themselves.
func TestEightOwnersOfOneCPUHaveEightCores(t *testing.T) {
	topo := grid(t, big)
	n := newNode(t, topo)
	n.up(func(o *Options) { o.Config.Reserved = cpuset.Of(0, 1) })
	mustRun(t, n, burstable("web"))
	cores := map[int]bool{}
	var owned cpuset.Set
	for i := range 8 {
		s := lse(fmt.Sprint("p", i), 1000)
		s.annot = map[string]string{policy.AnnSMT: "isolate"}
		mustRun(t, n, s)
		n.settle()
		cpus, err := cpuset.Parse(n.on(s.name + "-main"))
		if err != nil || cpus.Count() != 1 {
			t.Fatalf("%s runs on %s, %v", s.name, cpus, err)
		}
		cores[topo.CoreOf(cpus.First())] = true
		owned.AddSet(&cpus)
	}
	s := n.plugin.Snapshot()
	siblings := topo.Siblings(owned)
	if len(cores) != 8 || siblings.Intersects(&s.Shared) || siblings.Intersects(&s.BE) ||
		siblings.Intersects(&s.Reserved) {
		t.Errorf("%d cores; siblings %s, shared %s, reserved %s", len(cores), siblings, s.Shared, s.Reserved)
	}
	n.checkOwners()
}

// 28: at no instant, after no single write, does another pod share an owner's CPUs.
func TestAResizeOverlapsNobodyAtAnyInstant(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	var mu sync.Mutex
	var overlaps []string
	watching := false
	n.kernel.After = func(path, file string) {
		mu.Lock()
		defer mu.Unlock()
		if !watching {
			return
		}
		tasks := n.kernel.Tasks()
		own := tasks["kubepods/poduid-db/db-main"]
		for other, cpus := range tasks {
			if both := own.And(cpus); !both.IsEmpty() && other != "kubepods/poduid-db/db-main" {
				overlaps = append(overlaps, fmt.Sprintf("after %s %s: %s on %s with %s", path, file, own, both, other))
			}
		}
	}
	n.up()
	mustRun(t, n, burstable("web"), bestEffort("low"), lsr("next", 2000), lse("db", 4000))
	n.settle()
	mu.Lock()
	watching = true
	mu.Unlock()
	for _, milli := range []int64{6000, 2000, 8000, 1000, 5000} {
		if err := n.update("db-main", cpuOf(milli, milli, "")); err != nil {
			t.Fatal(err)
		}
		n.settle()
		if got := n.on("db-main"); cpusIn(t, got) != int(milli/1000) {
			t.Errorf("resized to %dm it runs on %s", milli, got)
		}
	}
	before := n.on("db-main")
	if err := n.update("db-main", cpuOf(40000, 40000, "")); err == nil {
		t.Error("an impossible resize was taken")
	}
	n.want("db-main", before)
	mu.Lock()
	defer mu.Unlock()
	for _, o := range overlaps {
		t.Error(o)
	}
}

// 29: the runtime dies between our answer and the container.
func TestARuntimeThatDiesInTheMiddleOfACreate(t *testing.T) {
	for _, pod := range []string{"is listed", "is lost too"} {
		t.Run("the pod "+pod, func(t *testing.T) {
			n := newNode(t, grid(t, testGrid))
			n.up()
			mustRun(t, n, burstable("web"), lsr("a", 2000))
			db := lse("db", 4000)
			n.kernel.Mkdir(db.parent(), 0)
			n.pods["sb-db"] = db.sandbox("sb-db")
			if err := n.nri.RunPodSandbox(short(t), &api.RunPodSandboxRequest{Pod: n.pods["sb-db"]}); err != nil {
				t.Fatal(err)
			}
			r, err := n.nri.CreateContainer(short(t), &api.CreateContainerRequest{Pod: n.pods["sb-db"],
				Container: db.container("sb-db", "db-main", db.ctrs[0])})
			if err != nil || r.GetAdjust().GetLinux().GetResources().GetCpu().GetCpus() != "2-5" {
				t.Fatalf("%v, %v", r, err)
			}
			n.stopRuntime()
			eventually(t, "the loss of the runtime is noticed", func() bool { return !n.plugin.Connected() })
			if pod == "is lost too" {
				delete(n.pods, "sb-db")
				n.kernel.Rmdir(db.parent())
			}
			n.startRuntime()
			eventually(t, "the plugin is back", n.plugin.Synchronised)
			n.settle()
			n.wantBooks(len(n.pods), 2)
			if pod == "is lost too" {
				n.want("web-main", "2-15")
				mustRun(t, n, db)
			} else if err := n.startContainer(db, "db-main-2", db.ctrs[0]); err != nil {
				t.Fatal(err)
			}
			n.checkOwners()
			for id := range n.containers {
				if strings.HasPrefix(id, "db-main") {
					n.want(id, "2-5")
				}
			}
		})
	}
}

// A handler that is slower than the runtime allows: the plugin is dropped, the
// container starts unpinned, the plugin comes back and takes it over.
func TestAPluginThatWasTooSlowComesBackAndTakesOver(t *testing.T) {
	t.Parallel() // it waits for a deadline
	n := newNode(t, grid(t, testGrid))
	slow := make(chan struct{})
	var once sync.Once
	n.up(func(o *Options) {
		o.At = func(p failpoint.Point) {
			if p == failpoint.CreateReply {
				once.Do(func() { <-slow })
			}
		}
	})
	start := time.Now()
	mustRun(t, n, lse("db", 4000)) // the runtime's own two seconds pass here
	if took := time.Since(start); took < time.Second {
		t.Fatalf("the runtime waited %s; nothing timed out", took)
	}
	if got := n.containers["db-main"].Linux.Resources.Cpu.Cpus; got != "" {
		t.Fatalf("the runtime has CPUs %q from a plugin that it dropped", got)
	}
	close(slow)
	eventually(t, "the loss is noticed and the plugin is back", func() bool {
		return strings.Count(n.log.String(), "msg=synchronized") == 2
	})
	n.want("db-main", "0-3")
	mustRun(t, n, burstable("web"), lsr("a", 2000))
	n.want("web-main", "6-15")
	n.want("a-main", "4-5")
	n.checkOwners()
	if got := n.quota("/kubepods/poduid-db/db-main"); got != policy.NoLimit {
		t.Errorf("the quota of the container that started without us is %dm, want none", got)
	}
}

// 2.2: duplicate names are accepted by the runtime. Two daemons that are not kept
// apart by the lock of one state folder disagree loudly, and own nothing twice.
func TestTwoPluginsOfOneName(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	n.up()
	mustRun(t, n, burstable("web"), lse("a", 2000))
	n.settle()
	o := n.options()
	o.Store = &memoryStore{}
	second, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); second.Run(ctx) }()
	eventually(t, "the second is settled", second.Settled)
	n.admitted()
	n.want("a-main", "0-1") // it takes over what is there
	err = n.run(lse("db", 4000))
	if err == nil || strings.Count(err.Error(), "quietcore") < 2 {
		t.Errorf("error is %v; want the runtime's, which names both", err)
	}
	cancel()
	<-done
	n.settle()
	if err := n.startContainer(lse("db", 4000), "db-main", main1(4000)[0]); err != nil {
		t.Fatal(err)
	}
	n.want("a-main", "0-1")
	n.want("db-main", "2-5")
	n.checkOwners()
}

// kubelet retries a refused pod for ever, each time with a new sandbox, and ends
// each refused one with Stop and Remove under the pod's UID.
func TestAPodThatIsRefusedAThousandTimesCostsNothing(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	collect := n.collecting()
	mustRun(t, n, lse("db", 4000), burstable("web"))
	n.settle()
	before := n.plugin.Snapshot()
	odd := lsr("odd", 1500)
	n.kernel.Mkdir(odd.parent(), 0)
	logged := len(n.log.String())
	for i := range 1000 {
		s := odd.sandbox(fmt.Sprint("sb-odd-", i))
		if err := n.nri.RunPodSandbox(short(t), &api.RunPodSandboxRequest{Pod: s}); err == nil {
			t.Fatal("the pod was admitted")
		}
		n.removeSandbox(s)
		n.removeSandbox(s)
	}
	if grown := len(n.log.String()) - logged; grown > 4<<10 {
		t.Errorf("a thousand refusals of one pod cost %d bytes of log", grown)
	}
	for i := range 1000 { // a job whose pods are all refused: another UID each time
		s := lsr(fmt.Sprint("job-", i), 1500).sandbox(fmt.Sprint("sb-job-", i))
		if err := n.nri.RunPodSandbox(short(t), &api.RunPodSandboxRequest{Pod: s}); err == nil {
			t.Fatal("the pod was admitted")
		}
		n.removeSandbox(s)
	}
	collect()
	n.wantBooks(2, 2)
	if got := len(n.plugin.refusals.last); got > maxRefusals {
		t.Errorf("%d refusals are remembered, at most %d", got, maxRefusals)
	}
	if after := n.plugin.Snapshot(); *after.Pools != *before.Pools {
		t.Errorf("the pools are %+v, were %+v", after.Pools, before.Pools)
	}
	n.want("db-main", "0-3")
}

// The end of a refused sandbox releases nothing of a pod that lives under the same
// UID, and the end of the live one's old sandbox does not either.
func TestTheEndOfOneSandboxIsNotTheEndOfThePod(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	n.up()
	db := lse("db", 4000)
	mustRun(t, n, burstable("web"), db)
	refused := db.sandbox("sb-refused-long-ago")
	n.removeSandbox(refused)
	n.want("db-main", "0-3")
	next := db.sandbox("sb-db-2")
	if err := n.nri.RunPodSandbox(short(t), &api.RunPodSandboxRequest{Pod: next}); err != nil {
		t.Fatal(err)
	}
	n.removeSandbox(refused)
	n.want("db-main", "0-3")
	n.removeSandbox(next)
	n.want("db-main", "0-3")
	n.want("web-main", "4-15")
	n.checkOwners()
}

// A resize that is refused leaves nothing of itself in what is known of a pod.
func TestARefusedResizeIsForgotten(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	n.up()
	db := lse("db", 4000)
	mustRun(t, n, db)
	n.settle()
	before := n.asked(db)
	if _, err := n.nri.UpdatePodSandbox(short(t), &api.UpdatePodSandboxRequest{
		Pod: n.pods["sb-db"], OverheadLinuxResources: &api.LinuxResources{},
		LinuxResources: &api.LinuxResources{Cpu: cpuOf(40000, 40000, "")},
	}); err == nil {
		t.Fatal("an impossible resize was taken")
	}
	stranger := lse("stranger", 4000)
	if _, err := n.nri.UpdatePodSandbox(short(t), &api.UpdatePodSandboxRequest{
		Pod: stranger.sandbox("sb-stranger"), OverheadLinuxResources: &api.LinuxResources{},
		LinuxResources: &api.LinuxResources{Cpu: cpuOf(2000, 2000, "")},
	}); err != nil {
		t.Errorf("a resize of nobody: %v", err)
	}
	n.settle()
	if after := n.asked(db); after != before || after != policy.QuotaOf(4000) {
		t.Errorf("kubelet's quota of the pod is taken for %+v, it is %+v", after, before)
	}
	if got := n.asked(stranger); got.Known() {
		t.Errorf("of a pod that does not run kubelet is known to have asked for %+v", got)
	}
}

// A container is entered when it starts if its creation was answered without a
// decision, whether the policy has it by now or not; one that was answered is not.
func TestAContainerThatSlippedPastItsCreationIsEnteredAtItsStart(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	n.up()
	web := burstable("web")
	mustRun(t, n, web)
	created := func(id string) (times int) {
		t.Helper()
		records, err := n.plugin.Records(short(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			if r.ContainerCreate != nil && r.ContainerCreate.Container.ID == id {
				times++
			}
		}
		return times
	}
	start := func(c *api.Container, want int) {
		t.Helper()
		if err := n.nri.StartContainer(short(t), &api.StartContainerRequest{Pod: n.pods["sb-web"],
			Container: c}); err != nil {
			t.Fatal(err)
		}
		if got := created(c.Id); got != want {
			t.Errorf("%s is entered %d times, want %d", c.Id, got, want)
		}
	}
	start(n.containers["web-main"], 1)
	slipped := web.container("sb-web", "web-slipped", ctr{name: "slipped", request: 1000})
	start(slipped, 1)
	start(slipped, 1)
}

// A container is stopped between the plan and its write: the cgroup is gone, and
// the rest of the change goes on.
func TestACgroupThatVanishesInTheMiddleOfAChange(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	var mu sync.Mutex
	victim := ""
	n.kernel.Before = func(path string, _ cgroup.Values) error {
		mu.Lock()
		defer mu.Unlock()
		if victim != "" && strings.Trim(path, "/") == victim {
			victim = ""
			n.kernel.Rmdir(path)
		}
		return nil
	}
	n.up()
	// An owner inside the burstable slice narrows its neighbours one by one.
	mustRun(t, n, burstable("a"), burstable("b"), burstable("c"))
	n.settle()
	mu.Lock()
	victim = strings.Trim(burstable("b").parent(), "/")
	mu.Unlock()
	mustRun(t, n, widened("db", 4000))
	mu.Lock()
	if victim != "" {
		t.Error("nobody wrote to the pod that was to vanish")
	}
	mu.Unlock()
	delete(n.containers, "b-main")
	n.want("db-main", "0-3")
	n.want("a-main", "4-15")
	n.want("c-main", "4-15")
	n.checkOwners()
	if log := n.log.String(); strings.Contains(log, "level=ERROR") {
		t.Error("somebody's end is logged as an error")
	}
}

// 30: a large node. How long it takes is measured by BenchmarkSynchronize.
func TestFiveHundredContainersOn512CPUsAreTakenOver(t *testing.T) {
	n := newNode(t, grid(t, topology.Grid{Sockets: 2, NodesPerSocket: 4, L3PerNode: 4, CoresPerL3: 8,
		ThreadsPerCore: 2}))
	n.startRuntime()
	for i := range 500 {
		s := burstable(fmt.Sprint("web", i))
		switch i % 10 {
		case 0:
			s = lsr(s.name, 2000)
		case 1, 2, 3:
			s = bestEffort(s.name)
		}
		mustRun(t, n, s)
	}
	n.start(func(o *Options) { o.Log = slog.New(slog.NewTextHandler(io.Discard, nil)) })
	eventually(t, "the plugin is synchronised", n.plugin.Synchronised)
	n.settle()
	n.wantBooks(500, 500)
	if got := n.plugin.Snapshot().Exclusive.Count(); got != 100 {
		t.Errorf("%d CPUs are owned, want 100", got)
	}
	n.checkOwners()
}
