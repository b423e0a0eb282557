package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quietcore/quietcore/internal/incidents"
	"github.com/quietcore/quietcore/internal/printable"
)

func writeListing(w io.Writer, columns int, l *incidents.Listing) {
	if len(l.Incidents) == 0 {
		if l.Kept == 0 {
			fmt.Fprintln(w, "No incidents are kept.")
		} else {
			fmt.Fprintf(w, "None matches; %d are kept, the oldest of %s.\n", l.Kept,
				l.Oldest.UTC().Format(time.DateTime))
		}
		return
	}
	t := textTable{head: []string{"ID", "VICTIM", "CPI", "NORMAL", "RESOURCE", "VERDICT", "ANTAGONIST", "CAPPED",
		"RESULT"}, flexible: []int{1, 6}}
	for _, i := range l.Incidents {
		var capped float64
		who := ""
		for n, a := range i.Antagonists {
			capped += a.CappedSeconds
			if n == 0 {
				who = a.Namespace + "/" + a.Pod
			}
		}
		if n := len(i.Antagonists); n > 1 {
			who += fmt.Sprintf(" +%d", n-1)
		}
		result := i.Result
		if i.Active {
			result = "in force"
		}
		t.row(i.ID, i.Victim.Namespace+"/"+i.Victim.Pod, twoDigits(i.CPI), twoDigits(i.Mean),
			orDash(i.Resource), i.Verdict, who, lasted(capped), result)
	}
	t.write(w, columns)
	if l.More {
		fmt.Fprintln(w, "There are more; --limit shows them.")
	}
	warnDamaged(w, l.Damaged)
}

func warnDamaged(w io.Writer, n int) {
	if n > 0 {
		fmt.Fprintf(w, "%d incidents are damaged and left out.\n", n)
	}
}

func twoDigits(v float64) string {
	if v == 0 {
		return "-"
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

func lasted(s float64) string {
	if s == 0 {
		return "-"
	}
	return (time.Duration(s * float64(time.Second))).Round(time.Second).String()
}

func writeIncident(w io.Writer, columns int, i *incidents.Incident) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-11s %s\n", name, printable.Text(fmt.Sprintf(format, args...)))
	}
	line("incident", "%s", i.ID)
	line("at", "%s", i.At.UTC().Format(time.RFC3339))
	if i.Node != "" {
		line("node", "%s", i.Node)
	}
	line("victim", "%s (%s, class %s, CPUs %s%s)", i.Victim.Name(), i.Victim.JobName(), orDash(i.Victim.Class),
		orDash(i.Victim.CPUs), prefixed(", claim ", i.Victim.Claims))
	line("CPI", "%s, threshold %s", twoDigits(i.CPI), twoDigits(i.Threshold))
	if i.Spec.Mean > 0 {
		band := ""
		if i.Spec.Band >= 0 {
			band = fmt.Sprintf(", usage band %d", i.Spec.Band)
		}
		line("normal", "%s +- %s, from %.0f samples of %d tasks; platform %s%s", twoDigits(i.Spec.Mean),
			twoDigits(i.Spec.StdDev), i.Spec.Samples, i.Spec.Tasks, orDash(i.Spec.Platform), band)
	}
	if e := i.Evidence; e != nil {
		line("resource", "%s", e.Lacked())
	}
	if i.DisturbedSeconds > 0 {
		line("disturbed", "%s at least", lasted(i.DisturbedSeconds))
	}
	line("verdict", "%s", i.Verdict)
	if i.Why != "" {
		line("why", "%s", i.Why)
	}
	for _, a := range i.Actions {
		what := a.Kind
		if a.Kind == incidents.Cap {
			what = fmt.Sprintf("cap at %dm", a.Milli)
		} else if a.Off != "" {
			what = fmt.Sprintf("move off CPUs %s", a.Off)
		} else if a.Kind == incidents.Idle {
			what = "idle CPUs only"
		} else if a.Kind == incidents.Narrow {
			what = "least memory bandwidth"
		}
		end := "until " + a.Until.UTC().Format(time.TimeOnly)
		if !a.Ended.IsZero() {
			end = "ended " + a.Ended.UTC().Format(time.TimeOnly)
		}
		if a.EndedWhy != "" {
			end += ": " + a.EndedWhy
		}
		line("action", "%s of %s from %s, %s", what, a.Subject.Name(), a.From.UTC().Format(time.TimeOnly), end)
	}
	for _, x := range i.Experiments {
		line("experiment", "%s", experimentText(&x))
	}
	if o := i.Outcome; o.Result != "" {
		first, second := i.Arms()
		line("outcome", "%s: mean CPI %s %s, %s %s, %d samples", o.Result, twoDigits(o.Before), first,
			twoDigits(o.After), second, o.Samples)
	}
	writeBeside(w, columns, i.Evidence)
	if len(i.Suspects) == 0 {
		fmt.Fprintln(w, "\nNo other container ran.")
		return
	}
	fmt.Fprintln(w)
	t := textTable{head: []string{"SUSPECT", "CLASS", "SCORE", "CONTRAST", "CONFIDENCE", "USAGE", "SHARES", ""},
		flexible: []int{0}}
	for _, s := range i.Suspects {
		mark := ""
		if slices.ContainsFunc(i.Antagonists, s.Same) {
			mark = "antagonist"
		}
		mark = strings.TrimPrefix(mark+prefixed(", claim ", s.Claims), ", ")
		number := func(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }
		t.row(s.Name(), s.Class, number(s.Score), number(s.Contrast), number(s.Confidence), number(s.Usage),
			orDash(s.Shares), mark)
	}
	t.write(w, columns)
}

// prefixed is text with a prefix, or nothing.
func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

// writeBeside writes who ran beside the victim, and where.
func writeBeside(w io.Writer, columns int, e *incidents.Evidence) {
	if e == nil {
		return
	}
	t := textTable{head: []string{"RAN BESIDE IT", "ON ITS", "CPUS", "INSTRUCTIONS/S", "MISSES/S"}, flexible: []int{0}}
	for _, d := range []struct {
		where string
		who   []incidents.Neighbour
	}{{"SMT siblings", e.Siblings}, {"L3 domain", e.L3}, {"NUMA node", e.Node}} {
		for _, n := range d.who {
			t.row(n.Name, d.where, strconv.FormatFloat(n.CPUs, 'f', 2, 64), events(n.Instructions), events(n.Misses))
		}
	}
	if len(t.rows) > 0 {
		fmt.Fprintln(w)
		t.write(w, columns)
	}
}

func events(v float64) string {
	if v == 0 {
		return "-"
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// experimentText is the arms of an experiment, what it cost, and its coins, one a window.
func experimentText(x *incidents.Experiment) string {
	const most = 40
	var coins strings.Builder
	for _, c := range x.Coins[max(0, len(x.Coins)-most):] {
		if c.On {
			coins.WriteByte('#')
		} else {
			coins.WriteByte('.')
		}
	}
	result := cmp.Or(x.Result, "not over")
	if x.Witness != nil {
		result += " (" + x.Witness.Text() + ")"
	}
	return fmt.Sprintf("%s: %s, e-value %.3g; CPI %s in %d windows left alone, %s in %d throttled; charged %.1f "+
		"minutes; throttled #, left alone .: %s", x.Job, result, x.EValue, twoDigits(x.Alone.CPI), x.Alone.Windows,
		twoDigits(x.Under.CPI), x.Under.Windows, x.Minutes, orDash(coins.String()))
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func writeTop(w io.Writer, columns int, q incidents.TopQuery, top *incidents.Top) {
	what := "ANTAGONIST"
	if q.Antagonist != "" {
		what = "VICTIM"
	}
	if len(top.Ranks) > 0 {
		t := textTable{head: []string{what, "INCIDENTS", "CAPPED", "SCORE", "EXCESS", "HELPED", "LAST"},
			flexible: []int{0}}
		for _, r := range top.Ranks {
			t.row(r.Name, strconv.Itoa(r.Incidents), lasted(r.CappedSeconds), strconv.FormatFloat(r.Score, 'f', 2, 64),
				strconv.FormatFloat(r.Excess, 'f', 2, 64),
				strconv.Itoa(r.Helped), r.Last.UTC().Format(time.DateTime))
		}
		t.write(w, columns)
	}
	if top.More {
		fmt.Fprintln(w, "There are more; --limit shows them.")
	}
	fmt.Fprintf(w, "%d incidents, %d of them without an antagonist.\n", top.Incidents, top.Unexplained)
	warnDamaged(w, top.Damaged)
}
