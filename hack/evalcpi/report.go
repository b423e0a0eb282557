package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/quietcore/quietcore/hack/evalcpi/world"
)

// study is everything that was measured.
type study struct {
	options
	cells  []*cell
	google *googleResult
}

func (s *study) find(kind world.Kind, name string) *cell {
	for _, c := range s.cells {
		if c.kind == kind && c.detector == name {
			return c
		}
	}
	return nil
}

const columns = "| kind | | recall | precision | false caps, 1,000 vh | first true cap, min | relief | " +
	"innocents: probed, bitten, capped, min/vh | anomalies/h |\n|---|---|---|---|---|---|---|---|---|\n"

func (s *study) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d machines of each kind, seeds %d to %d; machine *i* is the same for every detector.\n\n",
		s.trials, s.seed, s.seed+uint64(s.trials)-1)
	byQueue := func(k world.Kind) bool { return world.QuietOf(k) == world.QueueQuiet }
	counted := func(k world.Kind) bool { return !byQueue(k) }
	if slices.ContainsFunc(s.kinds, counted) {
		s.table(&b, counted)
	}
	if slices.ContainsFunc(s.kinds, byQueue) {
		b.WriteString("\nMachines without a PMU, on which waiting in the run queue judges:\n\n")
		s.table(&b, byQueue)
	}
	if g := s.google; g != nil {
		fmt.Fprintf(&b,
			"\nReal CPIs: %d rows of %d jobs of Google's ClusterData2019. The means and deviations learned sample "+
				"by sample differ from two-pass ones by at most %.1e and %.1e, relatively. Above the threshold lie "+
				"%.2f %% of the samples in classic, %.2f %% in contrast without usage bands, %.2f %% with them (each "+
				"job's tenth percentile of usage being the least).\n", g.samples, g.jobs, g.meanOff, g.sdOff,
			g.classic.percent(), g.robust.percent(), g.banded.percent())
	}
	return b.String()
}

// table of some kinds, and of all of them together.
func (s *study) table(b *strings.Builder, is func(world.Kind) bool) {
	b.WriteString(columns)
	for _, kind := range s.kinds {
		for _, d := range s.detectors {
			if c := s.find(kind, d.name); c != nil && is(kind) {
				b.WriteString(c.row())
			}
		}
	}
	b.WriteString("\nAll kinds together:\n\n| | victim-hours | false caps | per 1,000 | recall, mean of the kinds | " +
		"relief, mean of the kinds | innocents: probed, bitten, capped, min/vh |\n|---|---|---|---|---|---|---|\n")
	for _, d := range s.detectors {
		b.WriteString(s.total(d.name, is))
	}
}

// row of the table.
func (c *cell) row() string {
	r := &c.sum
	recall, precision, relief, after := "–", "–", "–", "–"
	if r.guilty > 0 {
		low, high := interval(r.found, r.guilty)
		recall = fmt.Sprintf("%.2f (%.2f–%.2f)", r.recall(), low, high)
		relief = fmt.Sprintf("%.2f", r.relief())
		after = "never in half"
		if d, ok := r.median(); ok {
			after = fmt.Sprintf("%.0f", d.Minutes())
		}
	}
	if n := r.right + r.wrong; n > 0 {
		low, high := interval(r.right, n)
		precision = fmt.Sprintf("%.2f (%.2f–%.2f)", r.precision(), low, high)
	}
	low, high := poisson(r.wrong)
	return fmt.Sprintf("| %s | %s | %s | %s | %.1f (%.1f–%.1f) | %s | %s | %.1f, %.1f, %.1f | %.1f |\n", c.kind,
		c.detector, recall, precision, r.per1000(), 1000*low/r.hours, 1000*high/r.hours, after, relief,
		r.probed/r.hours, r.bitten/r.hours, r.capped/r.hours, float64(r.anomalies)/r.hours)
}

// total of a detector over some kinds.
func (s *study) total(name string, is func(world.Kind) bool) string {
	var sum result
	var recall, relief float64
	kinds := 0
	for _, c := range s.cells {
		if c.detector != name || !is(c.kind) {
			continue
		}
		sum.add(&c.sum)
		if c.sum.guilty > 0 {
			recall, relief, kinds = recall+c.sum.recall(), relief+c.sum.relief(), kinds+1
		}
	}
	low, high := poisson(sum.wrong)
	n := float64(max(kinds, 1))
	return fmt.Sprintf("| %s | %.0f | %d | %.2f (%.2f–%.2f) | %.2f | %.2f | %.2f, %.2f, %.2f |\n", name, sum.hours,
		sum.wrong, sum.per1000(), 1000*low/sum.hours, 1000*high/sum.hours, recall/n, relief/n, sum.probed/sum.hours,
		sum.bitten/sum.hours, sum.capped/sum.hours)
}

const (
	begin = "<!-- written by hack/evalcpi -->\n"
	end   = "<!-- end -->\n"
)

// write replaces what lies between the marks of detector.md.
func (s *study) write(docs string) error {
	name := filepath.Join(docs, "detector.md")
	page, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	head, rest, ok := strings.Cut(string(page), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return fmt.Errorf("%s: the marks %q and %q are missing", name, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return os.WriteFile(name, []byte(head+begin+s.markdown()+end+tail), 0o644)
}
