package policy

import (
	"encoding/json"
	"testing"
	"time"
)

// What an update changes is merged into what kubelet asked for before.
func TestWhatAnUpdateChanges(t *testing.T) {
	exact := Quota{Micros: 100_000, Period: 50_000}
	for _, c := range []struct {
		name   string
		update ContainerUpdate
		want   Resources
		quota  Quota
		shares int64
		cpus   bool
	}{
		{"only a cpuset", ContainerUpdate{CPUs: "0-3"}, Resources{1000, 2000}, exact, 1024, true},
		{"only shares", ContainerUpdate{Shares: 512}, Resources{500, 2000}, exact, 512, false},
		{"clipped shares", ContainerUpdate{Shares: 1 << 40}, Resources{256000, 2000}, exact, MaxShares, false},
		{"only a quota", ContainerUpdate{Quota: 150_000}, Resources{1000, 3000}, Quota{150_000, 50_000}, 1024, false},
		{"a quota and a period", ContainerUpdate{Quota: 300_000, Period: 100_000}, Resources{1000, 3000},
			Quota{300_000, 100_000}, 1024, false},
		{"only a period", ContainerUpdate{Period: 100_000}, Resources{1000, 1000}, Quota{100_000, 100_000}, 1024,
			false},
		{"a period that the kernel refuses", ContainerUpdate{Period: 2_000_000}, Resources{1000, 2000}, exact, 1024,
			false},
		{"no quota any more", ContainerUpdate{Quota: -1}, Resources{1000, NoLimit}, Quota{-1, 50_000}, 1024, false},
		{"nothing", ContainerUpdate{}, Resources{1000, 2000}, exact, 1024, false},
		{"resources as they were", ContainerUpdate{Resources: &Resources{1000, 2000}}, Resources{1000, 2000}, exact,
			1024, false},
		{"other resources", ContainerUpdate{Resources: &Resources{1000, 1500}, Shares: 1024}, Resources{1000, 1500},
			Quota{75_000, 50_000}, 1024, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := small(t, Config{})
			pod := ls("a", 1000, nil)
			pod.QoS = Burstable
			in := containerOf(pod, "main", Resources{1000, 2000})
			in.Container.Asked, in.Container.Shares = Asked{Quota: exact}, 1024
			told(t, m, in)
			c.update.ID = "a-main"
			told(t, m, c.update)
			got := m.containers["a-main"]
			if got.resources != c.want || got.shares != c.shares || got.asked != (Asked{Quota: c.quota, CPUs: c.cpus}) {
				t.Errorf("%+v, shares %d, asked %+v; want %+v, %d, %+v", got.resources, got.shares, got.asked, c.want,
					c.shares, c.quota)
			}
		})
	}
}

// A container that owns CPUs has the limit that equals its request where none is
// written; others are not.
func TestAMissingLimitIsInferredOfOwnersOnly(t *testing.T) {
	for _, c := range []struct {
		class string
		want  int64
	}{{"LSR", 4000}, {"LS", NoLimit}} {
		m := small(t, Config{})
		pod := lsr("a", 2000, nil)
		pod.Labels[LabelClass] = c.class
		told(t, m, containerOf(pod, "main", Resources{2000, 2000}))
		told(t, m, ContainerUpdate{ID: "a-main", Shares: 4096, Quota: -1})
		if got := m.containers["a-main"].resources; got != (Resources{4000, c.want}) {
			t.Errorf("%s: %+v", c.class, got)
		}
	}
}

// Kubelet announces one half of a pod's resize after the other, and with each what it
// reads of the other: our own lifted quota is not what it asked for.
func TestOurLiftedQuotaReadBackIsNotKubelets(t *testing.T) {
	m := small(t, Config{})
	pod := lsr("a", 2000, nil)
	pod.Asked = Quota{Micros: 100_000, Period: 50_000}
	told(t, m, PodRun{Pod: pod})
	asked := func(want Quota) {
		t.Helper()
		if got := m.pods["a"].asked; got != want {
			t.Errorf("kubelet asked for %+v, want %+v", got, want)
		}
	}
	told(t, m, PodResized{Sandbox: "a", Shares: 4096, Quota: -1, Period: 100_000})
	asked(pod.Asked)
	if got := m.pods["a"].grant.cpus.Count(); got != 4 {
		t.Errorf("the pod owns %d CPUs, want 4", got)
	}
	if code(t, m, PodResized{Sandbox: "a", Shares: 1 << 16, Quota: 6_400_000, Period: 100_000}) == "" {
		t.Fatal("an impossible resize is taken")
	}
	asked(pod.Asked)
	told(t, m, PodResized{Sandbox: "a", Shares: 4096, Quota: 400_000, Period: 100_000})
	asked(QuotaOf(4000))
	told(t, m, PodResized{Sandbox: "a", Quota: 800_000}) // a half decides nothing, and is noted
	asked(QuotaOf(8000))
	told(t, m, PodResized{Sandbox: "never heard of", Quota: 800_000})
}

// What the runtime stores of ours is noted by the policy as it decides a reply, and of
// nothing that is no reply.
func TestAReplyOfOursIsNoted(t *testing.T) {
	m := small(t, Config{})
	pod := ls("batch", 1000, nil)
	pod.QoS, pod.Labels = Burstable, map[string]string{LabelClass: "BE"}
	stored := func(want bool) {
		t.Helper()
		if got := m.containers["batch-main"].asked.OurQuota; got != want {
			t.Errorf("the runtime has a quota of ours: %t, want %t", got, want)
		}
	}
	told(t, m, containerOf(pod, "main", Resources{1000, 2000}))
	stored(false)
	d := decided(t, m, CapVerdict{ID: "batch-main", Milli: 100, For: time.Minute}).containers["batch-main"]
	stored(false)
	if d.Quota != QuotaOf(100) || !d.QuotaOurs || d.Asked != (Asked{Quota: QuotaOf(2000)}) {
		t.Errorf("the cap is decided as %+v", d)
	}
	told(t, m, ContainerUpdate{ID: "batch-main", CPUs: "0-1"})
	stored(true)
	// The runtime's store has the cap now, and its list says that kubelet asked for it.
	listed := m.Checkpoint()
	listed.Containers[0].Asked = Asked{Quota: QuotaOf(100), CPUs: true}
	listed.Containers[0].Resources.LimitMilli = 100
	told(t, m, listed)
	stored(true)
	d = decided(t, m, CapReleased{ID: "batch-main"}).containers["batch-main"]
	if d.Quota != QuotaOf(2000) || d.QuotaOurs || d.Asked != (Asked{Quota: QuotaOf(2000), CPUs: true, OurQuota: true}) {
		t.Errorf("after the cap %+v is decided", d)
	}
}

// What was read after the answer counts unless kubelet has changed it since.
func TestALimitReadLater(t *testing.T) {
	for _, changed := range []bool{false, true} {
		m := small(t, Config{})
		pod := ls("batch", 1000, nil)
		pod.QoS, pod.Labels = Burstable, map[string]string{LabelClass: "BE"}
		told(t, m, containerOf(pod, "main", Resources{1000, 100}))
		want := Asked{Quota: QuotaOf(2000), OurQuota: true}
		if changed {
			told(t, m, ContainerUpdate{ID: "batch-main", Quota: 300_000})
			want = Asked{Quota: QuotaOf(3000)}
		}
		told(t, m, Corrected{Containers: []ContainerCorrection{{ID: "batch-main", Was: QuotaOf(100), LimitMilli: 2000,
			Asked: Asked{Quota: QuotaOf(2000), OurQuota: true}}, {ID: "gone"}}})
		if c := m.containers["batch-main"]; c.asked != want || c.resources.LimitMilli != want.Quota.Milli() {
			t.Errorf("changed %t: %+v, %+v; want %+v", changed, c.asked, c.resources, want)
		}
	}
}

// A limit that was read later and is none of those that the runtime was sent is kubelet's
// again as soon as the runtime stores another.
func TestALimitReadLaterIsNotOursForEver(t *testing.T) {
	m := small(t, Config{})
	pod := ls("batch", 1000, nil)
	pod.QoS, pod.Labels = Burstable, map[string]string{LabelClass: "BE"}
	told(t, m, containerOf(pod, "main", Resources{1000, 2000}))
	told(t, m, Corrected{Containers: []ContainerCorrection{{ID: "batch-main", Was: QuotaOf(2000), LimitMilli: 2000,
		Asked: Asked{Quota: QuotaOf(2000), OurQuota: true}, StoredLimits: []int64{}}}})
	listed := m.Checkpoint()
	listed.Containers[0].Resources.LimitMilli = 1500
	listed.Containers[0].Asked = Asked{Quota: QuotaOf(1500)}
	told(t, m, listed)
	if c := m.containers["batch-main"]; c.resources.LimitMilli != 1500 {
		t.Errorf("the limit is %d, kubelet asks for 1500", c.resources.LimitMilli)
	}
}

// Records of before say nothing of what kubelet asked for exactly.
func TestAnOldRecordPlaysAsBefore(t *testing.T) {
	m := small(t, Config{})
	var r Record
	if err := json.Unmarshal([]byte(`{"synchronized": {
		"pods": [{"uid": "a", "sandbox": "a", "namespace": "default", "name": "a", "qos": "Burstable",
			"resources": {"requestMilli": 1000, "limitMilli": 2000}}],
		"containers": [{"id": "c", "sandbox": "a", "name": "main", "shares": 1024, "cpus": "0-1",
			"resources": {"requestMilli": 1000, "limitMilli": 2000}}]}}`), &r); err != nil {
		t.Fatal(err)
	}
	told(t, m, r.Event())
	if got := m.containers["c"].asked; got != (Asked{Quota: QuotaOf(2000), CPUs: true}) {
		t.Errorf("the container's is %+v", got)
	}
	if got := m.pods["a"].asked; got != QuotaOf(2000) {
		t.Errorf("the pod's is %+v", got)
	}
}
