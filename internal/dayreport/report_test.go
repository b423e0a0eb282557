package dayreport

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quietcore/quietcore/internal/incidents"
)

func incident(victim, suspect string, minutes float64, antagonists ...string) incidents.Summary {
	who := func(job string) incidents.Subject {
		return incidents.Subject{Namespace: "shop", Pod: job + "-x", Container: "main", Job: "Deployment/" + job}
	}
	s := incidents.Summary{At: noon, Victim: who(victim), DisturbedSeconds: 60 * minutes}
	if suspect != "" {
		s.Suspect = "shop/Deployment/" + suspect
	}
	for _, a := range antagonists {
		s.Antagonists = append(s.Antagonists, incidents.SummaryAntagonist{Subject: who(a), CappedSeconds: 300})
	}
	return s
}

func ptr(v float64) *float64 { return &v }

// aDay is a machine of 16 CPUs in mode observe, of which db would own 4.
func aDay() *Day {
	d := NewDay()
	db, web, batch := pod("LSE", "db"), pod("LS", "web"), pod("BE", "batch")
	l := Look{Online: 16, Shared: 12, Open: 12, Known: true, Outside: 0.5, Lendable: ptr(3), Pods: []PodLook{
		{Pod: db, Owns: 4, Apart: true, Requests: 4, Used: 1}, {Pod: web, Requests: 6, Used: 2}, {Pod: batch, Used: 4}}}
	looks(d, 0, 60, l)
	l.Pods[2].Used = 11
	l.Refused = []Refused{{Pod: pod("LSR", "many"), Code: "InsufficientCPUs", Message: "16 CPUs of its own do not fit"}}
	looks(d, 61, 120, l)
	for m := range 120 {
		d.Share(at(m+1), time.Minute, false, []Pair{{Owner: db, Other: batch, CPUs: 0.4, Parts: true},
			{Owner: db, Other: web, CPUs: 0.1, Parts: true}, {Owner: db, Other: pod("LS", "dns"), CPUs: 0.01}})
	}
	return d
}

func asked() Asked {
	return Asked{Node: "node-a", Mode: "observe", Since: at(0), Until: at(120), Listed: true, Lends: true, Counts: true,
		Incidents: []incidents.Summary{incident("web", "batch", 12), incident("web", "sort", 3),
			incident("api", "batch", 5, "batch", "sort")}}
}

// The report of a day, by hand.
func TestReportOfADay(t *testing.T) {
	got := Of(aDay().Facts(), asked())
	want := &Report{
		Node: "node-a", Mode: "observe", Since: at(0), Until: at(120), LookedMinutes: 120,
		CPUs: CPUs{Online: 16, Owned: 4, Requested: ptr(10), Production: ptr(3), Batch: ptr(7.5), Outside: ptr(0.5),
			Idle: ptr(7), Lendable: ptr(3)},
		Shared: []Sharing{{Pod: "shop/db", With: "shop/batch", Minutes: 120, CPUs: 0.4, PartedMinutes: 120},
			{Pod: "shop/db", With: "shop/web", Minutes: 120, CPUs: 0.1, PartedMinutes: 120}},
		Disturbed: []Disturbed{
			{Job: "shop/Deployment/web", Incidents: 2, Minutes: 15, By: []Blamed{
				{Job: "shop/Deployment/batch", Incidents: 1, Minutes: 12},
				{Job: "shop/Deployment/sort", Incidents: 1, Minutes: 3}}},
			{Job: "shop/Deployment/api", Incidents: 1, Minutes: 5, By: []Blamed{
				{Job: "shop/Deployment/batch", Incidents: 1, Verdicts: 1, Minutes: 5, Capped: 5},
				{Job: "shop/Deployment/sort", Incidents: 1, Verdicts: 1, Minutes: 5, Capped: 5}}},
		},
		Idle: []Idle{{Pod: "shop/web", Class: "LS", Allocated: 6, Used: 2, Hours: 8},
			{Pod: "shop/db", Class: "LSE", Owned: 4, Allocated: 4, Used: 1, Hours: 6}},
		Costs: []Cost{
			{Who: "shop/many", Kind: CostRefused, Minutes: 60,
				Why: "would be refused as InsufficientCPUs: 16 CPUs of its own do not fit"},
			{Who: "best effort", Kind: CostBatch, Minutes: 60, CPUMinutes: 90,
				Why: "it used more CPUs than others would have left to it"},
			{Who: "shop/Deployment/batch", Kind: CostCapped, Minutes: 5, Why: "capped, for 1 incidents"},
			{Who: "shop/Deployment/sort", Kind: CostCapped, Minutes: 5, Why: "capped, for 1 incidents"},
		},
	}
	near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-9 })
	if diff := cmp.Diff(want, got, near); diff != "" {
		t.Errorf("by hand (-), by the program (+):\n%s", diff)
	}
	line := "in 2h0m: 3 incidents, 20 minutes disturbed; 1 owners shared cores that enforcing keeps for them; " +
		"7.0 allocated CPUs idle, 3.0 to lend; 1 pods refused"
	if got.Line() != line {
		t.Errorf("the line is %q, want %q", got.Line(), line)
	}
}

// Parts of hours that began before the time are left out, and where nothing is left it says so.
func TestPartsOfHours(t *testing.T) {
	facts := aDay().Facts()
	for _, c := range []struct {
		since, until int
		want         float64
	}{{0, 120, 120}, {-600, 120, 120}, {30, 120, 61}, {60, 120, 61}, {61, 120, 1}, {200, 300, 1}} {
		r := Of(facts, Asked{Since: at(c.since), Until: at(c.until), Counts: true, Listed: true, Lends: true})
		if r.LookedMinutes != c.want {
			t.Errorf("from %d: %v minutes, want %v; of %d parts", c.since, r.LookedMinutes, c.want, len(facts))
		}
	}
}

// What is not known is said, and is not a zero.
func TestWhatIsNotKnown(t *testing.T) {
	blind := NewDay()
	looks(blind, 0, 60, Look{Online: 8})
	r := Of(blind.Facts(), Asked{Since: at(-60), Until: at(60)})
	want := []string{"the daemon has seen 1h0m of the 2h0m asked for",
		"what pods use was measured for less than a minute",
		"who shares cores is not counted: cpi.mode is off",
		"no incidents are kept; with cpi.mode observe or enforce they are",
		"what could be lent is not estimated; with reclaim.mode observe it is"}
	if diff := cmp.Diff(want, r.Missing); diff != "" {
		t.Error(diff)
	}
	if c := r.CPUs; c.Idle != nil || c.Lendable != nil || c.Production != nil || c.Online != 8 {
		t.Errorf("%+v", c)
	}
	a := asked()
	a.Uncounted, a.Incidents[0].DisturbedSeconds = "no eBPF", 0
	r = Of(blind.Facts(), a)
	for _, want := range []string{"who shares cores was counted for less than a minute: no eBPF",
		"1 incidents are of an earlier version, and say not for how long"} {
		if !strings.Contains(strings.Join(r.Missing, "\n"), want) {
			t.Errorf("%q is not among %q", want, r.Missing)
		}
	}
	if r = Of(nil, Asked{Since: at(0), Until: at(60)}); r.LookedMinutes != 0 || r.CPUs.Online != 0 {
		t.Errorf("of nothing: %+v", r)
	}
}

// Where it was enforced nothing only would be so, and what does not fit is not charged.
func TestEnforced(t *testing.T) {
	d := NewDay()
	looks(d, 0, 60, Look{Enforced: true, Online: 8, Shared: 2, Open: 2, Known: true,
		Pods:    []PodLook{{Pod: pod("LS", "web"), Used: 3}},
		Refused: []Refused{{Pod: pod("LSR", "many"), Code: "InsufficientCPUs", Message: "none"}}})
	r := Of(d.Facts(), Asked{Mode: "enforce", Since: at(0), Until: at(60), Counts: true, Listed: true, Lends: true})
	if len(r.Costs) != 1 || !strings.HasPrefix(r.Costs[0].Why, "is refused as ") || r.EnforcedMinutes != 60 {
		t.Errorf("%+v", r.Costs)
	}
	var text bytes.Buffer
	if err := Write(&text, r); err != nil || !strings.Contains(text.String(), "ENFORCING COSTS ") ||
		strings.Contains(text.String(), "would") || strings.Contains(text.String(), "WOULD") {
		t.Errorf("%v\n%s", err, &text)
	}
}

// Suspects without a verdict would be tested, those with one capped.
func TestWhoWouldPay(t *testing.T) {
	a := asked()
	a.Incidents = []incidents.Summary{incident("web", "batch", 12), incident("web", "", 3),
		incident("api", "sort", 5, "sort")}
	a.Incidents[2].Antagonists[0].CappedSeconds = 0
	var got []string
	for _, c := range Of(nil, a).Costs {
		got = append(got, c.Kind+" "+c.Who+" "+whole(c.Minutes))
	}
	want := []string{"capped shop/Deployment/sort 5", "suspected shop/Deployment/batch 12"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// What people read. Names of tenants do not move the cursor.
func TestText(t *testing.T) {
	want, err := os.ReadFile(filepath.Join("testdata", "report.txt"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(want)
	a := asked()
	a.Limit = 1
	r := Of(aDay().Facts(), a)
	var got bytes.Buffer
	if err := Write(&got, r); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(text, got.String()); diff != "" {
		t.Errorf("%s\n%s", diff, &got)
	}
	r.Shared[0].With, r.Costs[0].Why = "a\x1b[2J\tb", "\n"
	got.Reset()
	if err := Write(&got, r); err != nil || strings.ContainsAny(got.String(), "\x1b") ||
		strings.Count(got.String(), "\n") != strings.Count(text, "\n") {
		t.Errorf("%q", &got)
	}
	got.Reset()
	if err := Write(&got, Of(nil, Asked{Since: at(0), Until: at(60)})); err != nil ||
		!strings.Contains(got.String(), "No pod that asks for CPUs of its own was seen to share cores.") ||
		!strings.Contains(got.String(), "nobody anything that was seen") {
		t.Errorf("%s", &got)
	}
}

// Two nodes add up: a job is on both.
func TestJoin(t *testing.T) {
	all := &Report{}
	for range 2 {
		all.Join(Of(aDay().Facts(), asked()))
	}
	if d := all.Disturbed[0]; d.Job != "shop/Deployment/web" || d.Incidents != 4 || d.Minutes != 30 ||
		d.By[0] != (Blamed{Job: "shop/Deployment/batch", Incidents: 2, Minutes: 24}) {
		t.Errorf("%+v", d)
	}
	if got := all.Totals(); got.Incidents != 6 || got.Minutes != 40 || got.Refused != 2 {
		t.Errorf("%+v", got)
	}
}
