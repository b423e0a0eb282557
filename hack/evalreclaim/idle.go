package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/quietcore/quietcore/reclaim"
	"github.com/quietcore/quietcore/reclaim/replay"
)

// idleRow is one rule on one trace.
type idleRow struct {
	set, rule  string
	days       int     // of VMs
	idle       int     // of those
	cores      float64 // idle VM-days' share of the cores
	flips      int     // idle today and not tomorrow
	candidates int     // idle days with a tomorrow
}

func (r idleRow) share() float64 { return float64(r.idle) / float64(max(r.days, 1)) }
func (r idleRow) flip() float64  { return float64(r.flips) / float64(max(r.candidates, 1)) }

// rules are those of the talk.
func rules() []struct {
	name    string
	percent float64
} {
	return []struct {
		name    string
		percent float64
	}{{"p90", 90}, {"p95", 95}, {"p99", 99}, {"max", 100}}
}

// idleTable is the talk's: how much is idle by each rule, and how long it stays so.
func idleTable(sets []set) (string, []idleRow, error) {
	var b strings.Builder
	var all []idleRow
	fmt.Fprintf(&b,
		"| trace | rule | VM-days | idle | idle share of cores | idle today, not tomorrow "+
			"|\n|---|---|---|---|---|---|\n")
	for _, s := range sets {
		if !s.pods {
			continue
		}
		for _, rule := range rules() {
			row := idleRow{set: s.name, rule: rule.name}
			for _, h := range s.hosts {
				if err := row.count(h, rule.percent); err != nil {
					return "", nil, err
				}
			}
			mark := ""
			if rule.percent == reclaim.Default().Idle.Percentile {
				mark = " (default)"
			}
			fmt.Fprintf(&b, "| %s | %s%s | %d | %.1f %% | %.1f %% | %.1f %% |\n", s.name, rule.name, mark, row.days,
				100*row.share(), 100*row.cores, 100*row.flip())
			all = append(all, row)
		}
	}
	return b.String(), all, nil
}

// count plays a host whose VMs are all batch pods, and looks at the end of each day.
func (r *idleRow) count(h host, percent float64) error {
	cfg := reclaim.Default()
	cfg.Idle.Percentile = percent
	idle := map[string][]bool{}
	interval := 0
	_, err := replay.Run(record(h, func(int) bool {
		return true
	}), replay.Options{Capacity: h.limit(), Config: cfg}, func(l replay.Line) error {
		if interval > 0 && interval%day == 0 {
			for _, v := range h.vms {
				idle[v.name] = append(idle[v.name], slices.Contains(l.IdlePods, v.name))
			}
		}
		interval++
		return nil
	})
	if err != nil {
		return err
	}
	cores, total := 0.0, 0.0
	for _, v := range h.vms {
		for i, is := range idle[v.name] {
			r.days++
			total += v.size
			if !is {
				continue
			}
			r.idle++
			cores += v.size
			if i+1 < len(idle[v.name]) {
				r.candidates++
				if !idle[v.name][i+1] {
					r.flips++
				}
			}
		}
	}
	r.cores = cores / max(total, 1)
	return nil
}

// record is a host as recorded data.
func record(h host, batch func(i int) bool) *replay.Record {
	rec := &replay.Record{}
	for _, v := range h.vms {
		rec.Pods = append(rec.Pods, v.name)
	}
	for t := range h.vms[0].use {
		for i, v := range h.vms {
			rec.Rows = append(rec.Rows, replay.Row{Time: float64(t * period), Pod: i, Batch: batch(i), Request: v.size,
				Usage: v.use[t], Measured: true})
		}
	}
	return rec
}

// replayTable plays whole hosts, every second VM a batch pod.
func replayTable(sets []set) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b,
		"| trace | from | reclaimable, mean share of the node | shortfalls | evictions | the contract's violations "+
			"|\n|---|---|---|---|---|---|\n")
	for _, s := range sets {
		if !s.pods {
			continue
		}
		for _, from := range []reclaim.From{reclaim.FromSlack, reclaim.FromUsage} {
			cfg := reclaim.Default()
			cfg.From = from
			h := s.hosts[0]
			sum, err := replay.Run(record(h, func(i int) bool {
				return i%2 == 1
			}), replay.Options{Capacity: h.limit(), Config: cfg}, func(replay.Line) error { return nil })
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&b, "| %s | %s | %.1f %% | %d of %d (%.2f %%) | %d | %.2f %% |\n", s.name, from,
				100*sum.MeanReclaimable/h.limit(),
				sum.Shortfalls, sum.Intervals-1, 100*sum.ShortfallRatio, sum.Evicted, 100*sum.ViolationRatio)
		}
	}
	return b.String(), nil
}

// productionTable plays whole hosts of which all VMs are production, as `reclaim replay --from
// usage` does: from the first row on, with the first day in which too little is known.
func productionTable(sets []set) (string, error) {
	cfg := reclaim.Default()
	cfg.From = reclaim.FromUsage
	var b strings.Builder
	fmt.Fprintf(&b, "| trace | VMs | reclaimable, mean share of the node | of the oracle's | violated |\n"+
		"|---|---|---|---|---|\n")
	for _, s := range sets {
		groups := map[string][]host{"all": s.hosts}
		if h := s.hosts[0]; s.pods {
			groups["every second VM"], groups["the other VMs"] = halves(h)
		}
		for _, name := range slices.Sorted(maps.Keys(groups)) {
			row, err := productionRow(groups[name], cfg)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&b, "| %s | %s | %s |\n", s.name, name, row)
		}
	}
	return b.String(), nil
}

// halves are two machines with every second VM each.
func halves(h host) (even, odd []host) {
	var parts [2]host
	for i, v := range h.vms {
		parts[i%2].vms = append(parts[i%2].vms, v)
	}
	return parts[:1], parts[1:]
}

func productionRow(hosts []host, cfg reclaim.Config) (string, error) {
	lent, oracle, limit, violations, intervals := 0.0, 0.0, 0.0, 0, 0
	for _, h := range hosts {
		sum, err := replay.Run(record(h, func(int) bool { return false }),
			replay.Options{Capacity: h.limit(), Config: cfg}, func(replay.Line) error { return nil })
		if err != nil {
			return "", err
		}
		n := float64(sum.Intervals)
		lent += sum.MeanReclaimable * n
		limit += h.limit() * n
		violations, intervals = violations+sum.Violations, intervals+sum.Intervals-1
		for _, most := range future(h.total(), hour) {
			oracle += h.limit() - min(most, h.limit())
		}
	}
	return fmt.Sprintf("%.1f %% | %.3f | %.2f %%", 100*lent/limit, lent/oracle,
		100*float64(violations)/float64(intervals)), nil
}
