package plugin

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/script"
	"github.com/quietcore/quietcore/policy"
)

func TestQoSIsWhereKubeletPutThePod(t *testing.T) {
	for parent, want := range map[string]policy.QoS{
		"/kubepods/burstable/podX":                         policy.Burstable,
		"/kubepods/besteffort/podX":                        policy.BestEffort,
		"/kubepods/podX":                                   policy.Guaranteed,
		"kubepods-burstable-podX.slice":                    policy.Burstable,
		"kubepods-besteffort-podX.slice":                   policy.BestEffort,
		"kubepods-podX.slice":                              policy.Guaranteed,
		"/k3s/kubepods/burstable/podX":                     policy.Burstable,
		"/kubelet.slice/kubelet-kubepods.slice/podX":       policy.Guaranteed,
		"kubelet-kubepods-burstable-podX.slice":            policy.Burstable,
		"/kubelet/kubepods/besteffort/podX":                policy.BestEffort,
		"/kubepods.slice/kubepods-burstable.slice/podabcd": policy.Burstable,
	} {
		pod := podOf(&api.PodSandbox{Id: "s", Uid: "u", Linux: &api.LinuxPodSandbox{CgroupParent: parent}}, "")
		if pod.QoS != want {
			t.Errorf("parent %s: class %s, want %s", parent, pod.QoS, want)
		}
	}
	for _, c := range []struct {
		cpu  *api.LinuxCPU
		want policy.QoS
	}{
		{nil, policy.BestEffort},
		{cpuOf(0, 0, ""), policy.BestEffort},
		{cpuOf(1000, 0, ""), policy.Burstable},
		{cpuOf(1000, 2000, ""), policy.Burstable},
		{cpuOf(2000, 2000, ""), policy.Guaranteed},
	} {
		pod := podOf(&api.PodSandbox{Id: "s", Linux: &api.LinuxPodSandbox{
			PodResources: &api.LinuxResources{Cpu: c.cpu}}}, "")
		if pod.QoS != c.want {
			t.Errorf("no cgroup parent, resources %v: class %s, want %s", c.cpu, pod.QoS, c.want)
		}
	}
}

// Every request that kubelet can write comes back as it was.
func TestSharesInvertExactly(t *testing.T) {
	for milli := int64(3); milli <= 256_000; milli++ {
		got := policy.RequestOf(script.Shares(milli))
		if got != milli {
			t.Fatalf("a request of %dm is %d shares and comes back as %dm", milli, script.Shares(milli), got)
		}
	}
	for milli := int64(10); milli <= 256_000; milli += 7 {
		for _, p := range []int64{100_000, 50_000, 10_000} {
			quota := milli * p / 1000
			if quota < 1000 {
				continue
			}
			got := quotaIn(&api.LinuxCPU{Quota: api.Int64(quota), Period: api.UInt64(uint64(p))}).Milli()
			if got != milli && p == 100_000 || got > milli || got < milli-1 {
				t.Fatalf("a limit of %dm with a period of %d comes back as %dm", milli, p, got)
			}
		}
	}
}

func TestSumsOfAPod(t *testing.T) {
	for _, c := range []struct {
		name           string
		parent         string
		cpu            *api.LinuxCPU
		request, limit int64
		hidden         bool
	}{
		{"guaranteed", "/kubepods/podX", cpuOf(4000, 4000, ""), 4000, 4000, false},
		{"burstable without a limit", "/kubepods/burstable/podX", cpuOf(4000, 0, ""), 4000, policy.NoLimit, true},
		{"a lifted quota", "/kubepods/podX", &api.LinuxCPU{Shares: api.UInt64(4096), Quota: api.Int64(-1)}, 4000, 4000,
			false},
		{"cpuCFSQuota off", "/kubepods/podX", &api.LinuxCPU{Shares: api.UInt64(4096)}, 4000, 4000, false},
		{"beyond 256 CPUs", "/kubepods/podX", &api.LinuxCPU{Shares: api.UInt64(262144), Quota: api.Int64(40_000_000),
			Period: api.UInt64(100_000)}, 400_000, 400_000, false},
		{"just 256 CPUs", "/kubepods/podX", cpuOf(256_000, 256_000, ""), 256_000, 256_000, false},
		{"another period", "/kubepods/podX", &api.LinuxCPU{Shares: api.UInt64(2048), Quota: api.Int64(20_000),
			Period: api.UInt64(10_000)}, 2000, 2000, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := podOf(&api.PodSandbox{Id: "s", Linux: &api.LinuxPodSandbox{
				CgroupParent: c.parent, PodResources: &api.LinuxResources{Cpu: c.cpu},
				Resources: &api.LinuxResources{Cpu: &api.LinuxCPU{Shares: api.UInt64(2)}}, // the pause container's
			}}, "")
			if pod.Resources == nil || pod.Resources.RequestMilli != c.request ||
				pod.Resources.LimitMilli != c.limit || pod.LimitHidden != c.hidden {
				t.Errorf("sums %+v hidden %t, want %d/%d hidden %t", pod.Resources, pod.LimitHidden, c.request,
					c.limit, c.hidden)
			}
		})
	}
	if pod := podOf(&api.PodSandbox{Id: "s"}, ""); pod.Resources != nil {
		t.Errorf("sums %+v of a pod whose runtime says none", pod.Resources)
	}
}

func TestCgroupPathsOfContainers(t *testing.T) {
	for in, want := range map[string]string{
		"/kubepods/burstable/podX/abc": "kubepods/burstable/podX/abc",
		"kubepods-burstable-podX.slice:cri-containerd:abc": "kubepods.slice/kubepods-burstable.slice/" +
			"kubepods-burstable-podX.slice/cri-containerd-abc.scope",
		"../../etc":                   "",
		"":                            "",
		"a:b":                         "",
		strings.Repeat("x/", 100_000): "",
	} {
		c := containerOf(&api.Container{Id: "abc", Linux: &api.LinuxContainer{CgroupsPath: in}},
			&policy.Pod{QoS: policy.Burstable}, time.Now())
		if c.CgroupPath != want {
			t.Errorf("%.60q: path %q, want %q", in, c.CgroupPath, want)
		}
	}
}

func TestWhatAnUpdateSays(t *testing.T) {
	for _, c := range []struct {
		cpu  *api.LinuxCPU
		want policy.ContainerUpdate
	}{
		{&api.LinuxCPU{Shares: api.UInt64(0), Quota: api.Int64(0), Period: api.UInt64(0), Cpus: "0-3"},
			policy.ContainerUpdate{ID: "id", CPUs: "0-3"}},
		{&api.LinuxCPU{Shares: api.UInt64(512), Quota: api.Int64(-1)},
			policy.ContainerUpdate{ID: "id", Shares: 512, Quota: -1}},
		{&api.LinuxCPU{Shares: api.UInt64(uint64(1 << 63)), Quota: api.Int64(300_000), Period: api.UInt64(100_000)},
			policy.ContainerUpdate{ID: "id", Shares: policy.MaxShares, Quota: 300_000, Period: 100_000}},
		{nil, policy.ContainerUpdate{ID: "id"}},
	} {
		if got := updateOf("id", &api.LinuxResources{Cpu: c.cpu}); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.cpu, got, c.want)
		}
	}
}

func TestVersions(t *testing.T) {
	for version, want := range map[string]bool{
		"v0.10.0": false, "v0.11.0": true, "v0.12.1-beta": true, "0.9.1-0.20250219030224-e597e7849f24": false,
		"v1.0.0": true, "unknown": true, "": true,
	} {
		if got := atLeast(version, 0, 11); got != want {
			t.Errorf("NRI %s has memory policies: %t, want %t", version, got, want)
		}
	}
}

func TestAnEmptyCpusetIsNeverSent(t *testing.T) {
	if a := (values{}).adjustment(true); a != nil {
		t.Errorf("nothing to say became %v", a)
	}
	q := cgroup.Quota(policy.QuotaOf(policy.NoLimit))
	a := values{quota: &q}.adjustment(true)
	if a.GetLinux().GetResources().GetCpu().GetQuota().GetValue() != -1 || a.Linux.Resources.Cpu.Period != nil {
		t.Errorf("a lifted quota became %v", a)
	}
	if got := policy.QuotaOf(1).Micros; got != 1000 {
		t.Errorf("1m is a quota of %d µs; the kernel takes no less than 1000", got)
	}
}

// A megabyte in every field of a pod costs little time and no memory.
func TestHugeFieldsAreCut(t *testing.T) {
	huge := strings.Repeat("x", 1<<20)
	p := &api.PodSandbox{Id: huge, Uid: huge, Name: huge, Namespace: huge, Labels: map[string]string{},
		Annotations: map[string]string{huge: huge},
		Linux:       &api.LinuxPodSandbox{CgroupParent: "/" + huge}}
	for i := range 1000 {
		p.Labels[fmt.Sprint("label-", i)] = "v"
	}
	p.Annotations[policy.AnnSpec] = huge
	pod := podOf(p, "")
	held := len(pod.UID) + len(pod.Sandbox) + len(pod.Name) + len(pod.Namespace) + len(pod.CgroupParent)
	for k, v := range pod.Annotations {
		held += len(k) + len(v)
	}
	if held > 8<<10 || len(pod.Labels) != 0 {
		t.Errorf("a pod of megabytes is held as %d bytes and %d labels", held, len(pod.Labels))
	}
	c := containerOf(&api.Container{Id: huge, Name: huge, Linux: &api.LinuxContainer{CgroupsPath: huge,
		Resources: &api.LinuxResources{Cpu: &api.LinuxCPU{Cpus: huge}}}}, &policy.Pod{QoS: policy.Burstable},
		time.Now())
	if held := len(c.ID) + len(c.Name) + len(c.CgroupPath) + len(c.CPUs); held > 4<<10 {
		t.Errorf("a container of megabytes is held as %d bytes", held)
	}
}

func FuzzTranslate(f *testing.F) {
	f.Add("/kubepods/burstable/podX", "kubepods-podX.slice:cri-containerd:abc", uint64(4096), int64(400000),
		uint64(100000), "0-3")
	f.Add("kubepods-podX.slice", "", uint64(262144), int64(-1), uint64(0), "")
	f.Add("../..", "::", uint64(1<<63), int64(1<<62), uint64(1), "0-2000000000")
	f.Fuzz(func(t *testing.T, parent, path string, shares uint64, quota int64, period uint64, cpus string) {
		cpu := &api.LinuxCPU{Shares: api.UInt64(shares), Quota: api.Int64(quota), Period: api.UInt64(period),
			Cpus: cpus}
		pod := podOf(&api.PodSandbox{Id: "s", Uid: "u", Labels: map[string]string{policy.LabelClass: cpus},
			Linux: &api.LinuxPodSandbox{CgroupParent: parent, PodResources: &api.LinuxResources{Cpu: cpu}}}, "")
		c := containerOf(&api.Container{Id: "c", Linux: &api.LinuxContainer{CgroupsPath: path,
			Resources: &api.LinuxResources{Cpu: cpu}}}, &pod, time.Time{})
		for _, r := range []policy.Resources{*pod.Resources, c.Resources} {
			if r.RequestMilli < 0 || r.LimitMilli < policy.NoLimit {
				t.Errorf("resources %+v", r)
			}
		}
		for _, p := range []string{pod.CgroupParent, c.CgroupPath} {
			for _, part := range strings.Split(p, "/") {
				if part == ".." || part == "." || strings.HasPrefix(p, "/") {
					t.Errorf("path %q leaves the tree", p)
				}
			}
		}
		if c.Shares < 0 || c.Shares > policy.MaxShares {
			t.Errorf("shares %d", c.Shares)
		}
	})
}

// A cpuset of many ranges is taken over whole: what is left of a list that was cut is
// another set.
func TestALongCPUListIsNotCut(t *testing.T) {
	every := cpuset.Set{}
	for cpu := 0; cpu < 1024; cpu += 2 {
		every.Add(cpu)
	}
	for in, want := range map[string]string{every.String(): every.String(), "0-": "", "": ""} {
		c := containerOf(&api.Container{Id: "c", Linux: &api.LinuxContainer{
			Resources: &api.LinuxResources{Cpu: &api.LinuxCPU{Cpus: in}}}}, &policy.Pod{}, time.Time{})
		if c.CPUs != want {
			t.Errorf("of %d bytes %d are left", len(in), len(c.CPUs))
		}
	}
}

// What has stopped, or is in no pod of the list, is not translated.
func TestTheInventoryIsOfContainersThatRun(t *testing.T) {
	pods := []*api.PodSandbox{{Id: "s", Uid: "u"}}
	listed := inventoryOf(pods, []*api.Container{
		{Id: "runs", PodSandboxId: "s", State: api.ContainerState_CONTAINER_RUNNING},
		{Id: "created", PodSandboxId: "s", State: api.ContainerState_CONTAINER_CREATED},
		{Id: "stopped", PodSandboxId: "s", State: api.ContainerState_CONTAINER_STOPPED},
		{Id: "lost", PodSandboxId: "other", State: api.ContainerState_CONTAINER_RUNNING},
	}, "", time.Time{})
	var ids []string
	for _, c := range listed.Containers {
		ids = append(ids, c.ID)
	}
	if !slices.Equal(ids, []string{"runs", "created"}) || len(listed.Pods) != 1 {
		t.Errorf("%v in %d pods", ids, len(listed.Pods))
	}
}

func TestClaimsOfContainers(t *testing.T) {
	device := func(names ...string) (all []*api.CDIDevice) {
		for _, name := range names {
			all = append(all, &api.CDIDevice{Name: name})
		}
		return all
	}
	pods := []*api.PodSandbox{{Id: "s", Uid: "u"}}
	listed := inventoryOf(pods, []*api.Container{
		{Id: "1", PodSandboxId: "s", Name: "main", State: api.ContainerState_CONTAINER_RUNNING,
			CDIDevices: device("vendor.com/cpu=b", "nvidia.com/gpu=0", "dra.k8s.io/cpu=claim-a", "vendor.com/cpu=b",
				"cpu")},
		{Id: "2", PodSandboxId: "s", Name: "crashed", State: api.ContainerState_CONTAINER_STOPPED,
			CDIDevices: device("dra.k8s.io/cpu=claim-c")},
		{Id: "3", PodSandboxId: "s", Name: "forger", State: api.ContainerState_CONTAINER_RUNNING,
			Env: []string{"DRA_CPUSET_x=0-7"}},
	}, "", time.Unix(1, 0))
	want := map[string][]string{"main": {"dra.k8s.io/cpu=claim-a", "vendor.com/cpu=b"},
		"crashed": {"dra.k8s.io/cpu=claim-c"}}
	if got := listed.Pods[0].Claims; !reflect.DeepEqual(got, want) {
		t.Errorf("the pod's claims are %v, want %v", got, want)
	}
	if len(listed.Containers) != 2 || !slices.Equal(listed.Containers[0].Claims, want["main"]) ||
		listed.Containers[1].Claims != nil {
		t.Errorf("containers are %+v", listed.Containers)
	}
}

// The runtime refuses a container whose cpuset two plugins set.
func TestCpusetsOfClaimsAreLeftToTheirDriver(t *testing.T) {
	own := cpuset.Of(2, 3)
	d := policy.SetContainer{Need: policy.Need{Own: &own}, Asked: policy.Asked{CPUs: true}, Foreign: true}
	if v := valuesOf(&d, nil); v.cpus != "" {
		t.Errorf("the reply has CPUs %s", v.cpus)
	}
}
