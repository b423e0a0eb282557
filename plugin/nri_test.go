package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/policy"
)

func lsr(name string, milli int64) spec {
	return spec{name: name, class: policy.LSR, qos: policy.Guaranteed, ctrs: main1(milli)}
}

func burstable(name string) spec {
	return spec{name: name, qos: policy.Burstable, ctrs: []ctr{{name: "main", request: 500}}}
}

func bestEffort(name string) spec {
	return spec{name: name, qos: policy.BestEffort, ctrs: []ctr{{name: "main"}}}
}

func TestAnExclusivePodGetsItsCPUsAndTheOthersLeaveThem(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	n.up()
	db := spec{name: "db", class: policy.LSE, qos: policy.Guaranteed, ctrs: main1(4000)}
	mustRun(t, n, burstable("web"), bestEffort("batch"))
	n.want("web-main", "0-15")
	mustRun(t, n, db)
	n.want("db-main", "0-3")
	n.want("web-main", "4-15")
	n.want("batch-main", "4-15")
	n.checkOwners()
	if got := n.quota(db.parent()); got != policy.NoLimit {
		t.Errorf("the pod's quota is %dm, want none", got)
	}
	if got := n.quota(db.parent() + "/db-main"); got != policy.NoLimit {
		t.Errorf("the container's quota is %dm, want none", got)
	}
	if got := n.containers["db-main"].Linux.Resources.Cpu.Cpus; got != "0-3" {
		t.Errorf("the runtime stores CPUs %q for the owner, want 0-3: a recovery without kernel and state needs them",
			got)
	}
	if got := n.containers["web-main"].Linux.Resources.Cpu.Cpus; got != "" {
		t.Errorf("the runtime stores CPUs %q for a shared container; then every update of it would write them", got)
	}
	n.remove(db)
	n.want("web-main", "0-15")
	n.want("batch-main", "0-15")
}

func TestLSRAdmitsBestEffortOnly(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	n.up()
	mustRun(t, n, burstable("web"), bestEffort("batch"), lsr("cache", 2000))
	n.want("cache-main", "0-1")
	n.want("web-main", "2-15")
	n.want("batch-main", "0-15")
}

func TestARefusalReachesTheUserWordForWord(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	n.up()
	err := n.run(lsr("odd", 1500))
	if err == nil || !strings.Contains(err.Error(),
		"InvalidRequest: LSR pods need a whole number of CPUs, this pod requests 1500m") {
		t.Fatalf("error is %v", err)
	}
	if got := len(n.plugin.Snapshot().Containers); got != 0 {
		t.Errorf("%d containers are left of a refused pod", got)
	}
	// kubelet comes again and again: one line a minute.
	for i := range 50 {
		s := lsr("odd", 1500).sandbox(fmt.Sprint("again-", i))
		if err := n.nri.RunPodSandbox(short(t), &api.RunPodSandboxRequest{Pod: s}); err == nil {
			t.Fatal("the pod was admitted")
		}
		n.removeSandbox(s)
	}
	if got := strings.Count(n.log.String(), "msg=refused"); got != 1 {
		t.Errorf("the log has %d lines about 51 refusals of one pod, want 1", got)
	}
	list := n.plugin.Refused()
	if len(list) != 1 || list[0].Pod != "odd" || list[0].Code != "InvalidRequest" ||
		!strings.Contains(list[0].Message, "this pod requests 1500m") {
		t.Errorf("turned away are %+v", list)
	}
	mustRun(t, n, lsr("odd", 2000)) // the same pod, resized meanwhile
	if list := n.plugin.Refused(); len(list) != 0 {
		t.Errorf("admitted, and still turned away: %+v", list)
	}
}

func TestAResizeGrowsAndShrinksAndAnImpossibleOneKeepsTheOld(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	n.up()
	mustRun(t, n, burstable("web"), lsr("db", 4000))
	n.want("db-main", "0-3")
	resize := func(milli int64) error { return n.update("db-main", cpuOf(milli, milli, "")) }
	if err := resize(6000); err != nil {
		t.Fatal(err)
	}
	n.want("db-main", "0-5")
	n.want("web-main", "6-15")
	if err := resize(40000); err == nil || !strings.Contains(err.Error(), "InsufficientCPUs") {
		t.Errorf("an impossible resize: error is %v", err)
	}
	n.want("db-main", "0-5")
	if err := resize(2000); err != nil {
		t.Fatal(err)
	}
	n.settle()
	if got := n.on("db-main"); got != "0-1" && got != "2-3" && got != "4-5" {
		t.Errorf("after shrinking it runs on %s, want one whole core of 0-5", got)
	}
	n.checkOwners()
	if got := n.quota("/kubepods/poduid-db/db-main"); got != policy.NoLimit {
		t.Errorf("the quota came back with the resize: %dm", got)
	}
}

func TestKubeletWritesThePodsQuotaAtAResizeAndItIsLiftedAgain(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	n.up()
	db := lsr("db", 4000)
	mustRun(t, n, db)
	n.settle()
	sandbox := n.pods["sb-db"]
	for _, milli := range []int64{6000, 2000} {
		if err := n.update("db-main", cpuOf(milli, milli, "")); err != nil {
			t.Fatal(err)
		}
		if err := n.kernel.Apply(context.Background(), db.parent(),
			cgroup.Values{Quota: &cgroup.Quota{Micros: milli * 100, Period: 100000}}); err != nil {
			t.Fatal(err)
		}
		if _, err := n.nri.UpdatePodSandbox(short(t), &adaptation.UpdatePodSandboxRequest{
			Pod: sandbox, OverheadLinuxResources: &api.LinuxResources{},
			LinuxResources: &api.LinuxResources{Cpu: cpuOf(milli, milli, "")},
		}); err != nil {
			t.Fatal(err)
		}
		n.settle()
		if got := n.quota(db.parent()); got != policy.NoLimit {
			t.Errorf("after the resize to %dm the pod's quota is %dm, want none", milli, got)
		}
	}
}

// Runtimes before NRI 0.10 do not announce a resize of a pod: kubelet writes its quota
// after the container's, or before one that is refused.
func TestAPodsQuotaIsLiftedAgainWhereItsResizeIsNotTold(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	n.up(func(o *Options) { o.Clock.Audit = make(chan time.Time) }) // never
	n.plugin.unannounced.Store(true)
	db := lsr("db", 4000)
	mustRun(t, n, db)
	n.settle()
	for _, tc := range []struct {
		milli   int64
		refused bool
	}{{2000, false}, {40000, true}} {
		if err := n.update("db-main", cpuOf(tc.milli, tc.milli, "")); (err != nil) != tc.refused {
			t.Fatalf("resize to %dm: %v", tc.milli, err)
		}
		if err := n.kernel.Apply(context.Background(), db.parent(),
			cgroup.Values{Quota: &cgroup.Quota{Micros: tc.milli * 100, Period: 100000}}); err != nil {
			t.Fatal(err)
		}
		if n.plugin.Settled() {
			t.Error("settled, although the pod's quota is still to be looked at")
		}
		n.passes(2 * time.Second)
		if got := n.quota(db.parent()); got != policy.NoLimit {
			t.Errorf("after the resize to %dm the pod's quota is %dm, want none", tc.milli, got)
		}
	}
}

// kubelet 1.36 announces one value before it writes it and reads the others from the
// pod's cgroup, where the quota is what we lifted and the shares went through a
// weight. What is refused there is not written, and kubelet begins again later.
func TestKubeletAnnouncesAResizeValueByValue(t *testing.T) {
	const lifted = -1
	for _, c := range []struct {
		name      string
		announced []*api.LinuxCPU // before the container is updated
		to        int64
		then      []*api.LinuxCPU
		refused   string // by the last announcement
		cpus      int
	}{
		{"growth", []*api.LinuxCPU{announced(4000, 600000, true), announced(6000, 600000, false)}, 6000, nil, "", 6},
		{"shrinking", []*api.LinuxCPU{announced(4000, 200000, true)}, 2000,
			[]*api.LinuxCPU{announced(2000, 200000, false)}, "", 2},
		{"memory alone", []*api.LinuxCPU{announced(4000, lifted, true)}, 0, nil, "", 4},
		{"more than there is", []*api.LinuxCPU{announced(4000, 1600000, true), announced(16000, 1600000, false)}, 0,
			nil, "InsufficientCPUs", 4},
		{"no whole number", []*api.LinuxCPU{announced(4000, 450000, true), announced(4500, 450000, false)}, 0, nil,
			"InvalidRequest", 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t, grid(t, testGrid))
			n.up()
			db := lsr("db", 4000)
			mustRun(t, n, burstable("web"), db)
			n.settle()
			announce := func(cpu *api.LinuxCPU, limit bool) error {
				_, err := n.nri.UpdatePodSandbox(short(t), &adaptation.UpdatePodSandboxRequest{
					Pod: n.pods["sb-db"], OverheadLinuxResources: &api.LinuxResources{},
					LinuxResources: &api.LinuxResources{Cpu: cpu}})
				if err == nil && limit && cpu.Quota.GetValue() > 0 { // as kubelet does once it may
					err = n.kernel.Apply(context.Background(), db.parent(),
						cgroup.Values{Quota: &cgroup.Quota{Micros: cpu.Quota.GetValue(), Period: 100000}})
				}
				return err
			}
			var last error
			for i, cpu := range c.announced {
				if last = announce(cpu, i == 0); last != nil && (c.refused == "" || i < len(c.announced)-1) {
					t.Fatalf("announcement %d: %v", i, last)
				}
			}
			if c.refused != "" && (last == nil || !strings.Contains(last.Error(), c.refused)) {
				t.Errorf("error is %v, want %s", last, c.refused)
			}
			if c.to > 0 {
				if err := n.update("db-main", cpuOf(c.to, c.to, "")); err != nil {
					t.Fatal(err)
				}
			}
			for _, cpu := range c.then {
				if err := announce(cpu, false); err != nil {
					t.Fatal(err)
				}
			}
			n.settle()
			if on, err := cpuset.Parse(n.on("db-main")); err != nil || on.Count() != c.cpus {
				t.Errorf("it runs on CPUs %s, want %d of them (%v)", n.on("db-main"), c.cpus, err)
			}
			if got := n.quota(db.parent()); got != policy.NoLimit {
				t.Errorf("the pod's quota is %dm, want none", got)
			}
			if asked := n.asked(db); asked.Micros <= 0 {
				t.Errorf("what kubelet gave the pod is taken for %+v", asked)
			}
			n.checkOwners()
		})
	}
}

// announced are a pod's resources as kubelet tells them at a resize; shares that were
// read come from the weight.
func announced(milli, quota int64, read bool) *api.LinuxCPU {
	shares := milli * 1024 / 1000
	if read {
		weight := (shares-2)*9999/262142 + 1
		shares = (weight-1)*262142/9999 + 2
	}
	return &api.LinuxCPU{Shares: api.UInt64(uint64(shares)), Quota: api.Int64(quota), Period: api.UInt64(100000)}
}

func TestARestartedContainerKeepsItsCPUsInWhateverOrderTheEventsCome(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	n.up()
	db := lsr("db", 2000)
	mustRun(t, n, lsr("first", 2000), db)
	n.want("db-main", "2-3")
	t.Run("Stop before Create", func(t *testing.T) {
		n.end("db-main")
		mustRun(t, n, lsr("neighbour", 2000)) // takes none of them meanwhile
		if err := n.startContainer(db, "db-main-2", db.ctrs[0]); err != nil {
			t.Fatal(err)
		}
		n.want("db-main-2", "2-3")
	})
	t.Run("Create before Stop", func(t *testing.T) {
		if err := n.startContainer(db, "db-main-3", db.ctrs[0]); err != nil {
			t.Fatal(err)
		}
		n.end("db-main-2")
		n.want("db-main-3", "2-3")
		for _, c := range n.plugin.Snapshot().Containers {
			if c.Pod == "db" && c.ID != "db-main-3" {
				t.Errorf("the snapshot has container %s of db", c.ID)
			}
		}
	})
	t.Run("Stop never comes", func(t *testing.T) {
		n.kernel.Rmdir(n.containers["db-main-3"].Linux.CgroupsPath)
		delete(n.containers, "db-main-3")
		if err := n.startContainer(db, "db-main-4", db.ctrs[0]); err != nil {
			t.Fatal(err)
		}
		n.want("db-main-4", "2-3")
	})
	n.checkOwners()
}

func TestEventsThatComeTwiceOrTooSoonChangeNothing(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	n.up()
	db := lsr("db", 2000)
	mustRun(t, n, db)
	n.settle()
	sandbox, c := n.pods["sb-db"], n.containers["db-main"]
	before := n.plugin.Snapshot()

	if err := n.nri.RunPodSandbox(short(t), &api.RunPodSandboxRequest{Pod: sandbox}); err != nil {
		t.Errorf("RunPodSandbox twice: %v", err)
	}
	r, err := n.nri.CreateContainer(short(t), &api.CreateContainerRequest{Pod: sandbox,
		Container: db.container(sandbox.Id, "db-main", db.ctrs[0])})
	if err != nil || r.GetAdjust().GetLinux().GetResources().GetCpu().GetCpus() != "0-1" {
		t.Errorf("CreateContainer twice: %v, %v; the answer must be the same", r, err)
	}
	if _, err := n.nri.UpdateContainer(short(t), &api.UpdateContainerRequest{
		Pod: sandbox, Container: db.container(sandbox.Id, "stranger", db.ctrs[0]),
		LinuxResources: &api.LinuxResources{Memory: &api.LinuxMemory{}, Cpu: cpuOf(1000, 1000, "0-7")},
	}); err != nil {
		t.Errorf("UpdateContainer of a stranger: %v", err)
	}
	stranger := lsr("nobody", 2000).sandbox("sb-nobody")
	n.removeSandbox(stranger)
	_, _ = n.nri.StopContainer(short(t), &api.StopContainerRequest{Pod: stranger,
		Container: db.container("sb-nobody", "nobody", db.ctrs[0])})
	n.settle()
	after := n.plugin.Snapshot()
	if after.Shared != before.Shared || after.Exclusive != before.Exclusive ||
		len(after.Containers) != len(before.Containers) {
		t.Errorf("shared %s, exclusive %s, %d containers; before %s, %s, %d", after.Shared, after.Exclusive,
			len(after.Containers), before.Shared, before.Exclusive, len(before.Containers))
	}
	_, _ = n.nri.StopContainer(short(t), &api.StopContainerRequest{Pod: sandbox, Container: c})
	_, _ = n.nri.StopContainer(short(t), &api.StopContainerRequest{Pod: sandbox, Container: c})
	n.want("db-main", "0-1") // the pod is still there, and owns them
	n.removeSandbox(sandbox)
	n.removeSandbox(sandbox)
	n.settle()
	if s := n.plugin.Snapshot(); !s.Exclusive.IsEmpty() {
		t.Errorf("CPUs %s are still owned", s.Exclusive)
	}
}

func TestAContainerThatWasNeverAnnouncedIsEnteredWhenItStarts(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	n.up()
	db := lsr("db", 2000)
	n.kernel.Mkdir(db.parent(), 0)
	sandbox := db.sandbox("sb-db")
	n.pods[sandbox.Id] = sandbox
	c := db.container(sandbox.Id, "db-main", db.ctrs[0])
	n.containers[c.Id] = c
	if err := n.launch(sandbox, c); err != nil {
		t.Fatal(err)
	}
	n.want("db-main", "0-1")
}

func TestASharedContainerThatKubeletGaveCPUsGetsTheWidestSet(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	n.up()
	web := spec{name: "web", qos: policy.Burstable, ctrs: []ctr{{name: "main", request: 500, cpus: "2-15"}}}
	mustRun(t, n, web, lsr("db", 4000))
	if got := n.containers["web-main"].Linux.Resources.Cpu.Cpus; got != "0-15" {
		t.Errorf("the runtime stores %q, want every CPU, so that the pool's mask decides", got)
	}
	n.want("web-main", "4-15")
	// kubelet's reconciliation: the cpuset and nothing else.
	if err := n.update("web-main", &api.LinuxCPU{Cpus: "0-7"}); err != nil {
		t.Fatal(err)
	}
	n.want("web-main", "4-15")
	if err := n.update("db-main", &api.LinuxCPU{Cpus: "0-15"}); err != nil {
		t.Fatal(err)
	}
	n.want("db-main", "0-3")
	n.checkOwners()
}

func TestObserveSaysNothingAndWritesNothing(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	n.up(func(o *Options) { o.Observe = true })
	n.kernel.Writes()
	sandbox := lsr("db", 4000).sandbox("sb-db")
	n.kernel.Mkdir(lsr("db", 4000).parent(), 0)
	if err := n.nri.RunPodSandbox(short(t), &api.RunPodSandboxRequest{Pod: sandbox}); err != nil {
		t.Fatal(err)
	}
	r, err := n.nri.CreateContainer(short(t), &api.CreateContainerRequest{Pod: sandbox,
		Container: lsr("db", 4000).container("sb-db", "db-main", main1(4000)[0])})
	if err != nil || r.GetAdjust().GetLinux().GetResources().GetCpu().GetCpus() != "" {
		t.Errorf("reply %v, error %v", r, err)
	}
	if err := n.run(lsr("odd", 1500)); err != nil {
		t.Errorf("observing refused a pod: %v", err)
	}
	n.settle()
	if got := n.plugin.Snapshot().Exclusive.String(); got != "0-3" {
		t.Errorf("what would happen is not shown: exclusive is %q", got)
	}
	for _, w := range n.kernel.Writes() {
		if !strings.Contains(w, "odd-main") { // the fake runtime's own
			t.Errorf("wrote %s", w)
		}
	}
}

func TestAPodOfSeveralContainersKeepsEachOnesLimit(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	n.up()
	db := lsr("db", 2000)
	db.ctrs = []ctr{{name: "a", request: 2000, limit: 2000}, {name: "b", request: 2000, limit: 2000}}
	mustRun(t, n, db)
	n.want("db-a", "0-3")
	n.want("db-b", "0-3")
	for _, id := range []string{"db-a", "db-b"} {
		if got := n.quota(db.parent() + "/" + id); got != 2000 {
			t.Errorf("the quota of %s is %dm, want its own limit of 2000m", id, got)
		}
	}
	if got := n.quota(db.parent()); got != policy.NoLimit {
		t.Errorf("the pod's quota is %dm, want none", got)
	}
}

func TestManySharedContainersCostNoWriteWhenAnOwnerEnters(t *testing.T) {
	writes := func(shared int) int {
		n := newNode(t, grid(t, testGrid))
		n.up()
		for i := range shared {
			web := burstable(fmt.Sprint("web", i))
			web.ctrs = []ctr{{name: "main", request: 10}} // together no more than the pool keeps
			mustRun(t, n, web)
		}
		n.settle()
		n.kernel.Writes()
		db := spec{name: "db", class: policy.LSE, qos: policy.Guaranteed, ctrs: main1(4000)}
		mustRun(t, n, db)
		n.settle()
		n.checkOwners()
		own := 0
		for _, w := range n.kernel.Writes() {
			if !strings.HasPrefix(w, "/kubepods/poduid-db/db-main ") { // the fake runtime's own
				own++
			}
		}
		return own
	}
	few, many := writes(5), writes(500)
	t.Logf("writes for an exclusive pod beside 5 shared ones: %d, beside 500: %d", few, many)
	if few == 0 || many == 0 || max(few, many) > 8 { // where the writer is interrupted it takes one more
		t.Errorf("%d writes beside 5 shared containers and %d beside 500; want the same few", few, many)
	}
}

func TestHostileAnnotationsAreRefusedFastAndKeptNowhere(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	n.up()
	for name, text := range map[string]string{
		"a megabyte":      strings.Repeat("x", 1<<20),
		"a deep megabyte": `{"preferredCPUBindPolicy":` + strings.Repeat("[", 1<<20),
		"no JSON":         `{"preferredCPUBindPolicy":`,
		"unknown value":   `{"preferredCPUBindPolicy":"Everything"}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := lsr("evil", 2000)
			s.annot = map[string]string{policy.AnnSpec: text, "tenant/junk": strings.Repeat("y", 1<<20)}
			before := cpuTime(t)
			err := n.run(s)
			took := cpuTime(t) - before
			if err == nil || !strings.Contains(err.Error(), "InvalidAnnotation") {
				t.Errorf("error is %.200v", err)
			}
			if len(fmt.Sprint(err)) > 1000 {
				t.Errorf("the answer is %d bytes", len(fmt.Sprint(err)))
			}
			if took > time.Second {
				t.Errorf("the answer took %s of CPU time", took)
			}
		})
	}
	records, err := n.plugin.Records(short(t))
	if err != nil {
		t.Fatal(err)
	}
	held := 0
	for _, r := range records {
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		held += len(text)
	}
	if held > 64<<10 {
		t.Errorf("the record holds %d bytes after four hostile pods", held)
	}
}

// cpuTime is what this program has used so far: unlike the time of day it does not grow with what else runs.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
