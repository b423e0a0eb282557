package policy

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// countedPod is a pod of a class that requests milli besides a claim of two CPUs, which Kubernetes counts with them.
func countedPod(uid string, qos QoS, milli int64, facts bool) Pod {
	limit := int64(NoLimit)
	if qos == Guaranteed {
		limit = milli
	}
	own := Resources{RequestMilli: milli, LimitMilli: limit}
	sums := Counted{"": 2000}.with(own)
	p := Pod{UID: uid, Sandbox: "s-" + uid, Namespace: "default", Name: uid, QoS: qos, Resources: &sums}
	if facts {
		p.Facts = &PodFacts{UID: uid, Resources: own, Counted: Counted{"": 2000, "main": 2000}}
	}
	return p
}

// sums are what a machine takes for requested of the shared pool, and for a pod's own.
func sums(m *Machine, uid string) (shared int64, own Resources) {
	return m.requestedFrom(m.pods[uid]), *m.pods[uid].resources
}

// A claim's CPUs are the claim's alone, however Kubernetes' sums have them.
func TestClaimsAreCountedOnce(t *testing.T) {
	late := PodFacts{UID: "ml", Resources: Resources{RequestMilli: 3000, LimitMilli: NoLimit},
		Counted: Counted{"": 2000, "main": 2000}}
	for _, c := range []struct {
		name   string
		cfg    Config
		pod    func() Pod
		later  *PodFacts
		shared int64
	}{
		{"the API server says so", Config{}, func() Pod { return countedPod("ml", Burstable, 3000, true) }, nil, 3000},
		{"it says so later", Config{}, func() Pod { return countedPod("ml", Burstable, 3000, false) }, &late, 3000},
		{"nobody says so, and slices map CPUs", Config{ClaimsCounted: true},
			func() Pod { return countedPod("ml", Burstable, 3000, false) }, nil, 3000},
		{"nobody says so", Config{}, func() Pod { return countedPod("ml", Burstable, 3000, false) }, nil, 5000},
		{"it was guessed, and is so", Config{ClaimsCounted: true},
			func() Pod { return countedPod("ml", Burstable, 3000, false) }, &late, 3000},
		{"it was guessed, and is not so", Config{ClaimsCounted: true},
			func() Pod { return countedPod("ml", Burstable, 3000, false) },
			&PodFacts{UID: "ml", Resources: Resources{RequestMilli: 5000, LimitMilli: NoLimit}}, 5000},
		{"a claim alone", Config{}, func() Pod { return countedPod("ml", BestEffort, 0, false) }, nil, 0},
		{"scheduled before slices map CPUs", Config{ClaimsCounted: true}, func() Pod {
			p := countedPod("ml", Burstable, 0, false)
			p.Resources.RequestMilli = 1500
			return p
		}, nil, 1500},
		{"this kubelet counts none", Config{}, func() Pod {
			p := countedPod("ml", Burstable, 3000, true)
			p.Resources.RequestMilli = 3000
			return p
		}, &late, 3000},
		{"this kubelet counts none, told later", Config{}, func() Pod {
			p := countedPod("ml", Burstable, 3000, false)
			p.Resources.RequestMilli = 3000
			return p
		}, &late, 3000},
		{"Guaranteed", Config{}, func() Pod { return countedPod("ml", Guaranteed, 3000, true) }, nil, 3000},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := machineOf(t, 2, 4, c.cfg)
			step := stepper(t, m)
			step(prepared("x", "0-7", 2, "ml"))
			step(PodRun{Pod: c.pod()})
			if c.later != nil {
				step(*c.later)
				step(*c.later)
			}
			shared, own := sums(m, "ml")
			if shared != c.shared || own.RequestMilli != c.shared {
				t.Fatalf("%dm are requested of the shared pool, %+v by the pod, want %dm", shared, own, c.shared)
			}
			p, told := m.pods["ml"], c.pod().Resources.RequestMilli
			if whole := p.whole().RequestMilli; whole != told {
				t.Fatalf("kubelet gives it the weight of %dm, and it counts with %dm", told, whole)
			}
			// A restart of the daemon changes nothing.
			again := machineOf(t, 2, 4, c.cfg)
			step = stepper(t, again)
			step(prepared("x", "0-7", 2, "ml"))
			step(PodRun{Pod: p.input("s-ml")})
			if shared, _ := sums(again, "ml"); shared != c.shared {
				t.Errorf("after a restart %dm are requested of the shared pool, want %dm", shared, c.shared)
			}
		})
	}
}

// The refusal of an owner that leaves too little names what pods request of the shared pool, without claims.
func TestOwnersBesideCountedClaims(t *testing.T) {
	m := machineOf(t, 2, 4, Config{}) // 16 CPUs
	step := stepper(t, m)
	step(prepared("x", "0-7", 2, "ml"))
	step(PodRun{Pod: countedPod("ml", Burstable, 3000, true)})
	owner := func(cpus int64) error {
		r := Resources{RequestMilli: cpus * 1000, LimitMilli: cpus * 1000}
		_, err := m.Step(time.Unix(1, 0), PodRun{Pod: Pod{UID: "lsr", Sandbox: "s-lsr", Namespace: "default",
			Name: "lsr", QoS: Guaranteed, Labels: map[string]string{LabelClass: "LSR"}, Resources: &r}})
		return err
	}
	if err := owner(12); err == nil || !strings.Contains(err.Error(), "2 of its 14 CPUs; its pods request 3000m") {
		t.Errorf("12 CPUs: %v", err)
	}
	if err := owner(11); err != nil {
		t.Errorf("11 CPUs, which leave 3: %v", err)
	}
}

// A pod that owns CPUs by annotation owns what it requests, and not its claim's once more.
func TestAnOwnerWithACountedClaim(t *testing.T) {
	for _, facts := range []bool{true, false} {
		m := machineOf(t, 2, 4, Config{ClaimsCounted: true})
		step := stepper(t, m)
		step(prepared("x", "0-7", 2, "lsr"))
		pod := countedPod("lsr", Guaranteed, 4000, facts)
		pod.Labels = map[string]string{LabelClass: "LSR"}
		step(PodRun{Pod: pod})
		// kubelet adds the claim to the container's limit, and not to its request
		step(ContainerCreate{Pod: pod, Container: Container{ID: "c", Sandbox: pod.Sandbox, Name: "main",
			Resources: Resources{RequestMilli: 4000, LimitMilli: 6000}}})
		if got := m.Snapshot().CPUs(viewOf(t, m, "lsr")); got.Count() != 4 {
			t.Errorf("facts %t: it has CPUs %s, want 4", facts, got)
		}
		// a resize that kubelet announces with the claim
		step(PodResized{Sandbox: pod.Sandbox, Shares: 7 * 1024, Quota: 700000, Period: 100000})
		if got := m.pods["lsr"].resources.RequestMilli; got != 5000 {
			t.Errorf("facts %t: resized to 7 CPUs with the claim it requests %dm", facts, got)
		}
	}
}

// Where a pod's sums hide limits each container's is looked at, without its claim.
func TestHiddenLimitsWithACountedClaim(t *testing.T) {
	m := machineOf(t, 2, 4, Config{ClaimsCounted: true})
	step := stepper(t, m)
	step(prepared("x", "0-7", 2, "lsr"))
	pod := countedPod("lsr", Guaranteed, 4000, false)
	pod.Labels, pod.LimitHidden, pod.Resources.LimitMilli = map[string]string{LabelClass: "LSR"}, true, NoLimit
	step(PodRun{Pod: pod})
	create := ContainerCreate{Pod: pod, Container: Container{ID: "c", Sandbox: pod.Sandbox, Name: "main",
		Resources: Resources{RequestMilli: 4000, LimitMilli: 6000}}}
	step(create)
	create.Container.ID, create.Container.Resources.LimitMilli = "d", 7000
	if _, err := m.Step(time.Unix(1, 0), create); err == nil || !strings.Contains(err.Error(), "equal to the limit") {
		t.Errorf("a limit above request and claim: %v", err)
	}
}

// A container that owns CPUs by name has a limit with its claim.
func TestANamedOwnerWithACountedClaim(t *testing.T) {
	for _, known := range []bool{true, false} {
		m := machineOf(t, 2, 4, Config{ClaimsCounted: true})
		step := stepper(t, m)
		step(prepared("x", "0-7", 2, "lsr"))
		pod := countedPod("lsr", Guaranteed, 4000, known)
		pod.Labels = map[string]string{LabelClass: "LSR"}
		pod.Annotations = map[string]string{AnnContainers: "main"}
		step(PodRun{Pod: pod})
		step(ContainerCreate{Pod: pod, Container: Container{ID: "c", Sandbox: pod.Sandbox, Name: "main",
			Resources: Resources{RequestMilli: 4000, LimitMilli: 6000}}})
		if got := m.Snapshot().CPUs(viewOf(t, m, "lsr")); got.Count() != 4 {
			t.Errorf("facts %t: it has CPUs %s, want 4", known, got)
		}
	}
}

// Of a claim that Kubernetes counts and that has no CPUs of its own here, containers need the shared pool's.
func TestCountedClaimsWithoutCPUs(t *testing.T) {
	m := machineOf(t, 2, 4, Config{})
	step := stepper(t, m)
	step(PodRun{Pod: countedPod("ml", Burstable, 3000, true)})
	if shared, own := sums(m, "ml"); shared != 5000 || own.RequestMilli != 3000 {
		t.Fatalf("%dm are requested of the shared pool, %+v by the pod, want 5000m and 3000m", shared, own)
	}
	step(prepared("x", "0-7", 2, "ml"))
	if shared, _ := sums(m, "ml"); shared != 3000 {
		t.Errorf("once the claim has CPUs %dm are requested of the shared pool, want 3000m", shared)
	}
	step(ClaimUnprepared{UID: "x"})
	step(claimsOf(t, map[string]string{"y": "4"}))
	create := ContainerCreate{Pod: countedPod("ml", Burstable, 3000, true), Container: Container{ID: "c",
		Sandbox: "s-ml", Name: "main", Resources: Resources{LimitMilli: NoLimit}}}
	create.Container.Claims = slices.Collect(func(yield func(string) bool) {
		for device := range m.foreign {
			yield(device)
		}
	})
	step(create)
	if shared, _ := sums(m, "ml"); shared != 4000 {
		t.Errorf("with one CPU of another driver %dm are requested of the shared pool, want 4000m", shared)
	}
}

// Weight and quota that Kubernetes gives a best-effort pod outside of its slice have the claim.
func TestWeightOfACountedClaim(t *testing.T) {
	m := machineOf(t, 2, 4, Config{})
	step := stepper(t, m)
	step(prepared("x", "0-7", 2, "ml"))
	pod := countedPod("ml", Burstable, 3000, true)
	pod.Labels, pod.CgroupParent = map[string]string{LabelClass: "BE"}, "kubepods/burstable/podml"
	pod.Facts.Resources.LimitMilli = 4000
	step(PodRun{Pod: pod})
	p := m.pods["ml"]
	weight, _ := m.weighs(p)
	if quota, _ := m.podQuota(p); weight != 5000 || quota.Milli() != 6000 {
		t.Errorf("it weighs as %dm and is limited to %dm, want 5000m and 6000m", weight, quota.Milli())
	}
}
