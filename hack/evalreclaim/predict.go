package main

import (
	"fmt"
	"strings"

	"github.com/quietcore/quietcore/reclaim"
)

// candidate is a predictor with the history that it sees.
type candidate struct {
	words   string
	history int // periods
}

func candidates() []candidate {
	var list []candidate
	for _, history := range []int{day, 7 * day} {
		for _, words := range []string{"pods(99)", "sigma(3)", "sigma(5)", "peak(1)", "peak(1.1)", "peak(1.2)",
			"max(pods(99),sigma(5))", "max(pods(99),peak(1.1))", "min(pods(99),peak(1.1))"} {
			list = append(list, candidate{words, history})
		}
	}
	return append(list, candidate{"limits(0.9)", day})
}

func (c candidate) String() string {
	if c.words == "limits(0.9)" {
		return c.words
	}
	return fmt.Sprintf("%s, %d d", c.words, c.history/day)
}

func (c candidate) isDefault() bool {
	return c.words == reclaim.DefaultPredictor && c.history == day
}

// horizons are how far ahead an expectation has to hold.
func horizons() []int { return []int{3600 / period, day} }

// score is one predictor on one trace.
type score struct {
	candidate
	n          int
	violations [2]int // by horizon
	given      float64
	oracle     [2]float64
	limit      float64
}

func (s *score) violated(h int) float64 { return float64(s.violations[h]) / float64(max(s.n, 1)) }
func (s *score) saving() float64        { return s.given / max(s.limit, 1) }
func (s *score) ofOracle(h int) float64 { return s.given / max(s.oracle[h], 1) }

// scoreAll measures every candidate on every trace; the last score of each is the
// oracle, which knows the future.
func scoreAll(sets []set) (map[string][]*score, error) {
	all := map[string][]*score{}
	for _, s := range sets {
		for _, c := range candidates() {
			sc := &score{candidate: c}
			for _, h := range s.hosts {
				if err := sc.measure(h); err != nil {
					return nil, err
				}
			}
			all[s.name] = append(all[s.name], sc)
		}
	}
	return all, nil
}

// warmup is how much of a trace no predictor is judged on: a week, or a quarter.
func warmup(n int) int { return min(7*day, n/4) }

// measure judges every interval by the largest use in the periods that follow.
func (s *score) measure(h host) error {
	spec, err := reclaim.ParsePredictor(s.words)
	if err != nil {
		return err
	}
	p := spec.Build(uint32(s.history))
	limit, total := h.limit(), h.total()
	var futures [2][]float64
	for k, ahead := range horizons() {
		futures[k] = future(total, ahead)
	}
	pods := make([]reclaim.Pod, len(h.vms))
	for t := range len(total) - day {
		for i, v := range h.vms {
			pods[i] = reclaim.Pod{ID: v.name, Request: v.size, Use: v.use[t], Sampled: true}
		}
		in := reclaim.Production{Cell: uint32(t), Seconds: period, Pods: pods, Request: limit, Use: total[t]}
		p.Observe(in)
		if t < warmup(len(total)) {
			continue
		}
		expected := min(max(p.Peak(in), in.Use), limit)
		s.n++
		s.limit += limit
		s.given += limit - expected
		for k := range futures {
			s.oracle[k] += limit - min(futures[k][t], limit)
			if futures[k][t] > expected+1e-9 {
				s.violations[k]++
			}
		}
	}
	return nil
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

// most is the share of intervals whose next hour may exceed what a predictor
// expected, on any trace, for it to be the default.
const most = 0.0025

// best is the predictor that saves most, on average over the traces, among those
// that expect enough for the next hour. An hour is what a node has to foresee: it
// takes back in seconds by suppression, and in minutes by eviction.
func best(sets []set, scores map[string][]*score) candidate {
	var winner candidate
	highest := -1.0
	for i, c := range candidates() {
		saving, safe := 0.0, true
		for _, s := range sets {
			sc := scores[s.name][i]
			saving += sc.saving()
			safe = safe && sc.violated(0) <= most
		}
		if safe && saving > highest {
			winner, highest = c, saving
		}
	}
	return winner
}

func predictorTable(sets []set, scores map[string][]*score) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| predictor, history |")
	for _, s := range sets {
		fmt.Fprintf(&b, " %s: violations, 1 h and 24 h | saving, of the oracle's |", s.name)
	}
	fmt.Fprintf(&b, "\n|---|%s\n", strings.Repeat("---|", 2*len(sets)))
	for i, c := range candidates() {
		name := c.String()
		if c.isDefault() {
			name = "**" + name + " (default)**"
		}
		fmt.Fprintf(&b, "| %s |", name)
		for _, s := range sets {
			sc := scores[s.name][i]
			fmt.Fprintf(&b, " %.2f %%, %.2f %% | %.1f %%, %.2f |", 100*sc.violated(0), 100*sc.violated(1),
				100*sc.saving(), sc.ofOracle(1))
		}
		fmt.Fprintln(&b)
	}
	fmt.Fprintf(&b, "| oracle, knows the next 24 h |")
	for _, s := range sets {
		sc := scores[s.name][0]
		fmt.Fprintf(&b, " 0, 0 | %.1f %%, 1 |", 100*sc.oracle[1]/sc.limit)
	}
	fmt.Fprintf(&b, "\n\nSaves most with at most %.2f %% violations in an hour on each trace: %s.\n", 100*most,
		best(sets, scores))
	return b.String()
}
