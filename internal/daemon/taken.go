package daemon

import (
	"bytes"
	"os"
	"strconv"

	"github.com/quietcore/quietcore/cpi/sample"
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

// parseTaken reads the lines of CPUs of /proc/stat:
//
//	cpu0 user nice system idle iowait irq softirq steal guest guest_nice
//
// in hundredths of a second. What it cannot read is 0.
func parseTaken(text []byte) (list []sample.Taken) {
	const irq, softirq, steal = 6, 7, 8
	for line := range bytes.Lines(text) {
		words := bytes.Fields(line)
		if len(words) <= steal || !bytes.HasPrefix(words[0], []byte("cpu")) {
			continue
		}
		cpu, err := strconv.Atoi(string(words[0][len("cpu"):]))
		if err != nil || cpu < 0 || cpu >= maxCPUs {
			continue // the sum of all has no number
		}
		seconds := func(i int) float64 {
			n, _ := strconv.ParseUint(string(words[i]), 10, 63) // 0 where it is none
			return float64(n) / userHertz
		}
		for len(list) <= cpu {
			list = append(list, sample.Taken{})
		}
		list[cpu] = sample.Taken{Steal: seconds(steal), Interrupts: seconds(irq) + seconds(softirq)}
	}
	return list
}
