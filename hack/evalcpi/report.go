package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/quietcore/quietcore/cpi/detect"
)

// study is everything that was measured.
type study struct {
	trials int
	seed   uint64
	cells  []*cell // with an antagonist
	calm   []*cell // without
	google *googleResult
}

func (s *study) find(mode detect.Mode, effect float64, suspects int) *cell {
	for _, c := range s.cells {
		if c.mode == mode && c.effect == effect && c.suspects == suspects {
			return c
		}
	}
	return nil
}

// target is what has to be reached at an effect of 1.6 and 20 suspects.
func (s *study) target() error {
	c := s.find(detect.Default, 1.6, 20)
	calm := s.calm[len(s.calm)-1]
	if c.recall() < 0.9 || c.precision() < 0.95 || c.firstRight() < 0.95 || c.rank() < 0.95 || calm.falseCaps() >= 0.5 {
		return fmt.Errorf(
			"at 1.6 and 20 suspects: recall %.3f (0.9 is to be reached), precision %.3f and %.3f of first caps "+
				"(0.95), rank percentile %.1f (95), %.2f false caps in 1,000 victim-hours (under 0.5)",
			c.recall(), c.precision(), c.firstRight(), 100*c.rank(), calm.falseCaps())
	}
	return s.beaten()
}

// lead is by how much default mode is better than classic mode in recall, precision and
// rank percentile wherever it is clearly so.
const lead = 0.1

// beaten says of which cell classic mode is not clearly beaten on the same machines.
func (s *study) beaten() error {
	for _, effect := range effects {
		for _, n := range crowds {
			classic, better := s.find(detect.Classic, effect, n), s.find(detect.Default, effect, n)
			// A detector that never caps is never wrong, which is not precision.
			precise := classic.right+classic.wrong == 0 || better.precision() >= classic.precision()+lead
			if better.recall() < classic.recall()+lead || !precise || better.rank() < classic.rank()+lead {
				return fmt.Errorf(
					"at %.1f and %d suspects classic mode is not clearly beaten (by %.1f each): recall %.3f against "+
						"%.3f, precision %.3f against %.3f, rank percentile %.1f against %.1f",
					effect, n, lead, better.recall(), classic.recall(), better.precision(), classic.precision(),
					100*better.rank(), 100*classic.rank())
			}
		}
	}
	return nil
}

func (s *study) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b,
		"%d trials a cell, seed %d; trial *i* is the same machine for both detectors. *Precision* is the share of "+
			"caps that hit the antagonist, *first* the same of each\ntrial's first cap, *recall* the share of "+
			"trials in which it is capped within the 60 to 80 minutes that it is there, *after* the median time "+
			"from its arrival to that cap,\n*rank* its mean percentile among the suspects in the analyses that it "+
			"causes (50 is chance).\n\n", s.trials, s.seed)
	b.WriteString(
		"| effect | suspects | | precision | first | recall | after | rank |\n|---|---|---|---|---|---|---|---|\n")
	for _, effect := range effects {
		for _, n := range crowds {
			for _, mode := range modes {
				c := s.find(mode, effect, n)
				fmt.Fprintf(&b, "| ×%.1f | %d | %s | %s | %s | %.3f | %s | %.1f |\n", effect, n, mode,
					share(c.precision(), c.right+c.wrong), share(c.firstRight(), c.firsts), c.recall(),
					minutes(c.median(), c.found), 100*c.rank())
			}
		}
	}
	b.WriteString(
		"\nWithout any antagonist, 20 neighbours, ten hours a trial:\n\n| | victim-hours | samples flagged | " +
			"analyses an hour | false caps | per 1,000 victim-hours |\n|---|---|---|---|---|---|\n")
	for _, c := range s.calm {
		fmt.Fprintf(&b, "| %s | %.0f | %.2f %% | %.2f | %d | %.2f |\n", c.mode, c.hours, 100*c.outliers,
			float64(c.analysed)/c.hours, c.wrong, c.falseCaps())
	}
	if g := s.google; g != nil {
		fmt.Fprintf(&b,
			"\nReal CPIs: %d rows of %d jobs of Google's ClusterData2019. The means and deviations learned sample "+
				"by sample differ from two-pass ones by at most %.1e and %.1e,\nrelatively. Above the threshold lie "+
				"%.2f %% of the samples in classic mode, %.2f %% in default mode without usage bands, %.2f %% with "+
				"them (each job's tenth percentile of\nusage being the least).\n", g.samples, g.jobs, g.meanOff,
			g.sdOff, g.classic.percent(), g.robust.percent(), g.banded.percent())
	}
	return b.String()
}

func share(v float64, of int) string {
	if of == 0 {
		return "no cap"
	}
	return fmt.Sprintf("%.3f", v)
}

func minutes(d time.Duration, of int) string {
	if of == 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f min", d.Minutes())
}

const (
	begin = "<!-- written by hack/evalcpi -->\n"
	end   = "<!-- end -->\n"
)

// write replaces what lies between the marks of docs/cpi.md, and the plot.
func (s *study) write(docs string) error {
	name := filepath.Join(docs, "cpi.md")
	page, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	head, rest, ok := bytes.Cut(page, []byte(begin))
	_, tail, ok2 := bytes.Cut(rest, []byte(end))
	if !ok || !ok2 {
		return fmt.Errorf("%s: the marks %q and %q are missing", name, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	page = []byte(string(head) + begin + s.markdown() + end + string(tail))
	if err := os.WriteFile(name, page, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(docs, "detection.svg"), s.plot(), 0o644)
}

// plot draws recall and precision over the number of suspects, a panel an effect.
func (s *study) plot() []byte {
	const (
		width, height   = 860, 560
		left, top       = 60, 56
		panelW, panelH  = 230, 190
		stepX, stepY    = 265, 240
		first, last     = 10.0, 60.0
		classic, better = "#b35806", "#2166ac"
	)
	var b bytes.Buffer
	fmt.Fprintf(&b,
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" `+
			`role="img" aria-label="Recall and precision of the classic and the default detector">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", width, height)
	for i, l := range []struct{ name, color string }{{"classic", classic}, {"default", better}} {
		fmt.Fprintf(&b,
			`<line x1="%d" y1="20" x2="%d" y2="20" stroke="%s" stroke-width="2"/><text x="%d" y="24">%s</text>`+"\n",
			left+110*i, left+24+110*i, l.color, left+30+110*i, l.name)
	}
	rows := []struct {
		name  string
		value func(*cell) (float64, bool)
	}{
		{"recall", func(c *cell) (float64, bool) { return c.recall(), true }},
		{"precision", func(c *cell) (float64, bool) { return c.precision(), c.right+c.wrong > 0 }},
	}
	for row, r := range rows {
		for col, effect := range effects {
			x0, y0 := float64(left+col*stepX), float64(top+row*stepY)
			fmt.Fprintf(&b, `<text x="%.0f" y="%.0f">%s, effect ×%.1f</text>`+"\n", x0, y0-8, r.name, effect)
			for tick := 0; tick <= 4; tick++ {
				y := y0 + panelH*(1-float64(tick)/4)
				fmt.Fprintf(&b,
					`<line x1="%.0f" y1="%.1f" x2="%.0f" y2="%.1f" stroke="#ddd"/><text x="%.0f" y="%.1f" `+
						`text-anchor="end" fill="#555">%.2g</text>`+"\n",
					x0, y, x0+panelW, y, x0-6, y+4, float64(tick)/4)
			}
			at := func(n int) float64 { return x0 + panelW*(float64(n)-first)/(last-first) }
			for _, n := range crowds {
				fmt.Fprintf(&b, `<text x="%.1f" y="%.0f" text-anchor="middle" fill="#555">%d</text>`+"\n", at(n), y0+
					panelH+16, n)
			}
			for _, mode := range modes {
				color := classic
				if mode == detect.Default {
					color = better
				}
				var points []string
				for _, n := range crowds {
					if v, ok := r.value(s.find(mode, effect, n)); ok {
						x, y := at(n), y0+panelH*(1-v)
						points = append(points, fmt.Sprintf("%.1f,%.1f", x, y))
						fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", x, y, color)
					}
				}
				fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n",
					strings.Join(points, " "), color)
			}
		}
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle" fill="#555">suspects</text>`+"\n</svg>\n", width/2,
		height-14)
	return b.Bytes()
}
