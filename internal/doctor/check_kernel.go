package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/quietcore/quietcore/internal/config"
)

func checkCgroup(f *Facts, found *findings) {
	c, cfg := &f.Cgroup, f.Config.Config
	root := cfg.Cgroup.Root
	if c.Version == 0 {
		found.fail("missing", "no cgroups are mounted at "+root+
			": pods are pinned at creation only, and the pools do not give way",
			"mount the host's /sys/fs/cgroup there, or set cgroup.root")
		return
	}
	if c.Version == 1 {
		found.warn("v1",
			"cgroup v1: pinning works container by container; nothing inherits, so a container that starts while "+
				"the daemon is down lands in no pool",
			"boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1); Kubernetes keeps v1 in maintenance only")
	}
	if c.Hybrid {
		found.note("hybrid", "cgroup v1 and v2 are both mounted, and the controllers are on v1",
			"boot with cgroup v2 alone (systemd.unified_cgroup_hierarchy=1)")
	}
	for _, need := range []string{"cpuset", "cpu"} {
		if !slices.Contains(c.Controllers, need) {
			found.fail("controller", fmt.Sprintf("the controller %s is not there at %s: %s", need, root,
				lacking(need)),
				fmt.Sprintf(
					"take cgroup_disable=%s from the kernel's command line; on v2 it must not be used by a v1 "+
						"hierarchy; in a container the host's tree has to be mounted", need))
		}
	}
	if c.ReadOnly && cfg.Mode != config.Observe {
		found.fail("read-only", root+" is mounted read-only: nothing can be placed",
			"mount it writable (in a pod: the hostPath volume without readOnly), or set mode: observe")
	}
	checkDriver(f, found)
	for _, path := range slices.Sorted(maps.Keys(c.Limited)) {
		set := c.Limited[path]
		found.warn("limited", fmt.Sprintf("%s has only CPUs %s of %s: no pod gets others", path, set, c.Online),
			"find what wrote it (AllowedCPUs of the slice, a CPU partition, the machine's container) and take it "+
				"away, or name the other CPUs in reserved with strict: true")
	}
	found.ok(fmt.Sprintf("cgroup v%d at %s, %s", c.Version, root, c.driver()))
}

func lacking(controller string) string {
	if controller == "cpuset" {
		return "no pod can be placed"
	}
	return "quotas are neither lifted nor set"
}

func (c *CgroupFacts) driver() string {
	switch {
	case c.Systemd && c.Plain:
		return "kubepods of both drivers"
	case c.Systemd:
		return "kubepods.slice: driver systemd"
	case c.Plain:
		return "kubepods: driver cgroupfs"
	}
	return "no kubepods yet"
}

func checkDriver(f *Facts, found *findings) {
	c, driver := &f.Cgroup, f.Config.Config.Cgroup.Driver
	switch {
	case !c.Systemd && !c.Plain:
		found.note("kubepods",
			"there is neither kubepods.slice nor kubepods: kubelet has not made them, or they are below another root",
			"start kubelet; with --cgroup-root below another cgroup nothing has to be done")
	case driver == config.DriverCgroups && c.Systemd:
		found.fail("driver",
			"cgroup.driver is cgroupfs and kubelet's tree is systemd's (kubepods.slice): systemd undoes what is "+
				"written to files", "set cgroup.driver: auto, and mount /run/systemd")
	case driver == config.DriverSystemd && c.Plain && !c.Systemd:
		found.fail("driver", "cgroup.driver is systemd and kubelet's tree is not systemd's (kubepods)",
			"set cgroup.driver: auto or cgroupfs")
	case c.Systemd && c.Plain:
		found.warn("driver",
			"there are both kubepods.slice and kubepods: kubelet's driver was changed and pods of the old one are "+
				"left", "drain the node and start it anew")
	}
}

func checkSystemd(f *Facts, found *findings) {
	driver := f.Config.Config.Cgroup.Driver
	if driver == config.DriverCgroups || driver == config.DriverAuto && !f.Cgroup.Systemd {
		found.ok("not needed: the cgroups are not systemd's")
		return
	}
	var there, answers []string
	for _, s := range f.Systemd.Sockets {
		if s.There {
			there = append(there, s.Path)
		}
		if s.Answers {
			answers = append(answers, s.Path)
		}
	}
	names := make([]string, 0, len(f.Systemd.Sockets))
	for _, s := range f.Systemd.Sockets {
		names = append(names, s.Path)
	}
	switch {
	case len(there) == 0:
		found.fail("missing",
			fmt.Sprintf("the cgroups are systemd's, and no socket of it is here (%s): the pools do not give way",
				strings.Join(names, ", ")),
			"in a pod mount /run/systemd from the host (the chart does, unless cgroup.driver is cgroupfs); else set "+
				"cgroup.bus")
	case len(answers) == 0:
		found.fail("silent", fmt.Sprintf("nothing accepts at %s", strings.Join(there, " nor ")),
			"systemctl daemon-reexec; in a pod mount the directory /run/systemd and not the socket, which systemd "+
				"replaces")
	}
	if !f.Systemd.Booted && len(there) == 0 {
		found.note("init", "systemd is not the init system that is seen here", "")
	}
	found.ok("it answers at " + strings.Join(answers, ", "))
}

func checkKernel(f *Facts, found *findings) {
	k := &f.Kernel
	v, known := majorMinor(k.Release)
	switch {
	case !known:
		found.note("unknown", fmt.Sprintf("the kernel's release %q is not understood", k.Release), "")
	case before(v, 5, 6):
		found.warn("old",
			fmt.Sprintf(
				"Linux %s is older than what is tested (5.10 and later); pinning works, opening cgroups is "+
					"slower", k.Release), "upgrade the kernel")
	case before(v, 5, 10) && f.counts():
		found.warn("old", fmt.Sprintf("Linux %s cannot count CPU performance, which wants 5.10; pinning works",
			k.Release), "upgrade the kernel, or set cpi.mode: \"off\"")
	}
	if k.Lockdown == "confidentiality" && f.counts() {
		found.warn("lockdown",
			"the kernel is locked down (confidentiality): CPU performance is not counted; pinning works",
			"boot with lockdown=integrity or none, or set cpi.mode: \"off\"")
	}
	if k.Isolated != "" {
		found.note("isolated",
			fmt.Sprintf(
				"CPUs %s are isolated from the kernel's scheduler (isolcpus): no pool has them, and only pods that "+
					"ask for them by annotation get some", k.Isolated),
			"prefer Quietcore's own exclusive CPUs to isolcpus, or let namespaces ask for those CPUs with "+
				"authority.isolatedCPUs")
	}
	if k.Resctrl != "" {
		found.warn("resctrl", "cpi.resctrl is set, and memory bandwidth is not limited: "+k.Resctrl,
			"mount resctrl where the key says, or leave the key out")
	}
	found.ok("Linux " + k.Release)
}

func before(v [2]int, major, minor int) bool {
	return v[0] < major || v[0] == major && v[1] < minor
}

// counts says whether CPU performance should be counted.
func (f *Facts) counts() bool { return f.Config.Config.CPI.Mode != config.CPIOff }

func checkBTF(f *Facts, found *findings) {
	if !f.counts() {
		found.ok("not needed: cpi.mode is off")
		return
	}
	if !f.Kernel.BTF {
		found.warn("missing",
			"the kernel does not describe its types (/sys/kernel/btf/vmlinux): CPU performance is not counted; "+
				"pinning works", "use a kernel with CONFIG_DEBUG_INFO_BTF=y, or set cpi.mode: \"off\"")
	}
	found.ok("/sys/kernel/btf/vmlinux is there")
}

// Capabilities by their bit.
const (
	capDACOverride = 1
	capSysAdmin    = 21
	capPerfmon     = 38
	capBPF         = 39
)

func checkCapabilities(f *Facts, found *findings) {
	p := &f.Process
	if !p.Known {
		found.note("unknown", "this process' permissions are not visible (/proc/self/status)", "")
		return
	}
	has := func(bit int) bool { return p.Capabilities>>bit&1 == 1 }
	if p.UID != 0 {
		found.fail("user", fmt.Sprintf("this runs as user %d: the NRI socket and the cgroups are root's", p.UID),
			"run it as root (in a pod: runAsUser: 0 with all capabilities dropped but the ones named here)")
	}
	if f.counts() && !has(capSysAdmin) && !(has(capBPF) && has(capPerfmon)) {
		found.warn("counting",
			"CAP_BPF and CAP_PERFMON are not both given: CPU performance is not counted; pinning works",
			"add both, with Linux 5.10 CAP_SYS_RESOURCE too (the chart gives BPF and PERFMON where cpi.mode is not "+
				"off; security.capabilities adds others), or set cpi.mode: \"off\"")
	}
	if p.UID == 0 && !has(capDACOverride) && f.Kubelet.ConfigErr != "" {
		found.note("override", "without CAP_DAC_OVERRIDE root reads only files that root may read",
			"chown kubelet's files to root")
	}
	found.ok("root, with what is needed")
}
