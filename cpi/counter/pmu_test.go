package counter

import (
	"testing"

	"golang.org/x/sys/unix"
)

// unit is one unit of /sys/bus/event_source/devices.
func unit(files map[string]string, name, typ, cpus string) map[string]string {
	dir := "/sys/bus/event_source/devices/" + name
	files[dir+"/type"], files[dir+"/cpus"] = typ+"\n", cpus+"\n"
	return files
}

// Each kind of core has a unit of its own, and an event is opened on that of its CPU. Software
// events, and machines with one kind, name none.
func TestUnitsOfHybridMachines(t *testing.T) {
	hybrid := unit(unit(map[string]string{}, "cpu_core", "4", "0-3"), "cpu_atom", "10", "4-7")
	clock, _ := CPUClock.perf()
	cache := source{"LLC-load-misses", unix.PERF_TYPE_HW_CACHE, 0x10002}
	for name, c := range map[string]struct {
		files  map[string]string
		source source
		want   map[int]uint64 // the upper half of config, by CPU
	}{
		"hybrid":           {hybrid, hardware(Cycles), map[int]uint64{0: 4, 3: 4, 4: 10, 7: 10, 8: 0}},
		"a cache event":    {hybrid, cache, map[int]uint64{1: 4, 5: 10}},
		"a software event": {hybrid, clock, map[int]uint64{0: 0, 4: 0}},
		"one kind":         {map[string]string{}, hardware(Instructions), map[int]uint64{0: 0}},
		"no number":        {unit(map[string]string{}, "cpu_core", "x", "0"), hardware(Cycles), map[int]uint64{0: 0}},
		"no CPUs":          {unit(map[string]string{}, "cpu_core", "4", "0-"), hardware(Cycles), map[int]uint64{0: 0}},
		"one unit of two": {unit(map[string]string{}, "cpu_core", "4", "0-3"), hardware(Cycles),
			map[int]uint64{0: 4, 4: 0}},
	} {
		// What this machine really has must not shine through.
		k := kindsOf(filesOnly{files: c.files})
		for cpu, want := range c.want {
			attr := k.attr(c.source, cpu)
			if attr.Type != c.source.typ || attr.Config != c.source.config|want<<32 {
				t.Errorf("%s, CPU %d: type %d, config %#x, want the unit %d", name, cpu, attr.Type, attr.Config, want)
			}
		}
	}
}

// filesOnly has the files that it names, and no others.
type filesOnly struct {
	kernel
	files map[string]string
}

func (f filesOnly) readFile(name string) ([]byte, error) {
	if text, ok := f.files[name]; ok {
		return []byte(text), nil
	}
	return nil, unix.ENOENT
}
