package plugin

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/cgroup/cgrouptest"
	"github.com/quietcore/quietcore/policy"
)

// silent makes a pod that the runtime starts without an event.
func (n *rig) silent(path string) {
	n.kernel.Mkdir(path, 0)
	n.kernel.Mkdir(path+"/c", 1)
}

func (n *rig) found() []string {
	paths := []string{}
	for _, p := range n.plugin.Snapshot().Unannounced {
		paths = append(paths, fmt.Sprintf("%s %s %s %t", p.UID, p.CgroupPath, p.QoS, p.Masked))
	}
	return paths
}

func (n *rig) wantFound(want ...string) {
	n.t.Helper()
	n.settle()
	if got := n.found(); fmt.Sprint(got) != fmt.Sprint(want) {
		n.t.Errorf("found are %q, want %q", got, want)
	}
}

// Where kubelet keeps pods, by either driver and below another root: a pod that no
// event named is found in the second round, and named once.
func TestAPodThatWasNeverAnnouncedIsFound(t *testing.T) {
	for _, c := range []struct{ path, want string }{
		{"kubepods/pod8a-1", "8a-1 kubepods/pod8a-1 Guaranteed false"},
		{"kubepods/burstable/pod8a-1", "8a-1 kubepods/burstable/pod8a-1 Burstable false"},
		{"kubepods/besteffort/pod8a-1", "8a-1 kubepods/besteffort/pod8a-1 BestEffort false"},
		{"kubepods.slice/kubepods-pod8a_1.slice", "8a-1 kubepods.slice/kubepods-pod8a_1.slice Guaranteed false"},
		{"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod8a_1.slice",
			"8a-1 kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod8a_1.slice Burstable false"},
	} {
		t.Run(c.path, func(t *testing.T) {
			n, _, rounds := seeing(t)
			mustRun(t, n, lsr("a", 4000), burstable("web"), bestEffort("low"))
			n.kernel.Mkdir("kubepods/podwaits-for-its-volumes", 0)
			n.silent("kubepods/system/pod1") // not kubelet's
			n.silent(c.path)
			rounds(1)
			n.wantFound()
			rounds(1)
			n.wantFound(c.want)
			rounds(3)
			n.wantFound(c.want)
			if got := strings.Count(n.log.String(), "PodUnannounced"); got != 1 {
				t.Errorf("the log names it %d times, want once", got)
			}
			n.kernel.Rmdir(c.path)
			rounds(1)
			n.wantFound()
		})
	}
}

func TestAPodThatIsBeingCreatedIsNotReported(t *testing.T) {
	n, _, rounds := seeing(t)
	web := burstable("web")
	n.silent(web.parent()) // its event is under way
	rounds(1)
	mustRun(t, n, web)
	rounds(3)
	n.wantFound()
	if log := n.log.String(); strings.Contains(log, "PodUnannounced") {
		t.Error("a pod that was announced a moment later is reported")
	}
}

// The first round is at Synchronize, without any tick, and the next one finds.
func TestPodsThatWereNeverAnnouncedAreLookedForAfterASynchronize(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	sight := &counting{Reader: n.kernel}
	n.silent("kubepods/podsilent")
	n.up(func(o *Options) { o.Reader = sight })
	eventually(t, "kubepods is listed after the start", func() bool { return sight.lists("kubepods") > 0 })
}

// What is masked leaves owners' CPUs as any shared pod does, on v2 and v1, also where a
// burstable owner opens the slice; where kubelet pinned a container it is left alone.
func TestAMaskedPodLeavesTheCPUsOfOwners(t *testing.T) {
	for _, c := range []struct {
		name, path string
		flat       bool
		owner      spec
		on         string
	}{
		{"directly below kubepods", "kubepods/podsilent", false, lse("db", 4000), "4-15"},
		{"on cgroup v1", "kubepods/podsilent", true, lse("db", 4000), "4-15"},
		{"in a slice that a burstable owner opened", "kubepods/burstable/podsilent", false, widened("db", 4000),
			"4-15"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t, grid(t, testGrid))
			if c.flat {
				n = flatNode(t)
			}
			vanish := make(chan time.Time)
			masks := func(o *Options) {
				o.Config.MaskUnannounced, o.Flat, o.Clock.Vanish = true, c.flat, vanish
			}
			n.up(masks)
			mustRun(t, n, c.owner, burstable("web"))
			n.silent(c.path)
			n.rounds(vanish, 2)
			n.wantFound(fmt.Sprintf("silent %s %s true", c.path, qosOfPath(c.path)))
			if got := n.cpus(c.path + "/c"); got != c.on {
				t.Errorf("it runs on %s, want %s", got, c.on)
			}
			mustRun(t, n, lse("more", 2000))
			n.settle()
			if got := n.cpus(c.path + "/c"); got != "6-15" {
				t.Errorf("after another owner it runs on %s, want 6-15", got)
			}
			n.checkOwners()
		})
	}
}

func qosOfPath(path string) policy.QoS {
	switch cgroup.Classify(cgroup.Parent(path)) {
	case cgroup.Burstable:
		return policy.Burstable
	case cgroup.BestEffort:
		return policy.BestEffort
	}
	return policy.Guaranteed
}

func (n *rig) cpus(path string) string {
	n.t.Helper()
	e, err := n.kernel.Effective(path)
	if err != nil {
		n.t.Fatal(err)
	}
	return e.CPUs.String()
}

// An announcement replaces what was found: an owner gets its CPUs, a shared pod loses
// the mask that it had as one that was found.
func TestALaterAnnouncementReplacesWhatWasFound(t *testing.T) {
	for _, s := range []spec{lse("silent", 2000), burstable("silent")} {
		t.Run(string(s.qos), func(t *testing.T) {
			n, _, rounds := seeing(t)
			cfg := policy.Config{MaskUnannounced: true}
			if err := n.plugin.Reconfigure(short(t), cfg); err != nil {
				t.Fatal(err)
			}
			mustRun(t, n, lse("db", 4000), burstable("web"))
			n.silent(s.parent())
			rounds(2)
			if got := n.found(); len(got) != 1 {
				t.Fatalf("found are %q", got)
			}
			mustRun(t, n, s)
			n.wantFound()
			rounds(2)
			n.wantFound()
			want := "4-5"
			if s.qos == policy.Burstable {
				want = "4-15"
			}
			n.want("silent-main", want)
			n.remove(s)
			n.want("web-main", "4-15")
			n.checkOwners()
		})
	}
}

func TestMaskingIsConfiguredWhileItRuns(t *testing.T) {
	n, sight, rounds := seeing(t)
	mustRun(t, n, lse("db", 4000))
	n.silent("kubepods/podsilent")
	rounds(2)
	n.wantFound("silent kubepods/podsilent Guaranteed false")
	if got := n.cpus("kubepods/podsilent/c"); got != "0-15" {
		t.Errorf("it is reported and runs on %s", got)
	}
	if err := n.plugin.Reconfigure(short(t), policy.Config{MaskUnannounced: true}); err != nil {
		t.Fatal(err)
	}
	n.wantFound("silent kubepods/podsilent Guaranteed true")
	if got := n.cpus("kubepods/podsilent/c"); got != "4-15" {
		t.Errorf("it is masked and runs on %s", got)
	}
	sight.hide(func(string) bool { return true }) // what a blind reader lacks has not ended
	rounds(2)
	n.wantFound("silent kubepods/podsilent Guaranteed true")
	sight.hide(nil)
	rounds(2)
	// Kubelet's static policy gives a container of it a mask of its own.
	if err := n.plugin.Submit(short(t), policy.KubeletState{
		PolicyName: "static", Default: cpuset.Range(0, 13),
		Entries: map[string]map[string]cpuset.Set{"silent": {"c": cpuset.Range(14, 15)}},
	}); err != nil {
		t.Fatal(err)
	}
	n.wantFound("silent kubepods/podsilent Guaranteed false")
}

// counting counts the listings of each cgroup.
type counting struct {
	cgroup.Reader
	mu     sync.Mutex
	listed map[string]int
}

func (c *counting) Children(path string) ([]string, error) {
	c.mu.Lock()
	if c.listed == nil {
		c.listed = map[string]int{}
	}
	c.listed[path]++
	c.mu.Unlock()
	return c.Reader.Children(path)
}

func (c *counting) lists(path string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.listed[path]
}

// flatNode is a node with cgroup v1.
func flatNode(t *testing.T) *rig {
	n := newNode(t, grid(t, testGrid))
	n.kernel = cgrouptest.New(n.topo.Online())
	n.kernel.V1 = true
	for _, slice := range []string{"kubepods", "kubepods/burstable", "kubepods/besteffort"} {
		n.kernel.Mkdir(slice, 0)
	}
	return n
}
