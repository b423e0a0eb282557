package policy

import (
	"cmp"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
)

// decided steps an event that must be taken and returns its decisions, the last of
// each subject.
func decided(t testing.TB, m *Machine, e Event) mirror {
	t.Helper()
	r := newMirror(m)
	decisions, err := m.Step(time.Unix(1e9, 0), e)
	if err != nil {
		t.Fatalf("%T: %v", e, err)
	}
	r.take(t, decisions)
	return r
}

// containerOf is one more container of a pod, by its own resources.
func containerOf(p Pod, name string, r Resources) ContainerCreate {
	return ContainerCreate{Pod: p, Container: Container{ID: p.Name + "-" + name, Sandbox: p.Sandbox, Name: name,
		Resources: r}}
}

// What a pod's sums become when one of its containers changes, with what the runtime
// may or may not have announced of the pod.
func TestSumsAfterAContainersResize(t *testing.T) {
	one := Resources{1000, 1000}
	for _, c := range []struct {
		name      string
		pod       *Resources // nil: unknown
		a, b      Resources
		announced *Resources // of the pod, before
		to        Resources  // of container a
		said      *Resources // of the pod, along with it
		want      Resources
	}{
		{"grows", &Resources{2000, 2000}, one, one, nil, Resources{3000, 3000}, nil, Resources{4000, 4000}},
		{"shrinks", &Resources{2000, 2000}, one, one, nil, Resources{500, 600}, nil, Resources{1500, 1600}},
		{"the pod's come along", &Resources{2000, 2000}, one, one, nil, Resources{3000, 3000}, &Resources{5000, 5000},
			Resources{5000, 5000}},
		{"the pod's were announced", &Resources{2000, 2000}, one, one, &Resources{4000, 4000}, Resources{3000, 3000},
			nil, Resources{4000, 4000}},
		{"raises its limit alone", &Resources{2000, 2000}, one, one, nil, Resources{1000, 3000}, nil,
			Resources{2000, 4000}},
		{"raises a limit that was announced", &Resources{2000, 2000}, one, one, &Resources{2000, 4000},
			Resources{1000, 3000}, nil, Resources{2000, 4000}},
		{"shrinks more than was announced", &Resources{6000, 6000}, Resources{3000, 3000}, Resources{3000, 3000},
			&Resources{500, 500}, one, nil, one},
		{"nobody knew them", nil, one, one, nil, Resources{3000, 3000}, nil, Resources{3000, 3000}},
		{"loses its limit", &Resources{2000, 2000}, one, one, nil, Resources{3000, NoLimit}, nil,
			Resources{4000, NoLimit}},
		{"gets a limit that the pod's had not", &Resources{2000, 1000}, Resources{1000, NoLimit}, one, nil,
			Resources{1500, 1500}, nil, Resources{2500, 1000}},
		{"the pod has no limit", &Resources{2000, NoLimit}, one, Resources{1000, NoLimit}, nil, Resources{3000, 3000},
			nil, Resources{4000, NoLimit}},
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

// An owner whose limit alone is raised is refused, whatever the runtime announced of the pod before.
func TestAnOwnersLimitIsNotRaisedAlone(t *testing.T) {
	for _, announced := range []bool{false, true} {
		m := small(t, Config{})
		p := lsr("a", 2000, nil)
		told(t, m, PodRun{Pod: p})
		told(t, m, mainOf(p))
		if announced {
			told(t, m, PodResized{Sandbox: "a", Resources: Resources{2000, 4000}})
		}
		if got := code(t, m, ContainerUpdate{ID: "a-main", Resources: &Resources{2000, 4000}}); got != InvalidRequest {
			t.Errorf("announced %t: a limit of 4000m is answered %q", announced, got)
		}
		if got := code(t, m, ContainerUpdate{ID: "a-main", Resources: &Resources{3000, 3000}}); got != "" ||
			owns(m, "a") != "0-2" {
			t.Errorf("announced %t: both raised to 3000m: %q, it owns %s", announced, got, owns(m, "a"))
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
	if c := d.containers["a-main"]; c.Need.Own == nil || c.Need.Own.String() != "0-3" || c.Why[:len(was)] == was ||
		c.Rev != m.Rev() {
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
		{name: "owner of several", pod: owner, container: Resources{1000, 1000}, second: true, quota: 1000,
			ofPod: NoLimit},
		{name: "owner of several, lifted", cfg: Config{LiftContainers: true}, pod: owner,
			container: Resources{1000, 1000}, second: true, quota: NoLimit, ours: true, ofPod: NoLimit},
		{name: "owner, rounded up", cfg: Config{Allocation: Allocation{SMT: cpuallocator.SMTRoundUp}},
			pod: lsr("a", 3000, nil), container: Resources{3000, 3000}, quota: 3000},
		{name: "capped", pod: with(plain, Burstable, LS, may, 0), container: Resources{1000, 1500}, cap: 100,
			quota: 100, ours: true},
		{name: "capped above its limit", pod: with(plain, Burstable, LS, may, 0), container: Resources{1000, 1500},
			cap: 2000, quota: 1500},
		{name: "capped without a limit", pod: with(plain, Burstable, LS, may, 0), container: Resources{1000, NoLimit},
			cap: 100, quota: 100, ours: true},
		{name: "best effort", cfg: Config{BEIdle: true}, pod: with(none, BestEffort, BE, nil, 0),
			container: *none.Resources, quota: NoLimit, idle: true},
		{name: "best effort, not to be idle", pod: with(none, BestEffort, BE, nil, 0), container: *none.Resources,
			quota: NoLimit},
		{name: "best effort, lent", cfg: Config{BEIdle: true}, pod: with(none, BestEffort, BE, nil, 700),
			container: *none.Resources, quota: NoLimit, ofPod: 700, weight: 17},
		{name: "best effort, burstable by its request", cfg: Config{BEIdle: true},
			pod: with(plain, Burstable, BE, nil, 700), container: Resources{1000, 1500}, quota: 1500, weight: 2000},
		{name: "best effort, burstable by its memory, lent", cfg: Config{BEIdle: true},
			pod: with(none, Burstable, BE, nil, 8000), container: *none.Resources, quota: NoLimit, ofPod: 8000,
			weight: 200},
		{name: "best effort, burstable by its memory, lent little", pod: with(none, Burstable, BE, nil, 30),
			container: *none.Resources, quota: NoLimit, ofPod: 30, weight: 1},
		{name: "best effort, burstable by its memory", cfg: Config{BEIdle: true},
			pod: with(none, Burstable, BE, nil, 0), container: *none.Resources, quota: NoLimit, weight: 1},
		{name: "best effort, burstable by its request, one group", cfg: Config{BEGrouped: true},
			pod: with(plain, Burstable, BE, nil, 700), container: Resources{1000, 1500}, quota: 1500, ofPod: 2000,
			weight: 50},
		{name: "best effort, burstable by its memory, one group", cfg: Config{BEGrouped: true},
			pod: with(none, Burstable, BE, nil, 0), container: *none.Resources, quota: NoLimit, ofPod: NoLimit,
			weight: 1},
		{name: "production, burstable by its memory", pod: with(none, Burstable, LS, nil, 700),
			container: *none.Resources, quota: NoLimit},
		{name: "best effort, left alone", cfg: Config{BEIdle: true},
			pod: with(none, BestEffort, BE, map[string]string{AnnManaged: "false"}, 700), container: *none.Resources,
			quota: NoLimit},
		{name: "no best effort", cfg: Config{BEIdle: true}, pod: with(none, BestEffort, LS, nil, 700),
			container: *none.Resources, quota: NoLimit},
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
		if got := d.containers["a-main"]; got.Quota.Milli() != c.quota || got.QuotaOurs != c.ours {
			t.Errorf("%s: the container's quota is %d, ours %t; want %d, %t", c.name, got.Quota.Milli(), got.QuotaOurs,
				c.quota, c.ours)
		}
		ofPod := int64(0)
		if pod.QuotaOurs {
			ofPod = pod.Quota.Milli()
		}
		if pod.Pod.UID != "a" || ofPod != c.ofPod || pod.WeightMilli != c.weight || pod.Idle != c.idle {
			t.Errorf("%s: the pod's quota is %d, its weight %d, idle %t; want %d, %d, %t", c.name, ofPod,
				pod.WeightMilli, pod.Idle, c.ofPod, c.weight, c.idle)
		}
	}
}

// Kubelet repeats weight and quota of the pod's cgroup when it resizes it, where they are ours: of a
// batch pod only the API server says what was granted. A request ends what was lent.
func TestAResizeOfAPodOfLentCPUs(t *testing.T) {
	m := small(t, Config{})
	pod := ls("a", 0, nil)
	pod.Labels, pod.Resources = map[string]string{LabelClass: string(BE)}, &Resources{0, NoLimit}
	pod.Facts = &PodFacts{UID: "a", Resources: *pod.Resources, BatchMilli: 8000}
	told(t, m, PodRun{Pod: pod})
	// 185 shares are a weight of 8, systemd rounds the quota up
	told(t, m, PodResized{Sandbox: "a", Shares: 185, Quota: 800_500, Period: 100_000})
	if v := m.Pods()[0]; v.RequestMilli != 0 {
		t.Errorf("the pod's weight counts as a request for %dm", v.RequestMilli)
	}
	facts := *pod.Facts
	facts.BatchMilli = 4000
	if d := decided(t, m, facts).pods["a"]; !d.QuotaOurs || d.Quota.Milli() != 4000 || d.WeightMilli != 100 ||
		d.Asked.Milli() != NoLimit {
		t.Errorf("decided %+v, want 4000m and a weight of 100m where kubelet wants no limit", d)
	}
	told(t, m, PodResized{Sandbox: "a", Shares: 2048, Quota: 300_000, Period: 100_000})
	facts.Resources = Resources{2000, 3000}
	d := decided(t, m, facts).pods["a"]
	if d.QuotaOurs || d.Quota.Milli() != 3000 || d.WeightMilli != 2000 {
		t.Errorf("decided %+v of a pod that requests 2000m now, want kubelet's quota and weight", d)
	}
}

// Pods of class BE outside of the best-effort slice share its quota where they are grouped: none has
// more than its part nor than its own limit, the slice has the rest, and when it is over each has
// what kubelet gave it.
func TestPartsOfOneQuota(t *testing.T) {
	m := small(t, Config{})
	batch := func(name string, r Resources, facts bool) Pod {
		p := ls(name, 0, nil)
		p.Labels, p.Resources = map[string]string{LabelClass: string(BE)}, &r
		if facts {
			p.Facts = &PodFacts{UID: name, Resources: r}
		}
		return p
	}
	told(t, m, PodRun{Pod: batch("paid", Resources{1000, NoLimit}, true)})
	told(t, m, PodRun{Pod: batch("held", Resources{100, 200}, true)})
	told(t, m, PodRun{Pod: batch("unknown", Resources{1000, NoLimit}, false)})
	told(t, m, PodRun{Pod: ls("web", 1000, nil)})
	check := func(when string, e Event, slice int64, want map[string]int64) {
		t.Helper()
		d := decided(t, m, e)
		for uid, milli := range want {
			if got, ok := d.pods[uid]; !ok || got.Quota.Milli() != milli {
				t.Errorf("%s: pod %s has a quota of %d, decided %t, want %d", when, uid, got.Quota.Milli(), ok, milli)
			}
		}
		if len(d.pods) != len(want) || m.be.sliceQuota() != slice {
			t.Errorf("%s: %d pods were decided, want %d; the slice has %d, want %d", when, len(d.pods), len(want),
				m.be.sliceQuota(), slice)
		}
	}
	parted := BESuppressed{QuotaMilli: 1500, Grouped: true, PodMilli: map[string]int64{"paid": 700, "held": 400}}
	check("parted", parted, 400, map[string]int64{"paid": 700, "held": 200})
	check("parted again", parted, 400, nil)
	again := parted
	again.PodMilli = map[string]int64{"paid": 100, "held": 400}
	check("parted differently", again, 1000, map[string]int64{"paid": 100})
	told(t, m, PodRun{Pod: batch("new", Resources{1000, NoLimit}, true)})
	if p := m.pods["new"]; m.be.partOf(p) != leastMilli {
		t.Errorf("a new pod has %d until it has a part", m.be.partOf(p))
	}
	check("over", BESuppressed{QuotaMilli: 1500}, 1500, map[string]int64{"paid": NoLimit, "held": 200, "new": NoLimit})
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

// pinned is a pod that kubelet's static policy may pin.
func pinned(name string, milli int64) Pod {
	p := lsr(name, milli, nil)
	p.Labels = nil
	return p
}

// owns are the CPUs that we gave a pod and the siblings kept idle for it.
func owns(m *Machine, uid string) string {
	var g grant
	for _, h := range m.pods[uid].every() {
		if h.grant != nil {
			g.cpus.AddSet(&h.grant.cpus)
			g.withheld.AddSet(&h.grant.withheld)
		}
	}
	switch {
	case g.cpus.IsEmpty():
		return "nothing"
	case g.withheld.IsEmpty():
		return g.cpus.String()
	}
	return g.cpus.String() + " beside " + g.withheld.String()
}

// booked is kubelet's state with one container a pod.
func booked(t testing.TB, cpusOf map[string]string) KubeletState {
	t.Helper()
	entries := map[string]map[string]cpuset.Set{}
	for uid, text := range cpusOf {
		entries[uid] = map[string]cpuset.Set{"main": cpus(t, text)}
	}
	return pins("static", entries)
}

// A pod whose CPUs by kubelet are an owner's gets others: not those that kubelet gave
// to pods that may still take them, but those that it gave to pods that run elsewhere,
// and what is left of its own.
func TestInPlaceOfAPinThatCollides(t *testing.T) {
	owner := lsr("owner", 2000, nil)
	own := cpuset.Of(0, 1)
	owner.Recovered = &Recovered{From: fromState, CPUs: &own}
	later, ours := pinned("other", 2000), lsr("other", 2000, nil)
	later.CreatedAt, ours.CreatedAt = time.Unix(3, 0), time.Unix(1, 0)
	ours.Labels[LabelClass] = string(LS)
	for _, c := range []struct {
		name  string
		wants string // of the pod that collides
		other *Pod
		books string // of the other
		want  string
	}{
		{"nobody else", "0-1", nil, "", "2-3"},
		{"what is left of its own", "1-2", nil, "", "2-3"},
		{"a pod that comes", "0-1", nil, "2-3", "4-5"},
		{"a pod that was found, too", "0-1", &later, "2-3", "4-5"},
		{"a pod of ours", "0-1", &ours, "2-3", "2-3"},
	} {
		m := small(t, Config{})
		books := map[string]string{"a": c.wants}
		if c.books != "" {
			books["other"] = c.books
		}
		told(t, m, booked(t, books))
		p := pinned("a", 2000)
		p.CreatedAt = time.Unix(2, 0)
		pods := []Pod{owner, p}
		if c.other != nil {
			pods = append(pods, *c.other)
		}
		told(t, m, Synchronized{Pods: pods})
		if got := owns(m, "a"); got != c.want || m.pods["a"].kubelet {
			t.Errorf("%s: the pod owns %s, want %s", c.name, got, c.want)
		}
		if c.other != nil && m.pods["other"].kubelet != (c.want == "4-5") {
			t.Errorf("%s: the other runs where kubelet pinned it: %t", c.name, m.pods["other"].kubelet)
		}
	}
}

// CPUs that kubelet believes a moved pod to have are free: the next pod may have them.
func TestTheBookingOfAMovedPodIsFree(t *testing.T) {
	m := small(t, Config{})
	told(t, m, PodRun{Pod: lsr("owner", 2000, nil)})
	told(t, m, booked(t, map[string]string{"moved": "0-1"}))
	if got := told(t, m, PodRun{Pod: pinned("moved", 2000)}); got != "KubeletPinMoved" || owns(m, "moved") != "2-3" {
		t.Errorf("notices %q; it owns %s", got, owns(m, "moved"))
	}
	told(t, m, PodRemoved{Sandbox: "owner"})
	told(t, m, booked(t, map[string]string{"moved": "0-1", "next": "2-3"})) // they look free to kubelet
	told(t, m, PodRun{Pod: pinned("next", 2000)})
	if moved, next := owns(m, "moved"), owns(m, "next"); moved != "2-3" || next != "0-1" {
		t.Errorf("the moved pod owns %s, the next %s; want 2-3 and 0-1", moved, next)
	}
}

// Each container that kubelet pinned runs on its own CPUs, the others of the pod in the
// pool; the pod's cgroup is held to the pins only where all of them are.
func TestWhereAPinnedPodRuns(t *testing.T) {
	m := small(t, Config{})
	told(t, m, pins("static", map[string]map[string]cpuset.Set{"a": {"main": cpuset.Of(4, 5), "second": cpuset.Of(6)}}))
	p := pinned("a", 3500)
	told(t, m, PodRun{Pod: p})
	told(t, m, containerOf(p, "main", Resources{2000, 2000}))
	needs := func(e Event, pod string, containers map[string]string) {
		t.Helper()
		told(t, m, e)
		d := decided(t, m, Reconfigured{}) // decides everything anew
		want := map[string]string{"": pod}
		got := map[string]string{"": ""}
		if own := d.pods["a"].Need.Own; own != nil {
			got[""] = own.String()
		}
		for id, cpus := range containers {
			want[id], got[id] = cpus, ""
			if own := d.containers[id].Need.Own; own != nil {
				got[id] = own.String()
			}
		}
		for id := range want {
			if got[id] != want[id] {
				t.Errorf("%T: %q has CPUs %q of its own, want %q", e, id, got[id], want[id])
			}
		}
	}
	needs(containerOf(p, "second", Resources{1000, 1000}), "4-6", map[string]string{"a-main": "4-5", "a-second": "6"})
	needs(containerOf(p, "third", Resources{500, 500}), "",
		map[string]string{"a-main": "4-5", "a-second": "6", "a-third": ""})
	needs(Hardware{Online: cpus(t, "0-5,7-15")}, "", map[string]string{"a-main": "4-5", "a-second": "", "a-third": ""})
}

// A pin that kubelet tells of a pod that runs, on an owner's CPUs and with no others
// free, leaves the pod in the shared pool, with a word about it; the same told again
// is no news.
func TestAPinThatNobodyCanHonour(t *testing.T) {
	m := small(t, Config{})
	told(t, m, PodRun{Pod: lsr("owner", 12000, nil)})
	told(t, m, PodRun{Pod: pinned("a", 4000)})
	state := booked(t, map[string]string{"a": "0-3"})
	for i, want := range []string{string(KubeletOwned), ""} {
		if got := told(t, m, state); got != want {
			t.Errorf("%d: notices %q, want %q", i, got, want)
		}
		p := m.pods["a"]
		if s := m.Snapshot(); p.grant != nil || p.kubelet || p.degraded == "" || p.in.class != LS ||
			s.Exclusive.String() != "0-11" {
			t.Errorf("%d: the pod is %s, degraded by %q, owns %s; exclusive are %s", i, p.in.class, p.degraded,
				owns(m, "a"), s.Exclusive)
		}
	}
}

// Pods whose pins collide by one and the same state get CPUs apart from each other's,
// and where one lets go the next may have its.
func TestPinsThatCollideTogether(t *testing.T) {
	m := small(t, Config{})
	told(t, m, PodRun{Pod: lsr("owner", 4000, nil)})
	for _, name := range []string{"a", "b", "c"} {
		told(t, m, PodRun{Pod: pinned(name, 2000)})
	}
	for _, c := range []struct {
		books   map[string]string
		a, b, c string
	}{
		{map[string]string{"a": "0-1", "b": "2-3"}, "4-5", "6-7", "nothing"},
		{map[string]string{"b": "2-3", "c": "0-1"}, "nothing", "6-7", "4-5"},
	} {
		told(t, m, booked(t, c.books))
		if a, b, last := owns(m, "a"), owns(m, "b"), owns(m, "c"); a != c.a || b != c.b || last != c.c {
			t.Errorf("%v: they own %s, %s and %s; want %s, %s and %s", c.books, a, b, last, c.a, c.b, c.c)
		}
	}
}

// kubelet's state says nothing about pods that have a class by a label, whatever is
// booked for them.
func TestKubeletsStateMovesNoPodOfOurs(t *testing.T) {
	m := small(t, Config{})
	for _, class := range []Class{LSE, LSR, LS, BE} {
		p := lsr(string(class), 2000, nil)
		p.Labels[LabelClass] = string(class)
		told(t, m, PodRun{Pod: p})
		told(t, m, mainOf(p))
	}
	before := describe(m.Snapshot())
	for _, state := range []KubeletState{booked(t, nil), booked(t,
		map[string]string{"LSE": "8-9", "LSR": "10-11", "LS": "12-13", "BE": "14-15"}), pins("none", nil)} {
		if got := told(t, m, state); got != "" {
			t.Errorf("notices %q", got)
		}
		for _, class := range []Class{LSE, LSR, LS, BE} {
			if got := m.pods[string(class)].in.class; got != class {
				t.Errorf("%s became %s", class, got)
			}
		}
	}
	told(t, m, booked(t, nil))
	told(t, m, PodRun{Pod: pinned("free", 1500)})
	if d := decided(t, m, booked(t, nil)); len(d.pods) > 0 {
		t.Errorf("the same state again decided %+v", d.pods)
	}
	told(t, m, PodRemoved{Sandbox: "free"})
	if after := describe(m.Snapshot()); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

// What kubelet booked for a pod of ours is ours to use while the pod is here: not if it
// is refused, and no longer when it has gone.
func TestABookingCountsAgain(t *testing.T) {
	m := small(t, Config{})
	told(t, m, booked(t, map[string]string{"a": "4-5"}))
	exclusive := func(want, when string) {
		t.Helper()
		if got := m.pools.Exclusive.String(); got != want { // a snapshot may be from before a refusal
			t.Errorf("%s: exclusive are %q, want %q", when, got, want)
		}
	}
	exclusive("4-5", "before it came")
	p := lsr("a", 100000, nil)
	if got := code(t, m, PodRun{Pod: p}); got != cpuallocator.InsufficientCPUs {
		t.Fatalf("refused with %q", got)
	}
	exclusive("4-5", "refused")
	p.Labels[LabelClass] = string(LS)
	told(t, m, PodRun{Pod: p})
	exclusive("", "in the shared pool")
	told(t, m, PodRemoved{Sandbox: "a"})
	exclusive("4-5", "gone")
	if len(m.overruled) > 0 {
		t.Errorf("%v stays overruled", m.overruled)
	}
}

// Siblings that were withheld are adopted with the CPUs, all or nothing: not if
// a pod owns them or they are reserved.
func TestAdoptionOfWithheldSiblings(t *testing.T) {
	isolate := map[string]string{AnnSMT: "isolate"}
	for _, c := range []struct {
		name, from     string
		cpus, withheld string
		reserved       string
		other          string // what another pod was found to own
		want           string
	}{
		{"both free", fromState, "4", "5", "", "", "4 beside 5"},
		{"both free, by the kernel", "kernel", "4", "5", "", "", "4 beside 5"},
		{"nothing was withheld", fromState, "4", "", "", "", "4"},
		{"nothing was withheld, by the kernel", "kernel", "4", "", "", "", "4 beside 5"},
		{"somebody owns the sibling", fromState, "4", "5", "", "5", "0 beside 1"},
		{"somebody owns it, by the kernel", "kernel", "4", "5", "", "5", "0 beside 1"},
		{"the sibling is reserved now", fromState, "4", "5", "5", "", "4 beside 5"},
		{"it is reserved, by the kernel", "kernel", "4", "5", "5", "", "0 beside 1"},
		{"there is no such sibling", fromState, "4", "99", "", "", "0 beside 1"},
	} {
		m := small(t, Config{Reserved: cpus(t, c.reserved)})
		var pods []Pod
		if c.other != "" {
			own := cpus(t, c.other)
			other := lsr("other", 1000, nil)
			other.Recovered = &Recovered{From: fromState, CPUs: &own}
			pods = append(pods, other)
		}
		own, withheld := cpus(t, c.cpus), cpus(t, c.withheld)
		p := lsr("a", 1000, isolate)
		p.CreatedAt = time.Unix(1, 0)
		p.Recovered = &Recovered{From: c.from, CPUs: &own, Withheld: nonEmpty(&withheld)}
		told(t, m, Synchronized{Pods: append(pods, p)})
		if got := owns(m, "a"); got != c.want {
			t.Errorf("%s: the pod owns %s, want %s", c.name, got, c.want)
		}
		s := m.Snapshot()
		if both := s.Shared.And(m.pods["a"].grant.all()); !both.IsEmpty() {
			t.Errorf("%s: the shared pool has %s of it", c.name, both)
		}
		if both := s.BE.And(m.pods["a"].grant.withheld); !both.IsEmpty() {
			t.Errorf("%s: best effort has %s, kept idle", c.name, both)
		}
	}
}

// A pod that runs keeps its place although it would be refused if it came now; it is
// given none anew.
func TestFoundAndNoLongerAllowed(t *testing.T) {
	own, node := cpuset.Of(4, 5), 1
	owner, bound := lsr("a", 2000, nil), ls("a", 2000, map[string]string{AnnSMT: "nonsense"})
	for _, c := range []struct {
		name     string
		pod      Pod
		found    Recovered
		other    bool // another pod was found on these CPUs
		want     string
		degraded string // its first word
		notice   string
	}{
		{"an owner", owner, Recovered{From: "kernel", CPUs: &own}, false, "4-5", "", ""},
		{"an owner of what is another's", owner, Recovered{From: "kernel", CPUs: &own}, true, "nothing",
			"Unauthorized:", string(Unauthorized)},
		{"nothing was found", owner, Recovered{From: "kernel"}, false, "nothing", "Unauthorized:",
			string(Unauthorized)},
		{"in the shared pool already", owner, Recovered{From: fromState, Degraded: "no room then"}, false, "nothing",
			"no", ""},
		{"bound", bound, Recovered{From: fromState, BoundNode: &node}, false, "node 1", "", ""},
		{"bound, nobody knows where", bound, Recovered{From: "kernel"}, false, "nothing", "InvalidAnnotation:",
			string(InvalidAnnotation)},
	} {
		m := small(t, Config{Authority: Authority{Namespaces: map[Power][]string{PowerExclusive: {"other"}}}})
		p := c.pod
		p.Recovered, p.CreatedAt = &c.found, time.Unix(1, 0)
		pods := []Pod{p}
		if c.other {
			other := lsr("other", 2000, nil)
			other.Namespace, other.Recovered = "other", &Recovered{From: "kernel", CPUs: &own}
			pods = append(pods, other)
		}
		notice := told(t, m, Synchronized{Pods: pods})
		got, first := owns(m, "a"), ""
		if nodes := m.pods["a"].nodes; nodes != nil {
			got = "node " + nodes.String()
		}
		if words := strings.Fields(m.pods["a"].degraded); len(words) > 0 {
			first = words[0]
		}
		if got != c.want || first != c.degraded || notice != c.notice {
			t.Errorf("%s: the pod owns %s, is degraded by %q, notices %q; want %s, %q, %q", c.name, got,
				m.pods["a"].degraded, notice, c.want, c.degraded, c.notice)
		}
	}
}

// What a pod was found to own is its size if its request was not recorded; a
// resize goes on from there.
func TestTheSizeOfWhatWasFound(t *testing.T) {
	for _, c := range []struct {
		request int
		to      int64
		want    string
	}{
		{0, 4000, "0-3"},
		{0, 2000, "0-1"},
		{0, 6000, "0-5"},
		{4, 4000, "0-3"},
	} {
		m := small(t, Config{})
		own := cpuset.Range(0, 3)
		p := lsr("a", 2000, nil) // the runtime's sums may be from before a resize
		p.Recovered = &Recovered{From: "kernel", CPUs: &own, Request: c.request}
		told(t, m, Synchronized{Pods: []Pod{p}})
		if a := m.pods["a"]; a.grant == nil || a.grant.cpus != own || a.grant.request.CPUs != 4 ||
			*a.resources != (Resources{4000, 4000}) {
			t.Errorf("the pod owns %s, its sums are %+v", owns(m, "a"), a.resources)
			continue
		}
		told(t, m, PodResized{Sandbox: "a", Resources: Resources{c.to, c.to}})
		if got := owns(m, "a"); got != c.want {
			t.Errorf("%d recorded, resized to %dm: the pod owns %s, want %s", c.request, c.to, got, c.want)
		}
	}
}

// A cap outlives the daemon until its deadline, if its pod does.
func TestCapsThatAreFound(t *testing.T) {
	now := time.Unix(1e9, 0)
	p := ls("a", 1000, map[string]string{AnnCap: "allow"})
	caps := []Cap{
		{PodUID: "gone", Container: "main", Milli: 100, Until: now.Add(time.Minute)},
		{PodUID: "a", Container: "main", Milli: 100, Until: now.Add(time.Minute)},
		{PodUID: "a", Container: "over", Milli: 100, Until: now},
	}
	m := small(t, Config{})
	d := decided(t, m, Synchronized{Pods: []Pod{p}, Containers: []Container{mainOf(p).Container,
		containerOf(p, "over", Resources{0, 2000}).Container}, Caps: caps})
	if got := d.containers["a-main"]; got.Cap == nil || got.Quota.Milli() != 100 {
		t.Errorf("the capped one has %+v", got)
	}
	if got := d.containers["a-over"]; got.Cap != nil || got.Quota.Milli() != 2000 {
		t.Errorf("the one whose deadline has come has %+v", got)
	}
	caps[1].Request = p.Resources.RequestMilli // it is noted beside the limit
	if got := m.Caps(); len(got) != 1 || !sameCap(got[0], caps[1]) || m.caps != 1 {
		t.Errorf("in force are %+v, counted %d", got, m.caps)
	}
	told(t, m, CapVerdict{ID: "a-over", Milli: 50, For: time.Hour})
	told(t, m, CapVerdict{ID: "a-main", Milli: 500, For: time.Second}) // loosens nothing
	if got := m.Caps(); len(got) != 2 || !sameCap(got[0], caps[1]) || m.caps != 2 {
		t.Errorf("in force are %+v, counted %d", got, m.caps)
	}
	if _, err := m.Step(now.Add(time.Minute), Tick{}); err != nil || len(m.Caps()) != 1 || m.caps != 1 {
		t.Errorf("at the deadline %+v are in force, counted %d: %v", m.Caps(), m.caps, err)
	}
	told(t, m, PodRemoved{Sandbox: "a"})
	if m.caps != 0 {
		t.Errorf("%d caps are counted of nobody", m.caps)
	}
}

// A record begins with what keeps best effort off CPUs, and with the caps.
func TestARecordBeginsWithTheLimitsInForce(t *testing.T) {
	now := time.Unix(1e9, 0)
	p := ls("a", 1000, map[string]string{AnnCap: "allow"})
	for _, e := range [][]Event{
		{BESuppressed{CPUs: cpus(t, "0-7"), QuotaMilli: 1500}},
		{BESuppressed{QuotaMilli: 1500}},
		{BEKeptOff{Victim: "a-main", CPUs: cpus(t, "0-3"), For: time.Minute}},
		{BESuppressed{CPUs: cpus(t, "0-7")}, BEKeptOff{Victim: "a-main", CPUs: cpus(t, "0-3"), For: time.Minute},
			BEKeptOff{Victim: "b", CPUs: cpus(t, "5"), For: time.Hour}},
		{CapVerdict{ID: "a-main", Milli: 100, For: time.Minute}},
		{PodRun{Pod: bestEffort("b", 0)},
			BEKeptOff{Victim: "v", CPUs: cpus(t, "0-1"), For: time.Minute, Pod: "b", Least: 2}},
		{PodRun{Pod: lowest("b")}, Idled{Pod: "b", For: time.Minute}},
		{IdleRefused{}},
	} {
		m := small(t, Config{})
		told(t, m, PodRun{Pod: p})
		told(t, m, mainOf(p))
		for _, e := range e {
			told(t, m, e)
		}
		r := NewRecorder(10)
		r.Add(m, now, Tick{})
		again := small(t, Config{})
		for _, record := range r.Records() {
			if _, err := again.Step(record.At, record.Event()); err != nil {
				t.Errorf("%+v: %v", record, err)
			}
		}
		for _, after := range []time.Duration{0, time.Minute, time.Hour} {
			for _, m := range []*Machine{m, again} {
				if _, err := m.Step(now.Add(after), Tick{}); err != nil {
					t.Error(err)
				}
			}
			was, is := m.Snapshot(), again.Snapshot()
			if describe(was) != describe(is) || was.BEQuota != is.BEQuota {
				t.Errorf("%+v, %s later: the replay has\n%s, quota %d, was\n%s, %d", e, after, describe(is),
					is.BEQuota, describe(was), was.BEQuota)
			}
		}
	}
}

// Owners follow their CPUs off and on where nothing takes their place, with a word when the
// last goes and when the first returns.
func TestOwnersFollowTheirCPUs(t *testing.T) {
	m := small(t, Config{NoHeal: true})
	p := lsr("a", 2000, nil)
	told(t, m, PodRun{Pod: p})
	told(t, m, mainOf(p))
	for _, c := range []struct{ online, notice, own string }{
		{"0-15", "", ""}, // nothing to decide
		{"0,2-15", "", "0"},
		{"2-15", "CPUsOffline", "pool"},
		{"1-15", "CPUsOnline", "1"},
		{"0-15", "", "0-1"},
		{"0-7", "", ""},
	} {
		decisions, err := m.Step(time.Unix(1e9, 0), Hardware{Online: cpus(t, c.online)})
		if err != nil {
			t.Fatal(err)
		}
		notice, own := "", ""
		for _, d := range decisions {
			switch d := d.(type) {
			case Notice:
				notice = d.Reason
			case SetContainer:
				if own = "pool"; d.Need.Own != nil {
					own = d.Need.Own.String()
				}
			}
		}
		if notice != c.notice || own != c.own {
			t.Errorf("online %s: notice %q, CPUs %q; want %q, %q", c.online, notice, own, c.notice, c.own)
		}
	}
}

// SYSTEM runs on its own CPUs, without any that are on on the reserved ones, and
// without those in the shared pool; its pods are decided anew when that changes.
func TestWhereSystemRuns(t *testing.T) {
	m := small(t, Config{Reserved: cpuset.Of(2), System: System{CPUs: cpuset.Of(0, 1),
		Namespaces: []string{"default"}}})
	p := ls("a", 1000, nil)
	p.Labels = map[string]string{LabelClass: string(SYSTEM)}
	told(t, m, PodRun{Pod: p})
	told(t, m, mainOf(p))
	for _, c := range []struct {
		online string
		want   PoolKind // empty: nothing is decided
	}{
		{"0-3,8-15", ""},
		{"1-15", ""},
		{"2-15", PoolReserved},
		{"3-15", PoolShared},
		{"2-15", PoolReserved},
		{"1-15", PoolSystem},
		{"3-15", PoolShared},
		{"0-15", PoolSystem},
	} {
		if got := decided(t, m, Hardware{Online: cpus(t,
			c.online)}).containers["a-main"].Need.Pool.Kind(); got != c.want {
			t.Errorf("online %s: decided pool %q, want %q", c.online, got, c.want)
		}
		where := map[PoolKind]string{PoolReserved: "on the reserved CPUs;", PoolShared: "in the shared pool;"}
		want := "SYSTEM: runs " + cmp.Or(where[c.want], "on the CPUs of system.cpus")
		if why := m.pods["a"].why; !strings.HasPrefix(why, want) {
			t.Errorf("online %s: %q, want %q", c.online, why, want)
		}
	}
}

// Annotations that mean nothing for a pod's class are named in a notice, and only those.
func TestUnusedAnnotations(t *testing.T) {
	spec := map[string]string{AnnSpec: `{"preferredCPUBindPolicy":"FullPCPUs"}`}
	burst := map[string]string{AnnSpec: `{"preferredCPUBindPolicy":"ConstrainedBurst"}`}
	smt := map[string]string{AnnSMT: "align"}
	for _, c := range []struct {
		class Class
		anns  map[string]string
		want  string
	}{
		{LS, smt, "AnnotationIgnored"}, {BE, smt, "AnnotationIgnored"}, {LSR, smt, ""},
		{LS, spec, "AnnotationIgnored"}, {BE, spec, "AnnotationIgnored"}, {LSE, spec, ""}, {LS, burst, ""},
		{LS, numa("SingleNUMANode", ""), ""}, {BE, numa("SingleNUMANode", ""), "AnnotationIgnored"},
		{BE, numa("", "Required"), "AnnotationIgnored"}, {BE, numa("None", ""), ""},
		{LS, map[string]string{AnnManaged: "false", AnnSMT: "align"}, ""},
	} {
		p := lsr("a", 2000, c.anns)
		p.Labels[LabelClass] = string(c.class)
		m := small(t, Config{Authority: Authority{Profile: ProfileOpen}})
		if got := told(t, m, PodRun{Pod: p}); got != c.want {
			t.Errorf("%s with %v: notices %q, want %q", c.class, c.anns, got, c.want)
		}
	}
}

// A ConstrainedBurst pod's limit is raised as far as the pool of its node goes, and one
// that was held when it was set stays when the pool has shrunk.
func TestResizeOfAConstrainedBurst(t *testing.T) {
	p := ls("a", 1000, map[string]string{AnnSpec: `{"preferredCPUBindPolicy":"ConstrainedBurst"}`})
	p.Resources = &Resources{RequestMilli: 1000, LimitMilli: 4000}
	m := small(t, Config{})
	told(t, m, PodRun{Pod: p})
	pool := int64(m.sharedOnNode(0)) * 1000
	to := func(request, limit int64) Event {
		return PodResized{Sandbox: p.Sandbox, Resources: Resources{RequestMilli: request, LimitMilli: limit}}
	}
	if got := code(t, m, to(1000, pool+500)); got != cpuallocator.TopologyAffinityError {
		t.Errorf("a limit above its node's pool: %q", got)
	}
	told(t, m, containerOf(p, "main", *p.Resources))
	update := func(request, limit int64) Event { // kubelet goes on with it although the pod's resize was refused
		return ContainerUpdate{ID: "a-main", Resources: &Resources{RequestMilli: request, LimitMilli: limit}}
	}
	if got := code(t, m, update(1000, pool+500)); got != cpuallocator.TopologyAffinityError {
		t.Errorf("a limit above its node's pool, of the container: %q", got)
	}
	if got := code(t, m, to(1000, NoLimit)); got != InvalidRequest {
		t.Errorf("no limit: %q", got)
	}
	if got := code(t, m, to(1000, pool)); got != "" {
		t.Errorf("a limit as large as its node's pool: %q", got)
	}
	told(t, m, PodRun{Pod: lsr("owner", 2000, nil)})
	if got := int64(m.sharedOnNode(0)) * 1000; got >= pool {
		t.Fatalf("the pool has %d still", got)
	}
	if got := code(t, m, to(2000, pool)); got != "" {
		t.Errorf("the request is raised under the same limit: %q", got)
	}
}

// Sums that come later and place a pod are decided at once.
func TestFactsThatPlaceAPodAreDecided(t *testing.T) {
	owner, burst := lsr("a", 2000, nil), ls("a", 1000,
		map[string]string{AnnSpec: `{"preferredCPUBindPolicy":"ConstrainedBurst"}`})
	for _, c := range []struct {
		pod Pod
		why string
	}{{owner, "LSR: owns 2 CPUs of its own"}, {burst, "LS: bound to the shared pool of NUMA node 0"}} {
		sums := *c.pod.Resources
		c.pod.Resources = nil
		m := small(t, Config{})
		told(t, m, PodRun{Pod: c.pod})
		d := decided(t, m, PodFacts{UID: "a", Resources: sums}).pods["a"]
		if d.Need.Own == nil && !d.Need.Pool.isPart() || !strings.HasPrefix(d.Why, c.why) {
			t.Errorf("decided %+v, because %q; want %q", d.Need, d.Why, c.why)
		}
	}
}

// A trusted scheduler's choice of NUMA nodes whose shared pool has no CPU is refused,
// even for a pod that requests none: no CPUs would be all of the machine's.
func TestScheduledWhereNoCPUIsLeft(t *testing.T) {
	for _, c := range []struct {
		cpu  string
		want Code
	}{{"0", cpuallocator.TopologyAffinityError}, {"1", cpuallocator.InsufficientCPUs}} {
		m := small(t, Config{Authority: Authority{TrustStatus: true}})
		told(t, m, PodRun{Pod: lsr("owner", 8000, status(`{"cpuset":"8-15"}`))})
		p := ls("a", 0, status(`{"numaNodeResources":[{"node":1,"resources":{"cpu":"`+c.cpu+`"}}]}`))
		if got := code(t, m, PodRun{Pod: p}); got != c.want {
			t.Errorf("%s CPUs: refused with %q, want %q", c.cpu, got, c.want)
		}
	}
}

// An annotation may be as large as the bound and no larger.
func TestTheLargestAnnotation(t *testing.T) {
	for size, want := range map[int]Code{maxAnnotation: "", maxAnnotation + 1: InvalidAnnotation,
		1 << 20: InvalidAnnotation} {
		m := small(t, Config{})
		spec := `{"preferredCPUBindPolicy":"FullPCPUs"}`
		spec += strings.Repeat(" ", size-len(spec))
		if got := code(t, m, PodRun{Pod: lsr("a", 2000, map[string]string{AnnSpec: spec})}); got != want {
			t.Errorf("%d bytes: refused with %q, want %q", size, got, want)
		}
	}
}

// Who made a pod is what the API server says, else what its label names; a label that
// Kubernetes would not have names nobody.
func TestWhoMadeAPod(t *testing.T) {
	long := strings.Repeat("x", maxLabelValue)
	for _, c := range []struct{ key, label, facts, want string }{
		{"", "night", "", ""},
		{"job", "night", "", "night"},
		{"job", "night", "Job/x", "Job/x"},
		{"job", "", "Job/x", "Job/x"},
		{"job", long, "", long},
		{"job", long + "x", "", ""},
	} {
		m := small(t, Config{JobLabel: c.key})
		p := ls("a", 1000, nil)
		p.Labels = Relevant(map[string]string{"job": c.label}, c.key)
		p.Facts = &PodFacts{UID: "a", Resources: *p.Resources, Owner: c.facts}
		told(t, m, PodRun{Pod: p})
		told(t, m, mainOf(p))
		if got := m.Snapshot().Containers[0].Owner; got != c.want {
			t.Errorf("%+v: made by %q", c, got)
		}
	}
}

// A pod that kubelet pinned keeps its CPUs to itself through a synchronisation.
func TestAPinOutlivesASynchronisation(t *testing.T) {
	m := small(t, Config{})
	told(t, m, booked(t, map[string]string{"a": "4-5"}))
	p := pinned("a", 2000)
	told(t, m, PodRun{Pod: p})
	told(t, m, mainOf(p))
	for range 2 {
		told(t, m, Synchronized{Pods: []Pod{p}, Containers: []Container{mainOf(p).Container}})
		told(t, m, Reconfigured{}) // the pools anew
		if s := m.Snapshot(); s.Exclusive.String() != "4-5" || s.Shared.String() != "0-3,6-15" || !m.pods["a"].kubelet {
			t.Errorf("exclusive are %s, shared %s", s.Exclusive, s.Shared)
		}
	}
}

// Best effort runs beside LSR and not beside LSE, and each says so.
func TestBesideAnOwner(t *testing.T) {
	for class, c := range map[Class]struct{ be, why string }{
		LSR: {"0-15", "LSR: owns 2 CPUs of its own, shared with BE only, on NUMA node 0"},
		LSE: {"2-15", "LSE: owns 2 CPUs of its own, alone, on NUMA node 0"},
	} {
		m := small(t, Config{})
		p := lsr("a", 2000, nil)
		p.Labels[LabelClass] = string(class)
		told(t, m, PodRun{Pod: p})
		if s := m.Snapshot(); s.BE.String() != c.be || !strings.HasPrefix(m.pods["a"].why, c.why) {
			t.Errorf("%s: best effort has %s; %q", class, s.BE, m.pods["a"].why)
		}
	}
}

// A pin onto a sibling that is kept idle collides as one onto an owner's CPU does, and
// what the pod gets instead is neither reserved nor the system's, though kubelet thought
// it its own.
func TestPinsOntoIdleAndReservedCPUs(t *testing.T) {
	for _, c := range []struct {
		name                               string
		milli                              int64 // of the owner
		smt, wants, reserved, system, want string
	}{
		{"an idle sibling", 1000, "isolate", "1,3", "", "", "2-3"},
		{"an owner's, the rest reserved", 2000, "none", "1-2", "2", "", "4-5"},
		{"an owner's, the rest the system's", 2000, "none", "1-2", "", "2", "4-5"},
	} {
		m := small(t, Config{Reserved: cpus(t, c.reserved), System: System{CPUs: cpus(t, c.system)}})
		told(t, m, PodRun{Pod: lsr("owner", c.milli, map[string]string{AnnSMT: c.smt})})
		told(t, m, booked(t, map[string]string{"a": c.wants}))
		told(t, m, PodRun{Pod: pinned("a", 2000)})
		if why := m.pods["a"].holders["main"].why; !strings.Contains(why, "of its own, alone") {
			t.Errorf("%s: best effort is kept off its CPUs, and it says %q", c.name, why)
		}
		if got := owns(m, "a"); got != c.want || m.pods["a"].kubelet {
			t.Errorf("%s: the pod owns %s, pinned by kubelet %t; want %s", c.name, got, m.pods["a"].kubelet, c.want)
		}
	}
}

// A pod that was bound to a NUMA node and is pinned then is bound no more: nobody
// counts it there.
func TestABoundPodThatIsPinned(t *testing.T) {
	m := small(t, Config{})
	p := pinned("a", 2000)
	p.Annotations = numa("SingleNUMANode", "")
	if got := placed(t, m, p); got != "node 0" {
		t.Fatalf("it is on %s", got)
	}
	told(t, m, booked(t, map[string]string{"a": "8-9"}))
	if got := placed(t, m, ls("b", 8000, numa("SingleNUMANode", ""))); got != "node 0" || len(m.bound) != 1 {
		t.Errorf("the next is on %s; %d are bound", got, len(m.bound))
	}
}

// No other pod may run on CPUs that are reserved while a pod owns them.
func TestReservedWhileOwned(t *testing.T) {
	m := small(t, Config{})
	told(t, m, PodRun{Pod: lsr("a", 2000, nil)})
	told(t, m, Reconfigured{Config: Config{Reserved: cpus(t, "0-2"), System: System{CPUs: cpus(t, "1,3")}}})
	if s := m.Snapshot(); s.Reserved.String() != "2" || s.System.String() != "3" || owns(m, "a") != "0-1" {
		t.Errorf("reserved are %s, SYSTEM's %s, owned %s; want 2, 3 and 0-1", s.Reserved, s.System, owns(m, "a"))
	}
}

// What a namespace owns is counted once when one of its pods grows.
func TestAResizeUpToWhatANamespaceMayOwn(t *testing.T) {
	m := small(t, Config{Authority: Authority{MaxCPUs: map[string]int{"default": 6}}})
	told(t, m, PodRun{Pod: lsr("a", 2000, nil)})
	told(t, m, PodRun{Pod: lsr("b", 2000, nil)})
	for _, c := range []struct {
		milli int64
		code  Code
		want  string
	}{{5000, Unauthorized, "0-1"}, {4000, "", "0-1,4-5"}} {
		if got := code(t, m, PodResized{Sandbox: "a", Resources: Resources{c.milli, c.milli}}); got != c.code ||
			owns(m, "a") != c.want {
			t.Errorf("%dm: refused with %q, the pod owns %s; want %q, %s", c.milli, got, owns(m, "a"), c.code, c.want)
		}
	}
}

// A request and a limit that both come as the weight of a cgroup are what they were.
func TestAResizeByWeightAlone(t *testing.T) {
	m := small(t, Config{})
	told(t, m, PodRun{Pod: lsr("a", 2000, nil)})
	told(t, m, PodResized{Sandbox: "a", Resources: Resources{3980, 3980}})
	if got := owns(m, "a"); got != "0-3" {
		t.Errorf("the pod owns %s, want 0-3", got)
	}
}

// Of two sandboxes of a pod the one that goes takes its own containers along, and a
// sandbox that names no cgroup takes none away.
func TestOneSandboxOfTwoGoes(t *testing.T) {
	m := small(t, Config{})
	p := lsr("a", 2000, nil)
	p.CgroupParent = "/kubepods/a"
	told(t, m, PodRun{Pod: p})
	told(t, m, mainOf(p))
	p.Sandbox, p.CgroupParent = "again", ""
	told(t, m, PodRun{Pod: p})
	told(t, m, containerOf(p, "second", *p.Resources))
	if got := m.pods["a"].ref.CgroupParent; got != "/kubepods/a" {
		t.Errorf("its cgroup is %q", got)
	}
	told(t, m, PodRemoved{Sandbox: "a"})
	if s := m.Snapshot(); len(s.Containers) != 1 || s.Containers[0].Name != "second" || owns(m, "a") != "0-1" {
		t.Errorf("%s are left", describe(s))
	}
}

// The CPUs that best effort keeps, whatever limits it, are the reserved ones first.
func TestBestEffortsFloorIsReserved(t *testing.T) {
	m := small(t, Config{BEFloor: 4, Reserved: cpus(t, "14-15"), Authority: Authority{TrustStatus: true}})
	told(t, m, BESuppressed{CPUs: cpus(t, "8-11")})
	p := lsr("a", 4000, status(`{"cpuset":"8-11"}`))
	p.Labels[LabelClass] = string(LSE)
	told(t, m, PodRun{Pod: p})
	if got := m.Snapshot().BE.String(); got != "0-1,14-15" {
		t.Errorf("best effort has %s, want 0-1,14-15", got)
	}
}

// sameCap compares caps but for what they are followed by.
func sameCap(a, b Cap) bool {
	a.Limit, b.Limit = nil, nil
	return a == b
}
