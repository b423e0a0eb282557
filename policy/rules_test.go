package policy

import (
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpuallocator"
)

// decided steps an event that must be taken and returns its decisions, the last of
// each subject.
func decided(t testing.TB, m *Machine, e Event) mirror {
	t.Helper()
	decisions, err := m.Step(time.Unix(1e9, 0), e)
	if err != nil {
		t.Fatalf("%T: %v", e, err)
	}
	r := newMirror(m.Snapshot())
	r.take(decisions)
	return r
}

// containerOf is one more container of a pod, by its own resources.
func containerOf(p Pod, name string, r Resources) ContainerCreate {
	return ContainerCreate{Pod: p, Container: Container{ID: p.Name + "-" + name, Sandbox: p.Sandbox, Name: name, Resources: r}}
}

// What a pod's sums become when one of its containers changes, with what the runtime
// may or may not have announced of the pod.
func TestSumsAfterAContainersResize(t *testing.T) {
	one := Resources{1000, 1000}
	for _, c := range []struct {
		name      string
		pod       *Resources // nil: nobody knows
		a, b      Resources
		announced *Resources // of the pod, before
		to        Resources  // of container a
		said      *Resources // of the pod, along with it
		want      Resources
	}{
		{"grows", &Resources{2000, 2000}, one, one, nil, Resources{3000, 3000}, nil, Resources{4000, 4000}},
		{"shrinks", &Resources{2000, 2000}, one, one, nil, Resources{500, 600}, nil, Resources{1500, 1600}},
		{"the pod's come along", &Resources{2000, 2000}, one, one, nil, Resources{3000, 3000}, &Resources{5000, 5000}, Resources{5000, 5000}},
		{"the pod's were announced", &Resources{2000, 2000}, one, one, &Resources{4000, 4000}, Resources{3000, 3000}, nil, Resources{4000, 4000}},
		{"nobody knew them", nil, one, one, nil, Resources{3000, 3000}, nil, Resources{3000, 3000}},
		{"loses its limit", &Resources{2000, 2000}, one, one, nil, Resources{3000, NoLimit}, nil, Resources{4000, NoLimit}},
		{"gets a limit that the pod's had not", &Resources{2000, 1000}, Resources{1000, NoLimit}, one, nil, Resources{1500, 1500}, nil, Resources{2500, 1000}},
		{"the pod has no limit", &Resources{2000, NoLimit}, one, Resources{1000, NoLimit}, nil, Resources{3000, 3000}, nil, Resources{4000, NoLimit}},
	} {
		m := small(t, Config{})
		p := ls("a", 0, nil)
		p.Resources = c.pod
		told(t, m, PodRun{Pod: p})
		told(t, m, containerOf(p, "a", c.a))
		told(t, m, containerOf(p, "b", c.b))
		if c.announced != nil {
			told(t, m, PodResized{Sandbox: p.Sandbox, Resources: *c.announced})
		}
		told(t, m, ContainerUpdate{ID: "a-a", Resources: &c.to, Pod: c.said})
		if got := m.pods["a"].resources; got == nil || *got != c.want {
			t.Errorf("%s: the pod's sums are %+v, want %+v", c.name, got, c.want)
		}
	}
}

// An owner follows the resize of one of its containers by what the sums became.
func TestAnOwnerFollowsAContainersResize(t *testing.T) {
	m := small(t, Config{})
	p := lsr("a", 2000, nil)
	told(t, m, PodRun{Pod: p})
	told(t, m, containerOf(p, "a", Resources{1000, 1000}))
	told(t, m, containerOf(p, "b", Resources{1000, 1000}))
	for _, c := range []struct {
		milli int64
		want  string
	}{{3000, "0-3"}, {2000, "0-2"}, {1000, "0-1"}} {
		d := decided(t, m, ContainerUpdate{ID: "a-a", Resources: &Resources{c.milli, c.milli}})
		if own := d.containers["a-b"].Need.Own; own == nil || own.String() != c.want {
			t.Errorf("at %dm the other container has to run on %v, want %s", c.milli, own, c.want)
		}
	}
}

// A resize that the runtime announces of the pod alone decides its containers anew,
// and says so.
func TestAnAnnouncedResizeMovesTheContainers(t *testing.T) {
	m := small(t, Config{})
	p := lsr("a", 2000, nil)
	told(t, m, PodRun{Pod: p})
	told(t, m, mainOf(p))
	d := decided(t, m, PodResized{Sandbox: "a", Resources: Resources{4000, 4000}})
	was := "LSR: owns 2 CPUs"
	if c := d.containers["a-main"]; c.Need.Own == nil || c.Need.Own.String() != "0-3" || c.Why[:len(was)] == was || c.Rev != m.Rev() {
		t.Errorf("decided %+v at revision %d, want CPUs 0-3", c, m.Rev())
	}
	if c := d.pods["a"]; c.Need.Own == nil || c.Need.Own.String() != "0-3" || c.Rev != m.Rev() {
		t.Errorf("decided %+v at revision %d, want CPUs 0-3", c, m.Rev())
	}
}

// Whose quota is lifted, whose is written and whose is left to kubelet. A pod's 0 is
// kubelet's business.
func TestWhoseQuotaIsWritten(t *testing.T) {
	with := func(p Pod, qos QoS, class Class, annotations map[string]string, batch int64) Pod {
		p.QoS, p.Labels, p.Annotations = qos, map[string]string{LabelClass: string(class)}, annotations
		p.Facts = &PodFacts{UID: p.UID, Resources: *p.Resources, BatchMilli: batch}
		return p
	}
	owner, plain := lsr("a", 2000, nil), ls("a", 2000, nil)
	none := ls("a", 0, nil)
	none.Resources = &Resources{0, NoLimit}
	may := map[string]string{AnnCap: "allow"}
	for _, c := range []struct {
		name      string
		cfg       Config
		pod       Pod
		container Resources
		second    bool // another container runs beside it
		cap       int64
		quota     int64
		ours      bool
		ofPod     int64
		weight    int64
		idle      bool
	}{
		{name: "shared", pod: plain, container: Resources{1000, 1500}, quota: 1500},
		{name: "shared, no limit", pod: plain, container: Resources{1000, NoLimit}, quota: NoLimit},
		{name: "owner", pod: owner, container: Resources{2000, 2000}, quota: NoLimit, ours: true, ofPod: NoLimit},
		{name: "owner of several", pod: owner, container: Resources{1000, 1000}, second: true, quota: 1000, ofPod: NoLimit},
		{name: "owner of several, lifted", cfg: Config{LiftContainers: true}, pod: owner, container: Resources{1000, 1000}, second: true, quota: NoLimit, ours: true, ofPod: NoLimit},
		{name: "owner, rounded up", cfg: Config{Allocation: Allocation{SMT: cpuallocator.SMTRoundUp}}, pod: lsr("a", 3000, nil), container: Resources{3000, 3000}, quota: 3000},
		{name: "capped", pod: with(plain, Burstable, LS, may, 0), container: Resources{1000, 1500}, cap: 100, quota: 100, ours: true},
		{name: "capped above its limit", pod: with(plain, Burstable, LS, may, 0), container: Resources{1000, 1500}, cap: 2000, quota: 1500},
		{name: "capped without a limit", pod: with(plain, Burstable, LS, may, 0), container: Resources{1000, NoLimit}, cap: 100, quota: 100, ours: true},
		{name: "best effort", cfg: Config{BEIdle: true}, pod: with(none, BestEffort, BE, nil, 0), container: *none.Resources, quota: NoLimit, idle: true},
		{name: "best effort, not to be idle", pod: with(none, BestEffort, BE, nil, 0), container: *none.Resources, quota: NoLimit},
		{name: "best effort, lent", cfg: Config{BEIdle: true}, pod: with(none, BestEffort, BE, nil, 700), container: *none.Resources, quota: NoLimit, ofPod: 700, weight: 700},
		{name: "best effort, burstable", cfg: Config{BEIdle: true}, pod: with(plain, Burstable, BE, nil, 700), container: Resources{1000, 1500}, quota: 1500},
		{name: "best effort, left alone", cfg: Config{BEIdle: true}, pod: with(none, BestEffort, BE, map[string]string{AnnManaged: "false"}, 700), container: *none.Resources, quota: NoLimit},
		{name: "no best effort", cfg: Config{BEIdle: true}, pod: with(none, BestEffort, LS, nil, 700), container: *none.Resources, quota: NoLimit},
	} {
		m := small(t, c.cfg)
		pod := decided(t, m, PodRun{Pod: c.pod}).pods["a"]
		d := decided(t, m, containerOf(c.pod, "main", c.container))
		if c.second {
			told(t, m, containerOf(c.pod, "second", c.container))
			d = decided(t, m, ContainerUpdate{ID: "a-main"})
		}
		if c.cap > 0 {
			d = decided(t, m, CapVerdict{ID: "a-main", Milli: c.cap, For: time.Minute})
		}
		if got := d.containers["a-main"]; got.QuotaMilli != c.quota || got.QuotaOurs != c.ours {
			t.Errorf("%s: the container's quota is %d, ours %t; want %d, %t", c.name, got.QuotaMilli, got.QuotaOurs, c.quota, c.ours)
		}
		ofPod := int64(0)
		if pod.QuotaMilli != nil {
			ofPod = *pod.QuotaMilli
		}
		if pod.Pod.UID != "a" || ofPod != c.ofPod || pod.WeightMilli != c.weight || pod.Idle != c.idle {
			t.Errorf("%s: the pod's quota is %d, its weight %d, idle %t; want %d, %d, %t", c.name, ofPod, pod.WeightMilli, pod.Idle, c.ofPod, c.weight, c.idle)
		}
	}
}

// Nothing is left to enforce of a container that ended: that is decided once, and has
// a revision of its own.
func TestAnEndedContainerIsDropped(t *testing.T) {
	m := small(t, Config{})
	p := lsr("a", 2000, nil)
	told(t, m, PodRun{Pod: p})
	told(t, m, mainOf(p))
	rev := m.Rev()
	decisions, err := m.Step(time.Unix(1e9, 0), ContainerStopped{ID: "a-main"})
	if err != nil || len(decisions) != 1 || decisions[0] != (DropContainer{ID: "a-main"}) || m.Rev() != rev+1 {
		t.Errorf("decided %+v, %v; revision %d after %d", decisions, err, m.Rev(), rev)
	}
	decisions, err = m.Step(time.Unix(1e9, 0), ContainerStopped{ID: "a-main"})
	if err != nil || len(decisions) != 0 || m.Rev() != rev+1 {
		t.Errorf("decided %+v, %v of one that is gone; revision %d after %d", decisions, err, m.Rev(), rev+1)
	}
}

// A notice names the pod that it is about, and none where it is about the node.
func TestWhomANoticeNames(t *testing.T) {
	m := small(t, Config{})
	for _, c := range []struct {
		event Event
		want  string
	}{
		{PodRun{Pod: lsr("a", 2000, map[string]string{AnnStatus: `{"cpuset":"8-9"}`})}, "a"},
		{NodeLabels{Labels: map[string]string{LabelBind: "Sideways"}}, ""},
	} {
		decisions, err := m.Step(time.Unix(1e9, 0), c.event)
		if err != nil {
			t.Fatal(err)
		}
		notices := 0
		for _, d := range decisions {
			if n, ok := d.(Notice); ok {
				notices++
				if n.Pod.UID != c.want {
					t.Errorf("%T: %s names %+v, want %q", c.event, n.Reason, n.Pod, c.want)
				}
			}
		}
		if notices != 1 {
			t.Errorf("%T: %d notices", c.event, notices)
		}
	}
}

// Best effort is kept off what suppression leaves it, and to end that is never refused,
// however few CPUs it has by then.
func TestKeptOffWhatIsLeft(t *testing.T) {
	m := machineOf(t, 2, 4, Config{BEFloor: 4})
	told(t, m, BESuppressed{CPUs: cpus(t, "0-3")})
	for _, c := range []struct {
		cpus string
		want Code
		left string
	}{
		{"0-7", cpuallocator.InsufficientCPUs, "0-3"}, // 8-15 are not its to have
		{"0", cpuallocator.InsufficientCPUs, "0-3"},
		{"4-15", "", "0-3"},
	} {
		if got := code(t, m, BEKeptOff{Victim: "web", CPUs: cpus(t, c.cpus), For: time.Minute}); got != c.want {
			t.Errorf("off %s: refused with %q, want %q", c.cpus, got, c.want)
		}
		if got := m.Snapshot().BE.String(); got != c.left {
			t.Errorf("off %s: best effort has %s, want %s", c.cpus, got, c.left)
		}
	}
	for _, end := range []BEKeptOff{
		{Victim: "web", CPUs: cpus(t, "0-7")},
		{Victim: "web", For: time.Minute},
		{Victim: "web"},
	} {
		told(t, m, BESuppressed{CPUs: cpus(t, "0-11")})
		told(t, m, BEKeptOff{Victim: "web", CPUs: cpus(t, "0-7"), For: time.Minute})
		told(t, m, BESuppressed{CPUs: cpus(t, "0-1")})
		if got := code(t, m, end); got != "" || len(m.be.keptOff) > 0 {
			t.Errorf("%+v: refused with %q, kept off by %d victims", end, got, len(m.be.keptOff))
		}
	}
}
