package policy

import (
	"testing"

	"github.com/quietcore/quietcore/cpuset"
)

// Of what its cgroup may have, a container has no place on what others own: owners that
// run, kubelet's exclusive containers, but not an owner of which nothing has started, nor
// CPUs that no pod owns.
func TestBeyond(t *testing.T) {
	plain := func(class Class, annotations map[string]string) Pod {
		p := lsr("pod", 500, annotations)
		p.QoS, p.Labels = Burstable, map[string]string{LabelClass: string(class)}
		return p
	}
	all, lse := cpuset.Range(0, 15), lsr("lse", 2000, nil)
	lse.Labels = map[string]string{LabelClass: string(LSE)}
	book := booked(t, map[string]string{"kubelets": "14-15"})
	for _, c := range []struct {
		name   string
		before []Event
		pod    Pod
		may    cpuset.Set
		fresh  map[string]bool
		want   string
	}{
		{"nobody owns anything", nil, plain(LS, nil), all, nil, ""},
		{"an owner", []Event{PodRun{lsr("db", 2000, nil)}}, plain(LS, nil), all, nil, "0-1"},
		{"an owner, as far as the cgroup may be there", []Event{PodRun{lsr("db", 4000, nil)}}, plain(LS, nil),
			cpuset.Range(2, 9), nil, "2-3"},
		{"its mask is right", []Event{PodRun{lsr("db", 2000, nil)}}, plain(LS, nil), cpuset.Range(2, 15), nil, ""},
		{"best effort may run beside LSR", []Event{PodRun{lsr("db", 2000, nil)}}, plain(BE, nil), all, nil, ""},
		{"and not beside LSE", []Event{PodRun{lse}}, plain(BE, nil), all, nil, "0-1"},
		{"its own CPUs", []Event{PodRun{lsr("db", 2000, nil)}}, lsr("pod", 2000, nil), all, nil, "0-1"},
		{"it is not managed", []Event{PodRun{lsr("db", 2000, nil)}}, plain(LS, map[string]string{AnnManaged: "false"}),
			all,
			nil, ""},
		{"nothing of the owner has started", []Event{PodRun{lsr("db", 2000, nil)}}, plain(LS, nil), all,
			map[string]bool{"db": true}, ""},
		{"of one of two owners", []Event{PodRun{lsr("db", 2000, nil)}, PodRun{lsr("new", 2000, nil)}}, plain(LS, nil),
			all,
			map[string]bool{"new": true}, "0-1"},
		{"of a pod that owns nothing", []Event{PodRun{lsr("db", 2000, nil)}}, plain(LS, nil), all,
			map[string]bool{"pod": true}, "0-1"},
		{"kubelet's pods", []Event{book, PodRun{lsr("db", 2000, nil)}}, plain(LS, nil), all,
			map[string]bool{"db": true},
			"14-15"},
		{"kubelet's, and no owner of ours is new", []Event{book}, plain(LS, nil), all, nil, "14-15"},
		{"an owner has no place on kubelet's", []Event{book}, lsr("pod", 2000, nil), all, nil, "14-15"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := small(t, Config{})
			mustStep(t, m, append(c.before, PodRun{c.pod})...)
			if got := m.ForbiddenCPUs("pod", false, c.may, c.fresh); got.String() != c.want {
				t.Errorf("forbidden are %s, want %q", got, c.want)
			}
			if got := m.ForbiddenCPUs("another", false, c.may, c.fresh); !got.IsEmpty() {
				t.Errorf("forbidden to an unknown pod are %s", got)
			}
		})
	}
}

func TestHasOwnersAndKnows(t *testing.T) {
	m, db := small(t, Config{}), lsr("db", 2000, nil)
	want := func(owners, pod, container bool) {
		t.Helper()
		if m.HasOwners() != owners || m.KnowsPod("db") != pod || m.Knows("db-main") != container {
			t.Errorf("owners %t, pod %t, container %t; want %t, %t, %t", m.HasOwners(), m.KnowsPod("db"),
				m.Knows("db-main"), owners, pod, container)
		}
	}
	want(false, false, false)
	mustStep(t, m, PodRun{db})
	want(true, true, false)
	mustStep(t, m, mainOf(db))
	want(true, true, true)
	mustStep(t, m, ContainerStopped{ID: "db-main"})
	want(true, true, false)
	mustStep(t, m, PodRemoved{Sandbox: "db"})
	want(false, false, false)
}
