package plot

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/quietcore/quietcore/internal/incidents"
)

const (
	stripTop    = cpiTop + cpiHeight + 3
	stripHeight = 7
	stripPitch  = 12 // their labels are as high
	maxStrips   = 2  // experiments that are drawn: between the plots there is no room for more
)

// coins draws, between the plots, the windows of each experiment: full where the suspect was
// throttled, empty where it was left alone.
func (d *drawing) coins() {
	for n, x := range strips(d.i) {
		y := stripTop + n*stripPitch
		for _, c := range x.Coins {
			from, to := c.Offset.Seconds(), (c.Offset + c.Length).Seconds()
			if to <= d.x.low || from >= d.x.high {
				continue
			}
			class, what := "coin", "left alone"
			if c.On {
				class, what = "coin on", "throttled"
			}
			d.printf(`<rect class="%s" x="%.1f" y="%d" width="%.1f" height="%d"><title>%s</title></rect>`, class,
				d.x.clamped(from), y, max(d.x.clamped(to)-d.x.clamped(from), 1), stripHeight,
				text(fmt.Sprintf("%s: %s, probability of throttling %s", x.Job, what, num(c.P)), 240))
		}
		d.printf(`<text class="spanlabel" x="%d" y="%d"><title>%s</title>%s</text>`+"\n", left+plotWidth+11,
			y+stripHeight-1, text(x.Job, 200),
			text(fmt.Sprintf("coins: %s, e-value %s", tail(x.Job), num(x.EValue)), 40))
	}
}

// tail is a job without its namespace and kind: what tells those on one picture apart.
func tail(job string) string {
	parts := strings.Split(job, "/")
	if len(parts) > 2 {
		parts = parts[2:]
	}
	return clean(strings.Join(parts, "/"), 20)
}

// strips are the experiments that are drawn: those with most evidence.
func strips(i *incidents.Incident) []incidents.Experiment {
	list := slices.DeleteFunc(slices.Clone(i.Experiments), func(x incidents.Experiment) bool {
		return len(x.Coins) == 0
	})
	slices.SortStableFunc(list, func(a, b incidents.Experiment) int { return cmp.Compare(b.EValue, a.EValue) })
	return list[:min(len(list), maxStrips)]
}

// experiments is their table.
func experiments(b *strings.Builder, i *incidents.Incident) {
	if len(i.Experiments) == 0 {
		return
	}
	b.WriteString("<h2>Experiments</h2>\n<p>A suspect is throttled in windows that a coin chooses. The arms are all " +
		"windows of a test in which the suspect was busy, those before the incident included.</p>\n" +
		`<div class="scroll"><table><tr><th>Suspect</th><th>Result</th><th>E-value</th><th>CPI, left alone</th>` +
		`<th>windows</th><th>CPI, throttled</th><th>windows</th><th>charged, minutes</th><th>coins here</th>` +
		"</tr>\n")
	for _, x := range i.Experiments {
		on := 0
		for _, c := range x.Coins {
			if c.On {
				on++
			}
		}
		result := cmp.Or(x.Result, "not over")
		if x.Witness != nil {
			result += ", " + x.Witness.Text()
		}
		fmt.Fprintf(b, `<tr><td>%s</td><td>%s</td><td class="n">%s</td><td class="n">%s</td><td class="n">%d</td>`+
			`<td class="n">%s</td><td class="n">%d</td><td class="n">%s</td><td>%d of %d throttled</td></tr>`+"\n",
			text(x.Job, 300), text(result, 300), num(x.EValue), num(x.Alone.CPI), x.Alone.Windows,
			num(x.Under.CPI), x.Under.Windows, num(x.Minutes), on, len(x.Coins))
	}
	b.WriteString("</table></div>\n")
}
