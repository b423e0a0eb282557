package plugin

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/policy"
)

// What docs/operation.md says under "What the daemon guards, and what a dead one
// cannot", sentence by sentence.
func TestWhatADeadDaemonGuards(t *testing.T) {
	for _, c := range []struct {
		name        string
		before      []spec
		meanwhile   func(t *testing.T, n *rig)
		dead, after map[string]string // where containers run
	}{
		{
			name: "owners stay, and nobody joins them", before: []spec{lse("db", 4000), burstable("web")},
			meanwhile: func(t *testing.T, n *rig) { mustRun(t, n, burstable("web2"), bestEffort("low")) },
			dead:      map[string]string{"db-main": "0-3", "web-main": "4-15", "web2-main": "4-15", "low-main": "4-15"},
			after:     map[string]string{"db-main": "0-3", "web-main": "4-15", "web2-main": "4-15", "low-main": "4-15"},
		},
		{
			name: "an owner's container restarts on its CPUs", before: []spec{lse("db", 4000), burstable("web")},
			meanwhile: func(t *testing.T, n *rig) {
				n.end("db-main")
				if err := n.startContainer(lse("db", 4000), "db-main-2", main1(4000)[0]); err != nil {
					t.Fatal(err)
				}
			},
			dead:  map[string]string{"db-main-2": "0-3", "web-main": "4-15"},
			after: map[string]string{"db-main-2": "0-3", "web-main": "4-15"},
		},
		{
			name: "an update moves no owner off its CPUs", before: []spec{lse("db", 4000), lse("other", 2000),
				burstable("web")},
			meanwhile: func(t *testing.T, n *rig) {
				for id, cpus := range map[string]string{"db-main": "8-9", "other-main": "0-15", "web-main": "0-15"} {
					if err := n.update(id, &api.LinuxCPU{Cpus: cpus}); err != nil { // as kubelet's static policy does
						t.Fatal(err)
					}
				}
			},
			dead:  map[string]string{"db-main": "0-3", "other-main": "4-5", "web-main": "6-15"},
			after: map[string]string{"db-main": "0-3", "other-main": "4-5", "web-main": "6-15"},
		},
		{
			name: "an owner that ends leaves its CPUs idle", before: []spec{lse("db", 4000), burstable("web")},
			meanwhile: func(_ *testing.T, n *rig) { n.remove(lse("db", 4000)) },
			dead:      map[string]string{"web-main": "4-15"},
			after:     map[string]string{"web-main": "0-15"},
		},
		{
			name: "a Guaranteed pod that starts runs everywhere", before: []spec{lse("db", 4000)},
			meanwhile: func(t *testing.T, n *rig) {
				mustRun(t, n, spec{name: "plain", qos: policy.Guaranteed, ctrs: main1(2000)})
			},
			dead:  map[string]string{"db-main": "0-3", "plain-main": "0-15"},
			after: map[string]string{"db-main": "0-3", "plain-main": "4-15"},
		},
		{
			name: "an owner that starts owns nothing until then", before: []spec{lse("db", 4000), burstable("web")},
			meanwhile: func(t *testing.T, n *rig) { mustRun(t, n, lsr("new", 2000)) },
			dead:      map[string]string{"db-main": "0-3", "web-main": "4-15", "new-main": "0-15"},
			after:     map[string]string{"db-main": "0-3", "web-main": "6-15", "new-main": "4-5"},
		},
		{
			name:      "nobody is refused, and who would have been stays shared",
			before:    []spec{lse("db", 4000), burstable("web")},
			meanwhile: func(t *testing.T, n *rig) { mustRun(t, n, lsr("huge", 40000), lsr("odd", 1500)) },
			dead:      map[string]string{"huge-main": "0-15", "odd-main": "0-15"},
			after:     map[string]string{"db-main": "0-3", "huge-main": "4-15", "odd-main": "4-15"},
		},
		{
			name: "a burstable owner's slice is open", before: []spec{widened("db", 4000), burstable("web")},
			meanwhile: func(t *testing.T, n *rig) { mustRun(t, n, burstable("web2"), bestEffort("low")) },
			dead:      map[string]string{"db-main": "0-3", "web-main": "4-15", "web2-main": "0-15", "low-main": "0-15"},
			after:     map[string]string{"db-main": "0-3", "web-main": "4-15", "web2-main": "4-15", "low-main": "0-15"},
		},
		{
			name: "an owner without CPUs runs on its parent's", before: []spec{lse("db", 4000), burstable("web")},
			meanwhile: func(t *testing.T, n *rig) {
				n.kernel.SetOnline(cpuset.Range(4, 15))
				n.topo = onlyOnline(t, cpuset.Range(4, 15))
			},
			dead:  map[string]string{"db-main": "4-15", "web-main": "4-15"},
			after: map[string]string{"db-main": "4-15", "web-main": "4-15"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t, grid(t, testGrid))
			n.up()
			mustRun(t, n, c.before...)
			n.settle()
			n.kill()
			c.meanwhile(t, n)
			for id, want := range c.dead {
				if got := n.on(id); got != want {
					t.Errorf("while the daemon is dead %s runs on %s, want %s", id, got, want)
				}
			}
			n.up()
			for id, want := range c.after {
				n.want(id, want)
			}
			n.checkOwners()
		})
	}
}

// A resize while no daemon runs: the CPUs follow when the daemon is back, and the
// next resize starts from there.
func TestAResizeThatWasMissedIsFollowed(t *testing.T) {
	for _, c := range []struct {
		name     string
		to       int64
		noQuota  bool // kubelet with cpuCFSQuota: false
		on, then string
	}{
		{"grown", 6000, false, "0-5", "0-3"},
		{"shrunk", 2000, false, "0-1", "0-3"},
		{"grown, without quotas", 6000, true, "0-5", "0-3"},
		{"to what does not fit", 40000, false, "0-3", "0-3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			db := lse("db", 4000)
			w.begin(newDoom("", 0))
			doRun(db).do(w)
			doRun(burstable("web")).do(w)
			w.want("db-main", "0-3")
			w.kill()
			limit := c.to
			if c.noQuota {
				limit = 0
			} else {
				w.setQuota(db.parent(), c.to)
			}
			if err := w.update("db-main", cpuOf(c.to, limit, "")); err != nil {
				t.Fatal(err)
			}
			w.begin(newDoom("", 0))
			w.want("db-main", c.on)
			w.sound()
			if c.to == 40000 {
				if !strings.Contains(w.log.String(), "the resize cannot be followed") {
					t.Error("the log says nothing of it")
				}
				return
			}
			doResize(db, c.to, 4000).do(w)
			w.rest()
			if got := w.on("db-main"); cpusIn(t, got) != 4 {
				t.Errorf("resized back to 4 CPUs it runs on %s", got)
			}
			w.sound()
		})
	}
}

func cpusIn(t *testing.T, list string) int {
	t.Helper()
	s, err := cpuset.Parse(list)
	if err != nil {
		t.Fatal(err)
	}
	return s.Count()
}

// The end of a cap is decided, saved and not yet written when the daemon dies:
// the file knows of no cap, the kernel has one.
func TestACapThatWasOverAndNotUndoneIsUndoneAtTheStart(t *testing.T) {
	for _, pod := range []spec{noisy("noisy"), bestEffort("noisy")} {
		t.Run(string(pod.qos), func(t *testing.T) {
			n, g := gated(t)
			n.up()
			mustRun(t, n, pod)
			path := pod.parent() + "/noisy-main"
			before := n.quota(path)
			if err := n.plugin.Submit(short(t), policy.CapVerdict{ID: "noisy-main", Milli: 100,
				For: time.Minute}); err != nil {
				t.Fatal(err)
			}
			n.settle()
			release := make(chan struct{})
			g.set(strings.Trim(path, "/"), release, fmt.Errorf("the daemon is dead"))
			if err := n.plugin.Advance(short(t), time.Hour); err != nil {
				t.Fatal(err)
			}
			<-g.held
			eventually(t, "the end of the cap is on disk", func() bool {
				caps := n.store.load().Caps
				return len(caps) == 1 && caps[0].Until.IsZero()
			})
			close(release)
			n.kill()
			g.set("", nil, nil)
			if got := n.quota(path); got != 100 {
				t.Fatalf("the quota is %dm; there is nothing to undo", got)
			}
			n.up()
			if got := n.quota(path); got != before {
				t.Errorf("the quota is %dm, want the %dm from before the cap", got, before)
			}
		})
	}
}

// Without a state file the kernel and the runtime show that there was a cap.
func TestACapIsUndoneAlthoughTheStateFileIsGone(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	n.up()
	mustRun(t, n, noisy("noisy"))
	if err := n.plugin.Submit(short(t), policy.CapVerdict{ID: "noisy-main", Milli: 100, For: time.Hour}); err != nil {
		t.Fatal(err)
	}
	n.settle()
	n.kill()
	n.store.set(state.Snapshot{})
	n.up()
	if got := n.quota(noisy("noisy").parent() + "/noisy-main"); got != 2000 {
		t.Errorf("nobody knows of the cap any more and the quota is %dm, want 2000m", got)
	}
}

// An update during a cap leaves the cap in the runtime's store. After it has ended
// and the daemon was replaced, no later update may bring it back.
func TestTheRuntimesCopyOfACapDoesNotComeBack(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	n.up()
	mustRun(t, n, noisy("noisy"))
	if err := n.plugin.Submit(short(t), policy.CapVerdict{ID: "noisy-main", Milli: 100, For: time.Minute}); err != nil {
		t.Fatal(err)
	}
	n.settle()
	if err := n.update("noisy-main", &api.LinuxCPU{Shares: api.UInt64(1024)}); err != nil {
		t.Fatal(err)
	}
	if got := n.containers["noisy-main"].Linux.Resources.Cpu.Quota.GetValue(); got != 10000 {
		t.Fatalf("the runtime stores a quota of %d; the test is about one that is the cap", got)
	}
	if err := n.plugin.Advance(short(t), time.Hour); err != nil {
		t.Fatal(err)
	}
	n.settle()
	n.kill()
	n.up()
	path := noisy("noisy").parent() + "/noisy-main"
	for _, what := range []string{"after the restart", "after an update"} {
		if got := n.quota(path); got != 2000 {
			t.Errorf("%s the quota is %dm, want 2000m", what, got)
		}
		if err := n.update("noisy-main", &api.LinuxCPU{Shares: api.UInt64(1025)}); err != nil {
			t.Fatal(err)
		}
		n.settle()
	}
}

// A resize under a cap changes what the end of the cap goes back to, and the
// successor of a dead daemon knows that too.
func TestAResizeUnderACapOutlivesTheDaemon(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	n.up()
	mustRun(t, n, noisy("noisy"))
	if err := n.plugin.Submit(short(t), policy.CapVerdict{ID: "noisy-main", Milli: 100, For: time.Minute}); err != nil {
		t.Fatal(err)
	}
	n.settle()
	if err := n.update("noisy-main", &api.LinuxCPU{Quota: api.Int64(300000), Period: api.UInt64(100000)}); err != nil {
		t.Fatal(err)
	}
	n.settle()
	n.kill()
	n.up()
	path := noisy("noisy").parent() + "/noisy-main"
	if got := n.quota(path); got != 100 {
		t.Fatalf("the quota is %dm; the cap is over already", got)
	}
	if err := n.plugin.Advance(short(t), time.Hour); err != nil {
		t.Fatal(err)
	}
	n.settle()
	if got := n.quota(path); got != 3000 {
		t.Errorf("after the cap the quota is %dm, want the 3000m of the resize", got)
	}
}

// A runtime that lost its connection lists a container with our cap as its limit. That
// neither ends the cap nor becomes what kubelet asked for.
func TestACapOutlivesAReconnection(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	n.up()
	mustRun(t, n, noisy("noisy"))
	if err := n.plugin.Submit(short(t), policy.CapVerdict{ID: "noisy-main", Milli: 100, For: time.Minute}); err != nil {
		t.Fatal(err)
	}
	n.settle()
	if err := n.update("noisy-main", &api.LinuxCPU{Shares: api.UInt64(1024)}); err != nil {
		t.Fatal(err)
	}
	if got := n.containers["noisy-main"].Linux.Resources.Cpu.Quota.GetValue(); got != 10000 {
		t.Fatalf("the runtime stores a quota of %d; the test is about one that is the cap", got)
	}
	n.stopRuntime()
	eventually(t, "the loss is noticed", func() bool { return !n.plugin.Connected() })
	n.startRuntime()
	eventually(t, "the plugin is back", n.plugin.Synchronised)
	n.settle()
	path := noisy("noisy").parent() + "/noisy-main"
	if got := n.quota(path); got != 100 {
		t.Errorf("the quota is %dm; the cap is over already", got)
	}
	if err := n.plugin.Advance(short(t), time.Hour); err != nil {
		t.Fatal(err)
	}
	n.settle()
	if got := n.quota(path); got != 2000 {
		t.Errorf("after the cap the quota is %dm, want kubelet's 2000m", got)
	}
}

// Systemd rounds a quota up: what the runtime stores is then a little tighter than
// the kernel's, and that is no cap.
func TestARoundedQuotaIsNotTakenForACap(t *testing.T) {
	w := newWorld(t)
	pod := noisy("noisy")
	pod.ctrs[0].limit = 123
	w.begin(newDoom("", 0))
	doRun(pod).do(w)
	w.rest()
	w.kill()
	w.setQuota(pod.parent()+"/noisy-main", 130)
	w.begin(newDoom("", 0))
	if c := w.plugin.Snapshot().Containers; len(c) != 1 || c[0].QuotaMilli != 123 {
		t.Errorf("containers %+v; the limit is 123m", c)
	}
}

// A daemon that was dead past a cap's deadline undoes it; until then it stays.
func TestACapOutlivesItsDeadlineOnlyWhileNobodyIsThere(t *testing.T) {
	w := newWorld(t)
	w.begin(newDoom("", 0))
	doRun(noisy("noisy")).do(w)
	doCap("noisy-main", 100, time.Minute).do(w)
	w.rest()
	w.kill()
	w.ahead.Add(int64(time.Hour))
	w.passed.Add(int64(time.Hour))
	path := noisy("noisy").parent() + "/noisy-main"
	if got := w.quota(path); got != 100 {
		t.Errorf("while the daemon is dead the quota is %dm, want the cap of 100m", got)
	}
	w.begin(newDoom("", 0))
	if got := w.quota(path); got != 2000 {
		t.Errorf("the quota is %dm, want 2000m", got)
	}
}
