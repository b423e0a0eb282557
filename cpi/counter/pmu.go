package counter

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/quietcore/quietcore/cpuset"
)

// kinds are the performance monitoring units of a machine with several kinds of cores.
// An event without a unit is opened on the first unit that takes it, which is that of
// another kind on half of the CPUs.
type kinds []kind

type kind struct {
	typ  uint64
	cpus cpuset.Set
}

// kindsOf reads the units of hybrid x86 machines. On arm64 the kernel itself finds the
// unit of the CPU.
func kindsOf(k kernel) (list kinds) {
	for _, name := range []string{"cpu_core", "cpu_atom", "cpu_lowpower"} {
		dir := "/sys/bus/event_source/devices/" + name
		number, err := k.readFile(dir + "/type")
		if err != nil {
			continue
		}
		cpus, err := k.readFile(dir + "/cpus")
		if err != nil {
			continue
		}
		typ, err := strconv.ParseUint(strings.TrimSpace(string(number)), 10, 32)
		if err != nil {
			continue
		}
		if set, err := cpuset.Parse(strings.TrimSpace(string(cpus))); err == nil {
			list = append(list, kind{typ, set})
		}
	}
	return list
}

// attr is an event on a CPU. The unit is in the upper half of config.
func (k kinds) attr(s source, cpu int) *unix.PerfEventAttr {
	attr := &unix.PerfEventAttr{Type: s.typ, Config: s.config, Size: unix.PERF_ATTR_SIZE_VER5}
	if s.typ == unix.PERF_TYPE_HARDWARE || s.typ == unix.PERF_TYPE_HW_CACHE {
		for i := range k {
			if k[i].cpus.Has(cpu) {
				attr.Config |= k[i].typ << 32
			}
		}
	}
	return attr
}
