package replay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/experiment"
)

// recorded is a node of that many containers, half of whose jobs are
// latency-sensitive. Where it is disturbed c3, best effort, hurts c0 from two hours on
// for ten minutes of every twenty.
func recorded(rows, containers int, disturbed bool) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	var b bytes.Buffer
	b.WriteString("time,container,job,class,usage,cpi\n")
	for i := range rows {
		c := i % containers
		job := c % 40
		class := [...]string{"LS", "LSR", "BATCH", "BE"}[job%4]
		usage, cpi := math.Exp(0.3*r.NormFloat64()), (1+0.05*float64(job))*math.Exp(0.09*r.NormFloat64())
		minute := i / containers
		switch busy := minute >= 120 && minute%20 >= 10; {
		case disturbed && c == 0 && busy:
			cpi *= 2
		case disturbed && c == 3 && busy:
			usage += 4
		case disturbed && c == 3:
			usage *= 0.1
		}
		fmt.Fprintf(&b, "%d,c%d,j%d,%s,%.4f,%.4f\n", minute*60, c, job, class, usage, cpi)
	}
	return b.Bytes()
}

// cpuTime that this process has used: a host that is busy otherwise tells nothing
// by the clock.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func perSecond(b *testing.B, rows int, start time.Duration) {
	b.ReportMetric(float64(rows)*float64(b.N)/(cpuTime()-start).Seconds(), "rows/cpu-s")
}

// BenchmarkReplay reads, judges and writes as the command does.
func BenchmarkReplay(b *testing.B) {
	const rows = 200_000
	for _, c := range []struct {
		name      string
		mode      detect.Mode
		disturbed bool
		trials    bool
	}{{"classic", detect.Classic, false, false}, {"contrast", detect.Contrast, false, false},
		{"default", detect.Contrast, false, true}, {"classic-disturbed", detect.Classic, true, false},
		{"contrast-disturbed", detect.Contrast, true, false}, {"default-disturbed", detect.Contrast, true, true}} {
		text := recorded(rows, 400, c.disturbed)
		b.Run(c.name, func(b *testing.B) {
			cfg := detect.DefaultConfig()
			cfg.Mode = c.mode
			b.ReportAllocs()
			start := cpuTime()
			for b.Loop() {
				trace, err := Read(bytes.NewReader(text))
				if err != nil {
					b.Fatal(err)
				}
				encode := json.NewEncoder(io.Discard)
				encode.SetEscapeHTML(false)
				o := Options{Config: cfg}
				if c.trials {
					o.Experiment = new(experiment.Config)
					*o.Experiment = experiment.DefaultConfig()
				}
				summary, err := Run(trace, o, func(l *Line) error { return encode.Encode(l) })
				if err != nil {
					b.Fatal(err)
				}
				if c.disturbed && summary.Caps+summary.Probes == 0 {
					b.Fatalf("nobody was found: %+v", summary)
				}
			}
			perSecond(b, rows, start)
		})
	}
	b.Run("read", func(b *testing.B) {
		text := recorded(rows, 400, false)
		start := cpuTime()
		for b.Loop() {
			if _, err := Read(bytes.NewReader(text)); err != nil {
				b.Fatal(err)
			}
		}
		perSecond(b, rows, start)
	})
}
