package detect_test

import (
	"fmt"
	"time"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/detect"
)

// A Detector takes the samples of every minute and returns events. Here the normal CPI
// of the victim's job is given; usually the detector learns it. The antagonist runs in
// three minutes of ten, and the victim is slow in just those.
func ExampleDetector() {
	cfg := detect.DefaultConfig()
	cfg.GivenSpecs, cfg.Enforce = true, true
	d, err := detect.New(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	spec := detect.Spec{Job: "web", Mean: 1, StdDev: 0.1, Samples: 1000, Tasks: 5}
	if err := d.SetSpec(now, spec, now.Add(24*time.Hour)); err != nil {
		fmt.Println(err)
		return
	}
	web, _ := d.Put(now, &cpi.Container{ID: "web-0", Job: "web", Class: cpi.LS})
	sort, _ := d.Put(now, &cpi.Container{ID: "sort-0", Job: "sort", Class: cpi.Batch})

	for minute := range 60 {
		now = now.Add(time.Minute)
		webCPI, sortUsage := 1.0, 0.01
		if minute%10 >= 7 {
			webCPI, sortUsage = 2.0, 4
		}
		for _, e := range d.Observe(now, []detect.Sample{
			{Ref: web, At: now, Usage: 1, CPI: webCPI},
			{Ref: sort, At: now, Usage: sortUsage, CPI: 1},
		}) {
			if c := e.Command; c != nil && c.Kind == detect.DoCap {
				fmt.Printf("minute %d: %s %s to %dm until %s\n", minute, c.Kind, d.Container(c.Container).ID, c.Milli,
					c.Until.Format(time.TimeOnly))
				return
			}
		}
	}
	fmt.Println("no antagonist was found")
	// Output:
	// minute 9: cap sort-0 to 100m until 12:15:00
}

// Score is the paper's antagonist correlation. The first neighbour ran while the victim's
// CPI was above its threshold, the second while it was below.
func ExampleScore() {
	const threshold = 1.5
	victim := []float64{1, 3, 1, 3}
	during, _ := detect.Score(threshold, victim, []float64{0, 2, 0, 2})
	otherwise, _ := detect.Score(threshold, victim, []float64{2, 0, 2, 0})
	fmt.Printf("%.2f %.2f\n", during, otherwise)
	// Output:
	// 0.50 -0.33
}
