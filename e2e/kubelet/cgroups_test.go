package kubelet

import (
	"fmt"
	"slices"
	"testing"

	"github.com/quietcore/quietcore/e2e/wire"
)

func TestCgroupPaths(t *testing.T) {
	for class, want := range map[string][2]string{
		Guaranteed: {"/kubepods/pod1-2", "/kubepods.slice/kubepods-pod1_2.slice"},
		Burstable: {"/kubepods/burstable/pod1-2",
			"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice"},
		BestEffort: {"/kubepods/besteffort/pod1-2",
			"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1_2.slice"},
	} {
		p := &Pod{UID: "1-2", QoS: class}
		if got := Cgroupfs.Path(p.CgroupName()); got != want[0] {
			t.Errorf("%s: %s, want %s", class, got, want[0])
		}
		if got := Systemd.Path(p.CgroupName()); got != want[1] {
			t.Errorf("%s: %s, want %s", class, got, want[1])
		}
		if got := Cgroupfs.ContainerPath(p, "abc"); got != want[0]+"/abc" {
			t.Errorf("%s: container %s", class, got)
		}
		if got := Systemd.ContainerPath(p, "abc"); got != want[1]+"/cri-containerd-abc.scope" {
			t.Errorf("%s: container %s", class, got)
		}
	}
}

func TestParentUnits(t *testing.T) {
	for want, name := range map[string]CgroupName{
		"-.slice":                  Root(),
		"kubepods.slice":           ClassCgroup(BestEffort),
		"kubepods-burstable.slice": (&Pod{UID: "a-b", QoS: Burstable}).CgroupName(),
	} {
		if got := name.ParentUnit(); got != want {
			t.Errorf("%v: %s, want %s", name, got, want)
		}
	}
}

func show(list []wire.Property) []string {
	var out []string
	for _, p := range list {
		switch {
		case p.Uint != nil:
			out = append(out, fmt.Sprint(p.Name, "=", *p.Uint))
		case p.Bool != nil:
			out = append(out, fmt.Sprint(p.Name, "=", *p.Bool))
		case p.Bytes != nil:
			out = append(out, fmt.Sprintf("%s=%x", p.Name, p.Bytes))
		default:
			out = append(out, fmt.Sprint(p.Name, "=", p.Text, p.Strings))
		}
	}
	return out
}

func TestCPUConfiguration(t *testing.T) {
	const infinity = "CPUQuotaPerSecUSec=18446744073709551615"
	for _, tc := range []struct {
		cpu        CPU
		properties []string
		files      []File
	}{
		{CPU{}, nil, nil},
		{CPU{Shares: 2}, []string{"CPUWeight=1"}, []File{{"cpu.weight", "1"}}},
		{CPU{Shares: 2048, Quota: 200000, Period: 100000},
			[]string{"CPUWeight=79", "CPUQuotaPeriodUSec=100000", "CPUQuotaPerSecUSec=2000000"},
			[]File{{"cpu.weight", "79"}, {"cpu.max", "200000 100000"}}},
		{CPU{Shares: 102, Quota: 12345, Period: 100000},
			[]string{"CPUWeight=4", "CPUQuotaPeriodUSec=100000", "CPUQuotaPerSecUSec=130000"},
			[]File{{"cpu.weight", "4"}, {"cpu.max", "12345 100000"}}},
		{CPU{Quota: -1, Period: 100000}, []string{"CPUQuotaPeriodUSec=100000", infinity},
			[]File{{"cpu.max", "max 100000"}}},
		{CPU{Period: 100000}, []string{"CPUQuotaPeriodUSec=100000", infinity}, []File{{"cpu.max", "max 100000"}}},
		{CPU{CPUs: 12}, []string{"AllowedCPUs=ff0f"}, []File{{"cpuset.cpus", "0-11"}}},
		{CPU{CPUs: 1}, []string{"AllowedCPUs=01"}, []File{{"cpuset.cpus", "0"}}},
	} {
		if got := show(tc.cpu.Properties()); !slices.Equal(got, tc.properties) {
			t.Errorf("%+v: properties %q, want %q", tc.cpu, got, tc.properties)
		}
		if got := tc.cpu.Files(); !slices.Equal(got, tc.files) {
			t.Errorf("%+v: files %q, want %q", tc.cpu, got, tc.files)
		}
	}
}

func TestRoundedForSystemd(t *testing.T) {
	for _, tc := range []struct{ in, want CPU }{
		{CPU{Quota: 200000, Period: 100000}, CPU{Quota: 200000, Period: 100000}},
		{CPU{Quota: 123700, Period: 100000}, CPU{Quota: 124000, Period: 100000}},
		{CPU{Quota: 1000, Period: 10000}, CPU{Quota: 1000, Period: 10000}},
		{CPU{Quota: 1001, Period: 10000}, CPU{Quota: 1100, Period: 10000}},
		{CPU{Quota: -1, Period: 100000}, CPU{Quota: -1, Period: 100000}},
		{CPU{Shares: 2}, CPU{Shares: 2}},
	} {
		if got := tc.in.Rounded(); got != tc.want {
			t.Errorf("%+v: %+v, want %+v", tc.in, got, tc.want)
		}
	}
}

func TestSliceProperties(t *testing.T) {
	got := show(SliceProperties(ClassCgroup(Burstable)))
	for _, want := range []string{"Wants=[kubepods.slice]", "DefaultDependencies=false", "CPUAccounting=true",
		"MemoryAccounting=true"} {
		if !slices.Contains(got, want) {
			t.Errorf("no %s among %q", want, got)
		}
	}
}
