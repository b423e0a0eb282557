package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/quietcore/quietcore/internal/config"
)

// Vendors of x86 CPUs, as /proc/cpuinfo has them.
const (
	intel = "GenuineIntel"
	amd   = "AuthenticAMD"
)

// general is how many counters an AMD CPU has; it has no fixed ones.
func (p *PMUFacts) general() int {
	if p.Extended {
		return 6
	}
	return 4
}

// counters says what the counters of a kind are, for those who ask how all is well.
func (p *PMUFacts) counters() string {
	switch p.Vendor {
	case intel:
		return ": cycles, instructions and reference cycles have a fixed counter each"
	case amd:
		return fmt.Sprintf(": the events share %d counters, none of them fixed", p.general())
	}
	return ""
}

// checkKind explains what a kind of PMU means for CPI. Nothing of it is a fault.
func checkKind(k *KernelFacts, found *findings) {
	if len(k.PMUs) == 0 {
		return
	}
	p := &k.PMU
	if slices.Contains(k.PMUs, "cpu_core") && slices.Contains(k.PMUs, "cpu_atom") {
		found.note("hybrid", "the machine has two kinds of cores (cpu_core, cpu_atom): each event is opened on the "+
			"unit of its CPU's kind, and what is normal for a job is learned for each kind apart", "")
	}
	if p.Virtual {
		found.note("virtual", "a hypervisor passes the counters on, and may take microseconds for each reading: "+
			"cpi.budget leaves out events, then containers by turns, where that is too much, and status says so", "")
	}
	absent := k.Counters != nil && k.Counters.Absent["ref-cycles"] != "" && k.Counters.Absent["cycles"] == ""
	if p.NoReference || absent {
		found.note("core-cycles", "there are no reference cycles here: CPI is in core cycles, and is never compared "+
			"with one in reference cycles", "")
	}
	if k.Watchdog {
		found.note("watchdog", "the NMI watchdog holds a counter of every CPU: "+p.watched(),
			"sysctl kernel.nmi_watchdog=0 where the hard-lockup detector is not needed")
	}
}

// watched says what the NMI watchdog, which counts cycles, leaves to counting.
func (p *PMUFacts) watched() string {
	switch left := p.general() - 1; {
	case p.Vendor == intel:
		return "the fixed one of cycles, so that counting takes a general one for them; nothing is lost while one is " +
			"free"
	case p.Vendor != amd:
		return "events may take turns"
	case left < 4:
		return fmt.Sprintf("%d of %d are left; cycles and instructions keep theirs, the other events take turns", left,
			p.general())
	default:
		return fmt.Sprintf("%d of %d are left, which suffices while nobody else counts", left, p.general())
	}
}

func checkPMU(f *Facts, found *findings) {
	k := &f.Kernel
	if !f.counts() {
		found.ok("not needed: cpi.mode is off")
		return
	}
	const instead = "on a virtual machine have the hypervisor pass the performance monitoring unit on; else set " +
		"cpi.mode: \"off\""
	if len(k.PMUs) == 0 {
		found.warn("missing",
			"the CPUs have no performance monitoring unit that the kernel knows: there is no CPI, and run-queue "+
				"waits judge instead; pinning works", instead)
	}
	checkKind(k, found)
	// Linux knows no level above 2; Debian and Ubuntu do.
	if k.Paranoid > 2 {
		what := fmt.Sprintf(
			"kernel.perf_event_paranoid is %d: above 2 this kernel opens counters for CAP_SYS_ADMIN alone, and "+
				"CAP_PERFMON is not enough", k.Paranoid)
		const fix = "sysctl kernel.perf_event_paranoid=2 on the node (and a file in /etc/sysctl.d), or give the " +
			"daemon SYS_ADMIN (chart: security.capabilities)"
		if f.Process.Known && f.Process.Capabilities>>capSysAdmin&1 == 0 {
			found.warn("paranoid", what, fix)
		}
		found.note("paranoid", what+"; a daemon from the chart has only that", fix)
	}
	switch c := k.Counters; {
	case c == nil:
	case c.Err != "":
		found.warn("refused", "the counters cannot be opened: "+c.Err,
			"give the daemon CAP_BPF and CAP_PERFMON, or set cpi.mode: \"off\"; pinning works without")
	default:
		for _, event := range slices.Sorted(maps.Keys(c.Absent)) {
			if event == "ref-cycles" && c.Absent["cycles"] == "" || len(k.PMUs) == 0 {
				continue
			}
			fix := instead
			if f.Config.Config.CPI.StandIns != (config.StandIns{}) {
				fix = "remove cpi.standIns where the CPI is to be of the hardware"
			}
			found.warn("event", fmt.Sprintf("%s is not counted: %s", event, c.Absent[event]), fix)
		}
	}
	found.ok(strings.Join(k.PMUs, ", ") + k.PMU.counters())
}
