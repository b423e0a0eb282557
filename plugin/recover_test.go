package plugin

import (
	"fmt"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/policy"
)

// populate runs owners and others, and leaves a hole so that a new allocation
// would not be the same as the old one.
func populate(t *testing.T, n *rig) {
	t.Helper()
	isolated := lsr("isolated", 1000)
	isolated.annot = map[string]string{policy.AnnSMT: "isolate"}
	mustRun(t, n, lsr("gone", 2000), lsr("a", 2000), lsr("b", 4000), isolated,
		spec{name: "lse", class: policy.LSE, qos: policy.Guaranteed, ctrs: main1(2000)},
		burstable("web"), bestEffort("batch"))
	n.remove(lsr("gone", 2000))
	n.settle()
	n.checkOwners()
}

// places is where everything runs, by the kernel.
func (n *rig) places() map[string]string {
	all := map[string]string{}
	for id := range n.containers {
		all[id] = n.on(id)
	}
	return all
}

func (n *rig) samePlaces(before map[string]string) {
	n.t.Helper()
	n.settle()
	for id, cpus := range n.places() {
		if cpus != before[id] {
			n.t.Errorf("container %s moved from %s to %s", id, before[id], cpus)
		}
	}
	n.checkOwners()
}

func TestNothingMovesWhateverIsLostWithTheDaemon(t *testing.T) {
	for _, lost := range []struct {
		name          string
		kernel, state bool
	}{
		{"nothing", false, false},
		{"the state file", false, true},
		{"the pods' own masks", true, false},
		{"both: the runtime's store is left", true, true},
	} {
		t.Run(lost.name, func(t *testing.T) {
			n := newNode(t, grid(t, testGrid))
			n.up()
			populate(t, n)
			before := n.places()
			n.kill()
			if lost.state {
				n.store.set(state.Snapshot{})
			}
			if lost.kernel {
				for _, pod := range []string{"a", "b", "isolated", "lse"} {
					n.kernel.Tamper("kubepods/poduid-"+pod, "")
				}
			}
			n.up()
			n.samePlaces(before)
			if got := n.plugin.Snapshot().Withheld.Count(); got != 1 {
				t.Errorf("%d CPUs are withheld for the isolated pod, want 1", got)
			}
			// The hole that was left is used; no other pod's CPUs are.
			mustRun(t, n, lsr("new", 2000))
			n.want("new-main", "0-1")
			n.checkOwners()
		})
	}
}

func TestAResizeIsNotUndoneByARestart(t *testing.T) {
	for _, keep := range []bool{true, false} {
		t.Run(fmt.Sprint("state file kept: ", keep), func(t *testing.T) {
			n := newNode(t, grid(t, testGrid))
			n.up()
			mustRun(t, n, lsr("db", 2000), burstable("web"))
			// The runtime goes on reporting the pod's sums from before, and the cpuset of
			// the creation.
			if err := n.update("db-main", cpuOf(4000, 4000, "")); err != nil {
				t.Fatal(err)
			}
			n.want("db-main", "0-3")
			n.containers["db-main"].Linux.Resources.Cpu.Cpus = "0-1"
			before := n.places()
			n.kill()
			if !keep {
				n.store.set(state.Snapshot{})
			}
			n.up()
			n.samePlaces(before)
			if got := n.plugin.Snapshot().Exclusive.String(); got != "0-3" {
				t.Errorf("the owner has %s, want 0-3", got)
			}
		})
	}
}

func TestADegradedPodStaysSharedAfterARestart(t *testing.T) {
	degrade := func(o *Options) { o.Config.Degrade = true }
	for _, keep := range []bool{true, false} {
		t.Run(fmt.Sprint("state file kept: ", keep), func(t *testing.T) {
			n := newNode(t, grid(t, testGrid))
			n.up(degrade)
			mustRun(t, n, lsr("a", 4000), burstable("web"), lsr("huge", 14000), lsr("huge2", 14000))
			n.want("huge-main", "4-15")
			before := n.places()
			n.kill()
			if !keep {
				n.store.set(state.Snapshot{})
			}
			n.up(degrade)
			n.samePlaces(before)
			if got := n.plugin.Snapshot().Exclusive.String(); got != "0-3" {
				t.Errorf("exclusive is %s; the shared pool was taken for somebody's own", got)
			}
		})
	}
}

func TestPodsThatRanBeforeTheFirstStartArePlacedInOrderOfCreation(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	n.startRuntime()
	specs := []spec{lsr("a", 4000), lsr("b", 8000), lsr("c", 8000), burstable("web")}
	for _, s := range specs {
		mustRun(t, n, s) // no daemon is there to place them
	}
	n.up()
	n.want("a-main", "0-3")
	n.want("b-main", "8-15")
	n.want("c-main", "4-7")
	n.want("web-main", "4-7")
	n.checkOwners()
}

func TestTheRuntimeComesBackAndNothingMoves(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	n.up()
	populate(t, n)
	before := n.places()
	n.stopRuntime()
	eventually(t, "the loss of the runtime is noticed", func() bool { return !n.plugin.Connected() })
	if err := n.plugin.Submit(short(t), policy.Tick{}); err != nil {
		t.Errorf("the daemon does not serve without its runtime: %v", err)
	}
	delete(n.containers, "web-main") // ended meanwhile, as did a whole pod
	n.kernel.Rmdir("kubepods/burstable/poduid-web/web-main")
	n.end2("a")
	n.startRuntime()
	eventually(t, "the plugin is back", n.plugin.Synchronised)
	n.samePlaces(before)
	mustRun(t, n, lsr("new", 4000))
	n.want("new-main", "0-3")
	n.checkOwners()
}

// end2 ends a pod unannounced.
func (n *rig) end2(pod string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.pods, "sb-"+pod)
	delete(n.containers, pod+"-main")
	n.kernel.Rmdir("kubepods/poduid-" + pod)
}

func TestASocketThatAppearsLaterIsFound(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	waits := make(chan time.Duration, 1000)
	n.start(func(o *Options) {
		o.Clock.Jitter = func() float64 { return 1 }
		o.Clock.After = func(d time.Duration) <-chan time.Time {
			c := make(chan time.Time, 1)
			if d != o.Registration {
				waits <- d
				if len(waits) < 12 {
					c <- time.Time{}
				} // then only the socket's appearance helps
			}
			return c
		}
		o.Registration = time.Hour
	})
	eventually(t, "twelve attempts were made", func() bool { return len(waits) >= 12 })
	last := time.Duration(0)
	for range 12 {
		d := <-waits
		if d < last || d > mostBackOff {
			t.Errorf("waited %s after %s, want growing waits up to %s", d, last, mostBackOff)
		}
		last = d
	}
	if last != mostBackOff {
		t.Errorf("the last wait is %s, want %s", last, mostBackOff)
	}
	n.startRuntime()
	n.settle()
	mustRun(t, n, lsr("db", 2000))
	n.want("db-main", "0-1")
}

func TestACapOutlivesTheDaemonAndEndsAtItsDeadline(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	n.up()
	batch := spec{name: "batch", class: policy.BE, qos: policy.Burstable,
		ctrs: []ctr{{name: "main", request: 1000, limit: 2000}}}
	mustRun(t, n, batch)
	path := batch.parent() + "/batch-main"
	if got := n.quota(path); got != 2000 {
		t.Fatalf("quota is %dm before the cap", got)
	}
	if err := n.plugin.Submit(short(t), policy.CapVerdict{ID: "batch-main", Milli: 100,
		For: 5 * time.Minute}); err != nil {
		t.Fatal(err)
	}
	n.settle()
	if got := n.quota(path); got != 100 {
		t.Fatalf("quota is %dm under the cap of 100m", got)
	}
	if caps := n.store.load().Caps; len(caps) != 1 || *caps[0].PreviousQuotaMilli != 2000 {
		t.Errorf("the state file has caps %+v", caps)
	}
	// kubelet's own update passes through: the cap stays.
	if err := n.update("batch-main", &api.LinuxCPU{Shares: api.UInt64(2048)}); err != nil {
		t.Fatal(err)
	}
	n.settle()
	if got := n.quota(path); got != 100 {
		t.Errorf("an update by kubelet lifted the cap: %dm", got)
	}
	n.kill()
	n.up()
	if got := n.quota(path); got != 100 {
		t.Errorf("after a restart the quota is %dm, want the cap", got)
	}
	if err := n.plugin.Advance(short(t), 10*time.Minute); err != nil {
		t.Fatal(err)
	}
	n.settle()
	if got := n.quota(path); got != 2000 {
		t.Errorf("after its deadline the quota is %dm, want the 2000m from before", got)
	}
}

func TestACapThatEndedWhileTheDaemonWasDeadIsUndone(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	n.up()
	mustRun(t, n, bestEffort("batch"))
	if err := n.plugin.Submit(short(t), policy.CapVerdict{ID: "batch-main", Milli: 10, For: time.Minute}); err != nil {
		t.Fatal(err)
	}
	n.settle()
	path := bestEffort("batch").parent() + "/batch-main"
	if got := n.quota(path); got != 10 {
		t.Fatalf("quota is %dm under a cap of 10m", got)
	}
	n.kill()
	n.up(func(o *Options) { o.Clock.Now = func() time.Time { return time.Now().Add(time.Hour) } })
	if got := n.quota(path); got != policy.NoLimit {
		t.Errorf("the quota is %dm, want none", got)
	}
}

func TestACapIsNotAppliedBeforeItIsOnDisk(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	n.up()
	mustRun(t, n, bestEffort("batch"))
	n.settle()
	n.store.failing(true)
	before := n.store.attempts()
	if err := n.plugin.Submit(short(t), policy.CapVerdict{ID: "batch-main", Milli: 10, For: time.Minute}); err != nil {
		t.Fatal(err)
	}
	path := bestEffort("batch").parent() + "/batch-main"
	for i := range 3 { // a full disk
		eventually(t, "an attempt to save has failed", func() bool { return n.store.attempts() == before+i+1 })
		if i < 2 {
			n.advance(5 * time.Second)
		}
	}
	if got := n.quota(path); got != policy.NoLimit {
		t.Errorf("the cap is in force and not in the state file")
	}
	if n.plugin.Unsaved() <= 0 {
		t.Error("the state file is not said to be behind")
	}
	n.store.failing(false)
	n.passes(5 * time.Second)
	if got := n.quota(path); got != 10 {
		t.Errorf("the quota is %dm after the disk has room again, want the cap", got)
	}
	if late := n.plugin.Unsaved(); late != 0 {
		t.Errorf("the state file is said to be %s behind", late)
	}
}

func TestVanishedPodsAreCollected(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	vanish := make(chan time.Time)
	n.up(func(o *Options) { o.Clock.Vanish = vanish })
	mustRun(t, n, lsr("db", 4000), lsr("other", 2000), burstable("web"))
	n.settle()
	n.kernel.Rmdir("kubepods/poduid-db")
	delete(n.containers, "db-main")
	vanish <- time.Time{}
	vanish <- time.Time{} // taken once the first was dealt with
	vanish <- time.Time{}
	n.settle()
	if got := n.plugin.Snapshot().Exclusive.String(); got != "4-5" {
		t.Errorf("exclusive is %s, want only the CPUs of the pod that is still there", got)
	}
	n.want("web-main", "0-3,6-15")
}

func TestAPodThatIsOverOwnsNothingAfterARestart(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	n.startRuntime()
	done, db := lsr("done", 4000), lsr("db", 4000)
	n.pods["sb-done"] = done.sandbox("sb-done") // listed until kubelet collects it
	mustRun(t, n, db)
	n.up()
	n.want("db-main", "0-3")
	if got := n.plugin.Snapshot().Exclusive.String(); got != "0-3" {
		t.Errorf("exclusive is %s; a pod that ended has CPUs", got)
	}
}

func TestAPodOfTwoSandboxesIsOnePod(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	n.up()
	mustRun(t, n, lsr("a", 2000), lsr("db", 4000))
	n.settle()
	before := n.places()
	n.pods["sb-db-old"] = lsr("db", 4000).sandbox("sb-db-old")
	n.kill()
	n.store.set(state.Snapshot{})
	n.up()
	n.samePlaces(before)
}

// kubelet sets no quota where its static policy pins a container, and none at
// all with cpuCFSQuota off: a restart must not invent one.
func TestNoQuotaIsInventedForAGuaranteedPod(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	n.up()
	pinned := spec{name: "pinned", qos: policy.Guaranteed, ctrs: []ctr{{name: "main", request: 2000}}}
	mustRun(t, n, pinned)
	n.settle()
	n.kill()
	n.up()
	n.settle()
	if got := n.quota(pinned.parent() + "/pinned-main"); got != policy.NoLimit {
		t.Errorf("after the restart the container is limited to %d m", got)
	}
}
