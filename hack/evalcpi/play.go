package main

import (
	"math/rand/v2"
	"time"

	"github.com/quietcore/quietcore/hack/evalcpi/world"
)

// result of a machine, from the moment on that it is judged.
type result struct {
	guilty, found int             // guilty jobs, and those that were capped
	after         []time.Duration // from a guilty job's coming to its first cap
	right, wrong  int             // accusations
	hours         float64
	is, wouldBe   float64 // sums of the disturbance
	probed        float64 // minutes in which an innocent was throttled by a test ...
	bitten        float64 // ... and that took something away
	capped        float64 // minutes in which it took something away by a verdict
	anomalies     uint64
}

// play lets a detector watch and throttle one machine. The loop is closed: what it
// throttles does less, and what that does to the victim shows in the next samples.
func play(kind world.Kind, d detector, seed uint64) (result, error) {
	m := world.New(kind, seed)
	p, err := d.make(kind, seed)
	if err != nil {
		return result{}, err
	}
	g := game{m: m, p: p, every: int(d.period / step), verdicts: map[string]bool{}, found: map[string]bool{},
		owner: map[string]string{}, phases: rand.New(rand.NewPCG(seed, 0x94d049bb133111eb))}
	for _, j := range m.Jobs {
		if j.Guilty && j.Class != "OTHER" {
			g.res.guilty++
		}
	}
	g.res.hours = float64(m.Steps-m.Warm) / world.Hour
	err = g.run()
	return g.res, err
}

const step = 10 * time.Second

type game struct {
	m        *world.Machine
	p        player
	phases   *rand.Rand
	verdicts map[string]bool   // jobs that are throttled by a verdict, not a probe
	found    map[string]bool   // guilty jobs that were capped
	owner    map[string]string // job of each container
	rows     []world.Row
	every    int // steps of an interval
	res      result
}

// run a machine to its end. The window of ten seconds lies at a random step of each
// interval; a throttle holds for the whole interval. While a test runs there is a window in
// each step, the interval's among them, and a throttle holds for the step.
func (g *game) run() error {
	var before uint64
	at, done := g.phases.IntN(g.every), false
	for g.m.Step() {
		step := g.m.Now()
		if step == g.m.Warm {
			before = g.p.anomalies()
		}
		short, its, last := g.p.short(), step%g.every == at, step%g.every == g.every-1
		if short || its {
			g.rows = rowsOf(g.m, g.rows[:0])
		}
		if step >= g.m.Warm {
			g.count(step)
		}
		if short || last && !done {
			if err := g.judge(step, !short || its); err != nil {
				return err
			}
			done = done || its
		}
		if last {
			at, done = g.phases.IntN(g.every), false
		}
	}
	g.res.anomalies = g.p.anomalies() - before
	return nil
}

// judge the rows of a window: of an interval's, or of a further one.
func (g *game) judge(step int, intervals bool) error {
	orders, err := g.p.round(epoch.Add(time.Duration(step+1)*10*time.Second), g.rows, intervals)
	if err != nil {
		return err
	}
	for i := range g.rows {
		g.owner[g.rows[i].Container] = g.rows[i].Job
	}
	for _, o := range orders {
		g.carryOut(o, step)
	}
	return nil
}

// count what a step brought.
func (g *game) count(step int) {
	is, wouldBe := g.m.Disturbance()
	g.res.is, g.res.wouldBe = g.res.is+is, g.res.wouldBe+wouldBe
	for _, j := range g.m.Jobs {
		limited, bitten := j.Limited(step)
		if j.Guilty || !limited {
			continue
		}
		switch {
		case g.verdicts[j.Name] && bitten:
			g.res.capped += 1.0 / world.Minute
		case !g.verdicts[j.Name]:
			g.res.probed += 1.0 / world.Minute
			if bitten {
				g.res.bitten += 1.0 / world.Minute
			}
		}
	}
}

func (g *game) carryOut(o order, step int) {
	if o.container != "" {
		g.m.ThrottleContainer(o.container, o.cpus)
		o.job = g.owner[o.container]
	} else if !o.counts {
		g.m.Throttle(o.job, o.cpus)
	}
	switch {
	case o.container != "":
		g.verdicts[o.job] = true // these detectors do not probe
	case !o.counts:
		g.verdicts[o.job] = o.verdict
	}
	if !o.counts || step < g.m.Warm {
		return
	}
	for _, j := range g.m.Jobs {
		if j.Name != o.job {
			continue
		}
		if !j.Guilty {
			g.res.wrong++
			return
		}
		g.res.right++
		if !g.found[j.Name] {
			g.found[j.Name] = true
			g.res.found++
			g.res.after = append(g.res.after, time.Duration(step+1-j.Arrives())*10*time.Second)
		}
	}
}
