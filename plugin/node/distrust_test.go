package node

import (
	"strings"
	"testing"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup/cgrouptest"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/policy"
)

// What speaks for a mask being the pool's: that the burstable slice has some of it, and, worse, that nothing shows a
// request for as many CPUs. Of a burstable pod the slice says nothing.
func TestSignsThatAMaskIsThePools(t *testing.T) {
	for _, c := range []struct {
		name                string
		slice               cpuset.Set
		asks, weighs, first int64 // in milli-CPUs; first: at its creation
		want                int
	}{
		{"it requests as many", cpuset.Range(4, 15), 4000, 0, 0, 0},
		{"its weight shows as many", cpuset.Range(4, 15), 1000, 4000, 0, 0},
		{"it was created with as many", cpuset.Range(4, 15), 1000, 0, 4000, 0},
		{"it requests another number", cpuset.Range(4, 15), 2000, 2000, 0, 8},
		{"it requests as many, and the slice has some of them", cpuset.Range(3, 15), 4000, 0, 0, 4},
		{"both", cpuset.Range(0, 15), 2000, 0, 0, 12},
		{"the slice has no mask", cpuset.Set{}, 4000, 0, 0, 0},
		{"LSR, and the slice has some of them, with best effort", cpuset.Range(3, 15), 4000, 0, 0, 1},
		{"burstable, and it requests as many", cpuset.Range(4, 15), 4000, 0, 0, 2},
		{"burstable, and the slice has some of them", cpuset.Range(3, 15), 4000, 0, 0, 6},
	} {
		r := &recovery{poolBefore: poolBefore{slice: c.slice}}
		p := &running{kernel: cpuset.Range(0, 3), asks: c.asks, weighs: c.weighs, containers: []policy.Container{{}}}
		if strings.HasPrefix(c.name, "LSR") {
			r.batch = true
			p.pod.Labels = map[string]string{policy.LabelClass: string(policy.LSR)}
		}
		if strings.HasPrefix(c.name, "burstable") {
			p.pod.QoS = policy.Burstable
		}
		if c.first > 0 {
			p.pod.Resources = &policy.Resources{RequestMilli: c.first, LimitMilli: c.first}
		}
		if got := r.doubt(p); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// Which masks are believed, and what they show of the pool and of owners.
func TestWhatMasksShow(t *testing.T) {
	outside, inside := "kubepods/pod", "kubepods/burstable/pod"
	lsr := map[string]string{policy.LabelClass: string(policy.LSR)}
	be := map[string]string{policy.LabelClass: string(policy.BE)}
	type pod struct {
		name, parent string
		class        map[string]string
		kernel       string
		asks         int64 // in milli-CPUs, of its quota
		saved        string
		want         string // its mask after that
	}
	alone := pod{"a", outside, lsr, "8-9", 1000, "", "8-9"} // nothing confirms its mask
	shrunk := func(to string) pod { p := alone; p.want = to; return p }
	for _, c := range []struct {
		name, slice                string
		pods                       []pod
		pool, shown, owners, newer string // shown: the pool by the slice alone
	}{
		{"a mask that only an owner has", "10-15", []pod{alone}, "10-15", "10-15", "8-9", "8-9"},
		{"no mask shows the pool", "", []pod{alone}, "0-7,10-15", "", "8-9", "8-9"},
		{"a slice with all CPUs shows nothing", "0-15", []pod{alone}, "0-7,10-15", "", "8-9", "8-9"},
		{"a shared pod on its CPUs is no owner", "", []pod{{"web", outside, nil, "8-15", 0, "", "8-15"}, alone},
			"0-7,10-15", "", "8-9", "8-9"},
		{"a shared pod in the slice has the pool's", "12-15", []pod{{"web", inside, nil, "10-15", 0, "", ""}, alone},
			"10-15", "12-15", "8-9", "8-9"},
		{"one with all CPUs shows nothing", "12-15", []pod{{"web", inside, nil, "0-15", 0, "", ""}, alone},
			"12-15", "12-15", "8-9", "8-9"},
		{"best effort widens the slice", "8-15", []pod{{"noisy", inside, be, "8-11", 0, "", "8-11"}, alone},
			"12-15", "8-15", "8-9", "8-9"},
		{"best effort without a mask has all of it", "8-15", []pod{{"noisy", inside, be, "", 0, "", ""}, alone},
			"0-7,10-15", "8-15", "8-9", "8-9"},
		{"a burstable owner widens the slice", "4-5,10-15", []pod{{"wide", inside, lsr, "4-5", 1000, "", "4-5"}, alone},
			"10-15", "10-15", "4-5,8-9", "4-5,8-9"},
		{"what the slice has is not its own", "8,10-15", []pod{shrunk("9")}, "8,10-15", "8,10-15", "8-9", "8-9"},
		{"nor what the file has as another's", "8,10-15", []pod{shrunk(""), {"b", outside, lsr, "", 1000, "9", ""}},
			"8,10-15", "8,10-15", "8-9", "8-9"},
		{"nor what another has as well", "", []pod{shrunk("8"), {"b", outside, lsr, "9-10", 1000, "", "10"}},
			"0-7,11-15", "", "8-10", "8-10"},
		{"an owner in the file has what it records", "10-15", []pod{{"a", outside, lsr, "", 2000, "2-3", ""}},
			"10-15", "10-15", "2-3", ""},
		{"and its mask, which is no newer one", "10-15", []pod{{"a", outside, lsr, "8-9", 2000, "2-3", "8-9"}},
			"10-15", "10-15", "2-3,8-9", ""},
		{"one that has ended has nothing", "10-15", []pod{{"ended", "", lsr, "", 0, "2-3", ""}, alone},
			"10-15", "10-15", "8-9", "8-9"},
	} {
		kernel := cgrouptest.New(cpuset.Range(0, 15))
		kernel.Mkdir("kubepods/burstable/podx", 0)
		kernel.Tamper("kubepods/burstable", c.slice)
		r := &recovery{topo: grid(t, testGrid), saved: map[string]state.Pod{}, reader: kernel}
		var found []*running
		for _, p := range c.pods {
			if p.saved != "" {
				r.saved[p.name] = state.Pod{UID: p.name, CPUs: parsed(t, p.saved)}
			}
			if p.parent == "" {
				continue
			}
			qos := policy.Guaranteed
			if p.parent == inside {
				qos = policy.Burstable
			}
			found = append(found, &running{kernel: parsed(t, p.kernel), asks: p.asks, all: true, pod: policy.Pod{
				UID: p.name, QoS: qos, CgroupParent: p.parent + p.name, Labels: p.class}})
		}
		r.distrust(found)
		for _, p := range c.pods {
			for _, f := range found {
				if f.pod.UID == p.name && f.kernel.String() != p.want {
					t.Errorf("%s: %s has the mask %q, want %q", c.name, p.name, f.kernel, p.want)
				}
			}
		}
		for _, s := range []struct {
			what, want string
			got        cpuset.Set
		}{{"pool", c.pool, r.pool}, {"slice", c.shown, r.slice}, {"owners", c.owners, r.owners},
			{"newer", c.newer, r.newer}} {
			if s.got.String() != s.want {
				t.Errorf("%s: the %s is %q, want %q", c.name, s.what, s.got, s.want)
			}
		}
	}
}

func parsed(t *testing.T, list string) cpuset.Set {
	t.Helper()
	set, err := cpuset.Parse(list)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// Containers of two pods that would own the same CPU own none.
func TestClaimsThatOverlap(t *testing.T) {
	for _, c := range []struct {
		name, other string
		want        int
	}{{"none is another's", "10-11", 1}, {"one is another's", "9-10", 0}} {
		mixed := func(name, cpus string) *running {
			own := parsed(t, cpus)
			return &running{kernel: own, mixed: true, pod: policy.Pod{UID: name,
				Labels: map[string]string{policy.LabelClass: string(policy.LSR)}},
				claims: []policy.RecoveredContainer{{Container: "main", Recovered: policy.Recovered{CPUs: &own}}}}
		}
		r := &recovery{topo: grid(t, testGrid), saved: map[string]state.Pod{}}
		a, b := mixed("a", "8-9"), mixed("b", c.other)
		if r.distrust([]*running{a, b}); len(a.claims) != c.want || len(b.claims) != c.want {
			t.Errorf("%s: %d and %d claims are left, want %d", c.name, len(a.claims), len(b.claims), c.want)
		}
	}
}
