package plugin

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/policy"
)

// restore ends the daemon and undoes it.
func (n *rig) restore(kubelet policy.KubeletState) map[string]Restored {
	n.t.Helper()
	n.settle()
	n.kill()
	found, err := Restore(short(n.t), n.options(), kubelet)
	if err != nil {
		n.t.Fatal(err)
	}
	byName := map[string]Restored{}
	for _, r := range found {
		if r.Err != nil {
			n.t.Errorf("%s: %v", r.Name, r.Err)
		}
		byName[r.Name] = r
	}
	return byName
}

// untouched is the same life on a node that never had a daemon.
func untouched(t *testing.T, specs ...spec) *rig {
	n := newNode(t, grid(t, testGrid))
	n.startRuntime()
	mustRun(t, n, specs...)
	return n
}

// TestRestoreGivesBackWhatTheKernelWouldHaveGiven compares a node on which the
// daemon pinned, capped and was removed with one that never had it.
func TestRestoreGivesBackWhatTheKernelWouldHaveGiven(t *testing.T) {
	two := spec{name: "two", class: policy.LSR, qos: policy.Guaranteed,
		ctrs: []ctr{{name: "a", request: 1000, limit: 1000}, {name: "b", request: 1000, limit: 1000}}}
	batch := spec{name: "batch", class: policy.BE, qos: policy.Burstable,
		ctrs: []ctr{{name: "main", request: 500, limit: 1500}}}
	specs := []spec{lsr("db", 4000), {name: "lse", class: policy.LSE, qos: policy.Guaranteed, ctrs: main1(2000)}, two,
		burstable("web"), batch}
	for _, cleared := range []bool{false, true} {
		n := newNode(t, grid(t, testGrid))
		n.kernel.ClearPopulated = cleared
		p := n.up()
		mustRun(t, n, specs...)
		verdict := policy.CapVerdict{ID: "batch-main", Milli: 100, For: time.Hour}
		if err := p.Submit(short(t), verdict); err != nil {
			t.Fatal(err)
		}
		n.settle()
		if q := n.quota(n.containers["batch-main"].Linux.CgroupsPath); q != 100 {
			t.Fatalf("the cap is %d", q)
		}
		result := n.restore(policy.KubeletState{PolicyName: "none"})
		plain := untouched(t, specs...)
		for id, c := range plain.containers {
			for _, path := range []string{c.Linux.CgroupsPath, cgroup.Parent(c.Linux.CgroupsPath),
				"kubepods/burstable", "kubepods/besteffort"} {
				want, err := plain.kernel.Effective(path)
				if err != nil {
					t.Fatal(err)
				}
				got, err := n.kernel.Effective(path)
				if err != nil {
					t.Fatal(err)
				}
				// A container's own mask stays: NRI has no word for none.
				masked := cleared && !got.OwnCPUs.IsEmpty() && path != c.Linux.CgroupsPath
				if got.CPUs != want.CPUs || got.QuotaMilli != want.QuotaMilli || masked {
					t.Errorf("cleared %t: %s of %s: CPUs %s (own %q), quota %d; want %s and %d", cleared, path, id,
						got.CPUs, got.OwnCPUs, got.QuotaMilli, want.CPUs, want.QuotaMilli)
				}
			}
			// What the runtime stores comes back with its next update.
			stored, asked := n.containers[id].Linux.Resources.Cpu, c.Linux.Resources.Cpu
			if stored.Quota.GetValue() != asked.Quota.GetValue() || stored.Cpus != "" && stored.Cpus != "0-15" {
				t.Errorf("%s: the runtime stores quota %d and CPUs %q", id, stored.Quota.GetValue(), stored.Cpus)
			}
		}
		if r := result["default/db/main"]; r.Was.String() != "0-3" || r.CPUs.String() != "0-15" || !r.Changed() {
			t.Errorf("cleared %t: result of db: %+v", cleared, r)
		}
	}
}

func TestRestoreLeavesKubeletsPins(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	p := n.up()
	pinned := spec{name: "pinned", qos: policy.Guaranteed, ctrs: []ctr{{name: "main", request: 2000, limit: 2000,
		cpus: "4-5"}}}
	kubelet := policy.KubeletState{
		PolicyName: "static", Default: setOf(t, "0-3,6-15"),
		Entries: map[string]map[string]cpuset.Set{pinned.uid(): {"main": setOf(t, "4-5")}},
	}
	if err := p.Submit(short(t), kubelet); err != nil {
		t.Fatal(err)
	}
	web := burstable("web")
	web.ctrs[0].cpus = "0-3,6-15"
	mustRun(t, n, pinned, lsr("db", 2000), web)
	n.restore(kubelet)
	for id, want := range map[string]string{"pinned-main": "4-5", "web-main": "0-3,6-15", "db-main": "0-3,6-15"} {
		if got := n.on(id); got != want {
			t.Errorf("%s runs on %s, want %s", id, got, want)
		}
	}
}

func TestRestoreSaysWhatItCouldNot(t *testing.T) {
	n, g := gated(t)
	n.up()
	mustRun(t, n, lsr("db", 2000), burstable("web"))
	n.settle()
	n.kill()
	g.set("kubepods/burstable", nil, errors.New("input/output error"))
	found, err := Restore(short(t), n.options(), policy.KubeletState{})
	if err == nil || !strings.Contains(err.Error(), "input/output error") {
		t.Errorf("error is %v", err)
	}
	failed := slices.DeleteFunc(found, func(r Restored) bool { return r.Err == nil })
	for _, r := range failed {
		if r.Path != "kubepods/burstable" && r.Name != "default/web/main" && r.Name != "default/web" {
			t.Errorf("%s: %v; the rest goes on", r.Name, r.Err)
		}
	}
	if len(failed) == 0 || n.on("db-main") != "0-15" {
		t.Errorf("failed %d, db on %s", len(failed), n.on("db-main"))
	}
	// The second time mends it.
	g.set("", nil, nil)
	if _, err := Restore(short(t), n.options(), policy.KubeletState{}); err != nil {
		t.Error(err)
	}
	for _, id := range slices.Sorted(maps.Keys(n.containers)) {
		if n.on(id) != "0-15" {
			t.Errorf("%s on %s", id, n.on(id))
		}
	}
}

func TestRestoreWithoutARuntime(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	if _, err := Restore(short(t), n.options(), policy.KubeletState{}); err == nil ||
		!strings.Contains(err.Error(), n.socket) {
		t.Errorf("error is %v, want the socket named", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	n.startRuntime()
	if _, err := Restore(ctx, n.options(), policy.KubeletState{}); err == nil {
		t.Error("given up and no error")
	}
}

func setOf(t *testing.T, text string) cpuset.Set {
	t.Helper()
	set, err := cpuset.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return set
}
