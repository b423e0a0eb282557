package daemon

import (
	"bytes"
	"os"
	"strconv"

	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/internal/page"
)

const procStat = "/proc/stat"

// takenFrom returns what reads the time that nobody had, by CPU, from a file like /proc/stat. A
// file that cannot be read says nothing.
func takenFrom(name string) func() []sample.Taken {
	return func() []sample.Taken {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil
		}
		return parseTaken(text)
	}
}

// maxCPUs bounds the CPUs that a file may name.
const maxCPUs = 1 << 14

// userHertz is the unit of /proc/stat on all architectures that Go runs on Linux.
const userHertz = 100

// Places of times in a line of /proc/stat:
//
//	cpu0 user nice system idle iowait irq softirq steal guest guest_nice
//
// in hundredths of a second. The time of guests is in that of users, too.
const (
	statIdle    = 4
	statWait    = 5
	statIRQ     = 6
	statSoftIRQ = 7
	statSteal   = 8
)

// parseTaken reads the lines of CPUs of /proc/stat. What it cannot read is 0.
func parseTaken(text []byte) (list []sample.Taken) {
	eachCPU(text, func(cpu int, seconds func(place int) float64) {
		for len(list) <= cpu {
			list = append(list, sample.Taken{})
		}
		list[cpu] = sample.Taken{Steal: seconds(statSteal), Interrupts: seconds(statIRQ) + seconds(statSoftIRQ)}
	})
	return list
}

// loadFrom returns what reads how busy each CPU was, from a file like /proc/stat. Busy is neither idle nor waiting for
// a disk, and what a hypervisor gave to others is not.
func loadFrom(name string) func() []page.CPUTime {
	return func() []page.CPUTime {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil
		}
		return parseLoad(text)
	}
}

func parseLoad(text []byte) (list []page.CPUTime) {
	eachCPU(text, func(cpu int, seconds func(place int) float64) {
		for len(list) <= cpu {
			list = append(list, page.CPUTime{})
		}
		t := &list[cpu]
		*t = page.CPUTime{}
		for place := 1; place <= statSteal; place++ {
			t.Total += seconds(place)
			if place != statIdle && place != statWait && place != statSteal {
				t.Busy += seconds(place)
			}
		}
	})
	return list
}

// eachCPU calls f with each CPU of /proc/stat, and with what reads a place of its line.
func eachCPU(text []byte, f func(cpu int, seconds func(place int) float64)) {
	for line := range bytes.Lines(text) {
		words := bytes.Fields(line)
		if len(words) <= statSteal || !bytes.HasPrefix(words[0], []byte("cpu")) {
			continue
		}
		cpu, err := strconv.Atoi(string(words[0][len("cpu"):]))
		if err != nil || cpu < 0 || cpu >= maxCPUs {
			continue // the sum of all has no number
		}
		f(cpu, func(place int) float64 {
			n, _ := strconv.ParseUint(string(words[place]), 10, 63) // 0 where it is none
			return float64(n) / userHertz
		})
	}
}
