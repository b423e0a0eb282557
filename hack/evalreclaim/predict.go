package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/quietcore/quietcore/reclaim"
)

// candidate foresees a host's use: for every period, from it and those before.
type candidate struct {
	name    string
	foresee func(h host) []float64
}

// oldDefault is the predictor of the first edition.
func oldDefault(margin float64) candidate {
	return candidate{fmt.Sprintf("first edition: peak of the day, times %v", margin), func(h host) []float64 {
		k := &peak{margin: margin}
		var all []float64
		for _, use := range h.total() {
			all = append(all, k.next(use))
		}
		return all
	}}
}

// variant is the forecast with something changed.
type variant struct {
	risk    float64 // percent
	horizon time.Duration
	tuning  reclaim.Tuning
	noPeaks bool // of pods
}

func usual() variant {
	d := reclaim.Default()
	return variant{risk: d.Risk, horizon: time.Duration(d.Horizon), tuning: reclaim.DefaultTuning()}
}

func (v variant) named(name string) candidate { return candidate{name, v.foresee} }

func (v variant) foresee(h host) []float64 {
	f := reclaim.NewForecast(v.risk/100, v.horizon, v.tuning)
	most := make([]float64, len(h.vms))
	var all []float64
	for t, use := range h.total() {
		p := reclaim.Production{At: time.Duration(t+1) * period * time.Second, Seconds: period, Request: h.limit(),
			Use: use}
		for i, vm := range h.vms {
			most[i] = max(most[i], vm.use[t])
			p.Peaks += most[i]
			if t < day {
				p.Peaks += vm.size // a pod that is not known for a day counts with its request
			}
		}
		if v.noPeaks {
			p.Peaks = 0
		}
		f.Observe(p)
		all = append(all, f.Peak(p))
	}
	return all
}

// ablations are the default, and the default with one thing changed.
func ablations() []candidate {
	with := func(name string, change func(*variant)) candidate {
		v := usual()
		change(&v)
		return v.named(name)
	}
	return []candidate{
		oldDefault(1.1),
		usual().named(defaultName),
		with("… without the pods' own peaks", func(v *variant) { v.noPeaks = true }),
		with("… without more weight for use like now", func(v *variant) { v.tuning.Alike = 0 }),
		with("… with more weight for the time of day", func(v *variant) { v.tuning.OfDay = 10 }),
		with("… without calibration", func(v *variant) { v.tuning.Uncalibrated = true }),
		with("… with two weeks of past", func(v *variant) {
			v.tuning.Past, v.tuning.Fresh, v.tuning.Judged = 2*v.tuning.Past, 2*v.tuning.Fresh, 2*v.tuning.Judged
		}),
		with("horizon 5 min", func(v *variant) { v.horizon = 5 * time.Minute }),
		with("horizon 1 h", func(v *variant) { v.horizon = time.Hour }),
		with("horizon 5 min, risk 0.25 %", func(v *variant) { v.horizon, v.risk = 5*time.Minute, 0.25 }),
		with("risk 0.25 %", func(v *variant) { v.risk = 0.25 }),
	}
}

const defaultName = "**default**"

// grid are the constants among which cross-validation chooses.
func grid() []candidate {
	var list []candidate
	for _, alike := range []float64{3, 10, 40} {
		for _, near := range []float64{0.15, 0.3, 0.6} {
			v := usual()
			v.tuning.Alike, v.tuning.Near = alike, near
			list = append(list, v.named(fmt.Sprintf("alike %v, near %v", alike, near)))
		}
	}
	return list
}

// frontier are the default with other risks, at two horizons, and the first edition with other
// margins.
func frontier() [][]candidate {
	lines := make([][]candidate, 3)
	for _, margin := range []float64{0.8, 0.9, 1, 1.1, 1.2} {
		lines[0] = append(lines[0], oldDefault(margin))
	}
	for i, horizon := range []time.Duration{15 * time.Minute, 5 * time.Minute} {
		for _, risk := range []float64{0.1, 0.25, 0.5, 1, 2, 4} {
			v := usual()
			v.risk, v.horizon = risk, horizon
			lines[i+1] = append(lines[i+1], v.named(fmt.Sprintf("horizon %v, risk %v %%", horizon, risk)))
		}
	}
	return lines
}

// hour is how far the oracle sees.
const hour = 3600 / period

// score is one candidate on one trace.
type score struct {
	n, violations, longest int
	given, oracle, limit   float64
}

func (s *score) violated() float64 { return float64(s.violations) / float64(max(s.n, 1)) }
func (s *score) ofOracle() float64 { return s.given / max(s.oracle, 1) }

// measure judges a candidate on a trace.
func measure(s set, c candidate) *score {
	var sum score
	for _, h := range s.hosts {
		sum.judge(h, c.foresee(h))
	}
	return &sum
}

// warmup is how much of a trace no predictor is judged on: a week, or a quarter.
func warmup(n int) int { return min(7*day, n/4) }

// judge compares every period's expectation with the use of the next one.
func (s *score) judge(h host, foreseen []float64) {
	limit, total := h.limit(), h.total()
	next, run := future(total, hour), 0
	for t := warmup(len(total)); t < len(total)-hour; t++ {
		expected := min(max(foreseen[t], total[t]), limit)
		s.n++
		s.limit += limit
		s.given += limit - expected
		s.oracle += limit - min(next[t], limit)
		if total[t+1] <= expected+1e-9 {
			run = 0
			continue
		}
		s.violations++
		run++
		s.longest = max(s.longest, run)
	}
}

// future is for every interval the largest of the values that follow.
func future(use []float64, ahead int) []float64 {
	most := make([]float64, len(use))
	for t := range use {
		for _, u := range use[t+1 : min(t+1+ahead, len(use))] {
			most[t] = max(most[t], u)
		}
	}
	return most
}

// scoreTable is one row a candidate.
func scoreTable(sets []set, list []candidate) (string, map[string]*score) {
	var b strings.Builder
	all := map[string]*score{}
	fmt.Fprintf(&b, "| forecast |")
	for _, s := range sets {
		fmt.Fprintf(&b, " %s: of the oracle's | violated | longest, min |", s.name)
	}
	fmt.Fprintf(&b, "\n|---|%s\n", strings.Repeat("---|", 3*len(sets)))
	for _, c := range list {
		fmt.Fprintf(&b, "| %s |", c.name)
		for _, s := range sets {
			sc := measure(s, c)
			all[s.name+" "+c.name] = sc
			fmt.Fprintf(&b, " %.3f | %.2f %% | %d |", sc.ofOracle(), 100*sc.violated(), sc.longest*period/60)
		}
		fmt.Fprintln(&b)
	}
	fmt.Fprintf(&b, "| oracle's share of the node |")
	for _, s := range sets {
		sc := all[s.name+" "+list[0].name]
		fmt.Fprintf(&b, " %.3f | | |", sc.oracle/sc.limit)
	}
	fmt.Fprintln(&b)
	return b.String(), all
}

// crossTable chooses the constants of the grid on all traces but one, by the mean of what they
// lend there with at most the risk violated, and judges them on that one.
func crossTable(sets []set) string {
	if len(sets) < 2 {
		return ""
	}
	candidates := grid()
	scores := make([][]*score, len(candidates))
	for i, c := range candidates {
		for _, s := range sets {
			scores[i] = append(scores[i], measure(s, c))
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| judged on | chosen on the others | of the oracle's | violated |\n|---|---|---|---|\n")
	for out, s := range sets {
		best, highest := 0, -1.0
		for i := range candidates {
			sum := 0.0
			for k, sc := range scores[i] {
				if k != out {
					sum += sc.ofOracle() - max(0, sc.violated()-usual().risk/100)*1000
				}
			}
			if sum > highest {
				best, highest = i, sum
			}
		}
		sc := scores[best][out]
		fmt.Fprintf(&b, "| %s | %s | %.3f | %.2f %% |\n", s.name, candidates[best].name, sc.ofOracle(),
			100*sc.violated())
	}
	return b.String()
}
