package plot

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/quietcore/quietcore/internal/incidents"
)

const pageStyle = `body{font:14px/1.45 "DejaVu Sans","Segoe UI",Helvetica,Arial,sans-serif;` +
	`margin:24px;max-width:1000px;color:#1c2333;background:#fff}
svg{max-width:100%;height:auto}
h2{font-size:16px;margin:24px 0 6px}
.scroll{overflow-x:auto}
table{border-collapse:collapse}
th,td{padding:4px 10px;border-bottom:1px solid #d8dde6;text-align:left;overflow-wrap:anywhere}
th{white-space:nowrap}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.blamed{font-weight:700}
@media (prefers-color-scheme:dark){body{color:#e8ebf1;background:#14171d}th,td{border-color:#333a47}}
`

// HTML writes a self-contained page; its policy forbids loading anything.
func HTML(w io.Writer, i *incidents.Incident) error {
	var b strings.Builder
	fmt.Fprintf(&b, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>%s</title>\n",
		text("Incident "+i.ID, 100))
	b.WriteString(
		`<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">` + "\n")
	b.WriteString(
		`<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">` + "\n")
	fmt.Fprintf(&b, "<style>%s</style></head><body>\n", pageStyle)
	if err := SVG(&b, i); err != nil {
		return err
	}
	if i.Why != "" {
		fmt.Fprintf(&b, "<h2>Why</h2>\n<p>%s</p>\n", text(i.Why, 1000))
	}
	suspects(&b, i)
	experiments(&b, i)
	actions(&b, i)
	spec(&b, i)
	b.WriteString("</body></html>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func suspects(b *strings.Builder, i *incidents.Incident) {
	b.WriteString("<h2>Suspects</h2>\n")
	if len(i.Suspects) == 0 {
		b.WriteString("<p>No other container ran.</p>\n")
		return
	}
	b.WriteString(
		`<div class="scroll"><table><tr><th>Container</th><th>Job</th><th>Class</th><th>Score</th><th>Contrast</th>` +
			`<th>Confidence</th><th>Usage, CPUs</th><th>Shares</th><th></th></tr>` + "\n")
	for _, s := range i.Suspects {
		class, word := "", ""
		if slices.ContainsFunc(i.Antagonists, s.Same) {
			class, word = ` class="blamed"`, "antagonist"
		}
		if s.Claims != "" {
			word = strings.TrimPrefix(word+", claim "+text(s.Claims, 300), ", ")
		}
		fmt.Fprintf(b, `<tr%s><td>%s</td><td>%s</td><td>%s</td>`, class, text(s.Name(), 300), text(s.Job, 300),
			text(s.Class, 20))
		for _, v := range []float64{s.Score, s.Contrast, s.Confidence, s.Usage} {
			fmt.Fprintf(b, `<td class="n">%.2f</td>`, v)
		}
		fmt.Fprintf(b, "<td>%s</td><td>%s</td></tr>\n", text(s.Shares, 20), word)
	}
	b.WriteString("</table></div>\n")
}

func actions(b *strings.Builder, i *incidents.Incident) {
	if len(i.Actions) == 0 {
		return
	}
	b.WriteString("<h2>What was done</h2>\n" +
		`<div class="scroll"><table><tr><th>From (UTC)</th><th>Until</th><th>What</th><th>To whom</th><th>Ended</th>` +
		`</tr>` + "\n")
	for _, a := range i.Actions {
		what := a.Kind
		if a.Kind == incidents.Cap {
			what = fmt.Sprintf("cap at %s CPU", num(float64(a.Milli)/1000))
		} else if a.Off != "" {
			what = "move off CPUs " + a.Off
		} else if a.Kind == incidents.Idle {
			what = "idle CPUs only"
		} else if a.Kind == incidents.Narrow {
			what = "least memory bandwidth"
		}
		ended := "at its deadline"
		if !a.Ended.IsZero() {
			ended = clock(a.Ended)
			if a.EndedWhy != "" {
				ended += ": " + a.EndedWhy
			}
		}
		fmt.Fprintf(b, `<tr><td class="n">%s</td><td class="n">%s</td><td>%s</td><td>%s</td><td>%s</td></tr>`+"\n",
			clock(a.From), clock(a.Until), text(what, 40), text(a.Subject.Name(), 300), text(ended, 300))
	}
	b.WriteString("</table></div>\n")
}

func clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("15:04:05")
}

func spec(b *strings.Builder, i *incidents.Incident) {
	b.WriteString("<h2>What is normal</h2>\n")
	if i.Spec.Mean <= 0 {
		b.WriteString("<p>Not known.</p>\n")
		return
	}
	platform := ""
	if i.Spec.Platform != "" {
		platform = " on " + i.Spec.Platform
	}
	if i.Spec.Band >= 0 {
		platform += fmt.Sprintf(", usage band %d", i.Spec.Band)
	}
	fmt.Fprintf(b, "<p>%s</p>\n", text(fmt.Sprintf(
		"Job %s%s: CPI %s, standard deviation %s, from %.0f samples of %d tasks; threshold %s.",
		i.Victim.JobName(), platform, num(i.Spec.Mean), num(i.Spec.StdDev), i.Spec.Samples, i.Spec.Tasks,
		num(i.Threshold)), 1000))
}
