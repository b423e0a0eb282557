package machine

import (
	"strings"
	"testing"

	"github.com/quietcore/quietcore/e2e/kubelet"
)

// Whether a configuration works only the runtime can say; that it is the driver's,
// and that it turns NRI on with time enough, is easily lost in a template.
func TestRuntimesAreConfigured(t *testing.T) {
	files := map[Runtime]string{
		Containerd: "etc/containerd/config.toml", Containerd17: "etc/containerd/config.toml",
		CRIO: "etc/crio/crio.conf",
	}
	want := map[Runtime]map[kubelet.Driver]string{
		Containerd:   {kubelet.Cgroupfs: "SystemdCgroup = false", kubelet.Systemd: "SystemdCgroup = true"},
		Containerd17: {kubelet.Cgroupfs: "SystemdCgroup = false", kubelet.Systemd: "SystemdCgroup = true"},
		CRIO:         {kubelet.Cgroupfs: `cgroup_manager = "cgroupfs"`, kubelet.Systemd: `cgroup_manager = "systemd"`},
	}
	for _, r := range Runtimes() {
		for _, d := range kubelet.Drivers() {
			config := guestEtc(Kind{d, r, Bookworm})[files[r]]
			for _, line := range []string{want[r][d], Image, "plugin_request_timeout"} {
				if !strings.Contains(config, line) {
					t.Errorf("%s, %s: no %s in\n%s", r, d, line, config)
				}
			}
		}
	}
	if got := guestEtc(Kind{kubelet.Systemd, CRIO, Bookworm})["etc/containerd/config.toml"]; got != "" {
		t.Errorf("a guest with CRI-O has a configuration of containerd:\n%s", got)
	}
}

func TestContainersAreWhereTheRuntimePutsThem(t *testing.T) {
	pod := &kubelet.Pod{UID: "1", QoS: kubelet.Burstable}
	const folder = "/kubepods/burstable/pod1/"
	const slice = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice/"
	for kind, want := range map[Kind]string{
		{kubelet.Cgroupfs, Containerd, ""}: folder + "abc", {kubelet.Systemd, Containerd, ""}: slice +
			"cri-containerd-abc.scope",
		{kubelet.Cgroupfs, Containerd17, ""}: folder + "abc", {kubelet.Systemd, Containerd17, ""}: slice +
			"cri-containerd-abc.scope",
		{kubelet.Cgroupfs, CRIO, ""}: folder + "crio-abc", {kubelet.Systemd, CRIO, ""}: slice + "crio-abc.scope",
	} {
		m := &Machine{Driver: kind.Driver, Runtime: kind.Runtime}
		if got := m.ContainerPath(pod, "abc"); got != want {
			t.Errorf("%+v: %s, want %s", kind, got, want)
		}
		if kind.Runtime != CRIO && m.ContainerPath(pod, "abc") != kind.Driver.ContainerPath(pod, "abc") {
			t.Errorf("%+v: Driver.ContainerPath disagrees", kind)
		}
	}
}
