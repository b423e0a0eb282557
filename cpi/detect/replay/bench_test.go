package replay

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpi/detect"
)

// recorded is a node of that many containers, a quarter of whose jobs are
// latency-sensitive, undisturbed.
func recorded(rows, containers int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	var b bytes.Buffer
	b.WriteString("time,container,job,class,usage,cpi\n")
	for i := range rows {
		c := i % containers
		job := c % 40
		class := [...]string{"LS", "LSR", "BATCH", "BE"}[job%4]
		fmt.Fprintf(&b, "%d,c%d,j%d,%s,%.4f,%.4f\n", i/containers*60, c, job, class, math.Exp(0.3*r.NormFloat64()), (1+0.05*float64(job))*math.Exp(0.09*r.NormFloat64()))
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

func BenchmarkReplay(b *testing.B) {
	const rows = 200_000
	text := recorded(rows, 400)
	for _, mode := range []detect.Mode{detect.Classic, detect.Default} {
		b.Run(mode.String(), func(b *testing.B) {
			cfg := detect.DefaultConfig()
			cfg.Mode = mode
			b.ReportAllocs()
			start := cpuTime()
			for b.Loop() {
				trace, err := Read(bytes.NewReader(text))
				if err != nil {
					b.Fatal(err)
				}
				if _, err := Run(trace, Options{Config: cfg}, func(*Line) error { return nil }); err != nil {
					b.Fatal(err)
				}
			}
			perSecond(b, rows, start)
		})
	}
	b.Run("read", func(b *testing.B) {
		start := cpuTime()
		for b.Loop() {
			if _, err := Read(bytes.NewReader(text)); err != nil {
				b.Fatal(err)
			}
		}
		perSecond(b, rows, start)
	})
}
