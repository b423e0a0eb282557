package node

import (
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/policy"
)

// What an owner requests, by its pod's quota and weight, which only kubelet writes, and by its containers.
func TestWhatAnOwnerRequests(t *testing.T) {
	main := policy.Container{Name: "main", CreatedAt: time.Unix(2, 0), Resources: policy.Resources{RequestMilli: 3000}}
	side, old := main, main
	side.Name, side.Resources.RequestMilli = "side", 1000
	old.CreatedAt, old.Resources.RequestMilli = time.Unix(1, 0), 2000
	both := []policy.Container{old, main, side}
	const lifted = policy.NoLimit
	for _, c := range []struct {
		name       string
		quota      int64 // of the pod's cgroup, in milli-CPUs
		weighs     int64 // the request for which its weight is
		mask       cpuset.Set
		containers []policy.Container
		want       int64
		all        bool
	}{
		{"its quota", 6000, 6000, cpuset.Range(0, 3), both, 6000, true},
		{"a resize has raised the quota alone", 6000, 4000, cpuset.Range(0, 3), both, 4000, true},
		{"its weight is of another number than its CPUs", 6000, 2000, cpuset.Range(0, 3), both, 6000, true},
		{"a quota of less than its CPUs", 2000, 4000, cpuset.Range(0, 3), both, 2000, true},
		{"its quota, and neither mask nor weight", 6000, 0, cpuset.Set{}, both, 6000, true},
		{"its quota is lifted: the last runs of its containers", lifted, 6000, cpuset.Range(0, 3), both, 4000, false},
		{"and none runs: its weight", lifted, 6000, cpuset.Range(0, 3), nil, 6000, false},
	} {
		e := cgroup.Effective{QuotaMilli: c.quota, OwnCPUs: c.mask, Weight: 50}
		if c.weighs > 0 {
			e.Weight = cgroup.WeightOf(c.weighs)
		}
		p := &running{kernel: c.mask, pod: policy.Pod{UID: "u", CgroupParent: "kubepods/podu",
			Labels: map[string]string{policy.LabelClass: string(policy.LSE)}}}
		r := &recovery{reader: seenReader{{p.pod.CgroupParent, ReadAll}: {e: e}}}
		if got, all := r.asked(p, c.containers); got != c.want || all != c.all || p.weighs != c.weighs {
			t.Errorf("%s: %d, %t, by its weight %d; want %d, %t, %d", c.name, got, all, p.weighs, c.want, c.all,
				c.weighs)
		}
		seen := r.reader
		r.reader = seenReader(nil)
		if got, all := r.asked(p, c.containers); got != 0 || all {
			t.Errorf("%s, and its cgroup is not read yet: %d, %t; want nothing", c.name, got, all)
		}
		r.reader, p.pod.Labels = seen, nil
		if got, all := r.asked(p, c.containers); got != 0 || all {
			t.Errorf("%s, of a pod that shares CPUs: %d, %t; want nothing", c.name, got, all)
		}
	}
}

// The quota that kubelet gave a pod: the runtime reports that of its creation, but an owner may have been resized.
func TestWhichQuotaAPodHas(t *testing.T) {
	three, lse := cpuset.Range(0, 2), map[string]string{policy.LabelClass: string(policy.LSE)}
	for _, c := range []struct {
		name   string
		milli  int64
		labels map[string]string
		saved  state.Pod
		want   int64
	}{
		{"an owner of three", 2000, lse, state.Pod{CPUs: three}, 3000},
		{"one of three that requests four", 2000, lse, state.Pod{CPUs: three, Request: 4}, 4000},
		{"one without a quota", policy.NoLimit, lse, state.Pod{CPUs: three}, policy.NoLimit},
		{"one that is not in the file", 2000, lse, state.Pod{}, 2000},
		{"one that waits", 2000, lse, state.Pod{Degraded: "full"}, 2000},
		{"a pod that shares CPUs", 2000, nil, state.Pod{CPUs: three}, 2000},
		{"a later version's reservation", 2000, lse, state.Pod{CPUs: three, Reservation: &policy.Reservation{}}, 2000},
		{"containers of it own some", 2000, lse,
			state.Pod{CPUs: three, Containers: []policy.RecoveredContainer{{}}}, 2000},
	} {
		r := &recovery{saved: map[string]state.Pod{"u": c.saved}}
		p := policy.Pod{UID: "u", Labels: c.labels, Asked: policy.QuotaOf(c.milli)}
		if got := r.podQuota(&p).Milli(); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// A resize without a daemon is followed: to any number if the pod's quota shows it, else only growth.
func TestWhichResizesAreFollowed(t *testing.T) {
	four := cpuset.Range(0, 3)
	for _, c := range []struct {
		name        string
		asks, first int64 // now, and at its creation; 0: not known
		all         bool
		want        bool
	}{
		{"its quota shows less", 2000, 4000, true, true},
		{"its quota shows more", 6000, 4000, true, true},
		{"its quota shows as many as at its creation", 6000, 6000, true, true},
		{"its containers show less", 2000, 4000, false, false},
		{"they show less than it has, and more than at its creation", 2000, 1000, false, false},
		{"its containers show more", 6000, 4000, false, true},
		{"they show more, and its creation is not known", 6000, 0, false, true},
		{"they show as many as at its creation", 6000, 6000, false, false},
		{"nothing is known", 0, 4000, true, false},
	} {
		for _, placed := range []bool{true, false} {
			p := &running{asks: c.asks, pod: policy.Pod{UID: "u", Sandbox: "s"}}
			r := &recovery{}
			if own := (&policy.Recovered{CPUs: &four}); placed {
				r.placed = map[string]*policy.Recovered{"u": own}
			} else {
				p.pod.Recovered = own
			}
			if c.first > 0 {
				p.pod.Resources = &policy.Resources{RequestMilli: c.first, LimitMilli: c.first}
			}
			if r.follow(p, c.all); len(r.resized) > 0 != c.want {
				t.Errorf("%s, placed by this daemon %t: followed %+v, want one %t", c.name, placed, r.resized, c.want)
			}
		}
	}
}
