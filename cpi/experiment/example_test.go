package experiment_test

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/experiment"
)

// A batch job that works all the time from the second hour on doubles the CPI of web.
// Nobody else could be told from it by watching; the coins tell.
func Example() {
	d, err := experiment.New(experiment.DefaultConfig())
	if err != nil {
		fmt.Println(err)
		return
	}
	var refs []experiment.Ref
	for _, c := range []cpi.Container{
		{ID: "web-0", Job: "web", Class: cpi.LS},
		{ID: "sort-0", Job: "sort", Class: cpi.Batch},
		{ID: "index-0", Job: "index", Class: cpi.Batch},
	} {
		ref, err := d.Put(&c)
		if err != nil {
			fmt.Println(err)
			return
		}
		refs = append(refs, ref)
	}
	coins := rand.New(rand.NewPCG(1, 1))
	begin := time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC)
	for minute := range 120 {
		web, used := 1+0.05*coins.NormFloat64(), 0.01
		if minute >= 60 {
			used = 3
			if on, _ := d.Throttled("sort"); on {
				used = 0.1
			}
			if used > 1 {
				web *= 2
			}
		}
		for _, e := range d.Observe(begin.Add(time.Duration(minute)*time.Minute), []experiment.Sample{
			{Ref: refs[0], Usage: 1, CPI: web}, {Ref: refs[1], Usage: used, CPI: 1}, {Ref: refs[2], Usage: 2, CPI: 1},
		}) {
			if e.Kind == experiment.VerdictEvent {
				fmt.Printf("%s disturbs %s\n", e.Job, e.Victim.Job)
			}
		}
		var thrown []experiment.Thrown
		for _, t := range d.Trials() {
			thrown = append(thrown, experiment.Thrown{Trial: t, On: coins.Float64() < t.P})
		}
		d.Throw(thrown)
	}
	// Output: sort disturbs web
}
